"""Back pressure: the share of a window for which an operator was held back by those after it.

Where an engine measures how long operators wait for room in their output (bounded channels), that is it. Where
channels are unbounded nobody ever waits, and what tells is the backlog: where more reaches a consumer than it
takes, and more waits for it than half a window's work, the operators before it would have been held back, for as
much of the window as can be told from its totals: all of it.
"""

from __future__ import annotations

from elastream.measurement.flow import channel_selectivity
from elastream.measurement.snapshot import Snapshot
from elastream.measurement.thresholds import STANDING

_GROWS = 0.01  # of what a consumer processed: a smaller difference is the edge of a window


def back_pressure(snapshot: Snapshot, name: str) -> float | None:
    """From 0 to 1; None where neither waiting nor backlogs tell."""
    consumers = snapshot.dataflow.downstream(name)
    if not consumers:
        return 0.0
    waited = _waited(snapshot, name)
    seen = [name for name in consumers if waited is None or _backlog(snapshot, name) is not None]
    grew = [_backlog_grew(snapshot, consumer) for consumer in seen]
    if any(grew):
        return 1.0
    if waited is not None:
        return waited
    return None if None in grew else 0.0


def is_overloaded(snapshot: Snapshot, name: str, *, high: float) -> bool | None:
    """Whether this operator is what holds others back: all before it have high back pressure, and it has not.

    None where the back pressure of one of them is not known and would matter.
    """
    own = back_pressure(snapshot, name)
    before = [back_pressure(snapshot, producer) for producer in snapshot.dataflow.upstream(name)]
    if (own is not None and own > high) or any(known is not None and known <= high for known in before):
        return False
    return None if own is None or None in before else True


def _backlog_grew(snapshot: Snapshot, consumer: str) -> bool | None:
    rates = snapshot.measurements.get(consumer)
    if rates is None:
        return None
    arriving = 0.0
    for producer in snapshot.dataflow.upstream(consumer):
        reached = _reaching(snapshot, producer, consumer)
        if reached is None:
            return None
        arriving += reached
    waiting, window_s = _backlog(snapshot, consumer), rates.totals.window_s
    if waiting is not None and waiting < STANDING * window_s * rates.observed_per_s:
        return False
    return arriving > rates.observed_per_s * (1 + _GROWS)


def _backlog(snapshot: Snapshot, name: str) -> float | None:
    rates = snapshot.measurements.get(name)
    return None if rates is None else rates.totals.backlog


def _waited(snapshot: Snapshot, name: str) -> float | None:
    rates = snapshot.measurements.get(name)
    return None if rates is None else rates.wait_out_share


def _reaching(snapshot: Snapshot, producer: str, consumer: str) -> float | None:
    """Records per second; from a source of which nobody knows whether it waits, all that came in."""
    if snapshot.dataflow[producer].source and _waited(snapshot, producer) is None:
        ratio = channel_selectivity(snapshot, producer, consumer)
        return None if ratio is None else snapshot.source_rates[producer] * ratio
    rates = snapshot.measurements.get(producer)
    return None if rates is None else rates.observed_output_per_s[consumer]
