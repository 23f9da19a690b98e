"""What Spark says that it wrote and what the log names agree, or nothing is published and nothing is forgotten."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from running import Running, kept, wait_until

from elastream.engines.spark.channels import files as files_module
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import ElastreamError

Harm = Callable[[Path], None]


@pytest.fixture
def channel(tmp_path: Path) -> FileChannel:
    channel = FileChannel(tmp_path / "numbers")
    channel.create()
    return channel


def numbers(spark: SparkSession, count: int, *, tasks: int = 4) -> DataFrame:
    return spark.range(0, count, 1, tasks)


def ids(channel: FileChannel) -> list[int]:
    return sorted(number for table in channel.tables() for number in table["id"].to_pylist())


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def delete_one(folder: Path) -> None:
    parts(folder)[1].unlink()


def empty_one(folder: Path) -> None:
    """As a task would leave it that found nothing to write."""
    table = pa.parquet.read_table(parts(folder)[1])
    pa.parquet.write_table(table.slice(0, 0), parts(folder)[1])


def copy_one(folder: Path) -> None:
    shutil.copy(parts(folder)[1], folder / "once-more.parquet")


def cut_off_one(folder: Path) -> None:
    os.truncate(parts(folder)[1], parts(folder)[1].stat().st_size // 2)


def harmed(monkeypatch: pytest.MonkeyPatch, harm: Harm) -> None:
    """After the tasks and before anyone looks at what they wrote."""
    rename = os.rename

    def rename_and_harm(source: Path, target: Path) -> None:
        rename(source, target)
        harm(target)

    monkeypatch.setattr(files_module.os, "rename", rename_and_harm)


@pytest.mark.parametrize(
    ("harm", "found"),
    [(delete_one, 75), (empty_one, 75), (copy_one, 125), (shutil.rmtree, 0)],
)
def test_files_that_do_not_hold_what_was_written_are_not_published(
    spark: SparkSession, channel: FileChannel, monkeypatch: pytest.MonkeyPatch, harm: Harm, found: int
) -> None:
    channel.write(numbers(spark, 10), 0)
    before = channel.log.head()
    with monkeypatch.context() as harming:
        harmed(harming, harm)
        with pytest.raises(
            ElastreamError, match=rf"numbers: batch 1 has 100 records, and {found} are found .* in .*/segments/b1-"
        ):
            channel.write(numbers(spark, 100), 1)
    assert channel.log.head() == before
    assert not channel.log.is_published(1)
    assert channel.write(numbers(spark, 100), 1) == 100
    assert ids(channel) == sorted([*range(10), *range(100)])


def test_a_file_that_is_cut_off_is_not_published(
    spark: SparkSession, channel: FileChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmed(monkeypatch, cut_off_one)
    with pytest.raises(ElastreamError, match=r"segments/b0-.*\.parquet: cannot be read after it was written"):
        channel.write(numbers(spark, 100), 0)
    assert channel.log.head().commits == 0


def test_what_spark_wrote_elsewhere_is_not_published(
    spark: SparkSession, channel: FileChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "for_spark", lambda path: f"file://{tmp_path}/elsewhere/{path.name}")
    with pytest.raises(ElastreamError, match=r"numbers: batch 0 has 100 records, and 0 are found where"):
        channel.write(numbers(spark, 100), 0)
    assert channel.log.head().batch == -1


def test_a_batch_without_records_is_one(spark: SparkSession, channel: FileChannel) -> None:
    for batch, frame in enumerate((numbers(spark, 10).where("id < 0"), numbers(spark, 0), numbers(spark, 3))):
        channel.write(frame, batch)
        assert channel.log.is_published(batch)
    assert ids(channel) == [0, 1, 2]


def test_a_task_that_is_still_writing_after_the_batch_is_published_changes_nothing(
    spark: SparkSession, channel: FileChannel
) -> None:
    channel.write(numbers(spark, 10), 0)
    (published,) = (channel.log.folder / "segments").iterdir()
    late = published.with_name(f"{published.name}.writing")
    late.mkdir()
    for part in parts(published):  # it would have the same name
        pa.parquet.write_table(pa.table({"id": [99]}), late / part.name)
    assert ids(channel) == list(range(10))
    channel.create()
    assert not late.exists(), "and it is cleared away when the writer starts again"


def test_what_is_harmed_ends_in_an_error_with_both_numbers_and_is_made_up_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an operator, and in a sink that keeps."""
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers

    pipeline.keep("all", reads="passed", folder=kept(tmp_path, "all"))
    with Running(spark, pipeline, tmp_path) as running:
        rename, harming = os.rename, {"passed", "all"}

        def lose(source: Path, target: Path) -> None:
            rename(source, target)
            if target.parent.parent.name in harming and parts(target):
                shutil.rmtree(target)

        monkeypatch.setattr(files_module.os, "rename", lose)
        running.put("numbers", [(number,) for number in range(20)])
        for harmed_one, read in (("passed", "numbers"), ("all", "passed")):
            query = running.engine._queries[harmed_one]
            wait_until(lambda query=query: query.failure() is not None, f"{harmed_one} has failed")
            told = query.failure() or ""
            assert f"{harmed_one}: batch" in told.splitlines()[0]
            assert "has 20 records, and 0 are found" in told.splitlines()[0]
            log = running.workspace.channel(read).log
            assert log.pending(harmed_one) == 20
            assert running.workspace.channel(read).forget(pipeline.readers(read)) == 0, "its input is still there"
            assert running.kept("all") == []
            harming.discard(harmed_one)
            snapshot = running.engine.measure()
            assert "has 20 records, and 0 are found" in snapshot.unknown[harmed_one]
        running.drain()
        assert sorted(running.kept("all")) == [(number,) for number in range(20)]
