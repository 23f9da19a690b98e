"""The query of the SEEP thesis over a Google cluster (5.3.3, Source Code 5.7) as a pipeline on Spark.

    task_events → machines → cluster → results

`machines` keeps the running tasks of every machine and can be as parallel as there are machines; `cluster` needs
all of them and is `fixed`. What an event costs in either may be emulated, so that the thesis's static test (5.3.4)
says something on a machine with few cores: waiting needs none. It may also be computed, up to the cores that there
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from elastream.engines.spark.pipeline import Pipeline

from .google_statistics import INTERVAL_S, ClusterState, Event, MachineState, told_of
from .google_trace import AS_FAST_AS_POSSIBLE, EXTRACT, replayed

SOURCE, MACHINES, CLUSTER, RESULTS = "task_events", "machines", "cluster", "results"
MOST_INSTANCES = 8
"""The thesis: efficiency drops dramatically beyond."""
_STEPS_PER_US = 20
_SUMS = "tasks double, cpu double, memory double, disk double"
_TOLD = f"machine bigint, interval bigint, first bigint, last bigint, events bigint, {_SUMS}"
_RESULT = f"at_s bigint, machine bigint, statistic string, {_SUMS}"


def google_query(
    results: Path,
    *,
    trace: Path = EXTRACT,
    speed: float = AS_FAST_AS_POSSIBLE,
    interval_s: int = INTERVAL_S,
    most_instances: int = MOST_INSTANCES,
    machine_cost_us: int = 0,
    cluster_cost_us: int = 0,
    computes: bool = False,
) -> Pipeline:
    """Results are kept in a folder; costs are those of one event, waited for or computed."""
    costs = computing if computes else costing
    pipeline = Pipeline("google_trace")

    @pipeline.source
    def task_events(spark: SparkSession) -> DataFrame:
        return replayed(spark, trace, speed=speed)

    @pipeline.operator(reads=SOURCE, state_partitions=most_instances)
    def machines(task_events: DataFrame) -> DataFrame:
        return machine_states(costs(task_events, F.lit(machine_cost_us)), interval_s)

    @pipeline.operator(reads=MACHINES, fixed=True, state_partitions=1)
    def cluster(machines: DataFrame) -> DataFrame:
        return cluster_statistics(costs(machines, F.col("events") * cluster_cost_us), interval_s)

    pipeline.keep(RESULTS, reads=CLUSTER, folder=results)
    return pipeline


def costing(frame: DataFrame, microseconds: Any) -> DataFrame:
    """Every record takes so long, without using a core."""
    waited = F.reflect(
        F.lit("java.util.concurrent.locks.LockSupport"), F.lit("parkNanos"), (microseconds * 1000).cast("bigint")
    )
    return frame.where((microseconds == 0) | (waited != ""))  # it gives 'null'


def computing(frame: DataFrame, microseconds: Any) -> DataFrame:
    """Every record takes about so long of a core in the JVM; how long exactly differs from machine to machine."""
    steps = (microseconds * _STEPS_PER_US).cast("int")
    total = F.aggregate(F.sequence(F.lit(0), steps), F.lit(0.0), lambda sum_, step: sum_ + F.sqrt(step))
    return frame.where((microseconds == 0) | (total >= 0))


def machine_states(events: DataFrame, interval_s: int = INTERVAL_S) -> DataFrame:
    """Of every machine, its sums at the end of each interval in which something happened to it."""
    take = partial(take_events, interval_s=interval_s)
    return events.groupBy("machine").applyInPandasWithState(take, _TOLD, "running string", "append", "NoTimeout")


def cluster_statistics(machines: DataFrame, interval_s: int = INTERVAL_S) -> DataFrame:
    """Of the cluster and of each machine, what there is at the end of each interval that is over."""
    take = partial(take_told, interval_s=interval_s)
    everything = machines.withColumn("of", F.lit(0)).groupBy("of")
    return everything.applyInPandasWithState(take, _RESULT, "cluster string", "append", "NoTimeout")


def take_events(
    key: tuple[int], batches: Iterable[pd.DataFrame], state: GroupState, *, interval_s: int
) -> Iterator[pd.DataFrame]:
    """The events of one machine in a batch."""
    kept = MachineState.from_text(state.get[0]) if state.exists else MachineState()
    events = [Event(*row) for row in _rows(batches, Event._fields)]
    told = list(kept.take(int(key[0]), events, interval_s))
    state.update((kept.to_text(),))
    yield _frame([(*one[:-1], *one.sums) for one in told], _TOLD)


def take_told(
    key: tuple[int], batches: Iterable[pd.DataFrame], state: GroupState, *, interval_s: int
) -> Iterator[pd.DataFrame]:
    """What machines told in a batch."""
    del key
    kept = ClusterState.from_text(state.get[0]) if state.exists else ClusterState()
    found = list(kept.take(map(told_of, _rows(batches, _names(_TOLD))), interval_s))
    state.update((kept.to_text(),))
    yield _frame([(*one[:-1], *one.sums) for one in found], _RESULT)


def _rows(batches: Iterable[pd.DataFrame], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from batch[list(columns)].itertuples(index=False, name=None)


def _frame(rows: list[tuple[Any, ...]], schema: str) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=_names(schema))
    # None of the cluster: a column of numbers would make numbers that are not whole of the others
    return frame.astype({"machine": "Int64"})


def _names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]
