"""The channel of files, as far as it does without Spark: what is appended is in it once, and nothing else."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.files_source import read_slice
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.channels.splits import Slice
from elastream.engines.spark.identity import identity_of
from elastream.errors import ElastreamError
from elastream.whole_files import write_json


@pytest.fixture
def channel(tmp_path: Path) -> FileChannel:
    channel = FileChannel(tmp_path / "channel")
    channel.create()
    return channel


def numbers(*found: int) -> pa.Table:
    return pa.table({"id": pa.array(found, pa.int64())})


def ids(channel: FileChannel) -> list[int]:
    return [number for table in channel.tables() for number in table["id"].to_pylist()]


def attempts(channel: FileChannel) -> list[str]:
    return sorted(path.name for path in (channel.log.folder / "segments").iterdir())


def test_what_is_appended_is_there_in_order(channel: FileChannel) -> None:
    channel.append(numbers(1, 2))
    channel.append(numbers(3))
    assert ids(channel) == [1, 2, 3]


def test_nothing_stays_of_an_empty_batch(channel: FileChannel) -> None:
    channel.append(numbers())
    assert channel.log.is_published(0)
    assert attempts(channel) == []


def test_a_late_task_of_an_attempt_that_was_given_up_adds_nothing(channel: FileChannel) -> None:
    given_up = channel._new_attempt(0)
    channel.append(numbers(1))
    given_up.mkdir()
    pq.write_table(numbers(1), given_up / "late.parquet")
    assert ids(channel) == [1]
    channel.create()
    assert len(attempts(channel)) == 1, "and is cleared away when the writer starts again"
    assert ids(channel) == [1]


def test_what_was_read_is_deleted_with_its_files(channel: FileChannel) -> None:
    channel.append(numbers(1, 2))
    channel.append(numbers(3))
    channel.log.acknowledge("reader", StreamPosition(record=2, commit=1))
    assert channel.forget(["reader"]) == 1
    assert len(attempts(channel)) == 1
    at = channel.log.acknowledged("reader")
    assert [commit.records for commit in channel.log.commits(at, channel.log.position(at))] == [1]


# --- what runs keep, one after the other ------------------------------------------------------------------------


class Killed(BaseException):
    pass


class Run:
    """As a sink sees it: batches from 0 in every new folder, each noted as done after it was kept."""

    def __init__(self, folder: Path, sink: Path) -> None:
        folder.mkdir()
        self.folder, self.sink = folder, sink

    @property
    def done(self) -> int:
        return len(list(self.folder.glob("done-*.json")))

    def go_on(self, upto: int) -> None:
        """From the batch that is not noted, which may be kept already."""
        sink = FileChannel(self.sink, writer=identity_of(self.folder))
        sink.create()
        for batch in range(self.done, upto):
            sink.append(self.batch(batch), batch=batch)
            write_json(self.folder / f"done-{batch}.json", {})

    def batch(self, number: int) -> pa.Table:
        """Of one record that no other run has; the second is an empty one."""
        return numbers() if number == 1 else numbers(1_000 * int(self.folder.name) + number)


NEVER = -1


class Disk:
    """All that is published gets there by a rename, so a kill at any moment is a kill at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._really, self._renames_left = os.replace, NEVER
        monkeypatch.setattr(os, "replace", self._rename)

    def kill_at(self, rename: int) -> None:
        self._renames_left = rename

    def _rename(self, *paths: Any) -> None:
        if self._renames_left == 0:
            self._renames_left = NEVER
            raise Killed
        self._renames_left -= 1
        self._really(*paths)


STORY = ((0, 3), (1, 3), (0, 4))
"""Which run goes on, and up to which batch: the first comes back after another."""
TOLD = [0, 2, 1000, 1002, 3]


def come_back(run: Run, upto: int, disk: Disk) -> None:
    """Only to be killed again, twice, while it takes up what it left."""
    for rename in (0, 1):
        disk.kill_at(rename)
        with suppress(Killed):
            run.go_on(upto)
    disk.kill_at(NEVER)
    run.go_on(upto)


def told(folder: Path, disk: Disk, kill_at: int, *, comes_back: bool) -> tuple[FileChannel, bool]:
    """The sink after the story, and whether somebody was killed; who does not come back at once does so later."""
    folder.mkdir()
    runs = [Run(folder / str(number), folder / "kept") for number in range(2)]
    killed = False
    disk.kill_at(kill_at)
    for number, upto in STORY:
        try:
            runs[number].go_on(upto)
        except Killed:
            killed = True
            if comes_back:
                come_back(runs[number], upto, disk)
    disk.kill_at(NEVER)
    for number, upto in STORY:
        runs[number].go_on(upto)
    return FileChannel(folder / "kept"), killed


@pytest.mark.parametrize("comes_back", [True, False])
def test_runs_keep_every_record_once_one_after_the_other_whoever_is_killed_wherever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    disk = Disk(monkeypatch)
    for kill_at in count():
        sink, killed = told(tmp_path / str(kill_at), disk, kill_at, comes_back=comes_back)
        found = ids(sink)
        assert sorted(found) == sorted(TOLD), f"killed at rename {kill_at}"
        if comes_back or not killed:
            assert found == TOLD, f"killed at rename {kill_at}"
        assert len(attempts(sink)) == len(TOLD), "and nothing else lies there"
        if not killed:
            break
    assert kill_at > 3 * len(TOLD), "at an identity, and for each batch at its entry, the head and the note"


# --- what is not there whole -----------------------------------------------------------------------------------


def test_a_batch_of_which_less_is_found_than_was_given_is_not_published(
    channel: FileChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.append(numbers(1))
    before, write = channel.log.head(), pq.write_table
    with monkeypatch.context() as harming:
        harming.setattr(pq, "write_table", lambda table, path: write(table.slice(0, 1), path))
        with pytest.raises(ElastreamError, match=r"channel: batch 1 has 3 records, and 1 are found where it was"):
            channel.append(numbers(2, 3, 4))
        harming.setattr(pq, "write_table", lambda table, path: path.write_bytes(b"PAR1"))
        with pytest.raises(ElastreamError, match=r"records.parquet: cannot be read after it was written"):
            channel.append(numbers(2, 3, 4))
    assert channel.log.head() == before
    channel.append(numbers(2, 3, 4))
    assert ids(channel) == [1, 2, 3, 4]


def test_a_file_with_fewer_records_than_the_log_says_does_not_pass_for_a_short_one(channel: FileChannel) -> None:
    channel.append(numbers(1, 2, 3))
    (path,) = channel.log.folder.glob("segments/*/*.parquet")
    part = Slice(path=str(path.relative_to(channel.log.folder)), first=1, last=3)
    schema = numbers().schema

    def read() -> list[int]:
        return [
            number for batch in read_slice(channel.log.folder, part, schema) for number in batch["id"].to_pylist()
        ]

    assert read() == [2, 3]
    pq.write_table(numbers(1, 2), path)
    with pytest.raises(ElastreamError, match=r"records.parquet: 3 records were expected, found 2"):
        read()
