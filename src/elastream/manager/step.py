"""The manager's step: from a state and an input to a state, perhaps a decision, and the events that tell of it.

No clock, no engine, no thread: time is in the snapshots, and the decision is for someone else to carry out. The
order within a window is that of the design: ignore (warm-up), learn, judge the last action, ask the policy,
combine, filter, decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from elastream.dataflow import Dataflow, Plan
from elastream.manager.ask import ask
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Acted, Held, Ignored, Proposed, Steered
from elastream.manager.judge import fresh_start, judge, watched_bars
from elastream.manager.knobs import Knobs
from elastream.manager.moves import ManagerStep, decide
from elastream.manager.obey import obey
from elastream.manager.phase import IllegalTransition, ManagerPhase, PhaseTrigger
from elastream.manager.requests import UNTOUCHED, Controls, Request
from elastream.manager.state import ManagerState
from elastream.measurement import Snapshot
from elastream.policies.catalog import Policy, Remembers
from elastream.policies.proposal import Reason, ReasonKind

_LONGEST_BACKOFF = 32  # intervals to wait after the engine failed again and again


@dataclass(frozen=True, kw_only=True)
class Measured:
    snapshot: Snapshot
    passed_s: float | None = None
    """Since the last one, by the monotonic clock; the window's own length where nobody measured it."""


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """The engine is done with the decision that was under way."""

    at_s: float
    outcome: RescaleOutcome


@dataclass(frozen=True, kw_only=True)
class Started:
    """The manager came up, with a state that may stem from an earlier run; the engine runs this plan."""

    at_s: float
    plan: Plan
    away_s: float = 0.0
    """For how long no manager watched, by the time of day; what cannot be known is 0."""


@dataclass(frozen=True, kw_only=True)
class Requested:
    """Someone asks for something; the engine runs this graph with this plan."""

    at_s: float
    request: Request
    dataflow: Dataflow
    plan: Plan


Input = Measured | Rescaled | Started | Requested


def step(state: ManagerState, given: Input, *, policy: Policy, knobs: Knobs) -> ManagerStep:
    if isinstance(given, Started):
        state = replace(state, controls=state.controls.after_restart())
    knobs = state.controls.applied_to(knobs)
    match given:
        case Measured(snapshot=snapshot):
            now = _watched(ManagerStep(state=state), given, knobs)
            return _measured(now, _within_bounds(snapshot, state.controls), policy, knobs)
        case Rescaled(at_s=at_s, outcome=outcome):
            return _rescaled(ManagerStep(state=state), at_s, outcome, knobs)
        case Started(at_s=at_s, plan=plan, away_s=away_s):
            now = ManagerStep(state=replace(state, knowledge=state.knowledge.unwatched(away_s)))
            return _started(now, at_s, plan, knobs)
        case Requested(at_s=at_s, request=request, dataflow=dataflow, plan=plan):
            return obey(ManagerStep(state=state), at_s, request, dataflow, plan, knobs)


# Measured: one window


def _within_bounds(snapshot: Snapshot, controls: Controls) -> Snapshot:
    return replace(snapshot, dataflow=controls.narrowed(snapshot.dataflow)) if controls.bounds else snapshot


def _watched(now: ManagerStep, given: Measured, knobs: Knobs) -> ManagerStep:
    """Time passes in windows that are left out, too."""
    snapshot, passed_s = given.snapshot, given.passed_s
    if passed_s is None:
        passed_s = snapshot.window_s
    knowledge = now.state.knowledge.watched(passed_s, snapshot.plan, interval_s=knobs.interval_s)
    return now.update(knowledge=replace(knowledge, calendar=knobs.known_ahead))


def _measured(now: ManagerStep, snapshot: Snapshot, policy: Policy, knobs: Knobs) -> ManagerStep:
    at_s, state = snapshot.at_s, now.state
    if state.last_at_s is not None and at_s <= state.last_at_s:
        why = f"the clock went from {state.last_at_s:.3f} s to {at_s:.3f} s; this window is left out"
        # the new time counts from here on, or one jump back would silence the manager until time catches up
        return now.tell(Ignored(at_s=at_s, why=why)).update(last_at_s=at_s, seen=(), recent=())
    now = now.update(last_at_s=at_s)
    if snapshot.gaps:
        return now.tell(Ignored(at_s=at_s, why=f"incomplete measurements: {'; '.join(snapshot.gaps)}"))
    if state.phase is ManagerPhase.WARMING_UP:
        if state.warm_up_left > 0:
            why = f"warming up, {state.warm_up_left} more window{'' if state.warm_up_left == 1 else 's'}"
            now = now.update(knowledge=now.state.knowledge.observed(snapshot, timed=False))
            return now.tell(Ignored(at_s=at_s, why=why)).update(warm_up_left=state.warm_up_left - 1)
        now = _warmed_up(now, at_s)
    now = watched_bars(_learn(now, snapshot, policy))
    excluded = knobs.known_ahead.excluded_at(at_s) if knobs.known_ahead.excluded else None
    if state.controls.paused or excluded is not None:
        why = "scaling is paused" if excluded is None else f"nothing is changed during {excluded.name} (calendar)"
        return _pausing(now, snapshot, policy, why)
    for phase, handle in _BEFORE_ASKING:
        if now.state.phase is phase and now.decision is None:
            now = handle(now, snapshot, knobs)
    return now if now.decision is not None else ask(now, snapshot, policy, knobs)


def _pausing(now: ManagerStep, snapshot: Snapshot, policy: Policy, why: str) -> ManagerStep:
    """What the policy wants is still told, so that people see what they hold back."""
    proposal = policy(snapshot, now.state.knowledge)
    held = Held(at_s=snapshot.at_s, why=why)
    now = now.tell(Proposed(at_s=snapshot.at_s, proposal=proposal), held)
    return now.go(PhaseTrigger.NOTHING_WANTED, snapshot.at_s, held.why).update(recent=())


