"""DS2: the parallelism of every operator at once, from true rates (Kalavri et al., OSDI 2018, §3.2).

    (7) π_i = ⌈ Σ_j o_j[λo]* / (o_i[λp] / p_i) ⌉      what must be processed, by what one instance can do
    (8) o_j[λo]* = (o_j[λo] / o_j[λp]) · Σ_u o_u[λo]*   what operator j puts out when it keeps up

Beyond the paper, each of them off or neutral by default: a backlog is worked off in `catch_up_s`; only
`target_utilization` of the capacity is used; `tolerance` lets a need lie a little over a whole number; the
capacity may follow a learned curve (`curve.py`). Always: bounds; an operator that cannot grow caps what is asked
of those before and after it; skew, stragglers and operators that are not data-parallel are named.

Departures from the paper are listed in docs/policies/ds2.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.dataflow import Operator
from elastream.dataflow.graph import MOST_INSTANCES
from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.flow import Flow, catch_up_per_s, channel_selectivity, flow, flow_at, gain_to
from elastream.measurement.thresholds import NO_CORE
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data, whole
from elastream.policies.catalog import policy
from elastream.policies.curve import Curve, LearnedCurve, Linear, learn
from elastream.policies.imbalance import imbalance
from elastream.policies.knowledge import NOTHING_KNOWN, CapacityPoint, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.texts import number_text, rate_text

# Rates come with a handful of digits: a need within a millionth of a whole number is that whole number.
_ROUNDING = 1e-6
_NO_GAIN = 0.1  # of the growth that linear scaling would give: below it, an operator is not data-parallel
_STALE = 100  # windows: by then an operator that was not data-parallel deserves another try
_TELLING_GROWTH = 1.5  # smaller growth than this says nothing, as noise is of the same size
_WAITING = (
    0.25  # of that time, with the most instances that are of use: more than the share that makes it believed
)


@policy(
    "ds2-learned",
    summary="DS2 with a capacity curve learned from the parallelisms that were seen",
    needs="useful time, records in and out of every operator; source rates",
    good_for="operators that scale sub-linearly: right after two steps, where ds2 creeps up",
    preset={"learned_curve": True},
)
@policy(
    "ds2",
    summary="the least parallelism of all operators at once, from true rates and the graph",
    needs="useful time, records in and out of every operator; source rates",
    good_for="the default: one action to the right size, up or down",
)
@dataclass(frozen=True, kw_only=True)
class DS2:
    target_utilization: float = option(
        1.0, "the share of the capacity that is meant to be used", unit="share", least=0.01, most=1.0
    )
    tolerance: float = option(
        0.0,
        "how far over a whole number the need may lie before one more is taken",
        unit="instances",
        least=0,
        most=1,
    )
    catch_up_s: float | None = option(
        None, "how fast a backlog should be gone; none leaves it alone", unit="s", least=0.001
    )
    shared_workers: bool = option(False, "the engine's workers run every operator (Timely): sum the needs")
    learned_curve: bool = option(False, "fit α·n^β to what was seen, in place of linear scaling")

    def __post_init__(self) -> None:
        check_bounds(self)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        curves = {name: self._curve(snapshot, knowledge, name) for name in snapshot.dataflow.scalable}
        stuck = {name: text for name in curves if (text := _not_parallel(snapshot, knowledge.of(name), name))}
        limits = {} if self.shared_workers else _limits(snapshot, curves, stuck)
        asked = self._asked(snapshot, knowledge)
        caps, capping = _caps(snapshot, asked, limits)
        flow = flow_at(snapshot, source_rates=asked.source_rates, extra_per_s=asked.extra_per_s, limit_per_s=caps)
        advice = {
            name: self._advice(snapshot, name, curve, flow, stuck.get(name), capping)
            for name, curve in curves.items()
        }
        proposal = Proposal(
            policy="ds2-learned" if self.learned_curve else "ds2",
            advice=advice,
            reasons=(*asked.reasons, *_bottleneck_reasons(capping)),
            expected_share=_expected_share(snapshot, limits),
        )
        return self._shared(snapshot, proposal) if self.shared_workers else proposal

    def _curve(self, snapshot: Snapshot, knowledge: Knowledge, name: str) -> Curve | None:
        """What the operator can do with n instances; None where nothing was measured."""
        if name in snapshot.batch_costs:
            return snapshot.batch_costs[name]
        learned = learn(knowledge.of(name)) if self.learned_curve else None
        if learned is not None:
            return learned
        rates = snapshot.measurements.get(name)
        if rates is None or not rates.true_per_instance:
            return None
        return Linear(rates.true_per_instance)

    def _asked(self, snapshot: Snapshot, knowledge: Knowledge) -> _Asked:
        """What is asked of the sources, and of every operator on top of what reaches it."""
        reasons = []
        if knowledge.correction != 1.0:
            text = f"asks for {knowledge.correction:.2f} times the rate: the last plan fell short of its model"
            reasons.append(Reason(kind=ReasonKind.CORRECTED, text=text))
        extra: Mapping[str, float] = {}
        if self.catch_up_s is not None:
            extra = catch_up_per_s(snapshot, self.catch_up_s)
        if extra:
            backlog = math.fsum(rates.totals.backlog or 0.0 for rates in snapshot.measurements.values())
            text = f"a backlog of {number_text(backlog)} records is to be gone in {self.catch_up_s:g} s"
            reasons.append(Reason(kind=ReasonKind.CATCH_UP, text=text))
        sources = {name: rate * knowledge.correction for name, rate in snapshot.source_rates.items()}
        return _Asked(source_rates=sources, extra_per_s=extra, reasons=tuple(reasons))

    def _advice(
        self,
        snapshot: Snapshot,
        name: str,
        curve: Curve | None,
        flow: Flow,
        stuck: str | None,
        capping: Mapping[str, float],
    ) -> Advice:
        advice = replace(measured(snapshot, name), target_per_s=flow.required_per_s.get(name))
        operator = snapshot.dataflow[name]
        if name not in snapshot.measurements:
            return advice
        if advice.target_per_s is None:
            return no_data(advice, "what it must process is not known: an operator before it was not seen at work")
        if advice.target_per_s > 0 and curve is None:
            return no_data(advice, "it had no useful time, so what it can do is not known")
        need = 0.0 if curve is None else _need(operator, curve, advice.target_per_s / self.target_utilization)
        if not need <= MOST_INSTANCES:
            return no_data(advice, "what it can do is next to nothing, so instances cannot be counted")
        advice = replace(advice, need=need)
        reasons = self._reasons(snapshot, advice, curve, flow, capping)
        advice = replace(advice, reasons=(*advice.reasons, *reasons))
        if stuck is not None:
            kept = replace(advice, parallelism=advice.current)
            return because(kept, ReasonKind.NOT_PARALLEL, stuck)
        return bounded(operator, *_within_cores(snapshot, advice, self._instances(operator, need, curve)))

    def _instances(self, operator: Operator, need: float, curve: Curve | None) -> int:
        """Equation 7's rounding: up, but not for a rounding error or for what the tolerance allows."""
        lenient = need * (1 - _ROUNDING) - self.tolerance
        if lenient > operator.most:
            return math.ceil(lenient)  # the bounds will say so
        # how evenly a batch divides was measured; else the partitions of the state tell
        return max(1, math.ceil(lenient)) if isinstance(curve, BatchCost) else operator.enough_for(lenient)

    def _reasons(
        self, snapshot: Snapshot, advice: Advice, curve: Curve | None, flow: Flow, capping: Mapping[str, float]
    ) -> list[Reason]:
        """How the need came about."""
        name, operator = advice.operator, snapshot.dataflow[advice.operator]
        need, target = advice.need or 0.0, advice.target_per_s or 0.0
        reasons = [Reason(kind=ReasonKind.FORMULA, text=_formula(target, curve, need, self.target_utilization))]
        if isinstance(curve, LearnedCurve):
            seen = ", ".join(f"{n:.0f}: {rate_text(capacity)}" for n, capacity in curve.points)
            reasons.append(Reason(kind=ReasonKind.LEARNED, text=f"its capacity grows as {curve.law} ({seen})"))
        if any(consumer == name for _, consumer in flow.inferred):
            text = "an operator before it has no readings, so its input was taken from what it counted itself"
            reasons.append(Reason(kind=ReasonKind.INFERRED, text=text))
        wanted = self._instances(operator, need, curve)
        if need * (1 - _ROUNDING) > wanted:
            text = f"a need of {need:.2f} is taken as {wanted:,} (tolerance {self.tolerance:g})"
            reasons.append(Reason(kind=ReasonKind.TOLERATED, text=text))
        if operator.state_partitions is not None and math.ceil(need * (1 - _ROUNDING)) < wanted:
            does = operator.effective(wanted)
            text = f"{operator.state_partitions} state partitions: {wanted:,} instances do the work of {does:.3g}"
            reasons.append(Reason(kind=ReasonKind.CLAMPED, text=text))
        if name in capping:
            text = f"it can take {capping[name]:.0%} of what its sources bring, so the rest is sized for that"
            reasons.append(Reason(kind=ReasonKind.BOTTLENECK, text=text))
        reasons.extend(imbalance(snapshot.measurements[name]))
        return reasons

    def _shared(self, snapshot: Snapshot, proposal: Proposal) -> Proposal:
        """For workers that run every operator (§4.3): as many as all the needs together."""
        needs = {name: advice.need for name, advice in proposal.advice.items()}
        unknown = [name for name, need in needs.items() if need is None]
        if unknown:
            text = f"the workers cannot be counted: {', '.join(unknown)} without a need"
            silent = {name: no_data(advice, text) for name, advice in proposal.advice.items()}
            return replace(proposal, advice=silent)
        total = math.fsum(need for need in needs.values() if need is not None)
        workers = max(1, math.ceil(total * (1 - _ROUNDING) - self.tolerance))
        text = f"the workers are shared: the needs sum to {total:.2f}, so {workers}"
        advice = {
            name: bounded(snapshot.dataflow[name], because(advice, ReasonKind.FORMULA, text), workers)
            for name, advice in proposal.advice.items()
        }
        return replace(proposal, advice=advice, workers=workers)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    source_rates: Mapping[str, float]
    extra_per_s: Mapping[str, float]
    reasons: tuple[Reason, ...]


