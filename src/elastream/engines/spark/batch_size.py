"""How many records a batch may hold, so that a backlog is worked off in batches between which things can change.

A batch has a fixed cost, whatever it holds, and each of its records costs time. Only the second part shrinks with
the batch. Where the fixed cost alone is more than a batch should take, as on a machine that is busy with something
else, ever smaller batches would not be shorter, only ever more of them: then the records may take as long as it.

What is fixed is told by the line through the last full batches of different sizes, with the median of the slopes
between any two of them: on a busy machine a batch now and then takes many times as long, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

REMEMBERED = 12
"""Full batches that tell what is fixed."""
_LONG, _SHORT = 1.2, 0.7  # of the longest batch that is wanted: one that took longer, or could take longer
_DIFFERENT = 0.2  # sizes must differ by so much for their times to tell the fixed cost from that of the records
_LEAST, _MOST = 5, 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class FullBatch:
    """One that held as many records as it might."""

    records: int
    took_s: float


def next_size(recent: Sequence[FullBatch], *, longest_s: float) -> int:
    """How many records the next batch may hold; the newest of the recent ones is the last."""
    now = recent[-1]
    if now.took_s < _SHORT * longest_s:
        return at_most(2.0 * now.records)
    fixed_s = _fixed_s(recent)
    growth = min(2.0, max(longest_s - fixed_s, fixed_s) / max(now.took_s - fixed_s, 1e-9))
    if now.took_s > _LONG * longest_s:
        return at_most(now.records * growth)
    # as long as it should be, but most of that is fixed: a batch that was slow for once has made it far too small
    return at_most(2.0 * now.records) if growth == 2.0 and fixed_s > 0 else now.records


def at_most(records: float) -> int:
    """A size that a batch can have."""
    return min(_MOST, max(_LEAST, round(records)))


def _fixed_s(recent: Sequence[FullBatch]) -> float:
    """Of a batch without records; 0 where all are of one size, but for the least, which is as good as none."""
    now = recent[-1]
    if now.records <= _LEAST:
        return now.took_s
    slopes = [
        (one.took_s - other.took_s) / (one.records - other.records)
        for one, other in combinations(recent, 2)
        if abs(one.records - other.records) >= _DIFFERENT * max(one.records, other.records)
    ]
    if not slopes:
        return 0.0
    per_record_s = max(0.0, median(slopes))
    return max(0.0, min(now.took_s, median(one.took_s - per_record_s * one.records for one in recent)))
