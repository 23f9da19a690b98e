"""What Spark's own rules for executors look at: the batches and the tasks of a whole job, not its operators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedBatch:
    query: str
    took_s: float
    """From its trigger to its commit: `triggerExecution`."""
    interval_s: float
    """Between two triggers; 0 where a batch follows the other at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksNow:
    """At one moment."""

    running: int
    pending: int
    """Of stages that were submitted, without a slot."""
    to_come: int
    """Of stages of the jobs that run, which were not submitted yet."""
    idle_s: tuple[float, ...]
    """For how long each executor that does nothing has done nothing; those that work are not in it."""
    slots: int
    """Tasks that an executor runs at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeJob:
    batches: tuple[EndedBatch, ...] = ()
    """That ended since it was looked at last, oldest first."""
    tasks: TasksNow | None = None
    """None where nobody looks that often: it changes several times a second."""