def _learn(now: ManagerStep, snapshot: Snapshot, policy: Policy) -> ManagerStep:
    knowledge = now.state.knowledge.with_snapshot(snapshot)
    if isinstance(policy, Remembers):
        knowledge = policy.remember(snapshot, knowledge)
    now = now.update(knowledge=knowledge, last_load=snapshot.source_rates)
    return now.update(last_share=now.share(snapshot))


def _warmed_up(now: ManagerStep, at_s: float) -> ManagerStep:
    last = now.state.to_judge
    if last is None:
        return now.go(PhaseTrigger.WARMED_UP, at_s)
    if last.kind is DecisionKind.ROLLBACK:
        return now.go(PhaseTrigger.WARMED_UP_AFTER_ROLLBACK, at_s).update(to_judge=None)
    return now.go(PhaseTrigger.WARMED_UP_AFTER_ACTION, at_s)


_BEFORE_ASKING: tuple[tuple[ManagerPhase, Callable[[ManagerStep, Snapshot, Knobs], ManagerStep]], ...] = (
    (ManagerPhase.VERIFYING, judge),
    (ManagerPhase.ROLLED_BACK, fresh_start),
    (ManagerPhase.GIVEN_UP, fresh_start),
)


# Rescaled, and started again


def _rescaled(now: ManagerStep, at_s: float, outcome: RescaleOutcome, knobs: Knobs) -> ManagerStep:
    decision = now.state.under_way
    if decision is None:
        raise IllegalTransition(now.state.phase, PhaseTrigger.ACTION_ENDED)
    now = now.tell(Acted(at_s=at_s, number=decision.number, outcome=outcome))
    knowledge = now.state.knowledge.with_plan(outcome.plan, after_s=outcome.took_s)
    now = now.update(knowledge=knowledge.acted(outcome.took_s) if outcome.succeeded else knowledge)
    if outcome.succeeded or outcome.plan == decision.after:
        # an engine may have come as near as it can: it takes only some numbers of instances, say
        decision = replace(decision, after=outcome.plan)
        # that an action could be undone does not make the next try more promising
        failures = now.state.failures if decision.kind is DecisionKind.ROLLBACK else 0
        return _ended(now.update(to_judge=decision, last_done=decision, failures=failures), at_s, knobs)
    now = now.update(failures=now.state.failures + 1)
    if outcome.plan != decision.before and decision.kind is not DecisionKind.ROLLBACK:
        return _undo(now, at_s, decision, outcome)
    return _ended(now, at_s, knobs, f"the action failed: {outcome.detail or 'no reason given'}")


def _ended(now: ManagerStep, at_s: float, knobs: Knobs, why: str = "") -> ManagerStep:
    """Wait for the warm-up, and after failures for longer: twice as long each time."""
    wait = knobs.warm_up_intervals
    if now.state.failures > 0:
        wait = max(wait, min(_LONGEST_BACKOFF, max(1, wait) * 2 ** (now.state.failures - 1)))
    return now.update(under_way=None, warm_up_left=wait, waiting=None).go(PhaseTrigger.ACTION_ENDED, at_s, why)


def _undo(now: ManagerStep, at_s: float, decision: Decision, outcome: RescaleOutcome) -> ManagerStep:
    """The engine did a part and failed: go back to where the decision began."""
    text = f"action {decision.number} was only half done ({outcome.detail or 'no reason given'})"
    back = Decision(
        number=decision.number + 1,
        at_s=at_s,
        kind=DecisionKind.ROLLBACK,
        before=outcome.plan,
        after=decision.before,
        source_rates=decision.source_rates,
        reasons=(Reason(kind=ReasonKind.MEASURED, text=text),),
    )
    return decide(now.update(settled_load=decision.source_rates), back, PhaseTrigger.HALF_DONE)


def _started(now: ManagerStep, at_s: float, plan: Plan, knobs: Knobs) -> ManagerStep:
    now = _still_set(now, at_s)
    now = now.update(last_at_s=None, recent=(), seen=(), short=0, waiting=None, harmful=0)
    now = now.update(warm_up_left=knobs.warm_up_intervals)
    now = now.go(PhaseTrigger.STARTED, at_s).update(knowledge=now.state.knowledge.with_plan(plan))
    decision = now.state.under_way
    if decision is None:
        return now.update(to_judge=None)
    if set(plan) != set(decision.after):
        return _dropped(now, at_s, decision, plan, knobs, "the pipeline has other operators now")
    if knobs.dry_run:
        return _dropped(now, at_s, decision, plan, knobs, "left as it was found: this is a dry run")
    if plan == decision.after:
        done = RescaleOutcome(plan=plan, succeeded=True, took_s=0.0, detail="found done after a restart")
        return _rescaled(now, at_s, done, knobs)
    return replace(now, decision=decision)  # carry it out again: an action done twice changes nothing


def _still_set(now: ManagerStep, at_s: float) -> ManagerStep:
    controls = now.state.controls
    if controls == UNTOUCHED:
        return now
    return now.tell(Steered(at_s=at_s, what=f"still set from before: {controls}", controls=controls))


def _dropped(now: ManagerStep, at_s: float, decision: Decision, plan: Plan, knobs: Knobs, why: str) -> ManagerStep:
    outcome = RescaleOutcome(plan=plan, succeeded=False, took_s=0.0, detail=why)
    now = now.tell(Acted(at_s=at_s, number=decision.number, outcome=outcome))
    return _ended(now.update(to_judge=None), at_s, knobs, why)
