"""Asking the policy, and what becomes of its answer: correct, combine, filter, decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median_high

from elastream.dataflow import Plan
from elastream.durations import text as duration_text
from elastream.manager.decision import Decision
from elastream.manager.events import Decided, Held, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.moves import KEEPS_UP, ManagerStep, allowed, decide, load_changed
from elastream.manager.phase import ManagerPhase, PhaseTrigger
from elastream.manager.shortfall import is_still_missing
from elastream.manager.state import ManagerState, WantedParallelism
from elastream.measurement import Snapshot
from elastream.measurement.flow import behind, waiting_records
from elastream.policies.catalog import Policy
from elastream.policies.knowledge import Correction
from elastream.policies.proposal import Proposal, ReasonKind

_SHORT_WINDOWS = 2  # a rate that "stays" short was short this many windows in a row
_MOST_CORRECTION = 2.0
_STILL_FALLS = 2  # times what a little more waiting would save: acting now must save more
_EXPLAINING = (ReasonKind.SKEW, ReasonKind.STRAGGLER, ReasonKind.NOT_PARALLEL, ReasonKind.NO_CORES)


def ask(now: ManagerStep, snapshot: Snapshot, policy: Policy, knobs: Knobs) -> ManagerStep:
    now = _renew_corrections(now, snapshot, knobs)
    proposal = policy(snapshot, now.state.knowledge)
    now, proposal = _corrected(now, snapshot, proposal, policy, knobs)
    now = _remember(now, snapshot.at_s, proposal, knobs).tell(Proposed(at_s=snapshot.at_s, proposal=proposal))
    wanted, held = _wanted(now, snapshot, proposal, knobs)
    if held:
        now = now.tell(Held(at_s=snapshot.at_s, why="; ".join(held)))
    if wanted == snapshot.plan:
        # the proposals in a row begin with the first that wants a change, not with what was wanted before it
        return now.go(PhaseTrigger.NOTHING_WANTED, snapshot.at_s).update(recent=(), last_dry_run=None)
    return _let_through(now, snapshot, proposal, wanted, knobs)


def _renew_corrections(now: ManagerStep, snapshot: Snapshot, knobs: Knobs) -> ManagerStep:
    """One more window for each correction; a load that has changed deserves a try without."""
    knowledge = now.state.knowledge
    if not knowledge.corrections:
        return now
    if load_changed(now.state.settled_load, snapshot.source_rates, knobs.load_change):
        return now.update(knowledge=replace(knowledge, corrections={}), short=0)
    older = {name: replace(one, windows=one.windows + 1) for name, one in knowledge.corrections.items()}
    return now.update(knowledge=replace(knowledge, corrections=older))


def _corrected(
    now: ManagerStep, snapshot: Snapshot, proposal: Proposal, policy: Policy, knobs: Knobs
) -> tuple[ManagerStep, Proposal]:
    """The target-rate ratio: ask for as much more as is missing where the model sees nothing missing."""
    share = now.share(snapshot)
    asked = min(knobs.target_rate_ratio, KEEPS_UP)  # a ratio of 1 is not missed by a rounding error
    # to want fewer is to see nothing missing, too: were that held back as too small, it would stay short for ever
    asks_no_more = all(snapshot.plan.get(name, wanted) >= wanted for name, wanted in proposal.parallelism.items())
    content = asks_no_more and (proposal.expected_share is None or proposal.expected_share >= KEEPS_UP)
    explained = any(map(proposal.names, _EXPLAINING)) or _is_explained(now, snapshot, proposal, asked)
    left, before = waiting_records(snapshot), now.state.waiting
    to_compare = left is None or before is not None  # if not, this window is what later ones are compared to
    if share is None or share >= asked or not content or explained or not to_compare:
        return now.update(short=0, waiting=left), proposal
    now = now.update(short=now.state.short + 1)
    windows = now.state.short
    if windows < _SHORT_WINDOWS or not is_still_missing(snapshot, before, share=share, windows=windows):
        return now, proposal
    knowledge = replace(now.state.knowledge, corrections=_with_short(now, snapshot, asked))
    now = now.update(knowledge=knowledge, settled_load=snapshot.source_rates, short=0, waiting=left)
    return now, policy(snapshot, knowledge)


def _is_explained(now: ManagerStep, snapshot: Snapshot, proposal: Proposal, asked: float) -> bool:
    """Whether every operator that is short was seen at its limit, so that the model knows what it can do; or
    whether there is one of which the model says nothing yet, which then did not promise anything."""
    evidence = now.state.knowledge.evidence
    short = [name for name, share in now.shares(snapshot).items() if share < asked]
    if any(name in proposal.advice and name not in proposal.parallelism for name in short):
        return True
    return bool(short) and all(map(evidence.was_at_its_limit, short))


def _with_short(now: ManagerStep, snapshot: Snapshot, asked: float) -> Mapping[str, Correction]:
    """More is asked of the sources behind which an operator fell short, and of no others."""
    knowledge, shares = now.state.knowledge, now.shares(snapshot)
    corrections = dict(knowledge.corrections)
    for source in snapshot.dataflow.sources:
        share = min((shares[name] for name in behind(snapshot, source) if name in shares), default=1.0)
        if share < asked:
            ratio = min(_MOST_CORRECTION, knowledge.correction(source) / max(share, 1 / _MOST_CORRECTION))
            known = corrections.get(source)
            corrections[source] = Correction(ratio=ratio) if known is None else known.again(ratio)
    return corrections


def _remember(now: ManagerStep, at_s: float, proposal: Proposal, knobs: Knobs) -> ManagerStep:
    latest = WantedParallelism(at_s=at_s, parallelism=proposal.parallelism)
    seen = (*now.state.seen, latest)
    covered = [index for index, wanted in enumerate(seen) if wanted.at_s <= at_s - knobs.scale_down_after_s]
    return now.update(
        recent=(*now.state.recent, latest)[-knobs.activation_intervals :],
        seen=seen[covered[-1] :] if covered else seen,
    )


def _wanted(now: ManagerStep, snapshot: Snapshot, proposal: Proposal, knobs: Knobs) -> tuple[Plan, list[str]]:
    """The recent proposals combined, less what the knobs hold back, and the reasons for holding it back."""
    state, share = now.state, now.share(snapshot)
    falls_behind = share is not None and share < KEEPS_UP
    combine = max if knobs.activation_by == "max" else median_high
    wanted, held = {}, []
    for name in snapshot.dataflow.scalable:
        votes = [vote.parallelism[name] for vote in state.recent if name in vote.parallelism]
        if not votes:
            continue
        current = snapshot.plan[name]
        target = allowed(snapshot, name, combine(votes))
        if target < current:
            target, why = _delayed(state, name, current, target, snapshot.at_s, knobs)
            held.extend(why)
        pays_from = proposal.advice[name].least_saving if name in proposal.advice else 1
        if 0 < current - target < pays_from:
            held.append(f"{name}: {current} → {target} does not pay for an action, as {pays_from} fewer would")
            target = current
        least = max(knobs.minimum_change, knobs.minimum_change_share * current)
        if target != current and abs(target - current) < least and not (falls_behind and target > current):
            held.append(f"{name}: {current} → {target} is smaller than the minimum change")
            target = current
        wanted[name] = target
    return snapshot.plan.with_changes(wanted), held


def _delayed(
    state: ManagerState, name: str, current: int, target: int, at_s: float, knobs: Knobs
) -> tuple[int, list[str]]:
    """A scale-down waits until the delay is covered, and then takes the highest need of that time.

    While the need falls, that is more than is needed in the end: it goes on waiting as long as acting now does not
    save twice what waiting still would, so that a load that falls is followed by one action and not by several.
    """
    if knobs.scale_down_after_s == 0:
        return target, []
    if state.seen[0].at_s > at_s - knobs.scale_down_after_s:
        return current, [f"{name}: {current} → {target} waits for {knobs.scale_down_after_s:g} s of lower need"]
    highest = max(vote.parallelism.get(name, current) for vote in state.seen)  # no data is no low need
    if highest <= target:
        return target, []
    held_at = min(current, highest)
    needed = f"{highest} were needed within the last {duration_text(knobs.scale_down_after_s)}"
    if current - held_at <= _STILL_FALLS * (held_at - target):
        return current, [f"{name}: stays at {current}: {target} would do now, but {needed}"]
    return held_at, [f"{name}: {current} → {held_at}: {target} would do now, but {needed}"]


def _let_through(
    now: ManagerStep, snapshot: Snapshot, proposal: Proposal, wanted: Plan, knobs: Knobs
) -> ManagerStep:
    """A change is wanted: act, unless it is too early, barred, or only a rehearsal."""
    at_s, state = snapshot.at_s, now.state
    if len(state.recent) < knobs.activation_intervals:
        why = f"{len(state.recent)} of {knobs.activation_intervals} proposals in a row"
        return now.go(PhaseTrigger.CHANGE_WANTED, at_s, why)
    if state.phase is ManagerPhase.GIVEN_UP:
        return now.go(PhaseTrigger.CHANGE_WANTED, at_s).tell(
            Held(at_s=at_s, why="given up until the load changes")
        )
    if any(
        barred.holds
        and barred.plan == wanted
        and not load_changed(barred.source_rates, snapshot.source_rates, knobs.load_change)
        for barred in state.barred
    ):
        why = f"{wanted} was taken back under this load"
        return now.go(PhaseTrigger.CHANGE_WANTED, at_s).tell(Held(at_s=at_s, why=why))
    decision = _decision(now, snapshot, proposal, wanted)
    if knobs.dry_run:
        return _rehearse(now, decision)
    return decide(now, decision)


def _decision(now: ManagerStep, snapshot: Snapshot, proposal: Proposal, wanted: Plan) -> Decision:
    changing = {change.operator for change in snapshot.plan.changes_to(wanted)}
    return Decision(
        number=now.state.decisions + 1,
        at_s=snapshot.at_s,
        before=snapshot.plan,
        after=wanted,
        source_rates=snapshot.source_rates,
        reasons=proposal.reasons,
        advice=tuple(advice for name, advice in proposal.advice.items() if name in changing),
        nodes={
            name: advice.nodes
            for name, advice in proposal.advice.items()
            # where the knobs let through another number than was proposed, the nodes are not those
            if name in changing and advice.nodes is not None and len(advice.nodes) == wanted[name]
        },
        share_before=now.share(snapshot),
        expected_share=proposal.expected_share,
    )


def _rehearse(now: ManagerStep, decision: Decision) -> ManagerStep:
    """Dry run: tell what would be done, once for each different plan."""
    if now.state.last_dry_run != decision.after:
        now = now.tell(Decided(at_s=decision.at_s, decision=decision, dry_run=True))
    return now.update(last_dry_run=decision.after).go(PhaseTrigger.NOTHING_WANTED, decision.at_s)
