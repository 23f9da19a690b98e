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
   a single query it would still be there; not where a reader declares one of its own, which Spark would refuse in
   a single query.

Why nothing is dropped that a single query with the same source batches would not drop: let r be a record of source
batch k. The single query drops it if it lies behind the watermark of the batches before k. Here, by 1 and by
induction along the operators, what a reader was given before r are records of batches before k, and records of
batch k in front of a cut, which are not newer than r. So the watermark that r meets is not beyond r's own event
time, or not beyond that of the single query. Readers may put several commits into one batch: that only lets the
watermark come later. Retried batches read the same records again; parallelism only shares out the records of a
batch among tasks. An aggregate in append mode puts out windows in the order in which the watermark passes their
ends, so its commits are in order, too. A feed's writer decides what is a commit, as it decides what is a file.

With several inputs Spark takes the lowest of their watermarks, and each is bounded as above, also over restarts
(`input_watermarks.py`): what is given back is what the committed batches have left. A single watermark
above a union follows the input that runs ahead. In a single query the inputs advance together, ours do not: so
such a watermark is declared on each input in its place (`below_the_union`), and the lowest of them counts. An
input that has fallen silent then holds it back, and is named (`watermark_watch.py`). Where that cannot be done,
the pipeline is refused (`EventTimes.check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from elastream.engines.spark.logical_plan import (
    WATERMARK_DELAY,
    nodes_of,
    origins_of,
    output_of,
    relations_of,
    stateful_nodes,
    without_nodes,
)
from elastream.errors import InvalidInput

_WATERMARK = "EventTimeWatermark"
_END = "_elastream_end"


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """An event time that somebody at or behind a reader follows."""

    column: str | None
    """Of the channel; none where it is computed on the way, so that the channel does not know it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEventTime:
    """What the plan of one step says of event time, by the names of the channels that it reads."""

    followed: Mapping[str, frozenset[Needed]] = field(default_factory=dict)
    """By its own watermarks."""
    passed_on: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Columns that it puts out as they came: of each input, its name there by the name here."""
    shared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Watermarks that inputs share, as above a union: of each input the column, and the delay in milliseconds."""
    mixed: frozenset[str] = frozenset()
    """Inputs that share a watermark which cannot be traced to a column of each."""


def has_watermark(frame: DataFrame) -> bool:
    return any(node.nodeName() == _WATERMARK for node in nodes_of(frame._jdf.queryExecution().analyzed()))


def event_time_of(frame: DataFrame, inputs: Mapping[str, str]) -> StepEventTime:
    """`inputs` are the names of the channels by the folder that is read."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    followed: dict[str, set[Needed]] = {}
    shared: dict[str, dict[str, int]] = {}
    mixed: set[str] = set()
    for node in nodes_of(plan):
        if node.nodeName() != _WATERMARK:
            continue
        below = _inputs_below(node, inputs)
        mark = next(one for one in output_of(node) if one.id == int(node.eventTime().exprId().id()))
        columns = {inputs[folder]: column for folder, column in origins_of(node, mark.id) if folder in inputs}
        for name in below:
            followed.setdefault(name, set()).add(Needed(column=columns.get(name)))
        if len(below) > 1 and set(columns) == below:
            for name, column in columns.items():
                shared.setdefault(name, {})[column] = mark.watermark_delay_ms or 0
        elif len(below) > 1:
            mixed |= below
    return StepEventTime(
        followed={name: frozenset(needed) for name, needed in followed.items()},
        passed_on=_passed_on(plan, inputs),
        shared=shared,
        mixed=frozenset(mixed),
    )


def _passed_on(plan: Any, inputs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for attribute in () if stateful_nodes(plan) else output_of(plan):
        for folder, column in origins_of(plan, attribute.id):
            if folder in inputs:
                found.setdefault(inputs[folder], {})[attribute.name] = column
    return found


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

    def shared_by(self, reader: str) -> Mapping[str, Mapping[str, int]]:
        """Watermarks above a union in the plan of a step, to be declared on each of its inputs instead."""
        step = self.steps.get(reader)
        return {} if step is None else step.shared

    def check(self) -> None:
        """Refuse what would lose records: inputs that are put together before the watermark that follows them."""
        for name, step in self.steps.items():
            if inputs := step.mixed or self._mixed_for_others(name, step):
                raise InvalidInput(
                    f"{name!r} puts {' and '.join(sorted(inputs))} together, each read at its own pace, before "
                    "the watermark that is to follow both: it would follow the one that runs ahead, and drop the "
                    "other as late. Do so in the function that declares the watermark, on event times that both "
                    "bring along: then it follows the one that is behind, as in a single query"
                )

    def _mixed_for_others(self, name: str, step: StepEventTime) -> frozenset[str]:
        """Inputs of a step without state that are put together for somebody behind it."""
        needed = {one.column for one in self.needed.get(name, ())}
        mixed = frozenset(read for read, passed in step.passed_on.items() if needed & {None, *passed})
        return mixed if len(mixed) > 1 else frozenset()


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
    marked = {
        field.name: int(field.metadata[WATERMARK_DELAY])
        for field in frame.schema.fields
        if WATERMARK_DELAY in field.metadata
    }
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
    """With one watermark, which Spark wants to be the only one on the way; other columns get its mark alone.

    On a window it is declared by its end: Spark does so for windows of its own making, but takes some other bytes
    of a window that was read for a time.
    """
    times = [column for column in delays if not isinstance(frame.schema[column].dataType, StructType)]
    if times:
        frame = frame.withWatermark(times[0], f"{delays[times[0]]} milliseconds")
    elif delays:
        window = next(iter(delays))
        frame = frame.withColumn(_END, F.col(f"`{window}`.`end`"))
        frame = frame.withWatermark(_END, f"{delays[window]} milliseconds")
    others = {column: delay_ms for column, delay_ms in delays.items() if column not in times[:1]}
    return _marked(frame, others) if others else frame


def _marked(frame: DataFrame, delays: Mapping[str, int]) -> DataFrame:
    return frame.select(
        *(
            F.col(f"`{field.name}`").alias(
                field.name, metadata={**(field.metadata or {}), WATERMARK_DELAY: delays[field.name]}
            )
            if field.name in delays
            else F.col(f"`{field.name}`")
            for field in frame.schema.fields
            if field.name != _END
        )
    )


def below_the_union(frame: DataFrame, shared: Mapping[str, Any], inputs: Mapping[str, str]) -> DataFrame:
    """A frame whose inputs were given the watermark that they share, without the one above them: Spark refuses a
    second watermark on the way."""

    def is_shared(node: Any) -> bool:
        if node.nodeName() != _WATERMARK:
            return False
        below = _inputs_below(node, inputs)
        return len(below) > 1 and below <= set(shared)

    return without_nodes(frame, is_shared)


def _inputs_below(node: Any, inputs: Mapping[str, str]) -> set[str]:
    return {inputs[folder] for folder, _ in relations_of(node) if folder in inputs}


def _without_mark(field: StructField) -> StructField:
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != WATERMARK_DELAY}
    return StructField(field.name, field.dataType, field.nullable, metadata)
