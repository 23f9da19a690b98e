"""What measuring costs a pipeline on Spark: the same pipeline with `measure()` called and never called.

One pipeline runs throughout, and windows with and without measuring alternate in it: each pair is a minute apart,
so that what else the machine does falls on both. At full speed (a backlog that never ends) the records per second
of the slowest operator are compared; at a steady rate the time that batches take. `measure()` asks Spark for its
progress and its stages, reads the heads of the channels, fits the prices of a batch and deletes what everyone has
read. What cannot be switched off, and so is in both, is Spark's own listener that keeps what is asked for.

The manager measures every 30 s unless told otherwise, and the bound is for that. Once a second is shown beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.batches import Batch, ended_between, records_per_s
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import (
    await_batches,
    batches_of,
    channel,
    checkpoint,
    generator,
    none_failed,
    put_backlog,
    running,
    session,
    temporary_folder,
    watched,
)
from benchmarks.spread import median_between, ratio_of_pairs
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.manager.knobs import Knobs
from elastream.workloads.generator import SCHEMA

MOST_PERCENT = 1.0
_OFTEN_S = 1.0
_BATCH_INTERVAL_S = 1.0
_STEADY_PER_S = 2_000
_CHANNEL_BOUND = 400_000
_WARM_UP_BATCHES = 25  # batches grow until they last about as long as the interval between them
_SLOTS = 4
_OPERATORS = ("words", "counts", "seen")
PUBLISHED = "published, not measured here: in the DS2 paper up to 13 % of latency on Flink and 20 % on Timely"


@dataclass(frozen=True, kw_only=True)
class Window:
    """What a window showed."""

    records_per_s: float
    """Of the slowest operator."""
    batch_s: float
    """The median time of a batch, of all operators together."""


def pipeline() -> Pipeline:
    found = Pipeline("overhead")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", parallelism=2)
    def words(sentences: DataFrame) -> DataFrame:
        return sentences.select((F.col("id") % 1_000).alias("key"), F.length("line").alias("length"))

    @found.operator(reads="words", parallelism=2, state_partitions=4, output_mode="update")
    def counts(words: DataFrame) -> DataFrame:
        return words.groupBy("key").agg(F.count("*").alias("lines"), F.sum("length").alias("letters"))

    @found.sink(reads="counts")
    def seen(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    return found


def run(*, pairs: int = 10, often_pairs: int = 4, window_s: float | None = None) -> Report:
    default_s = Knobs().interval_s
    window_s = default_s if window_s is None else window_s
    with session("overhead", slots=_SLOTS) as spark:
        with temporary_folder() as folder:
            # enough for all windows at some millions a second
            put_backlog(channel(folder, "sentences"), commits=4_000, records_each=1_000_000)
            with running(
                spark, pipeline(), folder, batch_interval_s=_BATCH_INTERVAL_S, channel_bound=_CHANNEL_BOUND
            ) as engine:
                await_batches(checkpoint(folder, "counts"), _WARM_UP_BATCHES)
                fast = _compare(engine, pairs, window_s, window_s)
                fast_often = _compare(engine, often_pairs, window_s, _OFTEN_S)
        with temporary_folder() as folder:
            feed = channel(folder, "sentences")
            with (
                generator(feed, _STEADY_PER_S),
                running(spark, pipeline(), folder, batch_interval_s=_BATCH_INTERVAL_S) as engine,
            ):
                await_batches(checkpoint(folder, "counts"), _WARM_UP_BATCHES)
                with watched(engine, "measure") as calls:
                    steady = _compare(engine, pairs, window_s, window_s)
                steady_often = _compare(engine, often_pairs, window_s, _OFTEN_S)
    cost = median_between(calls.took_s)
    bound = MOST_PERCENT
    return Report(
        measures=(
            _slower("throughput lost at full speed", fast, window_s, at_most=bound),
            _slower("throughput lost at full speed", fast_often, _OFTEN_S),
            _longer(f"batch time added at {_STEADY_PER_S:,}/s", steady, window_s, at_most=bound),
            _longer(f"batch time added at {_STEADY_PER_S:,}/s", steady_often, _OFTEN_S),
            Measure(what="one call of measure()", value=1000 * cost.value, unit="ms"),
            Measure(what="the same, of the time between two", value=100 * cost.value / default_s, unit="%"),
            Measure(
                what="throughput at full speed, unmeasured: median",
                value=median(off.records_per_s for _, off in fast),
                unit="/s",
            ),
            Measure(
                what=f"batch time at {_STEADY_PER_S:,}/s, unmeasured, of three operators: median",
                value=1000 * median(off.batch_s for _, off in steady),
                unit="ms",
            ),
        ),
        notes=(
            f"{pairs} and {often_pairs} pairs of windows of {window_s:g} s, with measuring and without in turn; "
            f"the manager's own interval is {default_s:g} s",
            PUBLISHED,
        ),
    )


Pairs = list[tuple[Window, Window]]


def _compare(engine: SparkEngine, pairs: int, window_s: float, every_s: float) -> Pairs:
    """Windows with measuring and without, in an order that turns round with each pair: neither is always first."""
    found = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        pair = {measured: _window(engine, window_s, every_s if measured else None) for measured in order}
        found.append((pair[True], pair[False]))
    return found


def _window(engine: SparkEngine, window_s: float, every_s: float | None) -> Window:
    began_s = time.time()
    with _measuring(engine, every_s):
        time.sleep(window_s)
    none_failed(engine)
    return window_of(ended_between(batches_of(engine), began_s, time.time()), _OPERATORS)


def window_of(batches: list[Batch], operators: tuple[str, ...]) -> Window:
    each = [[batch for batch in batches if batch.query == operator] for operator in operators]
    return Window(
        records_per_s=records_per_s(each[0]),  # the feed's reader: with bounded channels all go at its pace
        batch_s=sum(median(batch.took_s for batch in of_one) for of_one in each),
    )


@contextmanager
def _measuring(engine: SparkEngine, every_s: float | None) -> Iterator[None]:
    """Call `measure()` so often, the first time after half of that; never, where there is no interval."""
    stop = threading.Event()

    def measure() -> None:
        assert every_s is not None
        wait_s = every_s / 2
        while not stop.wait(wait_s):
            engine.measure()
            wait_s = every_s

    thread = threading.Thread(target=measure, daemon=True)
    if every_s is not None:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if every_s is not None:
            thread.join(timeout=60)


def _slower(what: str, pairs: Pairs, every_s: float, at_most: float | None = None) -> Measure:
    lost = ratio_of_pairs([(on.records_per_s, off.records_per_s) for on, off in pairs]).minus_from(1.0)
    return _percent(f"{what}, measuring every {every_s:g} s", lost.value, lost.between, at_most)


def _longer(what: str, pairs: Pairs, every_s: float, at_most: float | None = None) -> Measure:
    ratio = ratio_of_pairs([(on.batch_s, off.batch_s) for on, off in pairs])
    added = (ratio.low - 1, ratio.high - 1)
    return _percent(f"{what}, measuring every {every_s:g} s", ratio.value - 1, added, at_most)


def _percent(what: str, share: float, between: tuple[float, float], at_most: float | None) -> Measure:
    low, high = between
    return Measure(what=what, value=100 * share, unit="%", at_most=at_most, between=(100 * low, 100 * high))
