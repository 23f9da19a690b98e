"""Whether a pipeline that runs for long needs more and more of anything: disk, memory, descriptors, threads, time.

At a steady rate, the size of the channels, that of the checkpoints, the memory, descriptors and threads of the
driver and of its JVM, the time of a batch, and of that what is spent on listing and bookkeeping (latestOffset,
getBatch, walCommit, commitOffsets, and publishing what it wrote) are taken in one minute early and in one late.
Segments are deleted when the manager measures, so the sizes are a saw: they are sampled often, and the median over
a minute, which is two of the manager's intervals, is compared. Of the JVM's memory counts what is left when its
garbage was collected: how much it takes from the machine is for the collector to say, up to its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import Batch, ended_between
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import (
    Stopwatch,
    batches_of,
    channel,
    generator,
    put_once,
    running,
    session,
    size_bytes,
    temporary_folder,
    watched,
)
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.manager.knobs import Knobs
from elastream.workloads.generator import SCHEMA

MOST_GROWTH = 1.1
_BATCH_INTERVAL_S = 1.0
_RECORDS_PER_S = 2_000
_KEYS = 20_000
_SAMPLE_S = 2.0
_MINUTE_S = 60.0
_MEGABYTE = 1e6


@dataclass(frozen=True, kw_only=True)
class Sample:
    at_s: float
    channels_bytes: int
    checkpoints_bytes: int
    driver_bytes: int
    jvm_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Minute:
    """What a minute showed."""

    channels_mb: float
    checkpoints_mb: float
    driver_mb: float
    jvm_mb: float
    heap_mb: float
    descriptors: float
    threads: float
    batch_ms: float
    bookkeeping_ms: float
    publishing_ms: float

    @property
    def overhead_ms(self) -> float:
        return self.bookkeeping_ms + self.publishing_ms


def pipeline() -> Pipeline:
    found = Pipeline("soak")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", parallelism=2)
    def keyed(sentences: DataFrame) -> DataFrame:
        return sentences.select((F.col("id") % _KEYS).alias("key"), "line")

    @found.operator(reads="keyed", parallelism=2, state_partitions=4, output_mode="update")
    def counts(keyed: DataFrame) -> DataFrame:
        return keyed.groupBy("key").count()

    @found.sink(reads="counts")
    def seen(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    return found


def run(*, early_s: float = 180.0, late_s: float = 900.0, settings: dict[str, str] | None = None) -> Report:
    """The minute before each of the two times."""
    samples: list[Sample] = []
    batches: dict[tuple[str, str, int], Batch] = {}
    with ExitStack() as whole:
        folder = whole.enter_context(temporary_folder())
        feed = channel(folder, "sentences")
        put_once(feed, _KEYS)  # the state has all of its keys from the beginning
        spark = whole.enter_context(session("soak", slots=4, settings=settings))
        publishing = whole.enter_context(watched(SegmentLog, "publish"))
        engine = whole.enter_context(running(spark, pipeline(), folder, batch_interval_s=_BATCH_INTERVAL_S))
        whole.enter_context(generator(feed, _RECORDS_PER_S))
        began_s = time.time()
        heaps_mb = []
        for at_s in (early_s, late_s):
            _watch(engine, folder, began_s + at_s, samples, batches)
            heaps_mb.append(_live_heap_bytes(spark) / _MEGABYTE)
    early, late = (
        _minute(samples, list(batches.values()), publishing, began_s + at_s, heap_mb)
        for at_s, heap_mb in zip((early_s, late_s), heaps_mb, strict=True)
    )
    return _report(early, late, early_s, late_s, _series(samples, began_s))


def _watch(
    engine: SparkEngine,
    folder: Path,
    until_s: float,
    samples: list[Sample],
    batches: dict[tuple[str, str, int], Batch],
) -> None:
    """Look at the disk often, and measure as often as a manager does."""
    driver = psutil.Process()
    java = [process for process in driver.children(recursive=True) if process.name() == "java"]
    measure_at_s = time.time() + Knobs().interval_s
    while time.time() < until_s:
        time.sleep(_SAMPLE_S)
        samples.append(
            Sample(
                at_s=time.time(),
                channels_bytes=size_bytes(folder / "channels"),
                checkpoints_bytes=size_bytes(folder / "checkpoints"),
                driver_bytes=driver.memory_info().rss,
                jvm_bytes=sum(process.memory_info().rss for process in java),
                descriptors=sum(process.num_fds() for process in (driver, *java)),
                threads=sum(process.num_threads() for process in (driver, *java)),
            )
        )
        if time.time() >= measure_at_s:
            engine.measure()
            batches.update({(batch.query, batch.run, batch.number): batch for batch in batches_of(engine)})
            measure_at_s += Knobs().interval_s
    batches.update({(batch.query, batch.run, batch.number): batch for batch in batches_of(engine)})


def _live_heap_bytes(spark: SparkSession) -> int:
    """What is left of the JVM's heap when garbage was collected."""
    assert spark._jvm is not None
    spark._jvm.System.gc()
    runtime = spark._jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _minute(
    samples: Sequence[Sample], batches: list[Batch], publishing: Stopwatch, to_s: float, heap_mb: float
) -> Minute:
    from_s = to_s - _MINUTE_S
    within = [sample for sample in samples if from_s <= sample.at_s < to_s]
    ended = ended_between(batches, from_s, to_s)
    took = [
        took_s
        for began_s, took_s in zip(publishing.began_s, publishing.took_s, strict=True)
        if from_s <= began_s < to_s
    ]
    return Minute(
        channels_mb=median(sample.channels_bytes for sample in within) / _MEGABYTE,
        checkpoints_mb=median(sample.checkpoints_bytes for sample in within) / _MEGABYTE,
        driver_mb=median(sample.driver_bytes for sample in within) / _MEGABYTE,
        jvm_mb=median(sample.jvm_bytes for sample in within) / _MEGABYTE,
        heap_mb=heap_mb,
        descriptors=median(sample.descriptors for sample in within),
        threads=median(sample.threads for sample in within),
        batch_ms=1000 * median(batch.took_s for batch in ended),
        bookkeeping_ms=1000 * median(batch.bookkeeping_s for batch in ended),
        publishing_ms=1000 * median(took),
    )


