"""The file by which the driver tells readers in other processes what their next batch is to be."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from elastream.engines.spark.channels.control import Control, read_control, write_control


@pytest.mark.parametrize("control", [Control(), Control(parallelism=12, most_records=1_000_000)])
def test_what_is_written_is_read(tmp_path: Path, control: Control) -> None:
    write_control(tmp_path / "words.json", control)
    assert read_control(tmp_path / "words.json") == control


def test_the_newest_counts_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    for parallelism in (1, 7, 3):
        write_control(path, Control(parallelism=parallelism))
    assert read_control(path).parallelism == 3
    assert [found.name for found in tmp_path.iterdir()] == ["words.json"]


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    valid = {Control(parallelism=n, most_records=10**n) for n in (1, 9)}
    write_control(path, Control(parallelism=1, most_records=10))
    seen: set[Control] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(read_control(path))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        for control in valid:
            write_control(path, control)
    done.set()
    reader.join()
    assert seen
    assert seen <= valid
