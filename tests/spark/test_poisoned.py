"""Records at which an operator fails: put aside with their error, while the rest of their batch goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept, wait_until

from elastream.engines.spark import poisoned as poisoned_module
from elastream.engines.spark.channels.aside import read_aside
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.pipeline import Pipeline

BIDDERS = range(656, 672)
POISON = {666, 661}


def bids_pipeline(folder: Path) -> Pipeline:
    """Something that fails at single records before a count of them, which keeps state."""
    poison = POISON  # a function within one is sent to the workers whole

    def poisoned(bidder):  # type: ignore[no-untyped-def]
        if bidder in poison:
            raise ValueError(f"bidder {bidder} is poison")
        return bidder

    pipeline = Pipeline("p")
    pipeline.feed("bids", schema="bidder bigint, price double, at timestamp")
    check = F.udf(poisoned, "bigint")

    @pipeline.operator(reads="bids", state_partitions=2)
    def counted(bids: DataFrame) -> DataFrame:
        checked = bids.withColumn("bidder", check("bidder")).withWatermark("at", "1 minute")
        return checked.groupBy(F.window("at", "10 seconds"), (F.col("bidder") % 2).alias("odd")).count()

    pipeline.keep("counts", reads="counted", folder=kept(folder, "counts"))
    return pipeline


def bids(bidders: range, second: int) -> list[tuple[object, ...]]:
    return [
        (bidder, bidder / 2, datetime(2026, 1, 1, 0, second // 60, second % 60, tzinfo=UTC)) for bidder in bidders
    ]


def test_a_batch_goes_on_without_the_records_that_it_fails_at(spark: SparkSession, tmp_path: Path) -> None:
    with Running(spark, bids_pipeline(tmp_path), tmp_path) as running:
        running.put("bids", bids(BIDDERS, 0))
        running.drain()
        told = running.engine.new_faults()
        (said,) = [text for text in told if "put aside" in text]
        assert said.startswith("counted: 2 records were put aside: ValueError: bidder 661 is poison ")
        assert "{bidder=661, price=330.5" in said
        running.put("bids", bids(range(700, 720), 3000))  # the watermark closes the window of those before
        running.drain()
        (note,) = [text for text in running.engine.measure().notes if "aside" in text]
        assert note.startswith("counted has put 2 of its records aside, see ")
    with Running(spark, bids_pipeline(tmp_path), tmp_path) as running:  # what was put aside stays so
        running.put("bids", bids(range(720, 730), 3500))
        running.drain()
        running.engine.halt()
        accounts = running.engine.accounts()
    assert accounts.differences == ()
    assert "counted could not process 2 records: put aside " in " ".join(accounts.warnings)
    aside = list(read_aside(running.workspace.aside("counted")))
    assert {one.record["bidder"] for one in aside} == POISON
    assert all(one.error.startswith(f"ValueError: bidder {one.record['bidder']} is poison") for one in aside)
    counts = {(row[0]["start"].minute, row[1]): row[2] for row in running.kept("counts")}
    assert (counts[0, 0], counts[0, 1]) == (7, 7), "8 of each, without 666 and 661"


def put_and_drain(spark: SparkSession, folder: Path, rows: list[tuple[object, ...]]) -> None:
    with Running(spark, bids_pipeline(folder), folder) as running:
        running.put("bids", rows)
        running.drain()


class Died(BaseException):
    """As a driver that is killed: nobody catches it."""


def test_what_fails_because_spark_is_stopped_is_no_fault_of_a_record(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poisoned_module, "still_runs", lambda _: False)
    with pytest.raises(PythonException, match="is poison"):
        put_and_drain(spark, tmp_path, bids(range(666, 667), 0))
    assert not list(tmp_path.rglob("aside/*/*"))


def test_a_driver_that_dies_right_after_putting_aside_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(reached: CrashPoint, _: str) -> None:
        raise Died(reached)

    monkeypatch.setattr(poisoned_module, "crash_point", die)
    with pytest.raises(Died):
        put_and_drain(spark, tmp_path, bids(BIDDERS, 0))
    monkeypatch.undo()
    with Running(spark, bids_pipeline(tmp_path), tmp_path) as running:
        running.put("bids", bids(range(700, 720), 3000))
        running.drain()
        running.put("bids", bids(range(720, 730), 3500))
        running.drain()
        running.engine.halt()
        assert running.engine.accounts().differences == ()
    aside = [one.record["bidder"] for one in read_aside(running.workspace.aside("counted"))]
    assert sorted(aside) == sorted(POISON), "each of them once"
    assert sum(row[2] for row in running.kept("counts") if row[0]["start"].minute == 0) == 14


def test_where_half_of_a_batch_or_more_fails_it_is_the_operator_and_nothing_is_put_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def hopeless(numbers: DataFrame) -> DataFrame:
        return numbers.select(F.expr("id / (id div 100)").alias("id"))

    with Running(spark, pipeline, tmp_path) as running:
        running.put("numbers", [(number,) for number in range(20)])
        query = running.engine._queries["hopeless"]
        for failures in (1, 2):
            wait_until(lambda: query.failure() is not None, "it has failed")
            running.engine.measure()
            assert query.failures == failures, "counted as before, and not as something that was mended"
        assert list(read_aside(running.workspace.aside("hopeless"))) == []
