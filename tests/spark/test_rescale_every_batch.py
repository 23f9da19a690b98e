"""Every kind of stateful operator with another parallelism in every batch, and no query restarted for it.

What comes out is what the same records give when they are computed at once.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState
from running import Running, kept, wait_until
from stateful import RunningTotal

from elastream.engines.spark.pipeline import Pipeline

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's Python workers do not find this file

PARTITIONS = 4
PARALLELISM = (1, 3, 2, 4)
RECORDS = 20  # of a round
KEYS = 7
TWICE = 3  # so many ids in a row are the same to what drops duplicates, also over the end of a round
LIMIT = 50
BEGAN = datetime(2024, 5, 1, tzinfo=UTC)
STEP_S = 0.5
DELAY = "20 seconds"
WINDOW_S = 4
GAP_S = 3
WITHIN_S = 2
FAR_S = 1_000_000  # a record so much later closes all windows


def at(number: int) -> datetime:
    return BEGAN + timedelta(seconds=number * STEP_S)


def kind_of(number: int) -> int:
    """A key whose records come at uneven times, so that some sessions go on and others end."""
    return number * number % 11


def add_up(key: Any, rows: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = (state.get[0] if state.exists else 0) + sum(int(frame["id"].sum()) for frame in rows)
    state.update((total,))
    yield pd.DataFrame({"key": [int(key[0])], "total": [total]})


def declare(folder: Path) -> Pipeline:
    pipeline = Pipeline("every_batch")
    pipeline.feed("numbers", schema="id bigint, key bigint, at timestamp")
    pipeline.feed("others", schema="other bigint, came timestamp")
    state: dict[str, Any] = {"state_partitions": PARTITIONS}

    @pipeline.operator(reads="numbers", output_mode="update", **state)
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").count()

    @pipeline.operator(reads="numbers", **state)
    def windows(numbers: DataFrame) -> DataFrame:
        window = F.window("at", f"{WINDOW_S} seconds")
        found = numbers.withWatermark("at", DELAY).groupBy(window).count()
        return found.select(F.col("window.start").alias("start"), "count")

    @pipeline.operator(reads="numbers", **state)
    def sessions(numbers: DataFrame) -> DataFrame:
        kinds = numbers.select("at", (F.col("id") * F.col("id") % 11).alias("kind"))
        found = (
            kinds.withWatermark("at", DELAY).groupBy(F.session_window("at", f"{GAP_S} seconds"), "kind").count()
        )
        return found.select(F.col("session_window.start").alias("start"), "kind", "count")

    @pipeline.operator(reads=["numbers", "others"], **state)
    def inner(numbers: DataFrame, others: DataFrame) -> DataFrame:
        return numbers.join(others, F.col("id") == F.col("other")).select("id", "other")

    @pipeline.operator(reads=["numbers", "others"], **state)
    def outer(numbers: DataFrame, others: DataFrame) -> DataFrame:
        left, right = numbers.withWatermark("at", DELAY), others.withWatermark("came", DELAY)
        soon = F.col("came").between(F.col("at"), F.col("at") + F.expr(f"INTERVAL {WITHIN_S} SECONDS"))
        return left.join(right, (F.col("id") == F.col("other")) & soon, "left_outer").select("id", "other")

    @pipeline.operator(reads="numbers", **state)
    def distinct(numbers: DataFrame) -> DataFrame:
        return numbers.select(F.floor(F.col("id") / TWICE).alias("slot")).dropDuplicates()

    @pipeline.operator(reads="numbers", **state)
    def within(numbers: DataFrame) -> DataFrame:
        slots = numbers.select("at", F.floor(F.col("id") / TWICE).alias("slot"))
        return slots.withWatermark("at", DELAY).dropDuplicatesWithinWatermark(["slot"]).select("slot")

    @pipeline.operator(reads="numbers", output_mode="update", **state)
    def pandas_totals(numbers: DataFrame) -> DataFrame:
        told = "key bigint, total bigint"
        return numbers.groupBy("key").applyInPandasWithState(add_up, told, "total bigint", "update", "NoTimeout")

    @pipeline.operator(reads="numbers", output_mode="update", **state)
    def processed_totals(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").transformWithStateInPandas(
            RunningTotal(), outputStructType="key bigint, total bigint", outputMode="Update", timeMode="None"
        )

    @pipeline.operator(reads="numbers", **state)
    def first(numbers: DataFrame) -> DataFrame:
        return numbers.select("id").limit(LIMIT)

    for step in pipeline.steps:  # what an operator puts out is kept as a sink does it, without a query for that
        if step.reads:
            pipeline._steps[step.name] = replace(step, folder=kept(folder, step.name))
    return pipeline


# What must come out, computed at once


def expected(ids: range) -> dict[str, list[tuple[Any, ...]]]:
    totals: Counter[int] = Counter()
    for number in ids:
        totals[number % KEYS] += number
    slots = sorted({(number // TWICE,) for number in ids})
    return {
        "counts": sorted(Counter(number % KEYS for number in ids).items()),
        "windows": sorted(Counter(number * STEP_S // WINDOW_S * WINDOW_S for number in ids).items()),
        "sessions": sorted(_sessions(ids)),
        "inner": [(number, number) for number in ids if number % 2],
        "outer": [(number, number if number % 4 == 1 else None) for number in ids],
        "distinct": slots,
        "within": slots,
        "pandas_totals": sorted(totals.items()),
        "processed_totals": sorted(totals.items()),
    }


def _sessions(ids: range) -> Iterator[tuple[float, int, int]]:
    numbers = pd.DataFrame({"kind": [kind_of(n) for n in ids], "s": [n * STEP_S for n in ids]})
    for kind, own in numbers.groupby("kind"):
        session = (own["s"].diff() > GAP_S).cumsum()  # one that begins where another ends goes on with it
        for _, part in own.groupby(session):
            yield float(part["s"].min()), int(str(kind)), len(part)


def others(ids: range) -> list[tuple[int, datetime]]:
    """Of every second number; half of them too late to be joined in time."""
    return [(n, at(n) + timedelta(seconds=WITHIN_S / 2 if n % 4 == 1 else WITHIN_S * 2)) for n in ids if n % 2]


# What came out


def found(running: Running) -> dict[str, list[tuple[Any, ...]]]:
    rows = {step.name: running.kept(step.name) for step in running.pipeline.steps if step.reads}
    for upserts in ("counts", "pandas_totals", "processed_totals"):
        rows[upserts] = list(dict(rows[upserts]).items())
    for timed in ("windows", "sessions"):
        rows[timed] = [((start - BEGAN).total_seconds(), *rest) for start, *rest in rows[timed]]
    return {
        name: sorted(of_it, key=lambda row: row[:2] if name == "sessions" else row[:1])
        for name, of_it in rows.items()
    }


def stateful(running: Running) -> list[str]:
    return [step.name for step in running.pipeline.steps if step.state_partitions is not None]


def tasks(running: Running) -> dict[str, int | None]:
    """That have the state of each operator in its newest batch with records, once they are told of."""
    running.engine.measure()
    found: dict[str, int | None] = {}
    for name in stateful(running):
        told = [entry for entry in running.engine._queries[name].query.recentProgress if entry["numInputRows"]]
        work = running.engine._stages.work(str(told[-1]["runId"]), int(told[-1]["batchId"])) if told else None
        found[name] = None if work is None else work.stages[-1].tasks
    return found


def _round(running: Running, number: int) -> None:
    parallelism = PARALLELISM[number % len(PARALLELISM)]
    wanted = dict.fromkeys(stateful(running), parallelism)
    outcome = running.rescale(**wanted)
    assert outcome.succeeded, outcome.detail
    ids = range(number * RECORDS, (number + 1) * RECORDS)
    running.put("numbers", [(n, n % KEYS, at(n)) for n in ids])
    running.put("others", others(ids))
    running.drain()
    wanted["first"] = 1  # the state of a limit has a single partition
    wait_until(lambda: tasks(running) == wanted, lambda: f"{wanted} tasks, found {tasks(running)}")


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.long)])
def test_another_parallelism_in_every_batch_changes_no_result(
    spark: SparkSession, tmp_path: Path, rounds: int
) -> None:
    ids = range(rounds * RECORDS)
    with Running(spark, declare(tmp_path), tmp_path) as running:
        runs = running.runs()
        for number in range(rounds):
            _round(running, number)
        assert running.runs() == runs, "no query was restarted"
        before = found(running)  # of what has no windows
        for offset_s in (FAR_S, 2 * FAR_S):  # the first moves the watermark, the second is a batch that has it
            running.put("numbers", [(-1, 0, BEGAN + timedelta(seconds=offset_s))])
            running.put("others", [(-2, BEGAN + timedelta(seconds=offset_s))])
            running.drain()
        truth = expected(ids)

        def closed() -> dict[str, list[tuple[Any, ...]]]:
            rows = found(running)
            rows["windows"] = [row for row in rows["windows"] if row[0] < FAR_S]
            rows["sessions"] = [row for row in rows["sessions"] if row[0] < FAR_S]
            rows["outer"] = [row for row in rows["outer"] if row[0] >= 0]
            return rows

        after = ("windows", "sessions", "outer")
        wait_until(
            lambda: all(len(closed()[name]) >= len(truth[name]) for name in after),
            lambda: f"all windows closed: {closed()}",
        )
        rows = closed()
        assert {name: rows[name] if name in after else before[name] for name in truth} == truth
        assert len(before["first"]) == min(LIMIT, len(ids))
        assert {n for (n,) in before["first"]} >= set(ids[: LIMIT // RECORDS * RECORDS]), "those that came first"
