"""The manager's step: from a state and an input to a state, perhaps a decision, and the events that tell of it.

No clock, no engine, no thread: time is in the snapshots, and the decision is for someone else to carry out. The
order within a window is that of the design: ignore (warm-up), learn, judge the last action, ask the policy,
combine, filter, decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median_high

from elastream.dataflow import Plan
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.engine import Outcome
from elastream.manager.events import Acted, Decided, Event, Held, Ignored, Judged, PhaseChanged, Proposed, Verdict
from elastream.manager.knobs import Knobs
from elastream.manager.phase import IllegalTransition, Phase, Trigger, following
from elastream.manager.state import Barred, ManagerState, Wanted
from elastream.monitor import Snapshot
from elastream.monitor.flow import achieved_share
from elastream.policies.catalog import Policy
from elastream.policies.imbalance import imbalance
from elastream.policies.proposal import Proposal, Reason, ReasonKind

_KEEPS_UP = 0.999  # a smaller achieved share means that the pipeline falls behind
_SHORT_WINDOWS = 2  # a rate that "stays" short was short this many windows in a row
_MOST_CORRECTION = 2.0
_LONGEST_BACKOFF = 32  # intervals to wait after the engine failed again and again


@dataclass(frozen=True, kw_only=True)
class Measured:
    snapshot: Snapshot


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """The engine is done with the decision that was under way."""

    at_s: float
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Started:
    """The manager came up, with a state that may stem from an earlier run; the engine runs this plan."""

    at_s: float
    plan: Plan


Input = Measured | Rescaled | Started


@dataclass(frozen=True, kw_only=True)
class Step:
    """A state, and what happened on the way to it. `decision` is to be carried out."""

    state: ManagerState
    events: tuple[Event, ...] = ()
    decision: Decision | None = None

    def tell(self, *events: Event) -> Step:
        return replace(self, events=(*self.events, *events))

    def update(self, **changes: object) -> Step:
        return replace(self, state=replace(self.state, **changes))  # type: ignore[arg-type]

    def go(self, trigger: Trigger, at_s: float, why: str = "") -> Step:
        """Move along the transition table; a change of phase is told."""
        before, after = self.state.phase, following(self.state.phase, trigger)
        moved = self.update(phase=after)
        if before is after:
            return moved
        return moved.tell(PhaseChanged(at_s=at_s, before=before, after=after, why=why or str(trigger)))


def step(state: ManagerState, given: Input, *, policy: Policy, knobs: Knobs) -> Step:
    match given:
        case Measured(snapshot=snapshot):
            return _measured(Step(state=state), snapshot, policy, knobs)
        case Rescaled(at_s=at_s, outcome=outcome):
            return _rescaled(Step(state=state), at_s, outcome, knobs)
        case Started(at_s=at_s, plan=plan):
            return _started(Step(state=state), at_s, plan, knobs)


# Measured: one window


def _measured(now: Step, snapshot: Snapshot, policy: Policy, knobs: Knobs) -> Step:
    at_s, state = snapshot.at_s, now.state
    if state.last_at_s is not None and at_s <= state.last_at_s:
        why = f"the clock went from {state.last_at_s:.3f} s to {at_s:.3f} s; this window is left out"
        # the new time counts from here on, or one jump back would silence the manager until time catches up
        return now.tell(Ignored(at_s=at_s, why=why)).update(last_at_s=at_s, seen=(), recent=())
    now = now.update(last_at_s=at_s)
    if snapshot.gaps:
        return now.tell(Ignored(at_s=at_s, why=f"incomplete measurements: {'; '.join(snapshot.gaps)}"))
    if state.phase is Phase.WARMING_UP:
        if state.warm_up_left > 0:
            why = f"warming up, {state.warm_up_left} more"
            return now.tell(Ignored(at_s=at_s, why=why)).update(warm_up_left=state.warm_up_left - 1)
        now = _warmed_up(now, at_s)
    now = now.update(knowledge=now.state.knowledge.with_snapshot(snapshot))
    for phase, handle in _BEFORE_ASKING:
        if now.state.phase is phase and now.decision is None:
            now = handle(now, snapshot, knobs)
    return now if now.decision is not None else _ask(now, snapshot, policy, knobs)


def _warmed_up(now: Step, at_s: float) -> Step:
    last = now.state.to_judge
    if last is None:
        return now.go(Trigger.WARMED_UP, at_s)
    if last.kind is DecisionKind.ROLLBACK:
        return now.go(Trigger.WARMED_UP_AFTER_ROLLBACK, at_s).update(to_judge=None)
    return now.go(Trigger.WARMED_UP_AFTER_ACTION, at_s)


def _judge(now: Step, snapshot: Snapshot, knobs: Knobs) -> Step:
    """Compare what the last action achieved with what was there before and with what was expected."""
    decision = now.state.to_judge
    assert decision is not None, "the phase 'verifying' always has a decision to judge"
    at_s, share = snapshot.at_s, achieved_share(snapshot)
    verdict = _verdict(decision, share, snapshot, knobs)
    now = now.tell(
        Judged(
            at_s=at_s,
            number=decision.number,
            verdict=verdict,
            share_before=decision.share_before,
            share_after=share,
            expected_share=decision.expected_share,
        )
    )
    match verdict:
        case Verdict.HARMFUL:
            return _take_back(now, snapshot, decision, share)
        case Verdict.USELESS if now.state.useless + 1 >= knobs.decision_limit:
            why = (
                f"{now.state.useless + 1} actions in a row gained almost nothing; {_suspects(decision, snapshot)}"
            )
            now = now.update(to_judge=None, useless=now.state.useless + 1, settled_load=snapshot.source_rates)
            return now.go(Trigger.LIMIT_REACHED, at_s, why)
        case Verdict.USELESS:
            now = now.update(useless=now.state.useless + 1)
        case Verdict.EFFECTIVE:
            now = now.update(useless=0)
        case Verdict.UNCLEAR:
            pass
    return now.update(to_judge=None).go(Trigger.JUDGED, at_s)


def _verdict(decision: Decision, share: float | None, snapshot: Snapshot, knobs: Knobs) -> Verdict:
    before, expected = decision.share_before, decision.expected_share
    if share is None or before is None or snapshot.plan != decision.after:
        return Verdict.UNCLEAR
    if _load_changed(decision.source_rates, snapshot.source_rates, knobs.load_change):
        return Verdict.UNCLEAR
    # by the load for which it was decided: a load that has grown since lowers the share, whatever was done
    achieved = share * _growth(decision.source_rates, snapshot.source_rates)
    if knobs.rollback_drop is not None and achieved < before * (1 - knobs.rollback_drop):
        return Verdict.HARMFUL
    if not decision.grows or expected is None or expected - before < 1 - _KEEPS_UP:
        return Verdict.EFFECTIVE
    gained = (achieved - before) / (expected - before)
    return Verdict.USELESS if gained < knobs.least_gain else Verdict.EFFECTIVE


def _suspects(decision: Decision, snapshot: Snapshot) -> str:
    """Why more instances may not help: what the policy said when it asked for them, and imbalance seen since."""
    telling = (ReasonKind.SKEW, ReasonKind.STRAGGLER, ReasonKind.NOT_PARALLEL, ReasonKind.BOTTLENECK)
    said = [(advice.operator, reason) for advice in decision.advice for reason in advice.reasons]
    seen = [(name, reason) for name, readings in snapshot.by_operator.items() for reason in imbalance(readings)]
    named = {(name, r.kind): f"{name}: {r}" for name, r in (*said, *seen) if r.kind in telling}
    overall = [str(reason) for reason in decision.reasons if reason.kind in telling]
    return "; ".join([*named.values(), *overall]) or "look for skew, stragglers, or cores that are all in use"


def _take_back(now: Step, snapshot: Snapshot, decision: Decision, share: float | None) -> Step:
    """Go back as far as the bounds allow. The action stays to be judged, in case that the engine refuses."""
    back_to = {c.operator: _allowed(snapshot, c.operator, c.before) for c in decision.changes}
    if snapshot.plan.with_changes(back_to) == snapshot.plan:
        return now.update(to_judge=None).go(Trigger.JUDGED, snapshot.at_s)
    text = (
        f"the achieved share fell from {decision.share_before:.0%} to {share:.0%} after action {decision.number}"
    )
    others = (barred for barred in now.state.barred if barred.plan != decision.after)
    now = now.update(
        barred=(*others, Barred(plan=decision.after, source_rates=snapshot.source_rates)),
        settled_load=snapshot.source_rates,
    )
    back = Decision(
        number=now.state.decisions + 1,
        at_s=snapshot.at_s,
        kind=DecisionKind.ROLLBACK,
        before=snapshot.plan,
        after=snapshot.plan.with_changes(back_to),
        source_rates=snapshot.source_rates,
        reasons=(Reason(kind=ReasonKind.MEASURED, text=text),),
        share_before=share,
        expected_share=decision.share_before,
    )
    return _decide(now, back)


def _fresh_start(now: Step, snapshot: Snapshot, knobs: Knobs) -> Step:
    """After a rollback or after giving up, a changed load deserves another try."""
    if not _load_changed(now.state.settled_load, snapshot.source_rates, knobs.load_change):
        return now
    return now.go(Trigger.LOAD_CHANGED, snapshot.at_s).update(barred=(), useless=0, recent=())


_BEFORE_ASKING: tuple[tuple[Phase, Callable[[Step, Snapshot, Knobs], Step]], ...] = (
    (Phase.VERIFYING, _judge),
    (Phase.ROLLED_BACK, _fresh_start),
    (Phase.GIVEN_UP, _fresh_start),
)


# Asking the policy, and what becomes of its answer


def _ask(now: Step, snapshot: Snapshot, policy: Policy, knobs: Knobs) -> Step:
    now = _forget_correction(now, snapshot, knobs)
    proposal = policy(snapshot, now.state.knowledge)
    now, proposal = _corrected(now, snapshot, proposal, policy, knobs)
    now = _remember(now, snapshot.at_s, proposal, knobs).tell(Proposed(at_s=snapshot.at_s, proposal=proposal))
    wanted, held = _wanted(now.state, snapshot, knobs)
    if held:
        now = now.tell(Held(at_s=snapshot.at_s, why="; ".join(held)))
    if wanted == snapshot.plan:
        # the proposals in a row begin with the first that wants a change, not with what was wanted before it
        return now.go(Trigger.NOTHING_WANTED, snapshot.at_s).update(recent=(), last_dry_run=None)
    return _let_through(now, snapshot, proposal, wanted, knobs)


def _forget_correction(now: Step, snapshot: Snapshot, knobs: Knobs) -> Step:
    knowledge = now.state.knowledge
    if knowledge.correction == 1.0:
        return now
    if not _load_changed(now.state.settled_load, snapshot.source_rates, knobs.load_change):
        return now
    return now.update(knowledge=replace(knowledge, correction=1.0), short=0)


def _corrected(
    now: Step, snapshot: Snapshot, proposal: Proposal, policy: Policy, knobs: Knobs
) -> tuple[Step, Proposal]:
    """The target-rate ratio: ask for as much more as is missing where the model sees nothing missing."""
    share = achieved_share(snapshot)
    # to want fewer is to see nothing missing, too: were that held back as too small, it would stay short for ever
    asks_no_more = all(snapshot.plan.get(name, wanted) >= wanted for name, wanted in proposal.parallelism.items())
    content = asks_no_more and (proposal.expected_share is None or proposal.expected_share >= _KEEPS_UP)
    explained = any(
        proposal.names(kind) for kind in (ReasonKind.SKEW, ReasonKind.STRAGGLER, ReasonKind.NOT_PARALLEL)
    )
    asked = min(knobs.target_rate_ratio, _KEEPS_UP)  # a ratio of 1 is not missed by a rounding error
    if share is None or share >= asked or not content or explained:
        return now.update(short=0), proposal
    now = now.update(short=now.state.short + 1)
    if now.state.short < _SHORT_WINDOWS:
        return now, proposal
    knowledge = now.state.knowledge
    correction = min(_MOST_CORRECTION, knowledge.correction / max(share, 1 / _MOST_CORRECTION))
    knowledge = replace(knowledge, correction=correction)
    now = now.update(knowledge=knowledge, settled_load=snapshot.source_rates, short=0)
    return now, policy(snapshot, knowledge)


def _remember(now: Step, at_s: float, proposal: Proposal, knobs: Knobs) -> Step:
    latest = Wanted(at_s=at_s, parallelism=proposal.parallelism)
    seen = (*now.state.seen, latest)
    covered = [index for index, wanted in enumerate(seen) if wanted.at_s <= at_s - knobs.scale_down_delay_s]
    return now.update(
        recent=(*now.state.recent, latest)[-knobs.activation_intervals :],
        seen=seen[covered[-1] :] if covered else seen,
    )


def _wanted(state: ManagerState, snapshot: Snapshot, knobs: Knobs) -> tuple[Plan, list[str]]:
    """The recent proposals combined, less what the knobs hold back, and the reasons for holding it back."""
    share = achieved_share(snapshot)
    falls_behind = share is not None and share < _KEEPS_UP
    combine = max if knobs.activation_by == "max" else median_high
    wanted, held = {}, []
    for name in snapshot.dataflow.scalable:
        votes = [vote.parallelism[name] for vote in state.recent if name in vote.parallelism]
        if not votes:
            continue
        current = snapshot.plan[name]
        target = _allowed(snapshot, name, combine(votes))
        if target < current:
            target, why = _delayed(state, name, current, target, snapshot.at_s, knobs)
            held.extend(why)
        least = max(knobs.minimum_change, knobs.minimum_change_share * current)
        if target != current and abs(target - current) < least and not (falls_behind and target > current):
            held.append(f"{name}: {current} → {target} is smaller than the minimum change")
            target = current
        wanted[name] = target
    return snapshot.plan.with_changes(wanted), held


def _allowed(snapshot: Snapshot, name: str, wanted: int) -> int:
    """As near to what is wanted as the operator's bounds are; a policy need not know them."""
    operator = snapshot.dataflow[name]
    return snapshot.plan[name] if operator.fixed else operator.clamp(wanted)


