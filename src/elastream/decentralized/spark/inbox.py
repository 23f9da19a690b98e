"""What an instance receives: a lane for each sender, that only this sender writes.

An offset is a position in each lane. A lane comes into it with its first record, and leaves it when its sender has
ended and everything in it was read; then it is deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from elastream.decentralized.protocol.load_meter import Arrived
from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.outbox import QUIET
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import SegmentLog, StreamPosition
from elastream.engines.spark.channels.splits import Slice, splits
from elastream.whole_files import read_json

READER = "inbox"
CLOSED = "closed"
"""In a lane that nobody writes to any more, whatever its name."""
Offset = dict[str, dict[str, int]]


class Received(ABC):
    """What an instance receives, in its inbox or in a topic, as its scaling module looks at it."""

    @abstractmethod
    def arrived(self) -> Mapping[str, Arrived]:
        """What each sender, or each partition of a topic, ever brought."""

    @abstractmethod
    def pending(self) -> int:
        """Records that are still to be processed."""

    def among(self) -> int | None:
        """Among how many instances the senders share their records; None where nobody says."""
        return None

    def quiet_until_s(self) -> float | None:
        """All that had come into the pipeline by then was processed; None where something waits or nobody says."""
        return None

    def parts(self) -> int | None:
        """Into how many parts its load can be divided; None where that is not known, or any number will do."""
        return None

    @abstractmethod
    def forget(self) -> None:
        """Delete what was read."""


class InstanceInbox(Received):
    """All lanes of an instance: `folders` has one for each operator that it reads, with a lane for each sender."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def arrived(self) -> Mapping[str, Arrived]:
        return {sender: _arrived(log) for sender, log in self._lanes()}

    def quiet_until_s(self) -> float | None:
        came_s = [arrived.came_s for arrived in self.arrived().values()]
        return min(came_s) if came_s and self.pending() == 0 else None

    def read(self) -> Mapping[Address, int]:
        """Records of each sender that are processed, with everything that was made of them sent."""
        return {sender: log.acknowledged(READER).record for sender, log in self._lanes()}

    def pending(self) -> int:
        return sum(log.pending(READER) for _, log in self._lanes())

    def among(self) -> int | None:
        """As the last of the senders has told, since one that has nothing to send does not tell of changes."""
        told: dict[int, int] = {}
        for _, log in self._lanes():
            among = log.folder / "among.json"
            with suppress(FileNotFoundError):
                told[among.stat().st_mtime_ns] = json.loads(among.read_text())["instances"]
        return told[max(told)] if told else None

    def forget(self) -> None:
        for _, log in self._lanes():
            FileChannel(log.folder).forget([READER])

    def _lanes(self) -> Iterator[tuple[Address, SegmentLog]]:
        for folder in self._folders:
            for lane in sorted(folder.glob("*")):
                yield f"{folder.name}/{lane.name}", SegmentLog(lane)


def _arrived(log: SegmentLog) -> Arrived:
    quiet = read_json(log.folder / QUIET)  # first: what came in between is in the log by then
    until_s = float(quiet["until_s"]) if quiet else 0.0
    return Arrived(records=log.head().records, came_s=max(until_s, log.newest_came_s()))


class Lanes:
    """Those from the instances of one operator, as one stream: `folder` has one for each."""

    def __init__(self, folder: Path, senders: Path) -> None:
        self._folder = folder
        self._senders = senders
        """The folder of that operator's instances."""

    def latest(self, start: Offset, most_records: int) -> Offset:
        """Up to where to read next. What lies before the start is done with."""
        end: Offset = {}
        left = most_records
        for folder in sorted(self._folder.glob("*")):
            log = SegmentLog(folder)
            begun, position = folder.name in start, position_in(start, folder.name)
            if begun:
                log.acknowledge(READER, position, lasting=True)
            if self._is_done(folder):
                if not begun:
                    self._delete(folder)
                continue  # the first time this only takes it out of the offset
            upto = log.position(position, most_records=left)
            left -= upto.record - position.record
            if begun or upto.record > 0:
                end[folder.name] = asdict(upto)
        return end

    def parts(self, start: Offset, end: Offset, slots: int) -> list[list[Slice]]:
        """What lies between two offsets, for so many tasks; each slice with a path below the folder."""
        found: list[list[Slice]] = [[] for _ in range(slots)]
        for name, upto in sorted(end.items()):
            first, last = position_in(start, name), StreamPosition(**upto)
            commits = SegmentLog(self._folder / name).commits(first, last)
            for part, slices in zip(found, splits(commits, first, last, slots), strict=False):
                part += [Slice(path=f"{name}/{one.path}", first=one.first, last=one.last) for one in slices]
        return [part for part in found if part]

    def came_s(self, end: Offset) -> float:
        """By when what lies before an offset had come into the pipeline: the mean of the lanes, for some may be
        behind."""
        return fmean(self._came_s(name, StreamPosition(**upto)) for name, upto in end.items())

    def _came_s(self, name: str, upto: StreamPosition) -> float:
        log = SegmentLog(self._folder / name)
        arrived = _arrived(log)
        return arrived.came_s if arrived.records == upto.record else log.came_s(upto)

    def _delete(self, folder: Path) -> None:
        """At once, for whoever looks: half a lane would be taken for one that is yet to be read."""
        gone = self._folder.with_name(f"{self._folder.name}.gone")
        gone.mkdir(exist_ok=True)
        os.replace(folder, gone / folder.name)
        shutil.rmtree(gone, ignore_errors=True)

    def _is_done(self, folder: Path) -> bool:
        """Whether nothing more comes, which has to be asked first, and everything was read."""
        if not ((folder / CLOSED).exists() or (self._senders / folder.name / "ended").exists()):
            return False
        return SegmentLog(folder).pending(READER) == 0


def position_in(offset: Mapping[str, Any], name: str) -> StreamPosition:
    return StreamPosition(**offset[name]) if name in offset else StreamPosition()
