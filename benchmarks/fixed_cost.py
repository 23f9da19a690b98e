"""What a batch of an operator costs beside its records, with what elastream does about it and without.

An operator of a pipeline, once with state and once without, reads a backlog in batches of the same few records,
one right after the other, and writes its channel. Nothing else runs. Before and after are measured in turn, each
in processes of their own, as what was compiled and loaded in one would help the next. Told are the time of a batch
by the clock; the processor time of all its processes, which depends less on what else the machine does; and how
much of that went into processes that Java started for single calls.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import Batch, batch_of, mean_parts_s, parts_text
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import (
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
from elastream.engines.spark import batch_size, lasting_checkpoint, query
from elastream.engines.spark import session as sessions
from elastream.engines.spark.channels import files
from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

MOST_RATIO = 0.5
_PARTITIONS = 12
_TASKS = 3
_KEYS = 10_000
_ROWS = 500
_NO_INTERVAL_S = 0.01
_PATIENCE_S = 300.0
BEFORE = {"spark.sql.codegen.cache.maxEntries": "100"}
"""What was set before, where that differs."""


_WATCHED: Mapping[str, tuple[Any, str]] = {
    "writing, tasks included": (files, "_write_parquet"),
    "bringing offsets to the disk": (query, "sync_begun"),
    "state": (lasting_checkpoint.StateFiles, "sync"),
    "files of the channel": (files, "sync_files"),
    "folders of the channel": (files, "sync_folders"),
}


@dataclass(frozen=True, kw_only=True)
class BatchCosts:
    """Of one batch: the median by the clock, else the mean."""

    took_s: float
    cpu_s: float
    called_s: float
    """Of the processor time: in processes that Java started and that have ended."""
    parts_s: Mapping[str, float]
    """Where Spark says that the time went."""
    within_s: Mapping[str, float]
    """Where it went within addBatch, as far as our own code takes part in it."""


def run(*, pairs: int = 2, warm_up: int = 60, batches: int = 40) -> Report:
    measures: list[Measure] = []
    notes = [f"{_TASKS} tasks, {_ROWS} records a batch, {pairs} pairs of {batches} batches after {warm_up} others"]
    for stateful in (False, True):
        found: list[tuple[BatchCosts, BatchCosts]] = []
        for number in range(pairs):
            order = (True, False) if number % 2 else (False, True)
            of_pair = {after: _in_process(stateful, after, warm_up, batches) for after in order}
            found.append((of_pair[False], of_pair[True]))
        which = f"with {_PARTITIONS} state partitions" if stateful else "without state"
        measures += _compared(which, found)
        notes += _where(which, found)
    return Report(measures=tuple(measures), notes=tuple(notes))


def _compared(which: str, found: Sequence[tuple[BatchCosts, BatchCosts]]) -> list[Measure]:
    measures = []
    for what, of in (
        ("a batch", "took_s"),
        ("its processor time", "cpu_s"),
        ("in processes of calls", "called_s"),
    ):
        before, after = zip(*[(getattr(one, of), getattr(other, of)) for one, other in found], strict=True)
        measures += [
            Measure(what=f"{which}, {what}: before", value=1000 * median(before), unit="ms"),
            Measure(what=f"{which}, {what}: after", value=1000 * median(after), unit="ms"),
        ]
        if of != "called_s":
            ratio = ratio_of_pairs(list(zip(after, before, strict=True)))
            bound = MOST_RATIO if of == "took_s" else None
            measures.append(
                Measure(what="ratio", value=ratio.value, unit="", at_most=bound, between=ratio.between)
            )
    return measures


def _where(which: str, found: Sequence[tuple[BatchCosts, BatchCosts]]) -> list[str]:
    last = found[-1]
    return [
        f"{which}, {when}: {parts_text(costs.parts_s)}; within addBatch {parts_text(costs.within_s)}"
        for when, costs in zip(("before", "after"), last, strict=True)
    ]


# In a process of its own


def _in_process(stateful: bool, after: bool, warm_up: int, batches: int) -> BatchCosts:
    asked = json.dumps({"stateful": stateful, "after": after, "warm_up": warm_up, "batches": batches})
    command = [sys.executable, "-m", "benchmarks.fixed_cost", asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True)
    return BatchCosts(**json.loads(done.stdout.splitlines()[-1]))


def pipeline(*, stateful: bool) -> Pipeline:
    found = Pipeline("fixed")
    found.feed("numbers", schema=SCHEMA)
    if stateful:

        @found.operator(reads="numbers", parallelism=_TASKS, state_partitions=_PARTITIONS, output_mode="update")
        def worked(numbers: DataFrame) -> DataFrame:
            return numbers.groupBy((F.col("id") % _KEYS).alias("key")).agg(F.count("*").alias("many"))
    else:

        @found.operator(reads="numbers", parallelism=_TASKS)
        def worked(numbers: DataFrame) -> DataFrame:
            return numbers.select((F.col("id") % _KEYS).alias("key"), F.length("line").alias("length"))

    @found.sink(reads="worked", trigger="1 h")  # so that the operator has a reader, which does nothing meanwhile
    def seen(batch: DataFrame, batch_id: int) -> None:
        pass

    return found


def measured(*, stateful: bool, after: bool, warm_up: int, batches: int) -> BatchCosts:
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "10000", **({} if after else BEFORE)}
    with ExitStack() as whole:
        if not after:
            whole.enter_context(patch.object(sessions, "start_no_processes_for_files", lambda _: None))
        whole.enter_context(patch.object(batch_size, "_SHORT", 0.0))  # batches keep their size
        whole.enter_context(patch.object(batch_size, "_LONG", math.inf))
        folder = whole.enter_context(temporary_folder())
        put_backlog(channel(folder, "numbers"), commits=2 * (warm_up + batches), records_each=_ROWS)
        control = folder / "control" / "worked.json"
        control.parent.mkdir()
        write_control(control, Control(parallelism=_TASKS, most_records=_ROWS))
        spark = whole.enter_context(session("fixed-cost", slots=_TASKS + 1, settings=settings))
        built = pipeline(stateful=stateful)
        engine = whole.enter_context(running(spark, built, folder, batch_interval_s=_NO_INTERVAL_S))
        return _of_batches(spark, engine, warm_up, batches)


def _of_batches(spark: SparkSession, engine: SparkEngine, warm_up: int, batches: int) -> BatchCosts:
    java = int(_jvm(spark).java.lang.ProcessHandle.current().pid())
    wait_until(partial(_are_done, engine, warm_up), "warm", _PATIENCE_S)
    with ExitStack() as watching:
        watches = {what: watching.enter_context(watched(where, name)) for what, (where, name) in _WATCHED.items()}
        cpu_s, called_s = _cpu_s(java), _ended_children_s(java)
        before = len(_progress(engine))
        wait_until(partial(_are_done, engine, before + batches), "measured", _PATIENCE_S)
        cpu_s, called_s = _cpu_s(java) - cpu_s, _ended_children_s(java) - called_s
        found = _progress(engine)[before:]
    return BatchCosts(
        took_s=median(batch.took_s for batch in found),
        cpu_s=cpu_s / len(found),
        called_s=called_s / len(found),
        parts_s=mean_parts_s(found),
        within_s={name: sum(watch.took_s) / len(found) for name, watch in watches.items()},
    )


def _are_done(engine: SparkEngine, batches: int) -> bool:
    return none_failed(engine) and len(_progress(engine)) >= batches


def _progress(engine: SparkEngine) -> list[Batch]:
    found = [batch_of("worked", told) for told in engine._queries["worked"].recent_progress()]
    return [batch for batch in found if batch.records > 0]


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _cpu_s(java: int) -> float:
    """Of Java, of this process and of all below them, those that have ended included."""
    own, total = os.getsid(0), 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        found = _stat(int(folder.name))
        if found and (int(found[3]) == own or int(folder.name) == java):
            total += _ticks_s(found[11:15])
    return total


def _ended_children_s(process: int) -> float:
    return _ticks_s(_stat(process)[13:15])


def _stat(process: int) -> list[str]:
    """What the kernel tells after the name; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return []


def _ticks_s(fields: Sequence[str]) -> float:
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(asdict(measured(**json.loads(sys.argv[1])))))
