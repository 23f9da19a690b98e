"""The channel of files, as far as it does without Spark: what is appended is in it once, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import Position


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
    channel.log.acknowledge("reader", Position(record=2, commit=1))
    assert channel.forget(["reader"]) == 1
    assert len(attempts(channel)) == 1
    at = channel.log.acknowledged("reader")
    assert [commit.records for commit in channel.log.commits(at, channel.log.position(at))] == [1]