def _formula(target: float, curve: Curve | None, need: float, utilization: float) -> str:
    at = f" at {utilization:.0%} of it" if utilization < 1 else ""
    if curve is None:
        return "nothing reaches it, so the least will do"
    if isinstance(curve, Linear):
        each = rate_text(curve.per_instance_per_s)
        return f"must process {rate_text(target)}, an instance can do {each}{at}: {need:.2f} instances"
    if isinstance(curve, BatchCost):
        return f"must process {rate_text(target)}{at}: {need:.2f} instances, as {curve}"
    return f"must process {rate_text(target)}{at}: {need:.2f} instances by its learned curve"


def _need(operator: Operator, curve: Curve, records_per_s: float) -> float:
    need = curve.needed(records_per_s)
    return max(need, _moved(operator, curve, need).needed(records_per_s))


def _moved(operator: Operator, curve: Curve, instances: float) -> Curve:
    """The curve once the state is in the partitions for so many instances: every batch pays for each of them."""
    if not (isinstance(curve, BatchCost) and operator.movable_state and instances <= MOST_INSTANCES):
        return curve
    return replace(curve, state_partitions=operator.partitions_with(operator.clamp(math.ceil(instances))) or 0)


def _limits(
    snapshot: Snapshot, curves: Mapping[str, Curve | None], stuck: Mapping[str, str]
) -> Mapping[str, float]:
    """The most that each operator can ever do, where something limits it.

    One that can do nothing at all is no bottleneck but a wrong measurement, and must not take the rest to zero.
    """
    limits = {}
    for name, curve in curves.items():
        most = _most_instances(snapshot, name, stuck)
        if curve is None or not math.isfinite(most):
            continue
        if (capacity := _moved(snapshot.dataflow[name], curve, most).capacity(most)) > 0:
            limits[name] = capacity
    return limits


