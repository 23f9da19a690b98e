"""How many records a batch may hold, so that a backlog is worked off in batches between which things can change.

A batch has a fixed cost, whatever it holds, and each of its records costs time. Only the second part shrinks with
the batch. Where the fixed cost alone is more than a batch should take, as on a machine that is busy with something
else, ever smaller batches would not be shorter, only ever more of them: then the records may take as long as it.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONG, _SHORT = 1.2, 0.7  # of the longest batch that is wanted: one that took longer, or could take longer
_DIFFERENT = 0.2  # sizes must differ by so much for their times to tell the fixed cost from that of the records
_LEAST, _MOST = 5, 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class FullBatch:
    """One that held as many records as it might."""

    records: int
    took_s: float


def next_size(now: FullBatch, before: FullBatch | None, *, longest_s: float) -> int:
    """How many records the next batch may hold; `before` is the last full one of another size."""
    if now.took_s > _LONG * longest_s:
        fixed_s = _fixed_s(now, before)
        for_records_s = max(longest_s - fixed_s, fixed_s)
        return at_most(now.records * min(2.0, for_records_s / max(now.took_s - fixed_s, 1e-9)))
    if now.took_s < _SHORT * longest_s:
        return at_most(2.0 * now.records)
    return now.records


def to_compare(now: FullBatch, before: FullBatch | None) -> FullBatch | None:
    """What the batch after `now` is to be compared to."""
    same = before is not None and abs(now.records - before.records) < _DIFFERENT * now.records
    return before if same else now


def at_most(records: float) -> int:
    """A size that a batch can have."""
    return min(_MOST, max(_LEAST, round(records)))


def _fixed_s(now: FullBatch, before: FullBatch | None) -> float:
    """Of a batch without records, by the line through two of them; 0 where there is only one."""
    if before is None or before.records == now.records:
        return 0.0
    per_record_s = max(0.0, (now.took_s - before.took_s) / (now.records - before.records))
    return max(0.0, now.took_s - per_record_s * now.records)