def _delayed(
    state: ManagerState, name: str, current: int, target: int, at_s: float, knobs: Knobs
) -> tuple[int, list[str]]:
    """A scale-down waits until the delay is covered, and then takes the highest need of that time."""
    if knobs.scale_down_delay_s == 0:
        return target, []
    if state.seen[0].at_s > at_s - knobs.scale_down_delay_s:
        return current, [f"{name}: {current} → {target} waits for {knobs.scale_down_delay_s:g} s of lower need"]
    highest = max(vote.parallelism.get(name, current) for vote in state.seen)  # no data is no low need
    if highest <= target:
        return target, []
    held_at = min(current, highest)
    return held_at, [f"{name}: {current} → {held_at}, not {target}: so many were needed within the delay"]


def _let_through(now: Step, snapshot: Snapshot, proposal: Proposal, wanted: Plan, knobs: Knobs) -> Step:
    """A change is wanted: act, unless it is too early, barred, or only a rehearsal."""
    at_s, state = snapshot.at_s, now.state
    if len(state.recent) < knobs.activation_intervals:
        why = f"{len(state.recent)} of {knobs.activation_intervals} proposals in a row"
        return now.go(Trigger.CHANGE_WANTED, at_s, why)
    if state.phase is Phase.GIVEN_UP:
        return now.go(Trigger.CHANGE_WANTED, at_s).tell(Held(at_s=at_s, why="given up until the load changes"))
    if any(
        barred.plan == wanted and not _load_changed(barred.source_rates, snapshot.source_rates, knobs.load_change)
        for barred in state.barred
    ):
        why = f"{wanted} was taken back under this load"
        return now.go(Trigger.CHANGE_WANTED, at_s).tell(Held(at_s=at_s, why=why))
    decision = _decision(now.state, snapshot, proposal, wanted)
    if knobs.dry_run:
        return _rehearse(now, decision)
    return _decide(now, decision)