def _most_instances(snapshot: Snapshot, name: str, stuck: Mapping[str, str]) -> float:
    """The instances whose work is the most that the operator can ever do."""
    operator = snapshot.dataflow[name]
    if operator.fixed or name in stuck:
        return float(snapshot.plan[name])
    if math.isinf(operator.most):
        return math.inf
    return operator.effective(int(operator.most))


def _not_parallel(snapshot: Snapshot, points: tuple[CapacityPoint, ...], name: str) -> str | None:
    """A message where its true rate did not move when it was last given more instances."""
    now = next((point for point in points if point.parallelism == snapshot.plan[name]), None)
    fewer = [p for p in points if p.parallelism * _TELLING_GROWTH <= snapshot.plan[name] and p.age <= _STALE]
    if now is None or not fewer:
        return None
    before = max(fewer, key=lambda point: point.parallelism)
    gained = now.true_per_s / before.true_per_s - 1
    expected = now.parallelism / before.parallelism - 1
    if gained >= _NO_GAIN * expected:
        return None
    return (
        f"not data-parallel: {rate_text(before.true_per_s)} with {before.parallelism}, "
        f"{rate_text(now.true_per_s)} with {now.parallelism}; left alone, as more instances do not help"
    )


def _within_cores(snapshot: Snapshot, advice: Advice, wanted: int) -> tuple[Advice, int]:
    """No more instances than keep the cores busy that the operator gets.

    A few more than those cores, so that all are still in use, and seen to be, when the answer is followed.
    """
    waiting = snapshot.measurements[advice.operator].wait_core_share or 0.0
    if waiting < NO_CORE:
        return advice, wanted
    cores = advice.current * (1 - waiting)
    of_use = max(round(cores) + 1, whole(cores / (1 - _WAITING)))
    if wanted < of_use:
        return advice, wanted
    more = f" ({wanted:,} wanted)" if wanted > of_use else ""
    text = (
        f"no core is free: its {advice.current:,} instances wait for one {waiting:.0%} of the time and get "
        f"{cores:.1f} cores, so more than {of_use:,} do not help{more}"
    )
    return because(advice, ReasonKind.NO_CORES, text), of_use


