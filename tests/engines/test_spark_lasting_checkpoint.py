"""What a kill leaves of the first batch of a checkpoint goes away; what other batches have left stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastream.engines.spark import lasting_checkpoint
from elastream.engines.spark.lasting_checkpoint import mend, sync_state

LEFT = ("offsets/.0.a7e1.tmp", "state/0/_metadata/metadata", "state/0/3/_metadata/schema")
OFFSETS = 'v1\n{"conf":{}}\n{"record":1,"commit":1}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def written(checkpoint: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)


def found(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())


def test_the_first_batch_was_not_begun_and_all_of_it_goes(tmp_path: Path) -> None:
    written(tmp_path, {"metadata": '{"id":"7"}', **dict.fromkeys(LEFT, "v1")})
    assert sorted(mend(tmp_path)) == sorted(LEFT)
    assert found(tmp_path) == ["metadata"], "the query keeps its id"
    assert not any((tmp_path / name).exists() for name in ("offsets", "state")), "empty folders count, too"


def test_offsets_of_the_first_batch_that_are_torn_take_its_state_with_them(tmp_path: Path) -> None:
    written(tmp_path, {"offsets/0": "", "state/0/0/1.changelog": "half"})
    assert sorted(mend(tmp_path)) == ["offsets/0", "state/0/0/1.changelog"]
    assert found(tmp_path) == []


@pytest.mark.parametrize("known", [{"offsets/0": OFFSETS}, {"commits/41": COMMIT}])
def test_nothing_goes_where_a_batch_is_known(tmp_path: Path, known: dict[str, str]) -> None:
    """Without its offsets a batch that is done has lost something that nobody may guess: Spark refuses it."""
    files = known | dict.fromkeys(LEFT, "v1")
    written(tmp_path, files)
    assert mend(tmp_path) == []
    assert found(tmp_path) == sorted(files)


def test_a_file_that_spark_takes_away_while_state_is_brought_to_the_disk_fails_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maintenance renames snapshots at any time: "No such file ... 110.zip.tmp.crc" failed two batches in five
    minutes."""
    written(tmp_path, {"state/0/9/110.changelog": "whole", "state/0/9/.110.zip.tmp.crc": "soon gone"})
    listed = os.scandir

    def taken_away_after(folder: Path) -> list[os.DirEntry[str]]:
        entries = list(listed(folder))
        for entry in entries:
            if entry.name.endswith(".crc"):
                Path(entry.path).unlink()
        return entries

    synced: list[Path] = []
    monkeypatch.setattr(os, "scandir", taken_away_after)
    monkeypatch.setattr(lasting_checkpoint, "is_syncing", lambda: True)
    monkeypatch.setattr(lasting_checkpoint, "sync_files", lambda files, **_: synced.extend(files))
    sync_state(tmp_path, since_ns=tmp_path.stat().st_mtime_ns)
    assert [path.name for path in synced] == ["110.changelog"]
