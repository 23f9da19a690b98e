"""What an instance that was declared dead has left, and how the keeper of its operator takes it over.

Its place is closed first: no process of it begins any more, and one that still runs ends when it sees that.
Whoever holds its lock is then alone with its folder. What was fixed in its outbox goes where it was to go. What it
had not processed becomes a lane in the inbox of the heir, made beside it and moved there whole; the mark that it
has ended comes after that. So an heir that is killed on the way begins again, and nothing is taken over twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder, take_lock
from elastream.decentralized.spark.inbox import CLOSED, Offset, position_in
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.plans import BatchPlans
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, sync_folders, write_whole


def take_over(run: RunFolder, heir: Address, dead: Address, processed: Mapping[str, Offset] | None = None) -> bool:
    """False where a process of it is still there: try again. `processed` says up to where it had come, by operator
    that it read; what its plans say if not given."""
    left, own = run.instance(dead), run.instance(heir)
    left.close()
    try:
        lock = take_lock(left.path / "lock", dead)
    except ElastreamError:
        return False
    with closing(lock):
        if not left.has_ended:
            outbox = Outbox(left.outbox, lambda successor: run.instance(successor).lane(dead))
            outbox.finish()
            upto = BatchPlans(left.plans).upto(outbox.done()) if processed is None else processed
            for lane in sorted(left.inbox.glob("*/*")):
                _inherit(lane, own, dead, upto.get(lane.parent.name, {}))
            left.mark_ended()
        for inherited in own.inbox.glob(f"*/{_named('*', dead)}"):
            write_whole(inherited / CLOSED, b"")
        for rest in (left.inbox, left.outbox, left.plans, left.checkpoint):
            shutil.rmtree(rest, ignore_errors=True)
    return True


def _inherit(lane: Path, own: InstanceFolder, dead: Address, processed: Offset) -> None:
    target = own.inbox / lane.parent.name / _named(lane.name, dead)
    if target.exists():
        return  # by an attempt before this one
    channel = FileChannel(lane)
    first = position_in(processed, lane.name)
    last = channel.log.position(first)
    if last == first:
        return
    beside = own.path / "inheriting" / target.name
    shutil.rmtree(beside, ignore_errors=True)
    copy = FileChannel(beside)
    copy.create()
    copy.append(_records(channel, first, last), batch=0, came_s=channel.log.came_s(last))
    make_folder(target.parent)
    os.replace(beside, target)
    sync_folders([target.parent])


def _records(channel: FileChannel, first: StreamPosition, last: StreamPosition) -> pa.Table:
    commit = next(channel.log.commits(first, last))
    expected = pq.read_schema(channel.log.folder / commit.segments[0].path)
    return pa.Table.from_batches(channel.between(first, last, expected), expected)


def _named(sender: str, dead: Address) -> str:
    return f"{sender}~{dead.rpartition('/')[2]}"
