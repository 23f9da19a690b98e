"""What one batch of a query did, by what Spark tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_CLOCK_TICK_S = 0.001  # Spark tells times in milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRun:
    """A stage that has ended, with its tasks together."""

    tasks: int
    slot_s: float
    """For which its tasks held a slot: running, and unpacking what they run."""
    submitted_s: float
    completed_s: float
    rows_in: float = 0.0
    """That it read from outside of Spark."""
    cpu_s: float = 0.0
    """That the JVM computed; what Python workers compute is not in it."""
    reads_shuffle: bool = False
    """Its input comes from the stages before it; else from a source, or a table."""
    writes_shuffle: bool = False
    """Another stage reads it; else it writes to the sink."""
    path: str = ""
    """Where Spark's REST API tells of its tasks."""
    quantiles_s: tuple[float, ...] = ()
    """How long its tasks took, from the shortest to the longest in equal steps; empty where nobody asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRun:
    batch: int
    started_s: float
    duration_s: float
    """From its trigger to its commit."""
    rows: float
    cores: int
    """Slots that there were for it."""
    stages: tuple[StageRun, ...]
    """In the order in which they were submitted."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Of the driver's time, by Spark's own names: latestOffset, queryPlanning, walCommit, ..."""

    @property
    def slot_s(self) -> float:
        return sum(stage.slot_s for stage in self.stages)

    @property
    def driver_s(self) -> float:
        """In which no stage ran: the driver planned, listed, committed."""
        return max(0.0, self.duration_s - covered_s([(s.submitted_s, s.completed_s) for s in self.stages]))

    @property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """For each stage those that had ended when it was submitted.

        Spark submits a stage as soon as those that it reads have ended, however few cores there are. So one that
        was submitted while another ran does not need it, and one that needs it is submitted after its end.
        """
        return tuple(
            tuple(
                index
                for index, before in enumerate(self.stages[:position])
                if before.completed_s <= stage.submitted_s + _CLOCK_TICK_S
            )
            for position, stage in enumerate(self.stages)
        )


def covered_s(spans: list[tuple[float, float]]) -> float:
    """How much time lies in at least one of the spans."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
