"""Whether a rate that was not achieved is really missing, or only cut off by the end of a window.

An engine that works in batches counts a batch when it ends, so a window of ten batches may lack a tenth of its
records and nothing is wrong. Windows after it make up for that; a pipeline that is too slow leaves ever more
records waiting. Where the engine counts those, they decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastream.measurement import Snapshot
from elastream.measurement.flow import flow
from elastream.measurement.thresholds import HELD_BACK

_FOUND = 0.5  # of what was missing must be found waiting


def waiting(snapshot: Snapshot) -> Mapping[str, float] | None:
    """Records that wait, by operator; None where they may wait where nobody counts them."""
    found = {}
    for name in snapshot.dataflow.scalable:
        rates = snapshot.measurements.get(name)
        if rates is None or rates.totals.backlog is None or (rates.wait_out_share or 0.0) > HELD_BACK:
            return None
        found[name] = rates.totals.backlog
    return found


def is_still_missing(
    snapshot: Snapshot, before: Mapping[str, float] | None, *, share: float, windows: int
) -> bool:
    """Whether what so many windows with this `share` left undone has been added to what waited `before`."""
    now = waiting(snapshot)
    if now is None or before is None:
        return True
    required = flow(snapshot).required_per_s
    return any(
        now[name] - before.get(name, 0.0) >= _FOUND * _undone(snapshot, name, required[name], share) * windows
        for name in now
        if name in required
    )


def _undone(snapshot: Snapshot, name: str, required_per_s: float, share: float) -> float:
    return (1.0 - share) * required_per_s * snapshot.measurements[name].totals.window_s
