"""Working off what waits: how much an operator must do beyond what arrives.

Only a standing queue counts (`evidence.py`), and only one that the present instances would not work off in time.
An action makes records wait, too: those of the time that it takes. So it is not taken for a queue that is as good
as gone, and the time to drain is many times that of an action, or one action would be the reason for the next.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastream.measurement.flow import behind, flow
from elastream.measurement.snapshot import Snapshot
from elastream.policies.curve import Curve

_ACTIONS = 10.0  # times the length of an action: the least time to drain
_PATIENCE = 2.0  # times the time to drain: a queue that is gone by then on its own is left alone


def drain_s(catch_up_s: float, action_s: float) -> float:
    return max(catch_up_s, _ACTIONS * action_s)


def room_for_action(catch_up_s: float, action_s: float) -> float:
    """The share of what arrives that must be free for what an action leaves waiting to be gone without another."""
    return action_s / (_PATIENCE * drain_s(catch_up_s, action_s))


def drain_per_s(snapshot: Snapshot, curves: Mapping[str, Curve | None], *, within_s: float) -> Mapping[str, float]:
    """Of each operator and source with more waiting than will soon be gone: at most as much again as it does."""
    required = flow(snapshot).required_per_s
    can = {n: curve.capacity(snapshot.plan[n]) for n, curve in curves.items() if curve is not None}
    for source, rate in snapshot.source_rates.items():
        behind_it = [can[n] / required[n] for n in behind(snapshot, source) if n in can and required.get(n)]
        can[source] = rate * min(behind_it, default=1.0)
    extra = {}
    for name, measured in snapshot.measurements.items():
        waiting, arriving, most = measured.totals.backlog or 0.0, required.get(name, 0.0), can.get(name, 0.0)
        if waiting > 0 and waiting > _PATIENCE * within_s * (most - arriving):
            extra[name] = min(waiting / within_s, max(arriving, most))
    return extra
