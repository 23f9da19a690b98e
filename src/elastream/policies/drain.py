"""Working off what waits: how much an operator must do beyond what arrives.

Only a standing queue counts (`evidence.py`), and only one that the present instances would not work off in time.
An action makes records wait, too: those of the time that it takes. So it is not taken for a queue that is as good
as gone, and the time to drain is many times that of an action, or one action would be the reason for the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elastream.measurement.flow import behind, flow
from elastream.measurement.snapshot import Snapshot
from elastream.policies.curve import Curve

_ACTIONS = 10.0  # times the length of an action: the least time to drain
_PATIENCE = 2.0  # times the time to drain: a queue that is gone by then on its own is left alone


def drain_s(catch_up_s: float, action_s: float) -> float:
    return max(catch_up_s, _ACTIONS * action_s)


def room_for_action(catch_up_s: float, action_s: float) -> float:
    """The share of what arrives that must be free for what an action leaves waiting to be gone without another."""
    within_s = drain_s(catch_up_s, action_s)
    return action_s / (_PATIENCE * within_s) if within_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class BacklogDrain:
    records: float
    extra_per_s: float
    """On top of what arrives: at most as much again as the operator does."""

    @property
    def gone_in_s(self) -> float:
        return self.records / self.extra_per_s


def drains(
    snapshot: Snapshot, newest: Snapshot, curves: Mapping[str, Curve | None], *, within_s: float
) -> Mapping[str, BacklogDrain]:
    """Of each operator and source with more waiting than will soon be gone: by the estimates, and by the newest
    window as it is."""
    required = flow(snapshot).required_per_s
    can = {n: curve.capacity(snapshot.plan[n]) for n, curve in curves.items() if curve is not None}
    for source, rate in snapshot.source_rates.items():
        behind_it = [can[n] / required[n] for n in behind(snapshot, source) if n in can and required.get(n)]
        can[source] = rate * min(behind_it, default=1.0)
    found = {}
    for name, measured in snapshot.measurements.items():
        arriving, most = required.get(name, 0.0), can.get(name, 0.0)
        waiting = measured.totals.backlog or 0.0
        if most < arriving:
            waiting = max(waiting, _growing(newest, name, arriving))
        # where nothing arrives any more, what just does what it can would never be asked to grow
        extra = min(waiting / within_s, max(arriving, most) if arriving > 0 else 2 * most)
        ends = extra > 0 and math.isfinite(waiting / extra)
        if ends and waiting > max(0.0, _PATIENCE * within_s * (most - arriving)):
            found[name] = BacklogDrain(records=waiting, extra_per_s=extra)
    return found


def _growing(newest: Snapshot, name: str, arriving_per_s: float) -> float:
    """What waits for an operator that cannot do what arrives, less what is in the middle of a batch. Only where
    there are batches: elsewhere what comes in bursts would be taken for it."""
    cost = newest.batch_costs.get(name)
    if cost is None:
        return 0.0
    return (newest.measurements[name].totals.backlog or 0.0) - arriving_per_s * cost.longest_batch_s / 2
