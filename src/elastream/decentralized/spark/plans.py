"""What each batch reads, fixed on disk before it runs: a batch that runs again after a kill reads the same.

NUMBER.json     where batch NUMBER begins and ends in every lane
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elastream.decentralized.spark.folders import read_whole, write_whole
from elastream.decentralized.spark.inbox import Offset

_KEPT = 5


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """By operator that is read."""

    start: Mapping[str, Offset]
    end: Mapping[str, Offset]


class BatchPlans:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def plan(self, batch: int, latest: Callable[[Mapping[str, Offset]], dict[str, Offset]]) -> PlannedBatch:
        """The one that was made for this batch, or a new one, which begins where the one before it ends.

        Spark begins a batch when the one before it is committed, so `latest` may acknowledge what lies before its
        start.
        """
        found = read_whole(self._path(batch))
        if found is None:
            before = [number for number in self._numbers() if number < batch]
            start = read_whole(self._path(before[-1]))["end"] if before else {}  # type: ignore[index]
            end = latest(start)
            found = {"start": {name: start.get(name, {}) for name in end}, "end": end}
            write_whole(self._path(batch), found)
            for old in before[: 1 - _KEPT]:
                self._path(old).unlink()
        return PlannedBatch(start=found["start"], end=found["end"])

    def upto(self, done: int) -> Mapping[str, Offset]:
        """Where the newest batch ends, if it was the newest to be done; else where it begins."""
        numbers = self._numbers()
        found = read_whole(self._path(numbers[-1])) if numbers else None
        if found is None:
            return {}
        upto: Mapping[str, Offset] = found["end" if numbers[-1] <= done else "start"]
        return upto

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.json"))

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch}.json"