def _decision(state: ManagerState, snapshot: Snapshot, proposal: Proposal, wanted: Plan) -> Decision:
    changing = {change.operator for change in snapshot.plan.changes_to(wanted)}
    return Decision(
        number=state.decisions + 1,
        at_s=snapshot.at_s,
        before=snapshot.plan,
        after=wanted,
        source_rates=snapshot.source_rates,
        reasons=proposal.reasons,
        advice=tuple(advice for name, advice in proposal.advice.items() if name in changing),
        share_before=achieved_share(snapshot),
        expected_share=proposal.expected_share,
    )


def _decide(now: Step, decision: Decision, trigger: Trigger = Trigger.DECIDED) -> Step:
    now = now.go(trigger, decision.at_s, str(decision)).tell(Decided(at_s=decision.at_s, decision=decision))
    now = now.update(under_way=decision, decisions=decision.number, recent=())
    return replace(now, decision=decision)


def _rehearse(now: Step, decision: Decision) -> Step:
    """Dry run: tell what would be done, once for each different plan."""
    if now.state.last_dry_run != decision.after:
        now = now.tell(Decided(at_s=decision.at_s, decision=decision, dry_run=True))
    return now.update(last_dry_run=decision.after).go(Trigger.NOTHING_WANTED, decision.at_s)


