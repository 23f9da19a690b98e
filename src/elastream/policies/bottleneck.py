"""Operators that cannot do what is asked of them, however many instances they get, and what it means for the rest.

Backpressure reaches the sources, so nothing before or after a bottleneck sees more than it passes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.dataflow import Operator
from elastream.dataflow.graph import MOST_INSTANCES
from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.flow import channel_selectivity, flow, flow_at, gain_to
from elastream.policies.curve import Curve, EvenCurve, Skewed
from elastream.policies.proposal import Reason, ReasonKind

ROUNDING = 1e-6
"""Rates come with a handful of digits: a need within a millionth of a whole number is that whole number."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of the sources, and of operators on top of what reaches them."""

    source_rates: Mapping[str, float]
    extra_per_s: Mapping[str, float]
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The most that each operator will ever process."""

    per_s: Mapping[str, float]
    bottlenecks: Mapping[str, float]
    """With the share of what is asked that each can take."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        if not self.bottlenecks:
            return ()
        name, share = min(self.bottlenecks.items(), key=lambda item: (item[1], item[0]))
        told = f"with all instances that it may have, or that help, it can take {share:.0%} of what is asked"
        return (Reason(kind=ReasonKind.BOTTLENECK, text=f"{name} is the bottleneck: {told}"),)


def limits(
    snapshot: Snapshot, curves: Mapping[str, Curve | None], stuck: Mapping[str, str]
) -> Mapping[str, float]:
    """The most that each operator can ever do, where something limits it.

    One that can do nothing at all is no bottleneck but a wrong measurement, and must not take the rest to zero.
    """
    found = {}
    for name, curve in curves.items():
        most = _most_instances(snapshot, name, stuck)
        if isinstance(curve, Skewed):
            most = min(most, curve.worthwhile)
        if curve is None or not math.isfinite(most):
            continue
        if (capacity := moved(snapshot.dataflow[name], curve, most).capacity(most)) > 0:
            found[name] = capacity
    return found


def caps(snapshot: Snapshot, asked: Asked, limits: Mapping[str, float]) -> Caps:
    """Each operator before a bottleneck is capped at what would fill the bottleneck alone: how several share it is
    the engine's affair, and so more load at one source never asks for less behind another."""
    unlimited = flow_at(snapshot, source_rates=asked.source_rates, extra_per_s=asked.extra_per_s)
    too_slow = {
        name: limits[name] / required
        for name, required in unlimited.required_per_s.items()
        if name in limits and limits[name] < required
    }
    capped = dict(limits)
    for name in too_slow:
        for before, gain in gain_to(snapshot, name, lambda a, b: channel_selectivity(snapshot, a, b)).items():
            if gain > 0:
                capped[before] = min(capped.get(before, math.inf), limits[name] / gain)
    return Caps(per_s=capped, bottlenecks={n: share for n, share in too_slow.items() if share < 1 - ROUNDING})


def expected_share(snapshot: Snapshot, limits: Mapping[str, float]) -> float:
    """The share of the sources' rates that the pipeline can sustain once everything has what it may have."""
    required = flow(snapshot).required_per_s
    shares = (limits[name] / required[name] for name in limits if required.get(name, 0.0) > 0)
    return min((1.0, *shares))


def moved(operator: Operator, curve: Curve, instances: float) -> Curve:
    """The curve once the state is in the partitions for so many instances: every batch pays for each of them."""
    if isinstance(curve, Skewed):
        return replace(curve, even=_moved(operator, curve.even, instances))
    return _moved(operator, curve, instances)


def _moved(operator: Operator, curve: EvenCurve, instances: float) -> EvenCurve:
    if not (isinstance(curve, BatchCost) and operator.movable_state and instances <= MOST_INSTANCES):
        return curve
    return replace(curve, state_partitions=operator.partitions_with(operator.clamp(math.ceil(instances))) or 0)


def _most_instances(snapshot: Snapshot, name: str, stuck: Mapping[str, str]) -> float:
    """The instances whose work is the most that the operator can ever do."""
    operator = snapshot.dataflow[name]
    if operator.fixed or name in stuck:
        return float(snapshot.plan[name])
    if math.isinf(operator.most):
        return math.inf
    return operator.effective(int(operator.most))
