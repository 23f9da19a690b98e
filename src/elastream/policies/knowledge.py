"""What was learned from earlier windows, kept as a value that is handed to the policies.

For each operator a few points (parallelism, true processing rate of all instances together), newest last. A
point that contradicts an older one at the same parallelism means that the operator now behaves differently, so
what was known before is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastream.monitor import OperatorRates, Snapshot
from elastream.monitor.flow import is_saturated

_MOST_POINTS = 8  # of different parallelism, per operator
_NEW_WEIGHT = 0.3  # of a new measurement against what the earlier ones at the same parallelism gave
_CHANGED = 0.3  # a relative difference at the same parallelism that noise does not explain


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityPoint:
    parallelism: int
    true_per_s: float
    """Of all instances together; at saturation what was observed, which is surer than what was timed."""
    windows: int = 1
    """How many windows went into it."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    points: Mapping[str, tuple[CapacityPoint, ...]] = field(default_factory=dict)
    correction: float = 1.0
    """By how much more than the model says the pipeline was found to need (the target-rate ratio)."""

    def of(self, operator: str) -> tuple[CapacityPoint, ...]:
        return self.points.get(operator, ())

    def with_snapshot(self, snapshot: Snapshot) -> Knowledge:
        """Learn from one more window."""
        points = dict(self.points)
        for name in snapshot.dataflow.scalable:
            rates = snapshot.rates.get(name)
            if rates is None or not rates.true_processing_per_s:
                continue
            point = CapacityPoint(parallelism=snapshot.plan[name], true_per_s=_capacity(snapshot, name, rates))
            points[name] = _merged(self.of(name), point)
        return replace(self, points=points)


NOTHING_KNOWN = Knowledge()


def _capacity(snapshot: Snapshot, name: str, rates: OperatorRates) -> float:
    """Of all instances of the plan: those that did not report, or were idle, are taken to be like the others."""
    if is_saturated(snapshot, name):
        each = rates.observed_processing_per_s / rates.instances
    else:
        each = rates.true_per_instance or 0.0
    return each * snapshot.plan[name]


def _merged(known: tuple[CapacityPoint, ...], new: CapacityPoint) -> tuple[CapacityPoint, ...]:
    same = next((point for point in known if point.parallelism == new.parallelism), None)
    others = tuple(point for point in known if point.parallelism != new.parallelism)
    if same is None:
        return (*others, new)[-_MOST_POINTS:]
    if abs(new.true_per_s - same.true_per_s) > _CHANGED * same.true_per_s:
        return (new,)
    weight = max(_NEW_WEIGHT, 1 / (same.windows + 1))
    true_per_s = same.true_per_s + weight * (new.true_per_s - same.true_per_s)
    merged = replace(new, true_per_s=true_per_s, windows=same.windows + 1)
    return (*others, merged)
