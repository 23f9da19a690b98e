"""What bounds a query: why more executors would not shorten its batches, and which setting to change.

The longest part of the critical path is what bounds it: the driver, or the stage whose longest task takes most.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from elastream.attached.load import QueryLoad
from elastream.attached.model import QueryModel, StageCost
from elastream.attached.sizing import QueryPlan
from elastream.durations import text

_SKEWED = 2.0  # times the mean task
_WAITS = 0.3  # of its time that a task computes: less, and it waits for something
_OF_DRIVER = {
    "latestOffset": "it asks the source for its newest offsets: many partitions, or a folder with many files",
    "getBatch": "it lists what the batch reads: fewer, larger files help (maxFilesPerTrigger, cleanSource)",
    "queryPlanning": "it plans the query: a simpler plan, or a longer trigger interval, helps",
    "walCommit": "it writes the offsets to the checkpoint: put the checkpoint on faster storage",
    "commitOffsets": "it commits to the checkpoint: put the checkpoint on faster storage",
    "addBatch": "code of foreachBatch or the sink's commit runs on the driver: executors do not help there",
}


class BoundKind(StrEnum):
    PARTITIONS = "too few partitions"
    SKEW = "a skewed task"
    DRIVER = "the driver's time"
    SINK = "waiting outside of Spark"
    LIMIT = "a limit of the source"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    query: str
    kind: BoundKind
    text: str

    def __str__(self) -> str:
        return f"{self.query}: {self.text}"


def bound_of(load: QueryLoad, plan: QueryPlan) -> Bound | None:
    """What would bound the query's batches were there cores without end; None without a model."""
    model = load.model
    if model is None:
        return None
    if _asks_beyond_limit(load, plan):
        return Bound(query=load.name, kind=BoundKind.LIMIT, text=_of_limit(load, plan))
    slowest = max(model.stages, key=lambda stage: _longest_s(stage, plan.rows), default=None)
    if slowest is None or model.driver_s >= _longest_s(slowest, plan.rows):
        return Bound(query=load.name, kind=BoundKind.DRIVER, text=_of_driver(model))
    return _of_stage(load.name, slowest, plan)


def _asks_beyond_limit(load: QueryLoad, plan: QueryPlan) -> bool:
    return load.limit_rows is not None and plan.rows_per_s * load.interval_s > load.limit_rows


def _longest_s(stage: StageCost, rows: float) -> float:
    return 0.0 if stage.follows_cores else stage.slot_s(rows) / stage.tasks * stage.imbalance


def _of_limit(load: QueryLoad, plan: QueryPlan) -> str:
    return (
        f"a batch reads at most {load.limit_rows:,.0f} rows every {text(load.interval_s)}, and "
        f"{plan.rows_per_s:,.0f} rows/s have to be read: raise maxOffsetsPerTrigger or maxFilesPerTrigger, or "
        "trigger more often; executors do not help"
    )


def _of_driver(model: QueryModel) -> str:
    most = max(model.parts_s, key=lambda name: model.parts_s[name], default=None)
    why = _OF_DRIVER.get(most or "", "planning, listing and committing") if most else "planning and committing"
    return f"the driver alone takes {text(model.driver_s)} of every batch, whatever the executors: {why}"


def _of_stage(query: str, stage: StageCost, plan: QueryPlan) -> Bound:
    longest_s = _longest_s(stage, plan.rows)
    if stage.imbalance >= _SKEWED and stage.tasks > 1:
        what, cure = ("a key", "salt the key, or aggregate before the shuffle")
        if not stage.reads_shuffle:
            what, cure = ("a partition of the source", "spread its rows evenly")
        return Bound(
            query=query,
            kind=BoundKind.SKEW,
            text=f"its longest task takes {text(longest_s)}, {stage.imbalance:.1f} times the mean of "
            f"{stage.tasks}: {what} has far more rows than others; {cure}",
        )
    if stage.cpu_share < _WAITS and not stage.writes_shuffle:
        return Bound(
            query=query,
            kind=BoundKind.SINK,
            text=f"its last tasks compute only {stage.cpu_share:.0%} of their {text(longest_s)}: they wait for "
            "the sink, or for Python workers; a faster sink, larger writes, or more tasks at once help",
        )
    return Bound(query=query, kind=BoundKind.PARTITIONS, text=_of_partitions(stage, longest_s))


def _of_partitions(stage: StageCost, longest_s: float) -> str:
    tasks = "1 task" if stage.tasks == 1 else f"{stage.tasks} tasks"
    if stage.reads_shuffle:
        setting = (
            "raise spark.sql.shuffle.partitions (a query that keeps state takes it from its checkpoint: it needs "
            "a new one)"
        )
    else:
        setting = "give the source more partitions (Kafka: minPartitions, or more partitions of the topic)"
    return f"a stage has {tasks} of {text(longest_s)}, so it uses at most {stage.tasks} cores: {setting}"
