"""An engine that notices by itself what goes wrong: told at once, and at the end if it never got well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from manager_story import FakeEngine, ManualClock, Scripted, plan_of

from elastream.dataflow import Dataflow
from elastream.manager.engine import Engine
from elastream.manager.events import Event, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.loop import WallClock
from elastream.manager.run import Run
from elastream.measurement.accounts import Accounts
from elastream.measurement.recording import RunHeader

_FAULT = "scored: batch 7 failed: ValueError: bidder 666 is poison"


class Failing(FakeEngine):
    """A step of it fails a moment after the run has begun."""

    def __init__(self, *, gets_well: bool) -> None:
        super().__init__(ManualClock(), plan_of(5))
        self.gets_well = gets_well
        self.faults: list[str] = []
        self.halted = False

    def wake_on_fault(self, wake: Callable[[], None]) -> None:
        def fail() -> None:
            self.faults.append(_FAULT)
            wake()

        threading.Timer(0.05, fail).start()

    def new_faults(self) -> tuple[str, ...]:
        found, self.faults = tuple(self.faults), []
        return found

    def halt(self) -> None:
        self.halted = True

    def accounts(self) -> Accounts:
        return Accounts(steps=())

    def unsettled(self) -> tuple[str, ...]:
        assert self.halted, "only then it is known"
        return () if self.gets_well else ("scored never worked in this run: ValueError",)


class Job:
    name = "bids"

    def __init__(self, engine: Failing) -> None:
        self.engine = engine

    def graph(self) -> Dataflow:
        return self.engine.graph()

    @contextmanager
    def running(self, folder: Path) -> Iterator[Engine]:
        yield self.engine


def run(engine: Failing, folder: Path, events: list[Event]) -> tuple[str, ...]:
    """It ends when a fault is told, or after an hour with the first window."""
    clock = WallClock()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, Trouble):
            assert event.what != _FAULT or not engine.halted, "not only at the end"
            clock.stop()

    return Run(
        job=Job(engine),
        policy=Scripted(wants={}),
        knobs=Knobs(interval_s=3_600.0),
        folder=folder,
        header=RunHeader(pipeline="bids", engine="fake", policy="scripted", options={}, knobs={}),
        duration_s=3_600.0,
        on_event=on_event,
        clock=clock,
    ).run()


@pytest.mark.parametrize("gets_well", [True, False])
def test_a_fault_is_told_before_the_window_ends(tmp_path: Path, gets_well: bool) -> None:
    events: list[Event] = []
    unsettled = run(Failing(gets_well=gets_well), tmp_path, events)
    told = [event.what for event in events if isinstance(event, Trouble)]
    assert told[0] == _FAULT
    never = "scored never worked in this run: ValueError"
    assert unsettled == (() if gets_well else (never,))
    assert told[1:] == list(unsettled), "and in the recording"
    assert _FAULT in (tmp_path / "recording.jsonl").read_text(encoding="utf-8")
