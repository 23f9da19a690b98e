"""What a batch costs beside its records, with the settings of elastream and without those that lower it.

Queries as those of operators, first all without state and then all with it, run over sources that cost next to
nothing; each batch is put together into a few tasks and written as a channel writes it. Told is the processor time
of Spark's Java process for a batch, which does not depend on what else the machine does; how often Spark compiled
code in one, of which a batch that is like the one before it needs none; and where the time of a batch went.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.batches import batch_of, mean_parts_s, parts_text
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import session, temporary_folder, wait_until
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.session import LOWERS_FIXED_COST

_PARTITIONS = 12
_TASKS = 3
_KEYS = 10_000
_ROWS = 500
_PATIENCE_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCosts:
    """Of one batch, on the average."""

    cpu_s: float
    compilations: float
    parts_s: Mapping[str, float]
    """Of its time by the clock, which depends on what else the machine does."""


def run(*, operators: int = 8, warm_up: int = 12, batches: int = 25) -> Report:
    plain = {key: _SPARKS_OWN[key] for key in LOWERS_FIXED_COST}
    measures: list[Measure] = []
    notes = [
        f"{operators} queries, {_TASKS} tasks, {_ROWS} records a batch",
        f"what differs: {', '.join(LOWERS_FIXED_COST)}",
    ]
    for stateful in (False, True):
        which = f"with {_PARTITIONS} state partitions" if stateful else "without state"
        before = _measured(plain, operators, warm_up, batches, stateful=stateful)
        after = _measured({}, operators, warm_up, batches, stateful=stateful)
        measures += _compared(which, before, after)
        notes.append(f"{which}, with elastream's settings, by the clock: {parts_text(after.parts_s)}")
    return Report(measures=tuple(measures), notes=tuple(notes))


def _compared(which: str, before: BatchCosts, after: BatchCosts) -> list[Measure]:
    return [
        Measure(what=f"processor time of a batch {which}, Spark's own settings", value=before.cpu_s, unit="s"),
        Measure(what="the same with elastream's", value=after.cpu_s, unit="s"),
        Measure(what="ratio", value=after.cpu_s / before.cpu_s, unit=""),
        Measure(what=f"compilations in a batch {which}, Spark's own settings", value=before.compilations, unit=""),
        Measure(what="the same with elastream's", value=after.compilations, unit=""),
    ]


_SPARKS_OWN = {
    "spark.sql.codegen.cache.maxEntries": "100",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true",
}


def _measured(
    settings: Mapping[str, str], operators: int, warm_up: int, batches: int, *, stateful: bool
) -> BatchCosts:
    with temporary_folder() as folder, session("fixed-cost", slots=4, settings=settings) as spark:
        queries = [_started(spark, folder, number, stateful=stateful) for number in range(operators)]
        _until(queries, warm_up)
        cpu_s, done, compiled = _java_cpu_s(spark), _done(queries), _compilations(spark)
        _until(queries, warm_up + batches)
        many = _done(queries) - done
        last = [batch_of(str(query.id), entry) for query in queries for entry in query.recentProgress[-batches:]]
        found = BatchCosts(
            cpu_s=(_java_cpu_s(spark) - cpu_s) / many,
            compilations=(_compilations(spark) - compiled) / many,
            parts_s=mean_parts_s(last),
        )
        for query in queries:
            query.stop()
        return found


def _started(spark: SparkSession, folder: Path, number: int, *, stateful: bool) -> StreamingQuery:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", 1)
    frame = _operator(source.load(), number, stateful=stateful)
    channel = FileChannel(folder / f"channel{number}")
    channel.create()
    writer = frame.writeStream.outputMode("update" if stateful else "append").foreachBatch(
        partial(_write, channel)
    )
    writer = writer.option("checkpointLocation", f"file://{folder}/checkpoint{number}")
    spark.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS))
    return writer.trigger(processingTime="100 milliseconds").start()


def _operator(rows: DataFrame, number: int, *, stateful: bool) -> DataFrame:
    """Each with code of its own, as operators have."""
    key = (F.col("value") * (number + 1) % _KEYS).alias(f"key{number}")
    names = [f"sum{number}_{part}" for part in range(number // 2 + 1)]
    if stateful:
        sums = [F.sum(F.col("value") + part).alias(name) for part, name in enumerate(names)]
        return rows.groupBy(key).agg(*sums)
    return rows.select(key, *[(F.col("value") * part).alias(name) for part, name in enumerate(names)])


def _write(channel: FileChannel, frame: DataFrame, batch: int) -> None:
    channel.write(frame.coalesce(_TASKS), batch)


def _until(queries: list[StreamingQuery], batches: int) -> None:
    def are_there() -> bool:
        failed = [error for query in queries if (error := query.exception()) is not None]
        if failed:
            raise failed[0]
        return all((query.lastProgress or {"batchId": -1})["batchId"] >= batches for query in queries)

    wait_until(are_there, f"{batches} batches of each", _PATIENCE_S)


def _done(queries: list[StreamingQuery]) -> int:
    return sum(int((query.lastProgress or {"batchId": -1})["batchId"]) + 1 for query in queries)


def _java_cpu_s(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode, and in the kernel


def _compilations(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())
