"""What an instance sends: a batch is fixed on disk with its shares, then put into the inboxes of the successors.

NUMBER/records.parquet     the records of batch NUMBER
NUMBER/shares.json         who gets which of them, and by when they had come into the pipeline
done.json                  the newest batch that is in all inboxes

A process that is killed in between finds the batch when it comes back, and shares it out as it was fixed, whatever
its view is by then. An inbox takes a batch once, by its number. So each record is in one inbox, once.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elastream.decentralized.protocol.messages import Address, operator_of
from elastream.decentralized.protocol.sharing import Share, shares
from elastream.decentralized.spark.folders import read_whole, write_whole
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.whole_files import make_folder, sync_files, sync_folders, write_json

QUIET = "quiet.json"
_RECORDS, _SHARES = "records.parquet", "shares.json"


class Outbox:
    """`lane_of` names the folder in the inbox of a successor that this instance writes to."""

    def __init__(self, folder: Path, lane_of: Callable[[Address], Path]) -> None:
        self._folder = folder
        self._lane_of = lane_of
        self._lanes: dict[Address, FileChannel] = {}
        self._told: dict[Address, int] = {}
        make_folder(folder)
        for left in folder.glob("*.tmp"):
            shutil.rmtree(left)

    def send(self, batch: int, records: pa.Table, successors: Iterable[Address], *, came_s: float) -> None:
        """Returns when everything is in the inboxes; does nothing for a batch that is there already."""
        self.finish()
        if batch <= self.done() or records.num_rows == 0:
            return
        to = tuple(successors)
        self._fix(batch, records, shares(records.num_rows, to, batch), came_s)
        self.finish()
        self._tell_counts(Counter(map(operator_of, to)), to)

    def tell_quiet(self, until_s: float, successors: Iterable[Address]) -> None:
        """Who gets nothing learns by when nothing had come; from a sender that is away it hears neither."""
        self.finish()
        for successor in successors:
            write_json(self._lane(successor).log.folder / QUIET, {"until_s": until_s}, lasting=False)

    def finish(self) -> None:
        """Share out the batch that was fixed and is not done."""
        for folder in self._folder.iterdir():
            if folder.name.isdigit():
                self._share_out(int(folder.name), folder)

    def _fix(self, batch: int, records: pa.Table, parts: list[Share], came_s: float) -> None:
        beside = self._folder / f"{batch}.tmp"
        shutil.rmtree(beside, ignore_errors=True)  # of an attempt that failed: the disk may have been full
        beside.mkdir()
        pq.write_table(records, beside / _RECORDS)
        write_whole(beside / _SHARES, {"came_s": came_s, "parts": [asdict(part) for part in parts]})
        sync_files([beside / _RECORDS])
        sync_folders([beside])
        os.replace(beside, self._folder / str(batch))
        sync_folders([self._folder])  # before anything of it is in an inbox

    def _share_out(self, batch: int, folder: Path) -> None:
        if batch > self.done():
            records = pq.read_table(folder / _RECORDS, partitioning=None)
            fixed = read_whole(folder / _SHARES)
            assert fixed is not None, "it is there before its folder is"
            for part in (Share(**found) for found in fixed["parts"]):
                piece = records.slice(part.first, part.last - part.first)
                self._lane(part.receiver).append(piece, batch=batch, came_s=fixed["came_s"])
                crash_point(CrashPoint.IN_SHARING_OUT, self._folder.parent.parent.name)
            write_whole(self._folder / "done.json", {"batch": batch})
        shutil.rmtree(folder)

    def _tell_counts(self, counts: Mapping[str, int], successors: Iterable[Address]) -> None:
        """A policy may want to know among how many it shares; that is no more than a hint, and may be late."""
        for successor in successors:
            count = counts[operator_of(successor)]
            if self._told.get(successor) != count:
                write_whole(self._lane_of(successor) / "among.json", {"instances": count})
                self._told[successor] = count

    def done(self) -> int:
        """The newest batch of which everything is in the inboxes."""
        found = read_whole(self._folder / "done.json")
        return -1 if found is None else int(found["batch"])

    def _lane(self, receiver: Address) -> FileChannel:
        if receiver not in self._lanes:
            lane = FileChannel(self._lane_of(receiver))
            lane.create()  # with what a killed process began here
            self._lanes[receiver] = lane
        return self._lanes[receiver]
