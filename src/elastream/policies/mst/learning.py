"""What a window teaches of an operator's limit, from what any engine has.

Where useful time is measured, an operator that was busy throughout did all that it can, and so did one of which a
single instance was, while it held back those before it. Where it is not, back pressure tells (Gesscale's algorithm
1): those before it were held back for a share of the window, and for that long at least it was busy. What it did
in the whole window is then the least that it sustains, and that divided by the share the most: the wider apart the
two are, the less the window tells.
"""

from __future__ import annotations

from math import sqrt

from elastream.measurement import Snapshot
from elastream.measurement.back_pressure import back_pressure, is_overloaded
from elastream.measurement.flow import is_at_its_limit
from elastream.measurement.thresholds import BUSY
from elastream.policies.mst.mst_model import NOISE, Sustained

HIGH = 0.5
"""More back pressure than this is high, by the paper."""


def sustained_in(snapshot: Snapshot, name: str) -> Sustained | None:
    """None where the operator was not at its limit, or nobody can tell.

    Of all instances of the plan: those that did not report are taken to be like the others.
    """
    rates = snapshot.measurements.get(name)
    if rates is None or rates.observed_per_s <= 0:
        return None
    if rates.true_per_s:
        relative_std = NOISE if is_at_its_limit(snapshot, name) or _one_is_alone(snapshot, name) else None
    else:
        relative_std = _by_back_pressure(snapshot, name)
    if relative_std is None:
        return None
    instances = snapshot.plan[name]
    return Sustained(
        instances=instances,
        delay_s=snapshot.delay_s(name),
        records_per_s=rates.observed_per_s * instances / rates.instances,
        relative_std=relative_std,
    )


def _one_is_alone(snapshot: Snapshot, name: str) -> bool:
    """Whether one instance holds up all others, which are idle: more instances would not help it either."""
    if name in snapshot.batch_costs or not is_overloaded(snapshot, name, high=HIGH):
        return False
    return any(reading.utilization >= BUSY for reading in snapshot.measurements[name].readings)


def _by_back_pressure(snapshot: Snapshot, name: str) -> float | None:
    """The relative standard error of the throughput as a measurement of the limit."""
    if not is_overloaded(snapshot, name, high=HIGH):
        return None
    held = [back_pressure(snapshot, producer) for producer in snapshot.dataflow.upstream(name)]
    busy = min((share for share in held if share is not None), default=None)
    if busy is None:
        return None
    evenly = sqrt(12)  # the standard deviation of what lies anywhere between two bounds
    return max(NOISE, (1 / busy - 1) / evenly)
