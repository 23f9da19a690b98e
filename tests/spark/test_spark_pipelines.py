"""Operators of all kinds in one pipeline, rescaled up and down and started anew while they work.

What comes out must be what a computation over all the records at once gives. The pipeline runs once; the tests
look at what it left.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from running import Running, kept, wait_until
from stateful import RunningTotal

from elastream.dataflow import Plan
from elastream.engines.spark.pipeline import Pipeline

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's Python workers do not find this file

ROUNDS = 4
RECORDS = 120  # of a round
KEYS = 7
BEGIN = datetime(2026, 11, 15, tzinfo=UTC)
WINDOW = timedelta(seconds=60)

Number = tuple[int, int, datetime]  # id, key, at


def numbers(round_: int) -> list[Number]:
    """Numbered records, a second apart, with a key."""
    ids = range(round_ * RECORDS, (round_ + 1) * RECORDS)
    return [(number, number % KEYS, BEGIN + timedelta(seconds=number)) for number in ids]


EVERYTHING = [number for round_ in range(ROUNDS) for number in numbers(round_)]
LAST: Number = (len(EVERYTHING), KEYS, BEGIN + timedelta(days=1))
"""Lets the watermark pass everything else."""


@dataclass
class Story:
    pipeline: Pipeline
    batches: list[tuple[int, list[Row]]] = field(default_factory=list)
    """Of the sink that is a function: the batches that it was given."""
    unique_ids: list[str] = field(default_factory=list)


def declare(folder: Path) -> Story:
    pipeline = Pipeline("all_kinds")
    story = Story(pipeline)
    pipeline.feed("numbers", schema="id bigint, key bigint, at timestamp")

    @pipeline.operator(reads="numbers", max_parallelism=4)
    def marked(numbers: DataFrame) -> DataFrame:
        return numbers.select("id", "key", "at", (F.col("id") * 2).alias("twice"))

    @pipeline.operator(reads="marked", state_partitions=4, output_mode="update")
    def counts(marked: DataFrame) -> DataFrame:
        return marked.groupBy("key").count()

    @pipeline.operator(reads=["numbers", "marked"], state_partitions=4)
    def joined(numbers: DataFrame, marked: DataFrame) -> DataFrame:
        # the second before the first: what is whose must not depend on the order
        return marked.select("id", "twice").join(numbers.select("id", "key"), "id")

    @pipeline.operator(reads="marked", state_partitions=4)
    def windowed(marked: DataFrame) -> DataFrame:
        """Event time came through a channel."""
        per_window = marked.withWatermark("at", "10 seconds").groupBy(F.window("at", f"{WINDOW.seconds} seconds"))
        return per_window.agg(F.count("*").alias("count")).select("window.start", "count")

    @pipeline.operator(reads="numbers", state_partitions=4)
    def distinct(numbers: DataFrame) -> DataFrame:
        return numbers.select("key").dropDuplicates(["key"])

    @pipeline.operator(reads="numbers", state_partitions=4, output_mode="update")
    def totals(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").transformWithStateInPandas(
            RunningTotal(), outputStructType="key bigint, total bigint", outputMode="Update", timeMode="None"
        )

    for name in ("counts", "joined", "windowed", "totals"):
        pipeline.keep(f"kept_{name}", reads=name, folder=kept(folder, name))

    @pipeline.sink(reads="distinct")
    def seen(frame: DataFrame, batch: int, unique_id: str) -> None:
        story.batches.append((batch, frame.collect()))
        story.unique_ids.append(unique_id)

    return story


RESCALES: list[dict[str, int]] = [
    {"marked": 4, "counts": 2},
    {"counts": 4, "joined": 2, "windowed": 4},
    {"marked": 1, "joined": 4, "distinct": 2, "totals": 2},
    {"counts": 1, "windowed": 1, "kept_joined": 3},
]


@dataclass(frozen=True, kw_only=True)
class Ended:
    running: Running
    batches: list[tuple[int, list[Row]]]
    unique_ids: list[str]
    plan: Plan
    most_entries: int
    """The most commits that a channel held after a measurement."""

    def kept(self, name: str) -> list[tuple[Any, ...]]:
        return self.running.kept(name)


@pytest.fixture(scope="module")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Rounds of records with a rescale in each; in the middle of them the pipeline is stopped and started."""
    folder = tmp_path_factory.mktemp("all_kinds")
    rescales = iter(RESCALES)
    batches: list[tuple[int, list[Row]]] = []
    unique_ids: list[str] = []
    most_entries = 0
    for rounds in (range(2), range(2, ROUNDS)):
        story = declare(folder)
        with Running(spark, story.pipeline, folder) as running:
            for round_ in rounds:
                running.put("numbers", numbers(round_))
                if wanted := next(rescales, None):
                    outcome = running.rescale(**wanted)
                    assert outcome.succeeded, outcome.detail
                running.drain()
                running.engine.measure()
                most_entries = max(most_entries, *entries(running).values())
            if rounds[-1] == ROUNDS - 1:
                running.put("numbers", [LAST])
                running.drain()
                wait_until(lambda: len(running.kept("windowed")) == len(WINDOWS), "all windows are out")
            plan = running.engine.plan()
        batches += story.batches
        unique_ids += story.unique_ids
    return Ended(running=running, batches=batches, unique_ids=unique_ids, plan=plan, most_entries=most_entries)


