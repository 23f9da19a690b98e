"""A reader sees a file whole, whatever becomes of its writer."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from elastream.whole_files import write_json, write_whole


def test_what_was_written_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_json(path, {"counts": 2})
    write_json(path, {"counts": 3})
    assert json.loads(path.read_text()) == {"counts": 3}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    write_whole(path, b"before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
