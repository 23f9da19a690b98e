"""An elastream pipeline beside the same work written by hand as plain Structured Streaming queries, at full speed.

Three queries: one takes a number and a text from each sentence, one counts by key (update mode), one keeps what
comes out in Parquet files. Between them lie durable streams in files. Compared are

- *elastream*: the pipeline, over file channels, with nothing measured or rescaled, and batches of a fixed size;
- *elastream, batches that grow*: as it runs otherwise, an interval of a second and batches that grow up to three;
- *Spark's files*: Spark's own Parquet source and file sink between the queries. The counts are written by
  foreachBatch, as the file sink does not take update mode: by hand, that is not exactly once after a crash;
- *by hand over channels*: the same foreachBatch that writes files and publishes them, without the engine around
  it. What it lacks beside elastream are batch sizes that adapt, backpressure and readiness to be rescaled.

All have the same backlog in files of one size, the same number of tasks, and (but for those that grow) the same
records in a batch of the first query and no time between batches. The time runs from the begin of the first batch
to the end of the last one of all queries: the start of the first query is not in it, that of the others is, and so
the backlog has to be long.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.batches import Batch, batch_of, mean_parts_s, parts_text
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import (
    batches_of,
    channel,
    none_failed,
    put_backlog,
    running,
    session,
    temporary_folder,
    wait_until,
    watched,
)
from benchmarks.spread import ratio_of_pairs
from elastream.engines.spark import batch_size
from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.files_source import FORMAT
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

LEAST_RATIO = 0.95
_KEYS = 1_000
_TASKS = 2
_STATE_PARTITIONS = 4
_BATCH_INTERVAL_S = 1.0
_NO_INTERVAL_S = 0.01
_RECORDS_IN_A_FILE = 50_000
_FILES_IN_A_BATCH = 2
_BATCH_RECORDS = _RECORDS_IN_A_FILE * _FILES_IN_A_BATCH
_STEPS = ("keyed", "counts", "kept")


@dataclass(frozen=True, kw_only=True)
class Drained:
    """One run of one variant over the backlog."""

    took_s: float
    batches: tuple[Batch, ...]
    publishing_s: float = 0.0
    """Counting files and publishing them, which is part of addBatch."""

    @property
    def records_per_s(self) -> float:
        return sum(batch.records for batch in self.batches if batch.query == _STEPS[0]) / self.took_s


def drained(batches: list[Batch], publishing_s: float = 0.0) -> Drained:
    took_s = max(batch.ended_s for batch in batches) - min(batch.began_s for batch in batches)
    return Drained(took_s=took_s, batches=tuple(batches), publishing_s=publishing_s)


def run(*, pairs: int = 5, files: int = 80) -> Report:
    variants: Mapping[str, Callable[[SparkSession, Path, int], Drained]] = {
        "elastream": _elastream,
        "elastream, batches that grow": _elastream_growing,
        "Spark's files": _spark_files,
        "by hand over channels": _by_hand,
    }
    found: dict[str, list[Drained]] = {name: [] for name in variants}
    # Spark forgets the oldest of a hundred batches, and all of them are wanted
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    with session("throughput", slots=2 * _TASKS, settings=settings) as spark:
        for variant in variants.values():  # the first run of each compiles, loads and starts Python
            with temporary_folder() as folder:
                variant(spark, folder, 2 * _FILES_IN_A_BATCH)
        for number in range(pairs):
            for name in list(variants)[:: -1 if number % 2 else 1]:
                with temporary_folder() as folder:
                    found[name].append(variants[name](spark, folder, files))
    return _report(found, files)


def _report(found: Mapping[str, list[Drained]], files: int) -> Report:
    ours, others = found["elastream"], {name: runs for name, runs in found.items() if name != "elastream"}
    ratios = [
        _ratio(f"elastream by {name}", ours, runs, LEAST_RATIO if name == "Spark's files" else None)
        for name, runs in others.items()
    ]
    speeds = [
        Measure(what=f"{name}: median", value=median(run.records_per_s for run in runs), unit="/s")
        for name, runs in found.items()
    ]
    return Report(
        measures=(*ratios, *speeds),
        notes=(
            f"{len(ours)} runs of each in turn, {files * _RECORDS_IN_A_FILE:,} records, {_BATCH_RECORDS:,} in a "
            f"batch of the first query, {_TASKS} tasks, {_STATE_PARTITIONS} state partitions, {_KEYS:,} keys",
            *(note for name, runs in found.items() for note in _where_time_goes(name, runs)),
        ),
    )


def _ratio(what: str, ours: list[Drained], theirs: list[Drained], at_least: float | None) -> Measure:
    speeds = [(a.records_per_s, b.records_per_s) for a, b in zip(ours, theirs, strict=True)]
    ratio = ratio_of_pairs(speeds)
    return Measure(what=what, value=ratio.value, unit="times", at_least=at_least, between=ratio.between)


def _where_time_goes(name: str, runs: list[Drained]) -> list[str]:
    lines = []
    for step in _STEPS:
        batches = [batch for run in runs for batch in run.batches if batch.query == step]
        share = f"{len(batches) / len(runs):.0f} batches a run"
        lines.append(f"{name}, {step}: {share}, each {parts_text(mean_parts_s(batches))}")
    publishing_s = sum(run.publishing_s for run in runs)
    if publishing_s > 0:
        each_ms = 1000 * publishing_s / sum(len(run.batches) for run in runs)
        lines.append(f"{name}: of addBatch, counting files and publishing them {each_ms:.0f} ms")
    return lines


# What each operator does, the same for all


def _keyed(sentences: DataFrame) -> DataFrame:
    return sentences.select((F.col("id") % _KEYS).alias("key"), F.length("line").alias("length"))


def _counts(keyed: DataFrame) -> DataFrame:
    return keyed.groupBy("key").agg(F.count("*").alias("lines"), F.sum("length").alias("letters"))


# elastream


def _elastream(spark: SparkSession, folder: Path, files: int) -> Drained:
    """With batches as large as those by hand, one right after the other."""
    with patch.object(batch_size, "_SHORT", 0.0), patch.object(batch_size, "_LONG", math.inf):
        return _elastream_growing(spark, folder, files, batch_interval_s=_NO_INTERVAL_S)


def _elastream_growing(
    spark: SparkSession, folder: Path, files: int, *, batch_interval_s: float = _BATCH_INTERVAL_S
) -> Drained:
    put_backlog(channel(folder, "sentences"), commits=files, records_each=_RECORDS_IN_A_FILE)
    for step in _STEPS:
        path = folder / "control" / f"{step}.json"
        path.parent.mkdir(exist_ok=True)
        write_control(path, Control(parallelism=_TASKS, most_records=_BATCH_RECORDS))
    with ExitStack() as watching:
        watches = [
            watching.enter_context(watched(FileChannel, "_segment")),
            watching.enter_context(watched(SegmentLog, "publish")),
        ]
        with running(spark, _pipeline(folder), folder, batch_interval_s=batch_interval_s) as engine:
            _wait_until_drained(engine, folder)
            wait_until(lambda: _all_kept(batches_of(engine)), "the progress of the last batch")
            batches = batches_of(engine)
    return drained(batches, sum(sum(watch.took_s) for watch in watches))


def _pipeline(folder: Path) -> Pipeline:
    found = Pipeline("throughput")
    found.feed("sentences", schema=SCHEMA)
    found.operator(reads="sentences", parallelism=_TASKS)(_named("keyed", _keyed))
    found.operator(reads="keyed", state_partitions=_STATE_PARTITIONS, output_mode="update", parallelism=_TASKS)(
        _named("counts", _counts)
    )
    found.keep("kept", reads="counts", folder=folder / "kept", parallelism=_TASKS)
    return found


def _named(name: str, function: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
    def operator(frame: DataFrame) -> DataFrame:
        return function(frame)

    operator.__name__ = name
    return operator


def _wait_until_drained(engine: SparkEngine, folder: Path) -> None:
    reads = zip(("sentences", *_STEPS), _STEPS, strict=False)
    logs = [(SegmentLog(channel(folder, read)), step) for read, step in reads]

    def is_drained() -> bool:
        done = all(log.head().records > 0 and log.pending(step) == 0 for log, step in logs)
        return none_failed(engine) and done

    wait_until(is_drained, "the backlog drained")


def _all_kept(batches: list[Batch]) -> bool:
    """Whether the progress of every batch has come: what the counts put out is the last to be read."""
    return _taken(batches, "keyed") == _taken(batches, "counts") and _taken(batches, "kept") > 0


def _taken(batches: list[Batch], step: str) -> int:
    return sum(batch.records for batch in batches if batch.query == step)


# By hand, over Spark's own files


def _spark_files(spark: SparkSession, folder: Path, files: int) -> Drained:
    first = channel(folder, "sentences")
    put_backlog(first, commits=1, records_each=_RECORDS_IN_A_FILE)
    source = folder / "sentences"
    source.mkdir()
    for number in range(files):
        shutil.copy(first / "records.parquet", source / f"{number:06d}.parquet")
    keyed_schema, counts_schema = _schemas(spark)
    # the folders must be there before a query reads them
    for name in ("keyed", "counts"):
        (folder / name).mkdir()
    queries = {
        "keyed": _file_sink(_keyed(_read_files(spark, SCHEMA, source, _FILES_IN_A_BATCH)), folder, "keyed"),
        "counts": _count_into_files(spark, _read_files(spark, keyed_schema, folder / "keyed", _TASKS), folder),
        # update mode gives one folder for each batch, below which the files lie
        "kept": _file_sink(_read_files(spark, counts_schema, folder / "counts", _TASKS), folder, "kept"),
    }
    return _finish(queries, files * _RECORDS_IN_A_FILE)


def _schemas(spark: SparkSession) -> tuple[str, str]:
    keyed = _keyed(spark.createDataFrame([], SCHEMA))
    return _ddl(keyed), _ddl(_counts(keyed))


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def _read_files(spark: SparkSession, schema: str, folder: Path, files: int) -> DataFrame:
    return (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", files)
        .option("recursiveFileLookup", "true")
        .parquet(str(folder))
    )


def _file_sink(frame: DataFrame, folder: Path, name: str) -> StreamingQuery:
    return (
        frame.coalesce(_TASKS)
        .writeStream.queryName(name)
        .format("parquet")
        .option("path", str(folder / name))
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .start()
    )


def _count_into_files(spark: SparkSession, keyed: DataFrame, folder: Path) -> StreamingQuery:
    def write(batch: DataFrame, batch_id: int) -> None:
        # beside and then in place: the reader must not see half of it
        beside, place = folder / "beside" / f"b{batch_id}", folder / "counts" / f"b{batch_id}"
        batch.write.mode("overwrite").parquet(str(beside))
        beside.rename(place)

    return _counting(spark, keyed, folder).foreachBatch(write).start()


def _counting(spark: SparkSession, keyed: DataFrame, folder: Path):  # type: ignore[no-untyped-def]
    spark.conf.set("spark.sql.shuffle.partitions", str(_STATE_PARTITIONS))
    return (
        _counts(keyed)
        .coalesce(_TASKS)
        .writeStream.queryName("counts")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoints" / "counts"))
    )


def _finish(queries: Mapping[str, StreamingQuery], records: int) -> Drained:
    """Wait until all of it has gone through all queries."""

    def batches() -> list[Batch]:
        for query in queries.values():
            if (error := query.exception()) is not None:
                raise error
        return [
            batch_of(name, progress)
            for name, query in queries.items()
            for progress in query.recentProgress
            if progress["numInputRows"] > 0
        ]

    def is_through() -> bool:
        found = batches()
        groups = sum(batch.query == "counts" for batch in found) * _KEYS
        return _taken(found, "counts") >= records and _taken(found, "kept") >= groups

    try:
        wait_until(is_through, "the backlog drained by hand")
        return drained(batches())
    finally:
        for query in queries.values():
            query.stop()


# By hand, over elastream's channels


def _by_hand(spark: SparkSession, folder: Path, files: int) -> Drained:
    put_backlog(channel(folder, "sentences"), commits=files, records_each=_RECORDS_IN_A_FILE)
    write_control(folder / "control.json", Control(parallelism=_TASKS, most_records=_BATCH_RECORDS))
    keyed_schema, counts_schema = _schemas(spark)
    for name in ("keyed", "counts", "kept"):
        FileChannel(channel(folder, name)).create()
    read = partial(_read_channel, spark, folder)
    counting = _counting(spark, read(keyed_schema, "keyed", "counts"), folder)
    queries = {
        "keyed": _publishing(
            _keyed(read(SCHEMA, "sentences", "keyed")).writeStream.queryName("keyed"), folder, "keyed"
        ),
        "counts": _publishing(counting, folder, "counts"),
        "kept": _publishing(read(counts_schema, "counts", "kept").writeStream.queryName("kept"), folder, "kept"),
    }
    return _finish(queries, files * _RECORDS_IN_A_FILE)


def _read_channel(spark: SparkSession, folder: Path, schema: str, name: str, reader: str) -> DataFrame:
    return (
        spark.readStream.format(FORMAT)
        .schema(schema)
        .option("path", str(channel(folder, name)))
        .option("reader", reader)
        .option("control", str(folder / "control.json"))
        .load()
    )


def _publishing(writer, folder: Path, name: str) -> StreamingQuery:  # type: ignore[no-untyped-def]
    found = FileChannel(channel(folder, name))

    def write(batch: DataFrame, batch_id: int) -> None:
        found.write(batch, batch_id)

    return writer.option("checkpointLocation", str(folder / "checkpoints" / name)).foreachBatch(write).start()
