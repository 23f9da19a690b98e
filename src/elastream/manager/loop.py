"""The thin loop around the step: wait, measure, step, save, act. All judgement is in `step.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import Clock, Engine, Outcome
from elastream.manager.events import Event, Renewed, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.state import ManagerState, initial_state
from elastream.manager.step import Input, Measured, Rescaled, Started, step
from elastream.manager.store import Store, StoreError
from elastream.monitor import Snapshot
from elastream.policies.catalog import Policy, Renews

_ROUNDING = 1e-9  # of an interval, that adding up intervals may miss the end by


class WallClock:
    """Real time; a wait ends at once when the manager is stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self.stopped.wait(seconds)


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
    on_snapshot: Callable[[Snapshot], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    state: ManagerState = field(init=False)
    _watched_until_s: float = field(init=False)
    """By the steady clock: up to here time has been counted."""

    def __post_init__(self) -> None:
        loaded = self.store.load() if self.store is not None else None
        self.state = loaded or initial_state(self.knobs)
        self._watched_until_s = self.clock.steady()

    def start(self) -> None:
        """Take up where an earlier run ended; an action that it left half done is finished or undone."""
        self._apply(self._found())

    def run(self, *, until_s: float, stopped: Callable[[], bool] = lambda: False) -> None:
        self.start()
        while not stopped() and self.clock.now() < until_s:
            left_s = until_s - self.clock.now()
            self.clock.wait(min(self.knobs.interval_s, left_s))
            # what is left of an interval at the end is too short to be judged like the others
            if not stopped() and left_s >= self.knobs.interval_s * (1 - _ROUNDING):
                self.tick()

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
        event = Trouble(at_s=at_s, what=news.what) if news.refused else Renewed(at_s=at_s, what=news.what)
        self._saved(self.state, (event,))
        self.on_event(event)

    def _measured(self, snapshot: Snapshot) -> Measured:
        before_s, self._watched_until_s = self._watched_until_s, self.clock.steady()
        return Measured(snapshot=snapshot, passed_s=self._watched_until_s - before_s)

    def _found(self) -> Started:
        return Started(at_s=self.clock.now(), plan=self.engine.plan())

    def _apply(self, given: Input | None) -> None:
        while given is not None:
            result = step(self.state, given, policy=self.policy, knobs=self.knobs)
            if not self._saved(result.state, result.events) and result.decision is not None:
                return  # without its intent on disk an action is not begun: a crash could not mend it
            self.state = result.state
            for event in result.events:
                self.on_event(event)
            given = None if result.decision is None else self._act(result.decision)

    def _saved(self, state: ManagerState, events: tuple[Event, ...]) -> bool:
        if self.store is None:
            return True
        try:
            self.store.save(state, events)
        except StoreError as error:
            self.on_event(Trouble(at_s=self.clock.now(), what=str(error)))
            return False
        return True

    def _act(self, decision: Decision) -> Rescaled | None:
        began = self.clock.now()
        try:
            outcome = self.engine.rescale(decision)
        except ElastreamError as error:
            return self._failed(decision, str(error), took_s=self.clock.now() - began)
        return Rescaled(at_s=self.clock.now(), outcome=outcome)

    def _failed(self, decision: Decision, detail: str, *, took_s: float) -> Rescaled | None:
        """What became of an action that the engine broke off; None where the engine does not even say that."""
        try:
            outcome = Outcome(plan=self.engine.plan(), succeeded=False, took_s=took_s, detail=detail)
        except ElastreamError as error:
            self._trouble(f"action {decision.number} failed ({detail}), and what runs now is not known: {error}")
            return None
        return Rescaled(at_s=self.clock.now(), outcome=outcome)

    def _trouble(self, what: str) -> None:
        trouble = Trouble(at_s=self.clock.now(), what=what)
        self._saved(self.state, (trouble,))
        self.on_event(trouble)
