"""Where every record went, on Spark: exact at the end of a run and of the next one, and a loss shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept

from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.plan_reads import PlanReads, plan_reads
from elastream.measurement.accounts import Accounts, StepAccount

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)
SCHEMA = "id bigint, at timestamp"
RECORDS = 600
"""Of the first run, a tenth of a second apart."""
OTHERS = 130
LATE = 25
"""Five of each of five keys, all of one window: Spark counts each key once in a batch, however many those are."""


def declare(folder: Path) -> Pipeline:
    pipeline = Pipeline("accounts")
    pipeline.feed("bids", schema=SCHEMA)
    pipeline.feed("others", schema=SCHEMA)

    @pipeline.operator(reads="bids", max_parallelism=4)
    def even(bids: DataFrame) -> DataFrame:
        return bids.where("id % 2 = 0")

    @pipeline.operator(reads="bids", state_partitions=2, max_parallelism=4)
    def windows(bids: DataFrame) -> DataFrame:
        by = F.window("at", "10 seconds"), (F.col("id") % 5).alias("key")
        return bids.withWatermark("at", "5 seconds").groupBy(*by).count()

    # in the plan the inputs are the other way round, and one of them is there twice
    @pipeline.operator(reads=("even", "others"), state_partitions=2)
    def pairs(even: DataFrame, others: DataFrame) -> DataFrame:
        twice = even.select("id").union(even.select((F.col("id") + 1).alias("id")))
        return others.join(twice, "id")

    @pipeline.sink(reads="even")
    def looked_at(batch: DataFrame, number: int) -> None:
        if number % 2:  # it may run the plan several times, or not at all
            batch.count()
            batch.count()

    for name in ("even", "windows", "pairs"):
        pipeline.keep(f"kept_{name}", reads=name, folder=kept(folder, name))
    return pipeline


def bids(first: int, last: int) -> list[tuple[int, datetime]]:
    return [(number, BEGIN + timedelta(seconds=number / 10)) for number in range(first, last)]


def ended(running: Running) -> Accounts:
    running.engine.halt()
    return running.engine.accounts()


def totals(accounts: Accounts) -> dict[str, tuple[Any, Any, Any]]:
    """Of each step: in, out and waiting, with None for what is not there."""
    return {step.operator: (step.records_in, step.records_out, step.waiting) for step in accounts.steps}


def told(accounts: Accounts) -> list[str]:
    """Its warnings but one: on a busy machine a run may end before Spark has told of the last batch."""
    return [warning for warning in accounts.warnings if "a run ended before it was told" not in warning]


def step(accounts: Accounts, name: str) -> StepAccount:
    return next(one for one in accounts.steps if one.operator == name)


def test_totals_are_exact_at_the_end_of_a_run_and_of_the_next(
    spark: SparkSession, tmp_path: Path, channels: ChannelKind
) -> None:
    with Running(spark, declare(tmp_path), tmp_path, channels=channels) as running:
        running.put("bids", bids(0, RECORDS))
        running.put("others", bids(0, OTHERS))
        running.drain()
        running.rescale(even=3, windows=4)  # the state of the windows is moved
        running.put("bids", bids(RECORDS, RECORDS + 100))
        running.drain()
        first = ended(running)
    assert first.differences == ()
    assert told(first) == [], "nothing was late"
    found, even = totals(first), (RECORDS + 100) // 2
    closed, kept_windows = found.pop("windows"), found.pop("kept_windows")
    assert found == {
        "bids": (None, RECORDS + 100, None),
        "others": (None, OTHERS, None),
        "even": (RECORDS + 100, even, 0),
        "pairs": (even + OTHERS, OTHERS, 0),
        "looked_at": (even, None, 0),
        "kept_even": (even, even, 0),
        "kept_pairs": (OTHERS, OTHERS, 0),
    }
    # a window is closed by a batch without input, which may come when everything else is done
    assert closed == (RECORDS + 100, kept_windows[0] + kept_windows[2], 0)
    assert kept_windows[0] == kept_windows[1] == len(running.kept("windows")) >= 5 * 5

    with Running(spark, declare(tmp_path), tmp_path, channels=channels) as running:
        running.put("bids", bids(0, LATE))
        running.drain()
        second = ended(running)
    assert second.differences == ()
    counted = step(second, "windows")
    assert (counted.records_in, counted.late_before, counted.uncounted_batches) == (RECORDS + 125, 0, 0)
    assert counted.late is not None
    assert 5 <= counted.late <= LATE
    assert step(second, "even").late is None
    assert [text.split(": ")[0] for text in told(second)] == [
        f"windows dropped at least {counted.late} records as late"
    ]

    with Running(spark, declare(tmp_path), tmp_path, channels=channels) as running:
        third = ended(running)
    assert third.differences == ()
    assert totals(third)["pairs"] == totals(second)["pairs"], "nothing was done"
    assert (step(third, "windows").late, told(third)) == (counted.late, []), "and nothing dropped in this run"


def test_what_waits_at_the_end_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline("waiting")
    pipeline.feed("bids", schema=SCHEMA)

    @pipeline.operator(reads="bids")
    def same(bids: DataFrame) -> DataFrame:
        return bids

    pipeline.keep("kept_same", reads="same", folder=kept(tmp_path, "same"))
    with Running(spark, pipeline, tmp_path) as running:
        running.put("bids", bids(0, 5_000))
        running.wait_until(lambda: running.workspace.channel("bids").log.pending("same") < 5_000, "it has begun")
        accounts = ended(running)
        assert accounts.differences == ()
        read = step(accounts, "same").records_in
        assert read is not None
        assert step(accounts, "same").waiting == 5_000 - read == running.pending()["bids → same"]
    with Running(spark, pipeline, tmp_path) as running:
        running.drain()
        assert totals(ended(running))["kept_same"] == (5_000, 5_000, 0)


def test_an_acknowledgement_ahead_of_sparks_checkpoint_shows(spark: SparkSession, tmp_path: Path) -> None:
    with Running(spark, declare(tmp_path), tmp_path) as running:
        running.put("bids", bids(0, 100))
        running.drain()
        assert ended(running).differences == ()
        running.put("bids", bids(100, 150))
        log = running.workspace.channel("bids").log
        log.acknowledge("windows", StreamPosition(record=120, commit=2))
        assert running.engine.accounts().differences == (
            "windows: bids has published 150 records, of which it has read 100 and 30 wait for it: 20 are missing",
        )


# What the plans of steps read


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[[str], DataFrame]:
    running = Running(spark, declare(tmp_path), tmp_path)

    def read(name: str) -> DataFrame:
        channel = running.workspace.channel(name)
        channel.create()
        schema = spark.createDataFrame([], SCHEMA).schema
        return channel.stream(spark, schema, reader="x", control=tmp_path / "control")

    return read


def test_a_plan_tells_its_channels_in_the_order_of_the_checkpoint(stream: Callable[[str], DataFrame]) -> None:
    bids, others = stream("bids"), stream("others")
    joined = plan_reads(others.join(bids, "id"))
    assert joined == PlanReads(streams=("others", "bids"), takes_all=True, passes_all_on=False)
    twice = plan_reads(bids.select("id").union(bids.select("id")).join(others, "id"))
    assert (twice.streams, twice.told) == (("bids", "bids", "others"), ("bids", "others"))
    assert [twice.in_one_place(name) for name in ("bids", "others")] == [False, True]


def test_a_plan_that_may_leave_records_unread_is_not_trusted(
    spark: SparkSession, stream: Callable[[str], DataFrame]
) -> None:
    bids = stream("bids")
    windowed = bids.withWatermark("at", "1 second").groupBy(F.window("at", "1 second")).count()
    for frame in (bids, bids.where("id > 3"), windowed, bids.dropDuplicates(["id"])):
        assert plan_reads(frame).takes_all
    for frame in (
        bids.limit(3),
        bids.join(spark.range(3), "id"),
        bids.mapInPandas(lambda batches: (next(batches) for _ in range(1)), SCHEMA),
    ):
        assert not plan_reads(frame).takes_all


def test_a_source_passes_everything_on_or_does_not(spark: SparkSession, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load()
    text = spark.readStream.text(str(tmp_path))
    for frame in (rate, text, rate.select("value").withColumn("twice", F.col("value") * 2)):
        assert plan_reads(frame) == PlanReads(streams=(None,), takes_all=True, passes_all_on=True)
    for frame in (rate.where("value > 3"), text.select(F.explode(F.split("value", " "))), rate.union(rate)):
        assert not plan_reads(frame).passes_all_on


def test_what_a_source_took_from_outside_is_what_it_published(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    pipeline = Pipeline("outside")

    @pipeline.source
    def texts(spark: SparkSession) -> DataFrame:
        return spark.readStream.option("maxFilesPerTrigger", 2).text(str(lines))

    @pipeline.source
    def odd(spark: SparkSession) -> DataFrame:
        return spark.readStream.text(str(lines)).where("value % 2 = 1")

    for name in ("texts", "odd"):
        pipeline.keep(f"kept_{name}", reads=name, folder=kept(tmp_path, name))
    for runs in (1, 2):
        for file in range(5):
            (lines / f"{runs}-{file}").write_text("".join(f"{number}\n" for number in range(20)))
        with Running(spark, pipeline, tmp_path) as running:
            running.wait_until(
                lambda: len(running.kept("texts")) + len(running.kept("odd")) == 150 * runs,  # noqa: B023
                "all of it is kept",
            )
            accounts = ended(running)
        assert accounts.differences == ()
        assert totals(accounts)["texts"] == (100 * runs, 100 * runs, None)
        assert totals(accounts)["odd"] == (None, 50 * runs, None), "what it leaves out is not told apart"