def _report(early: Minute, late: Minute, early_s: float, late_s: float, series: tuple[str, ...]) -> Report:
    compared: tuple[tuple[str, str, Callable[[Minute], float]], ...] = (
        ("channels", "MB", lambda minute: minute.channels_mb),
        ("checkpoints", "MB", lambda minute: minute.checkpoints_mb),
        ("memory of the driver", "MB", lambda minute: minute.driver_mb),
        ("heap of the JVM, without garbage", "MB", lambda minute: minute.heap_mb),
        ("descriptors", "", lambda minute: minute.descriptors),
        ("threads", "", lambda minute: minute.threads),
        ("a batch", "ms", lambda minute: minute.batch_ms),
        ("listing and bookkeeping of a batch", "ms", lambda minute: minute.overhead_ms),
    )
    measures = []
    for what, unit, of in compared:
        measures += [
            Measure(what=f"{what}, after {early_s / 60:g} min", value=of(early), unit=unit),
            Measure(what=f"{what}, after {late_s / 60:g} min", value=of(late), unit=unit),
            Measure(what=f"{what}: growth", value=of(late) / of(early), unit="times", at_most=MOST_GROWTH),
        ]
    return Report(
        measures=tuple(measures),
        notes=(
            f"medians of a minute; {_RECORDS_PER_S:,} records/s, a batch every {_BATCH_INTERVAL_S:g} s, {_KEYS:,} "
            f"keys, measured (and forgotten) every {Knobs().interval_s:g} s",
            f"memory that the JVM takes from the machine: {early.jvm_mb:,.0f} MB, then {late.jvm_mb:,.0f} MB",
            f"of bookkeeping, publishing: {early.publishing_ms:.1f} ms, then {late.publishing_ms:.1f} ms",
            *series,
        ),
    )


def _series(samples: Sequence[Sample], began_s: float) -> tuple[str, ...]:
    """The medians of every minute: whether something still grows shows better here than in two of them."""
    minutes: dict[int, list[Sample]] = {}
    for sample in samples:
        minutes.setdefault(int((sample.at_s - began_s) / _MINUTE_S) + 1, []).append(sample)
    channels = {minute: median(s.channels_bytes for s in within) for minute, within in minutes.items()}
    checkpoints = {minute: median(s.checkpoints_bytes for s in within) for minute, within in minutes.items()}
    return tuple(
        f"{what} by minute, MB: {', '.join(f'{size / _MEGABYTE:.2f}' for size in sizes.values())}"
        for what, sizes in (("channels", channels), ("checkpoints", checkpoints))
    )
