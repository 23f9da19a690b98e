"""Whether a pipeline that runs for long needs more and more disk, or more and more time to look through it.

At a steady rate, the size of the channels, that of the checkpoints, and the time that a batch spends on listing
and bookkeeping (latestOffset, getBatch, walCommit, commitOffsets, and publishing what it wrote) are taken in one
minute early and in one late. Segments are deleted when the manager measures, so the sizes are a saw: they are
sampled often, and the median over a minute, which is two of the manager's intervals, is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
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


@dataclass(frozen=True, kw_only=True)
class Minute:
    """What a minute showed."""

    channels_mb: float
    checkpoints_mb: float
    bookkeeping_ms: float
    publishing_ms: float

    @property
    def overhead_ms(self) -> float:
        return self.bookkeeping_ms + self.publishing_ms


def pipeline() -> Pipeline:
    found = Pipeline("disk")
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
        spark = whole.enter_context(session("disk", slots=4, settings=settings))
        publishing = whole.enter_context(watched(SegmentLog, "publish"))
        engine = whole.enter_context(running(spark, pipeline(), folder, batch_interval_s=_BATCH_INTERVAL_S))
        whole.enter_context(generator(feed, _RECORDS_PER_S))
        began_s = time.time()
        _watch(engine, folder, began_s + late_s, samples, batches)
    early, late = (
        _minute(samples, list(batches.values()), publishing, began_s + at_s) for at_s in (early_s, late_s)
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
    measure_at_s = time.time() + Knobs().interval_s
    while time.time() < until_s:
        time.sleep(_SAMPLE_S)
        samples.append(
            Sample(
                at_s=time.time(),
                channels_bytes=size_bytes(folder / "channels"),
                checkpoints_bytes=size_bytes(folder / "checkpoints"),
            )
        )
        if time.time() >= measure_at_s:
            engine.measure()
            batches.update({(batch.query, batch.run, batch.number): batch for batch in batches_of(engine)})
            measure_at_s += Knobs().interval_s
    batches.update({(batch.query, batch.run, batch.number): batch for batch in batches_of(engine)})


def _minute(samples: Sequence[Sample], batches: list[Batch], publishing: Stopwatch, to_s: float) -> Minute:
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
        bookkeeping_ms=1000 * median(batch.bookkeeping_s for batch in ended),
        publishing_ms=1000 * median(took),
    )


def _report(early: Minute, late: Minute, early_s: float, late_s: float, series: tuple[str, ...]) -> Report:
    compared: tuple[tuple[str, str, Callable[[Minute], float]], ...] = (
        ("channels", "MB", lambda minute: minute.channels_mb),
        ("checkpoints", "MB", lambda minute: minute.checkpoints_mb),
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
            f"of the last, publishing: {early.publishing_ms:.1f} ms, then {late.publishing_ms:.1f} ms",
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
