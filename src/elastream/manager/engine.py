"""The ports to whatever runs the pipeline.

Engine       says its graph and its plan, measures, rescales: what the manager needs
Clock        an engine that also has its own time, as a simulated one, is its own clock
Accounting   an engine that also says at the end where every record went
Alerting     an engine that also notices faults between two measurements, and says at the end what did not work
Job          something that an engine can run: a pipeline that was read, and not started yet
EngineKind   reads jobs: what `elastream run --engine NAME` names
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elastream.dataflow import Dataflow, Plan
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts


@dataclass(frozen=True, kw_only=True, slots=True)
class RescaleOutcome:
    """What became of a decision."""

    plan: Plan
    """The parallelism that is now in force, whatever was asked for."""
    succeeded: bool
    took_s: float
    """How long the action took; the pipeline, or a part of it, stood still at most that long."""
    detail: str = ""


class EngineFailed(Exception):  # noqa: N818 - not an ElastreamError: nothing but ending the run helps
    """What runs the pipeline cannot go on."""


class Engine(Protocol):
    """What runs a pipeline, as the manager sees it.

    A call that fails, and may succeed in the next window, raises ElastreamError: the loop goes on. One after which
    the pipeline cannot go on raises EngineFailed, which ends the run.
    """

    def graph(self) -> Dataflow:
        """What runs, with the bounds of each operator as they are now."""

    def plan(self) -> Plan:
        """The parallelism that is in force now."""

    def measure(self) -> Snapshot:
        """What happened since the last call, or since the last action."""

    def rescale(self, decision: Decision) -> RescaleOutcome:
        """Carry out all changes of the decision in one action; doing it a second time changes nothing."""


TAKES_TIME = {"takes_time": True}
"""The `extra` of a line in the log that tells of something which people wait for: until the next line they are
shown for how long."""

ENGINE_CALLS = ("graph", "plan", "measure", "rescale")


def check_calls(what: str, found: Any, calls: Sequence[str]) -> None:
    """Refuse an object of someone else's that lacks one of these methods, before it is missed in the middle."""
    lacking = [call for call in calls if not callable(getattr(found, call, None))]
    if lacking:
        raise InvalidInput(f"{what}: {type(found).__name__} lacks {', '.join(lacking)}")


@runtime_checkable
class Clock(Protocol):
    """Where the loop's time comes from; an engine with these methods is its own clock."""

    def now(self) -> float: ...

    def steady(self) -> float:
        """Seconds since some time in the past, by the monotonic clock: for how long something took."""

    def wait(self, seconds: float) -> None: ...


@runtime_checkable
class Accounting(Protocol):
    """An engine that counts where records go."""

    def new_faults(self) -> Sequence[str]:
        """What went wrong since the last call."""

    def halt(self) -> None:
        """Bring the pipeline to rest; afterwards its accounts are final."""

    def accounts(self) -> Accounts:
        """Where every record went; for a pipeline that is halted."""


@runtime_checkable
class Alerting(Protocol):
    """An engine that looks at its steps by itself, and tells what it finds as `Accounting` does."""

    def wake_on_fault(self, wake: Callable[[], None]) -> None:
        """Call this from now on, from any thread, when `new_faults` has something to tell."""

    def unsettled(self) -> Sequence[str]:
        """What did not work up to the end, a sentence each; for a pipeline that is halted."""


class Job(Protocol):
    """A pipeline that an engine has read, and can run."""

    @property
    def name(self) -> str: ...

    def graph(self) -> Dataflow:
        """As declared; that of the engine counts once it runs."""

    def running(self, folder: Path) -> AbstractContextManager[Engine]:
        """Start it; the engine runs until the end of the context. What it keeps is in the folder, which is there.

        Started again in the same folder, it goes on where it stopped, if it can.
        """


@runtime_checkable
class KeepsLatency(Protocol):
    """A job of which a latency is asked."""

    @property
    def latency_s(self) -> float | None:
        """From end to end; None where nobody asked for one."""


@runtime_checkable
class LeavesElsewhere(Protocol):
    """A job that keeps something outside of its folder."""

    def delete_elsewhere(self, folder: Path) -> None:
        """Delete what an earlier run left there, before the folder is deleted itself.

        ElastreamError where one is still under way in the folder.
        """


class EngineKind(Protocol):
    """What `elastream run --engine NAME` names: a frozen dataclass, whose fields are its options."""

    def read(self, target: Any) -> Job:
        """What to run: a path as the user wrote it, or an object, where one calls `elastream.run` with it.

        InvalidInput says what is wrong with it. Nothing is started yet.
        """