def entries(running: Running) -> dict[str, int]:
    """Commits that the channels hold on the disk."""
    return {
        folder.name: sum(1 for _ in (folder / "log").glob("*.json"))
        for folder in (running.workspace.folder / "channels").iterdir()
    }


WINDOWS = Counter(BEGIN + (at - BEGIN) // WINDOW * WINDOW for _, _, at in EVERYTHING)


def last_of_each(rows: list[tuple[Any, ...]]) -> dict[Any, Any]:
    return {key: value for key, value in rows}  # noqa: C416 - it says which is which


def test_a_count_by_key(ended: Ended) -> None:
    found = ended.kept("counts")
    assert last_of_each(found) == Counter(key for _, key, _ in [*EVERYTHING, LAST])
    for key in range(KEYS):
        of_key = [count for found_key, count in found if found_key == key]
        assert of_key == sorted(set(of_key)), "a count only grows, and is not told twice"


def test_a_join_of_two_channels(ended: Ended) -> None:
    assert sorted(ended.kept("joined")) == [(number, 2 * number, key) for number, key, _ in [*EVERYTHING, LAST]]


def test_windows_of_event_time(ended: Ended) -> None:
    assert sorted(ended.kept("windowed")) == sorted(WINDOWS.items())


def test_a_processor_with_a_state_of_its_own(ended: Ended) -> None:
    expected: Counter[int] = Counter()
    for number, key, _ in [*EVERYTHING, LAST]:
        expected[key] += number
    assert last_of_each(ended.kept("totals")) == expected


def test_a_sink_that_is_a_function_is_given_every_batch_once(ended: Ended) -> None:
    ids = [batch for batch, _ in ended.batches]
    assert ids == sorted(set(ids))
    assert sorted(row.key for _, rows in ended.batches for row in rows) == list(range(KEYS + 1)), (
        "dropDuplicates let every key through once"
    )


def test_a_sink_is_told_what_no_batch_of_another_folder_has(ended: Ended) -> None:
    run = (ended.running.workspace.folder / "identity").read_text()[:12]
    assert ended.unique_ids == [f"{run}-{batch}" for batch, _ in ended.batches], "also after a restart"


def test_the_parallelism_outlives_a_restart(ended: Ended) -> None:
    expected: dict[str, int] = dict.fromkeys(ended.plan, 1)
    for wanted in RESCALES:
        expected |= wanted
    assert ended.plan == expected


def test_the_disk_stays_bounded_while_it_runs(ended: Ended) -> None:
    """Drained and measured, a channel holds no more than what a reader has not acknowledged yet."""
    assert ended.most_entries <= 2
    leftovers = {
        folder.name: sorted(path.name for path in (folder / "segments").iterdir())
        for folder in (ended.running.workspace.folder / "channels").iterdir()
    }
    assert max(map(len, leftovers.values())) <= 3, leftovers
