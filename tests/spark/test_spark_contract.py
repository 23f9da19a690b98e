"""The contract of engines, on Spark: the tests are those of `tests/contract/test_engine_contract.py`.

One pipeline runs for all of them. Each test finds it as a new one would be: with nothing to do, with one instance
each, and at the beginning of a window.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from running import Running, costing, wait_until

from elastream.engines.spark.pipeline import Pipeline
from tests.contract.test_engine_contract import (  # noqa: F401 - pytest finds them here
    START,
    Subject,
    TestAdaptor,
    TestGraphAndPlan,
    TestMeasure,
    TestRecords,
    TestRescale,
    clock,
    engine,
    moment_s,
    to,
)

LOAD_PER_S = 200.0
MAP_MS = 20  # 50 records a second of an instance
COUNT_MS = 13
_TICK_S = 0.1


def declare() -> Pipeline:
    pipeline = Pipeline("contract")
    pipeline.feed("source", schema="id bigint")

    @pipeline.operator(reads="source", max_parallelism=8)
    def map(source: DataFrame) -> DataFrame:  # noqa: A001 - as the contract calls it
        return costing(source, MAP_MS)

    @pipeline.operator(reads="map", max_parallelism=8)
    def count(map: DataFrame) -> DataFrame:  # noqa: A002
        return costing(map, COUNT_MS)

    return pipeline


class FeedingClock:
    """The clock on the wall; records come to the source while someone waits."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._written = 0

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        began_s, before = time.monotonic(), self._written
        while (waited_s := time.monotonic() - began_s) < seconds:
            self._write_until(before + round(waited_s * LOAD_PER_S))
            time.sleep(_TICK_S)
        self._write_until(before + round(seconds * LOAD_PER_S))

    def _write_until(self, count: int) -> None:
        if count > self._written:
            self._running.put("source", [(number,) for number in range(self._written, count)])
            self._written = count


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with Running(spark, declare(), tmp_path_factory.mktemp("contract")) as running:
        clock = FeedingClock(running)

        def delivered() -> float:
            return running.workspace.channel("map").log.acknowledged("count").record

        def knows_its_costs() -> bool:
            clock.wait(0.5)
            return len(running.engine.measure().batch_costs) == 2

        wait_until(knows_its_costs, "enough batches were done to know what one costs")
        yield Subject(
            engine=running.engine,
            clock=clock,
            drain=running.drain,
            records_brought=lambda: running.workspace.channel("source").log.head().records,
            records_delivered=delivered,
            moment_s=2.0,
            load_per_s=LOAD_PER_S,
            slack=0.5,  # other processes use the machine, too
            slack_s=5.0,
        )


@pytest.fixture
def subject(pipeline: Subject) -> Subject:
    pipeline.engine.rescale(to(pipeline.engine, map=8, count=8))
    pipeline.drain()
    pipeline.engine.rescale(to(pipeline.engine, **START))
    pipeline.engine.measure()
    return pipeline
