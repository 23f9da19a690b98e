"""The port to whatever runs the pipeline: an engine is anything that can do these three things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elastream.dataflow import Dataflow, Plan
from elastream.manager.decision import Decision
from elastream.measurement import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class RescaleOutcome:
    """What became of a decision."""

    plan: Plan
    """The parallelism that is now in force, whatever was asked for."""
    succeeded: bool
    took_s: float
    """How long the action took; the pipeline, or a part of it, stood still at most that long."""
    detail: str = ""


class Engine(Protocol):
    def graph(self) -> Dataflow: ...

    def plan(self) -> Plan:
        """The parallelism that is in force now."""

    def measure(self) -> Snapshot:
        """What happened since the last call, or since the last action."""

    def rescale(self, decision: Decision) -> RescaleOutcome:
        """Carry out all changes of the decision in one action; doing it a second time changes nothing."""


class Clock(Protocol):
    """Where the loop's time comes from; a simulated engine is its own clock."""

    def now(self) -> float: ...

    def steady(self) -> float:
        """Seconds since some time in the past, by a clock that nobody can set: for how long something took."""

    def wait(self, seconds: float) -> None: ...
