"""State that is moved into another number of partitions, while the pipeline runs and when it is declared anew."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept
from stateful import RunningTotal

from elastream.engines.spark.channels.control import read_control
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.state import look

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's Python workers do not find this file

KEYS = 7
RECORDS = 60  # of a round
LIMIT = 100


def declare(folder: Path, *, counts_partitions: int = 2, max_parallelism: int = 8) -> Pipeline:
    pipeline = Pipeline("moving")
    pipeline.feed("numbers", schema="id bigint, key bigint")
    options: dict[str, Any] = {"state_partitions": 2, "max_parallelism": max_parallelism}

    @pipeline.operator(
        reads="numbers",
        state_partitions=counts_partitions,
        max_parallelism=max_parallelism,
        output_mode="update",
    )
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").count()

    @pipeline.operator(reads="numbers")
    def later(numbers: DataFrame) -> DataFrame:
        return numbers.select((F.col("id") + RECORDS).alias("id"), F.col("id").alias("earlier"))

    @pipeline.operator(reads=["numbers", "later"], **options)
    def joined(numbers: DataFrame, later: DataFrame) -> DataFrame:
        """Every number with that of the round before, which only the state still knows."""
        return numbers.select("id").join(later, "id")

    @pipeline.operator(reads="numbers", output_mode="update", **options)
    def totals(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy("key").transformWithStateInPandas(
            RunningTotal(), outputStructType="key bigint, total bigint", outputMode="Update", timeMode="None"
        )

    @pipeline.operator(reads="numbers", **options)
    def first(numbers: DataFrame) -> DataFrame:
        return numbers.select("id").limit(LIMIT)

    for name in OPERATORS:
        pipeline.keep(f"kept_{name}", reads=name, folder=kept(folder, name))
    return pipeline


OPERATORS = ("counts", "joined", "totals", "first")


def put(running: Running, round_: int) -> None:
    running.put("numbers", [(n, n % KEYS) for n in range(round_ * RECORDS, (round_ + 1) * RECORDS)])
    running.drain()


def check(running: Running, rounds: int) -> None:
    """What was put out is what all the records at once give."""
    ids = range(rounds * RECORDS)
    assert dict(running.kept("counts")) == Counter(n % KEYS for n in ids)
    assert sorted(running.kept("joined")) == [(n, n - RECORDS) for n in ids[RECORDS:]]
    totals: Counter[int] = Counter()
    for n in ids:
        totals[n % KEYS] += n
    assert dict(running.kept("totals")) == totals
    assert sorted(running.kept("first")) == [(n,) for n in ids[:LIMIT]]


def partitions(running: Running) -> dict[str, int | None]:
    """As the engine says, and as the checkpoints have it."""
    said = {name: running.engine.graph()[name].state_partitions for name in OPERATORS}
    assert said == {name: look(running.workspace.checkpoint(name)).partitions for name in OPERATORS}
    return said


def tasks(running: Running, name: str) -> int:
    """Of its last batch that had records."""
    running.engine.measure()
    progress = [entry for entry in running.engine._queries[name].query.recentProgress if entry["numInputRows"]]
    work = running.engine._stages.work(str(progress[-1]["runId"]), int(progress[-1]["batchId"]))
    assert work is not None
    return work.tasks


def test_state_is_moved_for_more_instances_and_when_it_is_declared_anew(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(spark, declare(tmp_path), tmp_path) as running:
        put(running, 0)
        outcome = running.rescale(counts=4, joined=3, totals=8)
        assert outcome.succeeded, outcome.detail
        assert partitions(running) == {"counts": 8, "joined": 6, "totals": 8, "first": 2}
        put(running, 1)
        check(running, 2)
        assert {name: tasks(running, name) for name in ("counts", "joined")} == {"counts": 4, "joined": 3}

        before = running.engine.plan()
        outcome = running.rescale(first=4)
        assert not outcome.succeeded
        assert "first: 2 state partitions cannot become 8: Spark cannot move this state" in outcome.detail
        assert "globalLimit" in outcome.detail
        assert outcome.plan == running.engine.plan() == before
        assert running.engine.graph()["first"].most == 2, "nobody asks for it again"

        runs = running.runs()
        assert running.rescale(counts=8).succeeded  # as many instances as partitions
        assert partitions(running)["counts"] == 8
        assert running.runs()["joined"] == runs["joined"], "the others go on"
        put(running, 2)
        check(running, 3)

    caplog.clear()
    caplog.set_level(logging.INFO, "elastream")
    changed = declare(tmp_path, counts_partitions=3, max_parallelism=5)
    with Running(spark, changed, tmp_path) as running:
        moved = [text for text in caplog.messages if text.startswith("moved")]
        assert moved == ["moved the state of 'counts' from 8 to 3 partitions"]
        # what was not declared anew goes on with what it had
        assert partitions(running) == {"counts": 3, "joined": 6, "totals": 8, "first": 2}
        plan = {name: read_control(running.workspace.control(name)).parallelism for name in OPERATORS}
        assert plan == {"counts": 3, "joined": 3, "totals": 4, "first": 1}, "within the bounds of now"
        put(running, 3)
        check(running, 4)
