"""The thin loop around the step: wait, measure, step, save, act. All judgement is in `step.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import Clock, Engine, RescaleOutcome
from elastream.manager.events import Event, Renewed, Steered, Trouble
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.state import ManagerState, initial_state
from elastream.manager.step import Input, Measured, Requested, Rescaled, Started, step
from elastream.manager.store import Store, StoreError
from elastream.measurement import Snapshot
from elastream.policies.catalog import Policy, Renews
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_ROUNDING = 1e-9  # of an interval, that adding up intervals may miss the end by


def boot_of_this_machine() -> str:
    """Empty where the system does not say."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


class WallClock:
    """Real time; a wait ends at once when the manager is stopped, or woken because someone asks for something."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._woken = threading.Event()

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        if not self.stopped.is_set():
            self._woken.wait(min(seconds, threading.TIMEOUT_MAX))
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self.stopped.set()
        self._woken.set()


def _nothing(_: object) -> None:
    pass


@dataclass(kw_only=True)
class Manager:
    """Keeps one pipeline at the right parallelism. Call `start` once, then `tick` after every interval."""

    engine: Engine
    policy: Policy
    knobs: Knobs
    clock: Clock
    store: Store | None = None
    knowledge: Knowledge = NOTHING_KNOWN
    """What is known before it begins, where the store has nothing."""
    on_snapshot: Callable[[Snapshot], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    inbox: Inbox | None = None
    """Where people ask for things; the clock is to be woken by it."""
    on_wake: Callable[[], None] | None = None
    """What else to do when the clock was woken, where something other than the inbox may wake it."""
    boot: str = ""
    """Of the machine; the steady clock counts from there for all of its processes. Empty where it does not."""
    state: ManagerState = field(init=False)
    _watched_until_s: float = field(init=False)
    """By the steady clock: up to here time has been counted."""
    _unsaved: str | None = field(init=False, default=None)
    """Why the state could not be written when that was last tried."""

    def __post_init__(self) -> None:
        loaded = self.store.load() if self.store is not None else None
        self.state = loaded or replace(initial_state(self.knobs), knowledge=self.knowledge)
        self._watched_until_s = self.clock.steady()

    def start(self) -> None:
        """Take up where an earlier run ended; an action that it left half done is finished or undone."""
        away_s, self._watched_until_s = self._away_s(), self.clock.steady()
        self._apply(replace(self._found(), away_s=away_s))

    def _away_s(self) -> float:
        """How long nobody has watched: by the time of day, which may have been set, only from another boot."""
        if self.boot and self.state.boot == self.boot and self.state.last_steady_s is not None:
            return max(0.0, self.clock.steady() - self.state.last_steady_s)
        last_s = self.state.last_at_s
        return 0.0 if last_s is None else max(0.0, self.clock.now() - last_s)

    def run(self, *, until_s: float, stopped: Callable[[], bool] = lambda: False) -> None:
        try:
            self._run(until_s, stopped)
        finally:
            if self.inbox is not None:
                self.inbox.close()

    def _run(self, until_s: float, stopped: Callable[[], bool]) -> None:
        self.start()
        while not stopped() and self.clock.now() < until_s:
            left_s = until_s - self.clock.now()
            undisturbed = self._rest(min(self.knobs.interval_s, left_s), stopped)
            # what is left of an interval at the end is too short to be judged like the others
            if undisturbed and not stopped() and left_s >= self.knobs.interval_s * (1 - _ROUNDING):
                self.tick()

    def _rest(self, seconds: float, stopped: Callable[[], bool]) -> bool:
        """Wait so long, and do meanwhile what people ask for; False where that was an action, which begins a
        window of its own."""
        if self.inbox is None and self.on_wake is None:
            self.clock.wait(seconds)
            return True
        ends_s, left_s = self.clock.steady() + seconds, seconds
        while left_s > _ROUNDING * seconds and not stopped():
            self.clock.wait(left_s)
            if self.on_wake is not None:
                self.on_wake()
            if self.inbox is not None:
                self._renew()
                if self._obey(self.inbox):
                    return False
            left_s = ends_s - self.clock.steady()
        return True

    def _obey(self, inbox: Inbox) -> bool:
        """Carry out what was asked for; whether an action was among it."""
        before = self.state.decisions
        for letter in inbox.letters():
            try:
                asked = Requested(
                    at_s=self.clock.now(),
                    request=letter.request,
                    dataflow=self.engine.graph(),
                    plan=self.engine.plan(),
                )
                self._apply(asked, letter.answer)
            except ElastreamError as error:
                self._trouble(f"what was asked for led to nothing: {error}")
            if not letter.answer.done():  # nothing was told, so nothing was done
                letter.answer.set_exception(ElastreamError("the manager could not do it; its log says why"))
        return self.state.decisions > before

    def attend(self) -> None:
        """Do what people ask for; for whoever does not call `run`, but `tick`."""
        if self.inbox is not None:
            self._renew()
            self._obey(self.inbox)

    def tick(self) -> None:
        """One interval is over."""
        self._renew()
        try:
            snapshot = self.engine.measure()
            # an action whose end could not be learned or written down is taken up as after a restart
            given = self._measured(snapshot) if self.state.under_way is None else self._found()
        except ElastreamError as error:
            self._trouble(f"cannot measure: {error}")
            return
        self.on_snapshot(snapshot)
        try:
            self._apply(given)
        except ElastreamError as error:  # a policy that cannot cope with this window may with the next
            self._trouble(f"this window led to nothing: {error}")

    def _renew(self) -> None:
        """A policy that was changed takes effect with this window; a change that is refused is told, once."""
        news = self.policy.renewed() if isinstance(self.policy, Renews) else None
        if news is None:
            return
        self.policy = news.policy
        at_s = self.clock.now()
        self.on_event(Trouble(at_s=at_s, what=news.what) if news.refused else Renewed(at_s=at_s, what=news.what))

    def _measured(self, snapshot: Snapshot) -> Measured:
        before_s, self._watched_until_s = self._watched_until_s, self.clock.steady()
        return Measured(snapshot=snapshot, passed_s=self._watched_until_s - before_s)

    def _found(self) -> Started:
        return Started(at_s=self.clock.now(), plan=self.engine.plan())

    def _apply(self, given: Input | None, answer: Future[Steered] | None = None) -> None:
        while given is not None:
            result = step(self.state, given, policy=self.policy, knobs=self.knobs)
            state = self._dated(result.state)
            # an intent that a power cut loses is no intent; what one window taught may be learned again
            lasting = result.decision is not None or not isinstance(given, Measured)
            if not self._saved(state, lasting=lasting) and result.decision is not None:
                return  # without its intent on disk an action is not begun: a crash could not mend it
            self.state = state
            for event in result.events:
                self.on_event(event)
                if answer is not None and isinstance(event, Steered) and not answer.done():
                    answer.set_result(event)
            given = None if result.decision is None else self._act(result.decision)

    def _dated(self, state: ManagerState) -> ManagerState:
        return replace(state, boot=self.boot, last_steady_s=self._watched_until_s) if self.boot else state

    def _saved(self, state: ManagerState, *, lasting: bool) -> bool:
        if self.store is None:
            return True
        try:
            self.store.save(state, lasting=lasting)
        except StoreError as error:
            if str(error) != self._unsaved:  # said once, and not with every window
                self._trouble(f"{error}; measuring goes on, and nothing is changed until it can be written again")
            self._unsaved = str(error)
            return False
        if self._unsaved is not None:
            self._trouble(f"{self.store.path}: the manager's state is written again")
        self._unsaved = None
        return True

    def _act(self, decision: Decision) -> Rescaled | None:
        began_s = self.clock.steady()
        try:
            outcome = self.engine.rescale(decision)
        except ElastreamError as error:
            return self._failed(decision, str(error), took_s=self.clock.steady() - began_s)
        return Rescaled(at_s=self.clock.now(), outcome=outcome)

    def _failed(self, decision: Decision, detail: str, *, took_s: float) -> Rescaled | None:
        """What became of an action that the engine broke off; None where the engine does not even say that."""
        try:
            outcome = RescaleOutcome(plan=self.engine.plan(), succeeded=False, took_s=took_s, detail=detail)
        except ElastreamError as error:
            self._trouble(f"action {decision.number} failed ({detail}), and what runs now is not known: {error}")
            return None
        return Rescaled(at_s=self.clock.now(), outcome=outcome)

    def _trouble(self, what: str) -> None:
        self.on_event(Trouble(at_s=self.clock.now(), what=what))
