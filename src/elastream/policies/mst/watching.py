"""What Gesscale keeps between two windows, beside the measurements of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastream.measurement import Snapshot
from elastream.measurement.thresholds import HELD_BACK, STANDING


@dataclass(frozen=True, kw_only=True, slots=True)
class Watching:
    removable_since_s: Mapping[str, float] = field(default_factory=dict)
    """Of each operator that could do with fewer instances: since when, in watched seconds."""
    unhurried: frozenset[str] = frozenset()
    """Sources with a backlog that nothing held back, and that they nevertheless did not work off: they replay
    records at the pace at which they came, and more instances do not make them faster."""


NOTHING_WATCHED = Watching()


def held_up_per_s(snapshot: Snapshot, within_s: float, *, unhurried: frozenset[str]) -> Mapping[str, float]:
    """What has to be processed on top of what arrives, so that what waits is gone within a time.

    Not what waits at a source that nothing holds back, or that does not hurry: it does not wait for an operator.
    """
    found = {}
    for name, rates in snapshot.measurements.items():
        waits_for_others = not snapshot.dataflow[name].source or (
            name not in unhurried and (rates.wait_out_share is None or rates.wait_out_share > HELD_BACK)
        )
        if rates.totals.backlog and waits_for_others:
            found[name] = rates.totals.backlog / within_s
    return found


def unhurried(snapshot: Snapshot, known: frozenset[str]) -> frozenset[str]:
    """The sources that do not hurry: one that has a backlog and is not held back, until its backlog is gone."""
    found = set(known)
    for name in snapshot.dataflow.sources:
        rates = snapshot.measurements.get(name)
        if rates is None or rates.wait_out_share is None or rates.totals.backlog is None:
            continue
        if rates.totals.backlog < STANDING * rates.totals.window_s * rates.observed_per_s:
            found.discard(name)
        elif rates.wait_out_share <= HELD_BACK:
            found.add(name)
    return frozenset(found)
