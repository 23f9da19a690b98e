"""Judging the last action: what it achieved beside what was there before and what was expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elastream.dataflow import Plan
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.events import ActionVerdict, Judged
from elastream.manager.knobs import Knobs
from elastream.manager.moves import KEEPS_UP, ManagerStep, allowed, decide, growth, load_changed
from elastream.manager.phase import PhaseTrigger
from elastream.manager.state import Barred
from elastream.measurement import Snapshot
from elastream.policies.imbalance import imbalance
from elastream.policies.proposal import Reason, ReasonKind

_BARRED = 10  # windows, until it is tried again


def judge(now: ManagerStep, snapshot: Snapshot, knobs: Knobs) -> ManagerStep:
    """Compare what the last action achieved with what was there before and with what was expected."""
    decision = now.state.to_judge
    assert decision is not None, "the phase 'verifying' always has a decision to judge"
    at_s, share = snapshot.at_s, now.share(snapshot)
    verdict = _verdict(decision, share, snapshot, knobs)
    if verdict is ActionVerdict.HARMFUL and _is_within_a_batch(snapshot):
        return now
    in_a_row = max(knobs.rollback_intervals, knobs.activation_intervals)
    if verdict is ActionVerdict.HARMFUL and now.state.harmful + 1 < in_a_row:
        return now.update(harmful=now.state.harmful + 1)
    now = now.update(harmful=0).tell(
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
        case ActionVerdict.HARMFUL if (
            decision.kind is not DecisionKind.BY_HAND
        ):  # nobody takes back what a person did
            return _take_back(now, snapshot, decision, share)
        case ActionVerdict.USELESS if now.state.useless + 1 >= knobs.decision_limit:
            why = (
                f"{now.state.useless + 1} actions in a row gained almost nothing; {_suspects(decision, snapshot)}"
            )
            now = now.update(to_judge=None, useless=now.state.useless + 1, settled_load=snapshot.source_rates)
            return now.go(PhaseTrigger.LIMIT_REACHED, at_s, why)
        case ActionVerdict.USELESS:
            now = now.update(useless=now.state.useless + 1)
        case ActionVerdict.EFFECTIVE:
            now = now.update(useless=0)
        case _:
            pass
    return now.update(to_judge=None).go(PhaseTrigger.JUDGED, at_s)


def _is_within_a_batch(snapshot: Snapshot) -> bool:
    """Whether some operator ended none of its batches, which are counted when they end: that they take longer than
    a window is no harm that the action did."""
    totals = (snapshot.measurements[name].totals for name in snapshot.batch_costs if name in snapshot.measurements)
    return any(one.records_in <= 0 < (one.backlog or 0.0) for one in totals)


def _verdict(decision: Decision, share: float | None, snapshot: Snapshot, knobs: Knobs) -> ActionVerdict:
    before, expected = decision.share_before, decision.expected_share
    if share is None or before is None or snapshot.plan != decision.after:
        return ActionVerdict.UNCLEAR
    if load_changed(decision.source_rates, snapshot.source_rates, knobs.load_change):
        return ActionVerdict.UNCLEAR
    # by the load for which it was decided: a load that has grown since lowers the share, whatever was done
    achieved = share * growth(decision.source_rates, snapshot.source_rates)
    if knobs.rollback_drop is not None and achieved < before * (1 - knobs.rollback_drop):
        return ActionVerdict.HARMFUL
    if not decision.grows or expected is None or expected - before < 1 - KEEPS_UP:
        return ActionVerdict.EFFECTIVE
    gained = (achieved - before) / (expected - before)
    return ActionVerdict.USELESS if gained < knobs.least_gain else ActionVerdict.EFFECTIVE


def _suspects(decision: Decision, snapshot: Snapshot) -> str:
    """Why more instances may not help: what the policy said when it asked for them, and imbalance seen since."""
    telling = (
        ReasonKind.SKEW,
        ReasonKind.STRAGGLER,
        ReasonKind.NOT_PARALLEL,
        ReasonKind.NO_CORES,
        ReasonKind.BOTTLENECK,
    )
    said = [(advice.operator, reason) for advice in decision.advice for reason in advice.reasons]
    seen = [(name, reason) for name, found in snapshot.measurements.items() for reason in imbalance(found)]
    named = {(name, r.kind): f"{name}: {r}" for name, r in (*said, *seen) if r.kind in telling}
    overall = [str(reason) for reason in decision.reasons if reason.kind in telling]
    return "; ".join([*named.values(), *overall]) or "look for skew, stragglers, or cores that are all in use"


def _take_back(now: ManagerStep, snapshot: Snapshot, decision: Decision, share: float | None) -> ManagerStep:
    """Go back as far as the bounds allow. The action stays to be judged, in case that the engine refuses."""
    back_to = {c.operator: allowed(snapshot, c.operator, c.before) for c in decision.changes}
    if snapshot.plan.with_changes(back_to) == snapshot.plan:
        return now.update(to_judge=None).go(PhaseTrigger.JUDGED, snapshot.at_s)
    text = (
        f"the achieved share fell from {decision.share_before:.0%} to {share:.0%} after action {decision.number}"
    )
    now = _bar(now, decision.after, snapshot.source_rates).update(settled_load=snapshot.source_rates)
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
    return decide(now, back)


def fresh_start(now: ManagerStep, snapshot: Snapshot, knobs: Knobs) -> ManagerStep:
    """After a rollback or after giving up, a changed load deserves another try."""
    if not load_changed(now.state.settled_load, snapshot.source_rates, knobs.load_change):
        return now
    return now.go(PhaseTrigger.LOAD_CHANGED, snapshot.at_s).update(barred=(), useless=0, recent=())


def watched_bars(now: ManagerStep) -> ManagerStep:
    """One more window: what was barred for long enough may be tried again."""
    return now.update(barred=tuple(replace(barred, windows=barred.windows + 1) for barred in now.state.barred))


def _bar(now: ManagerStep, plan: Plan, source_rates: Mapping[str, float]) -> ManagerStep:
    """A plan that did harm before, when it was tried again, is left alone for twice as long."""
    before = next((barred for barred in now.state.barred if barred.plan == plan), None)
    lasts = _BARRED if before is None or before.lasts is None else 2 * before.lasts
    others = (barred for barred in now.state.barred if barred.plan != plan)
    return now.update(barred=(*others, Barred(plan=plan, source_rates=source_rates, lasts=lasts)))