def _caps(
    snapshot: Snapshot, asked: _Asked, limits: Mapping[str, float]
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The most that each operator will ever process, and the bottlenecks with the share that each can take.

    Backpressure reaches the sources, so nothing before or after a bottleneck sees more than it passes. Each
    operator before it is capped at what would fill the bottleneck alone: how several share it is the engine's
    affair, and so more load at one source never asks for less behind another.
    """
    unlimited = flow_at(snapshot, source_rates=asked.source_rates, extra_per_s=asked.extra_per_s)
    too_slow = {
        name: limits[name] / required
        for name, required in unlimited.required_per_s.items()
        if name in limits and limits[name] < required
    }
    caps = dict(limits)
    for name in too_slow:
        for before, gain in gain_to(snapshot, name, lambda a, b: channel_selectivity(snapshot, a, b)).items():
            if gain > 0:
                caps[before] = min(caps.get(before, math.inf), limits[name] / gain)
    return caps, {name: share for name, share in too_slow.items() if share < 1 - _ROUNDING}


def _bottleneck_reasons(capping: Mapping[str, float]) -> tuple[Reason, ...]:
    if not capping:
        return ()
    name, share = min(capping.items(), key=lambda item: (item[1], item[0]))
    text = f"{name} is the bottleneck: it can take {share:.0%} of what is asked, and cannot have more instances"
    return (Reason(kind=ReasonKind.BOTTLENECK, text=text),)


def _expected_share(snapshot: Snapshot, limits: Mapping[str, float]) -> float:
    """The share of the sources' rates that the pipeline can sustain once everything has what it may have."""
    required = flow(snapshot).required_per_s
    shares = (limits[name] / required[name] for name in limits if required.get(name, 0.0) > 0)
    return min((1.0, *shares))
