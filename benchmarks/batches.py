"""What Spark tells of batches that ended (StreamingQueryProgress), as values, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

BOOKKEEPING = ("latestOffset", "getBatch", "walCommit", "commitOffsets")
_WHOLE = "triggerExecution"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One batch of one query. Times are those of the wall clock."""

    query: str
    run: str
    number: int
    records: int
    began_s: float
    took_s: float
    parts_s: Mapping[str, float]
    """What Spark says that it spent the time on: addBatch (the work), queryPlanning, latestOffset, ..."""

    @property
    def ended_s(self) -> float:
        return self.began_s + self.took_s

    @property
    def bookkeeping_s(self) -> float:
        return sum(self.parts_s.get(part, 0.0) for part in BOOKKEEPING)


def batch_of(query: str, progress: Mapping[str, Any]) -> Batch:
    parts = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
    return Batch(
        query=query,
        run=str(progress["runId"]),
        number=int(progress["batchId"]),
        records=int(progress["numInputRows"]),
        began_s=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        took_s=parts.pop(_WHOLE, 0.0),
        parts_s=parts,
    )


def ended_between(batches: Iterable[Batch], from_s: float, to_s: float) -> list[Batch]:
    """Those that ended in a window, in the order of their ends."""
    return sorted((b for b in batches if from_s <= b.ended_s < to_s), key=lambda batch: batch.ended_s)


def records_per_s(batches: Sequence[Batch]) -> float:
    """From the end of the first batch to that of the last, so that a batch is not counted by halves.

    The batches are of one query, in the order of their ends.
    """
    if len(batches) < 2:
        raise ValueError(f"a rate needs at least two batches, found {len(batches)}: measure for longer")
    return sum(batch.records for batch in batches[1:]) / (batches[-1].ended_s - batches[0].ended_s)


def mean_parts_s(batches: Sequence[Batch]) -> dict[str, float]:
    """What a batch spends its time on, on the average, the longest first; `other` is what Spark does not name."""
    if not batches:
        return {}
    names = {name for batch in batches for name in batch.parts_s}
    found = {name: sum(batch.parts_s.get(name, 0.0) for batch in batches) / len(batches) for name in names}
    whole_s = sum(batch.took_s for batch in batches) / len(batches)
    found["other"] = max(0.0, whole_s - sum(found.values()))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def parts_text(parts_s: Mapping[str, float], least_s: float = 0.0005) -> str:
    """The parts in one line, without those that hardly show."""
    return ", ".join(f"{name} {1000 * part:.0f} ms" for name, part in parts_s.items() if part >= least_s)


# A rescale that stops nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """When batches ended around an action: some before it, the one under way, and the first with its effect."""

    before_s: Sequence[float]
    after_s: Sequence[float]

    @property
    def usual_s(self) -> float:
        """The time between two ends, without the two last, with which the action is compared."""
        return median(_gaps(self.before_s[:-2]))

    @property
    def pause_s(self) -> float:
        """How much longer than usual nothing was finished."""
        return max(0.0, max(_gaps((self.before_s[-1], *self.after_s[:2]))) - self.usual_s)

    @property
    def pause_without_s(self) -> float:
        """The same of two batches before the action: what batches differ by when nothing is done."""
        return max(0.0, max(_gaps(self.before_s[-3:])) - self.usual_s)


def _gaps(ends_s: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(ends_s)]


# State that is moved: where the time goes


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """When the steps of one rescale beyond the state partitions happened, by the wall clock."""

    last_end_s: float
    """The last batch that ended before the action."""
    asked_s: float
    stop_s: float
    """Spark was told to stop: the batch that was under way is committed."""
    stopped_s: float
    moved_s: float
    """The state is in its new partitions."""
    started_s: float
    """Spark has accepted the new query."""
    first: Batch
    """Of the new query."""
    first_end_s: float
    usual_s: float
    """The time between the ends of two batches, when nothing is rescaled."""
    usual_work_s: float
    """The time that a batch usually works (addBatch)."""


PHASES = (
    "until the action was asked for",
    "waiting for the batch under way",
    "stop",
    "moving the state",
    "start of the query",
    "initializing: plan, checkpoint, Python source process",
    "first batch: planning and bookkeeping",
    "first batch: its work, as usual",
    "first batch: reopening state and cold Python workers",
    "writing down that it is done",
)


def pause_s(marks: Marks) -> float:
    """How much longer than usual nothing was finished."""
    return max(0.0, marks.first_end_s - marks.last_end_s - marks.usual_s)


def breakdown_s(marks: Marks) -> dict[str, float]:
    """The time from the last batch before to the first after, in parts that add up to it.

    A batch under way may end after the action was asked for: that one is then the last before it.
    """
    first = marks.first
    work_s = first.parts_s.get("addBatch", 0.0)
    usual_work_s = min(work_s, marks.usual_work_s)
    edges = (
        marks.last_end_s,
        max(marks.last_end_s, marks.asked_s),
        max(marks.last_end_s, marks.stop_s),
        marks.stopped_s,
        marks.moved_s,
        marks.started_s,
        first.began_s,
    )
    until_work = [later - earlier for earlier, later in pairwise(edges)]
    around_s = first.took_s - work_s
    after_s = marks.first_end_s - first.ended_s
    parts = (*until_work, around_s, usual_work_s, work_s - usual_work_s, after_s)
    return dict(zip(PHASES, parts, strict=True))


def median_breakdown_s(all_marks: Sequence[Marks]) -> dict[str, float]:
    each = [breakdown_s(marks) for marks in all_marks]
    return {phase: median(parts[phase] for parts in each) for phase in PHASES}
