"""What Spark told of a step's batches, added up over restarts: its checkpoint keeps positions, but no counts.

    accounts/NAME.json    up to which batch it was told, and the sums

Spark tells of a batch after it has committed it, so a batch that was told of is never run again. What a killed run
was not told of is known by its number: the batches between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from elastream.whole_files import read_json, write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    batch: int = -1
    """The newest that was told of."""
    read: int = 0
    """Records, as Spark counts them."""
    late: int = 0
    """Rows that were dropped because they came behind the watermark."""
    event_time: bool = False
    """Whether it has a watermark, and something that drops what comes behind it."""
    untold: int = 0
    """Batches that were committed and never told of."""

    def told_of(self, entry: Mapping[str, Any], *, moved_state: Callable[[int], bool]) -> Ledger:
        """With one entry of Spark's progress; the same ledger, where it has that or is told of no batch."""
        batch = int(entry["batchId"])
        if batch <= self.batch or not is_batch(entry):
            return self
        untold = self.missed_until(batch, moved_state=moved_state)
        return replace(
            self,
            batch=batch,
            read=self.read + int(entry["numInputRows"]),
            late=self.late + dropped_as_late(entry),
            event_time=self.event_time or can_drop(entry),
            untold=self.untold + untold,
        )

    def missed_until(self, batch: int, *, moved_state: Callable[[int], bool]) -> int:
        """How many batches before this one it was not told of; moving the state has a number, too, and is none."""
        return sum(not moved_state(number) for number in range(self.batch + 1, batch))


def is_batch(entry: Mapping[str, Any]) -> bool:
    """A look that found nothing to do is told of as well, with the number of the batch that comes after it."""
    return "addBatch" in entry["durationMs"]


def can_drop(entry: Mapping[str, Any]) -> bool:
    """Whether the query has a watermark, and something that drops what comes behind it."""
    return bool(entry.get("eventTime") and entry.get("stateOperators"))


def dropped_as_late(entry: Mapping[str, Any]) -> int:
    """Rows, where a state operator drops them: in an aggregate, those of a group in a batch are one by then."""
    return sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in entry.get("stateOperators") or ())


def read_ledger(path: Path) -> Ledger:
    found = read_json(path)
    return Ledger() if found is None else Ledger(**found)


def write_ledger(path: Path, ledger: Ledger) -> None:
    write_json(path, asdict(ledger), lasting=False)
