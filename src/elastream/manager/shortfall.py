"""Whether a rate that was not achieved is really missing, or only cut off by the end of a window.

An engine that works in batches counts a batch when it ends, so a window of ten batches may lack a tenth of its
records and nothing is wrong. Windows after it make up for that; a pipeline that is too slow leaves ever more
records waiting. Where the engine counts those, they decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastream.measurement import Snapshot
from elastream.measurement.flow import flow, waiting_records

_FOUND = 0.5  # of what was missing must be found waiting
_PILED_UP = 1.0  # times what a window brings: what fires once in a while leaves as much waiting, and works it off


def is_still_missing(
    snapshot: Snapshot, before: Mapping[str, float] | None, *, share: float, windows: int
) -> bool:
    """Whether what so many windows with this `share` left undone has been added to what waited `before`."""
    now = waiting_records(snapshot)
    if now is None or before is None:
        return True
    required = flow(snapshot).required_per_s
    return any(
        now[name] - before.get(name, 0.0) >= _FOUND * _undone(snapshot, name, required[name], share) * windows
        and now[name] >= _PILED_UP * _undone(snapshot, name, required[name], 0.0)
        for name in now
        if name in required
    )


def _undone(snapshot: Snapshot, name: str, required_per_s: float, share: float) -> float:
    return (1.0 - share) * required_per_s * snapshot.measurements[name].totals.window_s
