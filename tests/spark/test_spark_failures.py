"""Operators that fail, and operators that are too slow for the ones before them."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import PATIENCE_S, Running, costing, kept, wait_until

from elastream.engines.spark import query_failures
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.pipeline import Pipeline
from elastream.manager.engine import EngineFailed
from elastream.measurement import Snapshot


def failing(frame: DataFrame) -> DataFrame:
    return frame.select(
        F.when(F.col("id") >= 0, F.raise_error(F.lit("a bad record"))).otherwise(F.col("id")).alias("id")
    )


def numbers(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(count)]


def measure_until(running: Running, what: str) -> Snapshot:
    """Measure as a manager does, until something is said to be missing that contains these words."""
    found: list[Snapshot] = []

    def is_found() -> bool:
        found.append(running.engine.measure())
        return any(what in missing for missing in found[-1].missing)

    wait_until(is_found, what)
    return found[-1]


def test_an_operator_that_failed_is_started_again_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def fragile(numbers: DataFrame) -> DataFrame:
        return failing(numbers) if broken.exists() else numbers

    pipeline.keep("all", reads="fragile", folder=kept(tmp_path, "all"))
    earlier = FileChannel(kept(tmp_path, "all"))
    earlier.create()
    earlier.append(pa.table({"id": [-1]}), batch=1_000)
    with Running(spark, pipeline, tmp_path) as running:
        runs = running.runs()
        running.put("numbers", numbers(20))
        wait_until(lambda: running.engine._queries["fragile"].failure() is not None, "it has failed")
        broken.unlink()
        snapshot = measure_until(running, "fragile: failed and was started again")
        assert not any("fragile" in gap for gap in snapshot.gaps), "of the others the window says as much as any"
        assert "[USER_RAISED_EXCEPTION] a bad record" in snapshot.failing["fragile"]
        running.drain()
        assert running.kept("all")[:1] == [(-1,)], "what an earlier run kept stays"
        assert sorted(running.kept("all")[1:]) == numbers(20)
        assert running.runs()["all"] == runs["all"], "the others went on"


def test_one_that_was_killed_while_it_wrote_down_its_first_batch_begins_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark leaves `offsets/.0.UUID.tmp`, and what it noted of the state when it planned, and refuses to start."""
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers", output_mode="update", state_partitions=2)
    def counted(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("id").count()

    pipeline.keep("all", reads="counted", folder=kept(tmp_path, "all"))
    running = Running(spark, pipeline, tmp_path)
    left = [
        running.workspace.checkpoint(name) / path
        for name in ("counted", "all")
        for path in ("offsets/.0.a7e1.tmp", "offsets/..0.a7e1.tmp.crc", "state/0/_metadata/metadata")
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1")
    with running:
        running.put("numbers", numbers(20))
        running.drain()
        assert sorted(running.kept("all")) == [(number, 1) for number in range(20)]
    assert not any(path.read_text() == "v1" for path in left if path.exists())


def test_one_that_fails_again_and_again_ends_the_run_with_its_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_failures, "MOST_FAILURES", 2)  # the pauses between them double
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def hopeless(numbers: DataFrame) -> DataFrame:
        return failing(numbers)

    with Running(spark, pipeline, tmp_path) as running:
        running.put("numbers", numbers(20))
        with pytest.raises(EngineFailed, match=r"'hopeless' failed 3 times") as error:
            measure_until(running, "this will not be said")
        trace = running.workspace.folder / "hopeless.error.txt"
        assert str(trace) in str(error.value)
        assert len(str(error.value).splitlines()) == 1
        assert "a bad record" in trace.read_text()
        assert "[USER_RAISED_EXCEPTION] a bad record" in str(error.value), (
            "the line that counts, not Spark's first"
        )
        assert "Python Proxy" not in str(error.value)
        assert running.workspace.channel("numbers").log.pending("hopeless") == 20, "nothing was lost"


def test_a_record_that_raises_is_told_at_once_with_the_line_of_the_users_code(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def poisoned(bidder):  # type: ignore[no-untyped-def]
        if bidder == 666:
            raise ValueError(f"bidder {bidder} is poison")
        return bidder

    pipeline = Pipeline("p")
    pipeline.feed("bids", schema="bidder bigint, price double")
    check = F.udf(poisoned, "bigint")

    @pipeline.operator(reads="bids")
    def scored(bids: DataFrame) -> DataFrame:
        return bids.select(check("bidder").alias("bidder"))

    woken = threading.Event()
    with Running(spark, pipeline, tmp_path) as running:
        running.engine.wake_on_fault(woken.set)
        running.put("bids", [(number, number / 2) for number in range(600, 700)])
        assert woken.wait(PATIENCE_S), "without a measurement"
        (told,) = running.engine.new_faults()
        line = r"ValueError: bidder 666 is poison \(test_spark_failures\.py:\d+, in poisoned\)"
        assert re.match(rf"scored: batch \d failed: {line}; ", told), told
        assert "the record that it names, from bids: {bidder=666, price=333.0}" in told
        assert running.engine.new_faults() == (), "told once"
        running.engine.halt()
        (never,) = running.engine.unsettled()
        assert re.match(rf"scored (never worked in this run|has not worked since [\d:]+): {line} ", never), never
    assert not [record for record in caplog.records if "Python Proxy" in record.getMessage()]


def test_one_that_works_again_is_no_failure_of_the_run(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def fragile(numbers: DataFrame) -> DataFrame:
        return failing(numbers) if broken.exists() else numbers

    with Running(spark, pipeline, tmp_path) as running:
        running.put("numbers", numbers(20))
        wait_until(lambda: running.engine._queries["fragile"].failure() is not None, "it has failed")
        broken.unlink()
        running.drain()
        running.wait_until(lambda: running.engine._queries["fragile"].batches > 0, "it has done a batch")
        assert running.engine.measure().failing == {}
        running.engine.halt()
        assert running.engine.unsettled() == ()


def test_a_writer_is_held_back_by_its_reader_and_that_is_waiting(spark: SparkSession, tmp_path: Path) -> None:
    bound, count, record_s = 50, 1_000, 0.003
    delivered: list[int] = []
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def quick(numbers: DataFrame) -> DataFrame:
        return numbers.select("id")

    @pipeline.sink(reads="quick")
    def slow(frame: DataFrame, batch: int) -> None:
        delivered.extend(row.id for row in frame.collect())
        time.sleep(record_s * frame.count())

    with Running(spark, pipeline, tmp_path, channel_bound=bound) as running:
        running.put("numbers", numbers(count))
        channel = running.workspace.channel("quick").log
        snapshots = [running.engine.measure()]
        while (seen := channel.head()).records < count:
            running.wait_until(
                lambda seen=seen: channel.head() != seen, "the writer goes on once its reader has room"
            )
            pending = channel.pending("slow")
            newest = channel.head().records - seen.records
            assert pending <= bound + newest, "it began to write above the bound"
            snapshots.append(running.engine.measure())
        running.drain()
        snapshots.append(running.engine.measure())
    assert sorted(delivered) == list(range(count))

    readings = {name: [s.measurements[name].readings[0] for s in snapshots] for name in ("quick", "slow")}
    waited_s = sum(reading.wait_out_s or 0.0 for reading in readings["quick"])
    assert waited_s > 3 * record_s * bound, "about as long as the reader took"
    assert all(reading.wait_out_s == 0 for reading in readings["slow"]), "nobody holds back the last"
    useful_s = sum(reading.useful_s for reading in readings["quick"])
    assert useful_s + waited_s <= 1.05 * sum(reading.window_s for reading in readings["quick"])


def test_one_that_is_held_back_can_be_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """Its readers are stopped before it, so nobody would ever make room."""
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers")
    def quick(numbers: DataFrame) -> DataFrame:
        return numbers.select("id")

    @pipeline.operator(reads="quick")
    def stuck(quick: DataFrame) -> DataFrame:
        return costing(quick, 50)

    # whatever a batch takes on a busy machine, the next one has all the rest
    with Running(spark, pipeline, tmp_path, channel_bound=10, longest_batch_s=60.0) as running:
        running.put("numbers", numbers(300))
        running.wait_until(lambda: running.engine._queries["quick"].held_back_s > 0.5, "the writer is held back")
    assert not spark.streams.active
    assert running.workspace.channel("quick").log.head().records == 300, "its batch was written, not thrown away"