# Rescaled, and started again


def _rescaled(now: Step, at_s: float, outcome: Outcome, knobs: Knobs) -> Step:
    decision = now.state.under_way
    if decision is None:
        raise IllegalTransition(now.state.phase, Trigger.ACTION_ENDED)
    now = now.tell(Acted(at_s=at_s, number=decision.number, outcome=outcome))
    if outcome.succeeded or outcome.plan == decision.after:
        # an engine may have come as near as it can: it takes only some numbers of instances, say
        decision = replace(decision, after=outcome.plan)
        # that an action could be undone does not make the next try more promising
        failures = now.state.failures if decision.kind is DecisionKind.ROLLBACK else 0
        return _ended(now.update(to_judge=decision, failures=failures), at_s, knobs)
    now = now.update(failures=now.state.failures + 1)
    if outcome.plan != decision.before and decision.kind is not DecisionKind.ROLLBACK:
        return _undo(now, at_s, decision, outcome)
    return _ended(now, at_s, knobs, f"the action failed: {outcome.detail or 'no reason given'}")


def _ended(now: Step, at_s: float, knobs: Knobs, why: str = "") -> Step:
    """Wait for the warm-up, and after failures for longer: twice as long each time."""
    wait = knobs.warm_up_intervals
    if now.state.failures > 0:
        wait = max(wait, min(_LONGEST_BACKOFF, max(1, wait) * 2 ** (now.state.failures - 1)))
    return now.update(under_way=None, warm_up_left=wait).go(Trigger.ACTION_ENDED, at_s, why)


