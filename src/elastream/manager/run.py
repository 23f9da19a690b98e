"""A run from its start to its end: a job of any engine under the manager; a folder has its state and recording."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from elastream.errors import ElastreamError
from elastream.forecast import Forecaster
from elastream.manager.engine import ENGINE_CALLS, Accounting, Alerting, Clock, Engine, Job, check_calls
from elastream.manager.events import Accounted, Event, Trouble, event_to_json
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock, boot_of_this_machine
from elastream.manager.signals import stopping_on_signals
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.measurement.recording import RunHeader
from elastream.measurement.steady_recording import SteadyRecording
from elastream.options import settings_of
from elastream.policies.catalog import Policy
from elastream.policies.knowledge import Knowledge

_log = logging.getLogger(__name__)

STATE, RECORDING = "manager.sqlite", "recording.jsonl"
"""The files of a run in its folder."""


def header_of(pipeline: str, engine: str, name: str, policy: Policy, knobs: Knobs) -> RunHeader:
    """What the recording of a run begins with, so that a report of it knows what was run."""
    return RunHeader(
        pipeline=pipeline, engine=engine, policy=name, options=settings_of(policy), knobs=settings_of(knobs)
    )


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Run:
    job: Job
    policy: Policy
    knobs: Knobs
    folder: Path
    header: RunHeader
    """What the recording begins with."""
    duration_s: float | None = None
    recorded: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Times and rates of its sources from before, from which those who look ahead begin to learn."""
    on_snapshot: Callable[[Snapshot], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    clock: WallClock = field(default_factory=WallClock)
    """`stop` ends the run; real time passes by it, where the engine has no time of its own."""
    inbox: Inbox | None = None

    def run(self) -> tuple[str, ...]:
        """Until the time is up or someone stops it; afterwards it can be started again where it stopped.

        Returns what did not work up to the end, a sentence each: where there is any, the run has failed.
        In the main thread, which alone can see to that, Ctrl-C and SIGTERM end it after what is under way.
        """
        in_main_thread = threading.current_thread() is threading.main_thread()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ElastreamError(f"{self.folder}: cannot be written: {error.strerror}") from None
        with (
            stopping_on_signals(self.clock) if in_main_thread else nullcontext(),
            self.job.running(self.folder) as engine,
            Store(self.folder / STATE) as store,
            self._recording(self._clock_of(engine)) as recording,
        ):
            check_calls(f"engine {self.header.engine}", engine, ENGINE_CALLS)
            recording.begin(self.header)
            _log.info("running")
            return self._managed(engine, store, recording)

    def _clock_of(self, engine: Engine) -> Clock:
        return engine if isinstance(engine, Clock) else self.clock

    def _recording(self, clock: Clock) -> SteadyRecording:
        def tell(what: str) -> None:  # what is wrong with the recording itself, in which it cannot stand
            self.on_event(Trouble(at_s=clock.now(), what=what))

        return SteadyRecording(self.folder / RECORDING, tell=tell, now=clock.now)

    def _known(self, now_s: float) -> Knowledge:
        return Knowledge(forecasters={n: Forecaster.begun_with(r, now_s) for n, r in self.recorded.items()})

    def _managed(self, engine: Engine, store: Store, recording: SteadyRecording) -> tuple[str, ...]:
        clock = self._clock_of(engine)

        def record_event(event: Event) -> None:
            recording.write(event_to_json(event))
            self.on_event(event)

        def record_faults() -> None:
            for fault in engine.new_faults() if isinstance(engine, Accounting) else ():
                record_event(Trouble(at_s=clock.now(), what=fault))

        def record_snapshot(snapshot: Snapshot) -> None:
            recording.snapshot(snapshot)
            self.on_snapshot(snapshot)
            record_faults()

        manager = Manager(
            engine=engine,
            policy=self.policy,
            knobs=self.knobs,
            clock=clock,
            store=store,
            knowledge=self._known(clock.now()),
            on_snapshot=record_snapshot,
            on_event=record_event,
            inbox=self.inbox,
            on_wake=record_faults if isinstance(engine, Alerting) else None,
            boot=boot_of_this_machine() if clock is self.clock else "",
        )
        if isinstance(engine, Alerting):
            engine.wake_on_fault(self.clock.wake)
        record_faults()
        lasts_s = math.inf if self.duration_s is None else self.duration_s
        manager.run(until_s=clock.now() + lasts_s, stopped=self.clock.stopped.is_set)
        if isinstance(engine, Accounting):
            engine.halt()
            accounts = engine.accounts()
            record_faults()
            unsettled = tuple(engine.unsettled()) if isinstance(engine, Alerting) else ()
            for sentence in unsettled:
                record_event(Trouble(at_s=clock.now(), what=sentence))
            record_event(Accounted(at_s=clock.now(), accounts=accounts))
            return unsettled
        return ()
