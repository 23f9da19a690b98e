"""A windowed count over a backlog, read in the order of event time, beside the same read as it lies.

Files that were there before the start go through source, filter, a count by window and key, and a sink that keeps.
Compared are, in turn and in one run,

- *in order*: as it is: the source sorts each task's records by event time and cuts what it publishes, and readers
  stop at cuts, so that nothing is late;
- *as it lies*: as it was: batches of any size over files in any order. It is quicker for a bad reason, too: what
  is late is dropped before it is counted. How much that was is shown;
- *plain Spark*: the same as a single query, in one batch for the whole backlog. It has no channels, and nothing
  between its operators can be rescaled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import none_failed, running, session, temporary_folder, wait_until
from benchmarks.spread import ratio_of_pairs
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.event_time import EventTimes
from elastream.engines.spark.pipeline import Pipeline

_SCHEMA = "at timestamp, auction int, price int"
_FILES = 200
_SPAN_S = 600
_TASKS = 2
_STATE_PARTITIONS = 4
_BATCH_INTERVAL_S = 0.2
_QUIET_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Drained:
    took_s: float
    counted: int
    """Records in the windows that were put out."""


def run(*, pairs: int = 5, records: int = 1_000_000) -> Report:
    variants: Mapping[str, Callable[[SparkSession, Path], Drained]] = {
        "in order": _in_order,
        "as it lies": _as_it_lies,
        "plain Spark": _plain,
    }
    found: dict[str, list[Drained]] = {name: [] for name in variants}
    with session("event-time", slots=2 * _TASKS) as spark, temporary_folder() as backlog:
        _put(backlog / "warm-up", 20_000)
        _put(backlog / "bids", records)
        for variant in variants.values():
            variant(spark, backlog / "warm-up")
        for number in range(pairs):
            for name in list(variants)[:: -1 if number % 2 else 1]:
                found[name].append(variants[name](spark, backlog / "bids"))
    return _report(found, records)


def _report(found: Mapping[str, list[Drained]], records: int) -> Report:
    ours = [run.took_s for run in found["in order"]]
    ratios = {
        name: ratio_of_pairs([(run.took_s, own_s) for own_s, run in zip(ours, runs, strict=True)])
        for name, runs in found.items()
        if name != "in order"
    }
    whole = found["plain Spark"][0].counted
    lost = median(1 - run.counted / whole for run in found["as it lies"])
    return Report(
        measures=(
            *(
                Measure(what=f"throughput in order by {name}", value=r.value, unit="times", between=r.between)
                for name, r in ratios.items()
            ),
            Measure(
                what="counted in order, of what plain Spark counts",
                value=min(run.counted / whole for run in found["in order"]),
                unit="share",
                at_least=1.0,
                at_most=1.0,
            ),
            Measure(what="lost where it is read as it lies", value=lost, unit="share"),
        ),
        notes=(
            f"{len(ours)} runs of each in turn, {records:,} records of {_SPAN_S} s in {_FILES} files; medians "
            + ", ".join(f"{name} {median(run.took_s for run in runs):.1f} s" for name, runs in found.items()),
        ),
    )


def _put(folder: Path, records: int) -> None:
    """In the order of time, as a stream that was recorded."""
    folder.mkdir(parents=True)
    numbers = np.arange(records)
    table = pa.table(
        {
            "at": pa.array(1_767_225_600_000_000 + numbers * (_SPAN_S * 1_000_000) // records).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "auction": pa.array((numbers * 7919 % 1_000).astype(np.int32)),
            "price": pa.array((numbers % 5).astype(np.int32)),
        }
    )
    each = -(-records // _FILES)
    for number in range(_FILES):
        pq.write_table(table.slice(number * each, each), folder / f"{number:04d}.parquet")


def _dear(bids: DataFrame) -> DataFrame:
    return bids.filter("price > 0")


def _counts(dear: DataFrame) -> DataFrame:
    return dear.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "auction").count()


def _in_order(spark: SparkSession, backlog: Path) -> Drained:
    pipeline = Pipeline("bids")
    with temporary_folder() as folder:

        @pipeline.source
        def bids(spark: SparkSession) -> DataFrame:
            return spark.readStream.schema(_SCHEMA).parquet(str(backlog))

        @pipeline.operator(reads="bids", parallelism=_TASKS)
        def dear(bids: DataFrame) -> DataFrame:
            return _dear(bids)

        @pipeline.operator(reads="dear", parallelism=_TASKS, state_partitions=_STATE_PARTITIONS)
        def counts(dear: DataFrame) -> DataFrame:
            return _counts(dear)

        pipeline.keep("kept", reads="counts", folder=folder / "kept", parallelism=_TASKS)
        kept = FileChannel(folder / "kept")
        with running(spark, pipeline, folder, batch_interval_s=_BATCH_INTERVAL_S) as engine:
            began_s = time.monotonic()
            ended_s = _wait_until_quiet(lambda: none_failed(engine) and kept.log.head().records)
        counted = sum(sum(table["count"].to_pylist()) for table in kept.tables())
    return Drained(took_s=ended_s - began_s, counted=counted)


def _as_it_lies(spark: SparkSession, backlog: Path) -> Drained:
    with ExitStack() as before:
        before.enter_context(patch.object(EventTimes, "follows", lambda *_: False))
        before.enter_context(patch.object(EventTimes, "column_to_cut_by", lambda *_: None))
        return _in_order(spark, backlog)


def _plain(spark: SparkSession, backlog: Path) -> Drained:
    spark.conf.set("spark.sql.shuffle.partitions", str(_STATE_PARTITIONS))
    frame = _counts(_dear(spark.readStream.schema(_SCHEMA).parquet(str(backlog))))
    with temporary_folder() as folder:
        began_s = time.monotonic()
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(folder / "kept"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        took_s = time.monotonic() - began_s
        query.stop()
        counted = int(spark.read.parquet(str(folder / "kept")).agg(F.sum("count")).head()[0])  # type: ignore[index]
    return Drained(took_s=took_s, counted=counted)


def _wait_until_quiet(records: Callable[[], int]) -> float:
    """When the last record was kept: a batch without input closes the last windows, and nobody tells of it."""
    newest, since_s = 0, time.monotonic()

    def is_quiet() -> bool:
        nonlocal newest, since_s
        found = records()
        if found != newest:
            newest, since_s = found, time.monotonic()
        return newest > 0 and time.monotonic() - since_s > _QUIET_S

    wait_until(is_quiet, "the backlog drained")
    return since_s