def _undo(now: Step, at_s: float, decision: Decision, outcome: Outcome) -> Step:
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
    return _decide(now.update(settled_load=decision.source_rates), back, Trigger.HALF_DONE)


def _started(now: Step, at_s: float, plan: Plan, knobs: Knobs) -> Step:
    now = now.update(last_at_s=None, recent=(), seen=(), short=0, warm_up_left=knobs.warm_up_intervals)
    now = now.go(Trigger.STARTED, at_s)
    decision = now.state.under_way
    if decision is None:
        return now.update(to_judge=None)
    if set(plan) != set(decision.after):
        return _dropped(now, at_s, decision, plan, knobs, "the pipeline has other operators now")
    if knobs.dry_run:
        return _dropped(now, at_s, decision, plan, knobs, "left as it was found: this is a dry run")
    if plan == decision.after:
        done = Outcome(plan=plan, succeeded=True, took_s=0.0, detail="found done after a restart")
        return _rescaled(now, at_s, done, knobs)
    return replace(now, decision=decision)  # carry it out again: an action done twice changes nothing


def _dropped(now: Step, at_s: float, decision: Decision, plan: Plan, knobs: Knobs, why: str) -> Step:
    outcome = Outcome(plan=plan, succeeded=False, took_s=0.0, detail=why)
    now = now.tell(Acted(at_s=at_s, number=decision.number, outcome=outcome))
    return _ended(now.update(to_judge=None), at_s, knobs, why)


def _growth(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """By how much the load grew, at the source where it grew most; at least 1."""
    return max((1.0, *(rate / before[name] for name, rate in now.items() if before.get(name, 0.0) > 0)))


def _load_changed(before: Mapping[str, float], now: Mapping[str, float], share: float) -> bool:
    return any(abs(rate - before.get(name, 0.0)) > share * before.get(name, 0.0) for name, rate in now.items())
