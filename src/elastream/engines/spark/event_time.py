"""Event time across channels: what each reader needs of the order in which it is given records.

In a single query of Spark's a watermark follows the newest event time of the batches *before* this one: within a
batch the order of records does not matter. Here the operators of that query are queries of their own, with batches
of their own size. Were one batch of the source read in several, in whatever order its files lie, the watermark of
a reader would overtake records of the same source batch, and drop them as late. So

1. a reader whose plan, or that of anyone behind it, holds a watermark reads commits whole, or up to a **cut**: a
   point within a commit behind which every record has a later event time than all before it (`channels/cuts.py`);
2. a source cuts what it publishes, where the watermarks behind it follow one of its own columns: so a backlog that
   Spark's source brings as a single batch is still worked off in many. Other operators publish a batch as a
   whole, which flows through;
3. a watermark that was declared in a source or an operator without state is declared again for its readers, as in
   a single query it would still be there.

Why nothing is dropped that a single query with the same source batches would not drop: let r be a record of source
batch k. The single query drops it if it lies behind the watermark of the batches before k. Here, by 1 and by
induction along the operators, what a reader was given before r are records of batches before k, and records of
batch k in front of a cut, which are not newer than r. So the watermark that r meets is not beyond r's own event
time, or not beyond that of the single query. Readers may put several commits into one batch: that only lets the
watermark come later. With several inputs Spark takes the lowest of their watermarks, and each is bounded as above.
Retried batches read the same records again; parallelism only shares out the records of a batch among tasks. An
aggregate in append mode puts out windows in the order in which the watermark passes their ends, so its commits
are in order, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from elastream.engines.spark.logical_plan import nodes_of, output_of, relations_of, stateful_nodes

_DELAY = "spark.watermarkDelayMs"  # Spark's own mark of a column that has a watermark
_WATERMARK = "EventTimeWatermark"


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """An event time that somebody at or behind a reader follows."""

    column: str | None
    """Of the channel; none where it is computed on the way, so that the channel does not know it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEventTime:
    """What the plan of one step says of event time, by the names of the channels that it reads."""

    followed: Mapping[str, frozenset[Needed]]
    """By its own watermarks."""
    passed_on: Mapping[str, Mapping[str, str]]
    """Columns that it puts out as they came: of each input, its name there by the name here."""
    together: frozenset[str]
    """Inputs that share one watermark: what one of them brings may make the records of another late."""


def event_time_of(frame: DataFrame, inputs: Mapping[str, str]) -> StepEventTime:
    """`inputs` are the names of the channels by the folder that is read."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    origin = _origins(plan, inputs)
    followed: dict[str, set[Needed]] = {}
    together: set[str] = set()
    for node in nodes_of(plan):
        if node.nodeName() == _WATERMARK:
            below = {name for name, _ in _origins(node, inputs).values()}
            name, column = origin.get(int(node.eventTime().exprId().id()), (None, None))
            for one in below:
                followed.setdefault(one, set()).add(Needed(column=column if one == name else None))
            if len(below) > 1:
                together |= below
    passed_on: dict[str, dict[str, str]] = {}
    for attribute in () if stateful_nodes(plan) else output_of(plan):
        if attribute.id in origin:
            name, column = origin[attribute.id]
            passed_on.setdefault(name, {})[attribute.name] = column
    return StepEventTime(
        followed={name: frozenset(needed) for name, needed in followed.items()},
        passed_on=passed_on,
        together=frozenset(together),
    )


@dataclass(frozen=True, kw_only=True)
class EventTimes:
    """What all steps of a pipeline need of each other."""

    steps: Mapping[str, StepEventTime] = field(default_factory=dict)
    needed: Mapping[str, frozenset[Needed]] = field(default_factory=dict)
    """Of each step that is read: the event times that its readers, and those behind them, follow."""

    @classmethod
    def of(cls, steps: Mapping[str, StepEventTime], reads: Mapping[str, Sequence[str]]) -> EventTimes:
        """`reads` are the inputs of every step, in the order of the graph."""
        needed: dict[str, frozenset[Needed]] = {}
        for name in reversed(list(reads)):
            for read in reads[name]:
                more = _of_input(steps[name], read, needed.get(name, frozenset()))
                needed[read] = needed.get(read, frozenset()) | more
        return cls(steps=steps, needed=needed)

    def follows(self, reader: str, read: str) -> bool:
        """Whether a reader must be given what it reads there in the order of event time."""
        if reader not in self.steps:
            return False
        return bool(_of_input(self.steps[reader], read, self.needed.get(reader, frozenset())))

    def column_to_cut_by(self, name: str, schema: StructType) -> str | None:
        """The one column whose order is all that anybody behind a step follows, if there is one."""
        columns = {one.column for one in self.needed.get(name, ())}
        if len(columns) != 1 or None in columns:
            return None
        (column,) = columns
        kinds = [field.dataType for field in schema.fields if field.name == column]
        return column if len(kinds) == 1 and isinstance(kinds[0], TimestampType | TimestampNTZType) else None

    def warnings(self) -> list[str]:
        return [
            f"{name!r} has one watermark for {' and '.join(sorted(step.together))} together: where one of them "
            "runs ahead, the records of the other are late; declare it on each of them before they are put "
            "together, and Spark follows the one that is behind"
            for name, step in self.steps.items()
            if step.together
        ]


def _of_input(step: StepEventTime, read: str, behind: frozenset[Needed]) -> frozenset[Needed]:
    passed_on = step.passed_on.get(read, {})
    through = {Needed(column=None if one.column is None else passed_on.get(one.column)) for one in behind}
    return step.followed.get(read, frozenset()) | through


# Watermarks that hold for the operators behind


def carried_delays(frame: DataFrame, *, output_mode: str) -> dict[str, int]:
    """The watermarks in force on what a step puts out, as far as they can be declared again for its readers: by
    column, the delay in milliseconds.

    An aggregate in append mode puts out its windows in order, so their watermark needs no delay any more. What a
    join puts out is older than its watermark by as much as its condition allows: there whoever needs one declares
    it.
    """
    marked = {field.name: int(field.metadata[_DELAY]) for field in frame.schema.fields if _DELAY in field.metadata}
    plan: Any = frame._jdf.queryExecution().analyzed()
    keeping = stateful_nodes(plan)
    if not keeping or all(name.startswith("Deduplicate") for name in keeping):
        return marked
    if all(name.startswith("Aggregate") for name in keeping) and output_mode == "append":
        return dict.fromkeys(marked, 0)
    return {}


def without_marks(schema: StructType) -> StructType:
    """Spark takes a marked column for one with a watermark, though nothing would move that on."""
    return StructType([_without_mark(field) for field in schema.fields])


def with_watermarks(frame: DataFrame, delays: Mapping[str, int]) -> DataFrame:
    for column, delay_ms in delays.items():
        frame = frame.withWatermark(column, f"{delay_ms} milliseconds")
    return frame


def _without_mark(field: StructField) -> StructField:
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != _DELAY}
    return StructField(field.name, field.dataType, field.nullable, metadata)


def _origins(plan: Any, inputs: Mapping[str, str]) -> dict[int, tuple[str, str]]:
    """Where the attributes of the channels come from: the channel and its column, by the attribute's id."""
    found: dict[int, tuple[str, str]] = {}
    for folder, attributes in relations_of(plan):
        if folder in inputs:
            found |= {attribute.id: (inputs[folder], attribute.name) for attribute in attributes}
    return found
