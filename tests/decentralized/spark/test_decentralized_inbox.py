"""Records on their way: lanes come and go, a plan stays as it was made, a batch is shared out once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastream.decentralized.protocol.load_meter import Arrived
from elastream.decentralized.spark.inbox import READER, InstanceInbox, Lanes, Offset
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.plans import BatchPlans
from elastream.engines.spark.channels.files import FileChannel


class Killed(BaseException):
    pass


def put(folder: Path, *numbers: int, came_s: float | None = None) -> FileChannel:
    lane = FileChannel(folder)
    lane.create()
    lane.append(pa.table({"id": pa.array(numbers, pa.int64())}), came_s=came_s)
    return lane


def read(folder: Path, lanes: Lanes, start: Offset, end: Offset, slots: int = 1) -> list[list[int]]:
    def ids(path: str, first: int, last: int) -> list[int]:
        found: list[int] = pq.read_table(folder / path, partitioning=None)["id"].to_pylist()[first:last]
        return found

    parts = lanes.parts(start, end, slots)
    return [[number for one in part for number in ids(one.path, one.first, one.last)] for part in parts]


def test_a_batch_takes_no_more_than_it_may_and_the_next_one_the_rest(tmp_path: Path) -> None:
    put(tmp_path / "0", 1, 2, 3)
    put(tmp_path / "0.1", 4, 5)
    lanes = Lanes(tmp_path, tmp_path / "instances")
    first = lanes.latest({}, most_records=4)
    second = lanes.latest(first, most_records=4)
    assert read(tmp_path, lanes, {}, first) == [[1, 2, 3, 4]]
    assert read(tmp_path, lanes, first, second) == [[5]]
    assert lanes.latest(second, most_records=4) == second, "nothing new"


def test_the_records_of_a_batch_are_spread_over_the_slots(tmp_path: Path) -> None:
    put(tmp_path / "0", *range(10))
    lanes = Lanes(tmp_path, tmp_path / "instances")
    parts = read(tmp_path, lanes, {}, lanes.latest({}, 100), slots=3)
    assert sorted(map(len, parts)) == [3, 3, 4]
    assert sorted(number for part in parts for number in part) == list(range(10))


def test_a_lane_goes_when_its_sender_has_ended_and_all_was_read(tmp_path: Path) -> None:
    folder, senders = tmp_path / "lanes", tmp_path / "instances"
    put(folder / "0", 1)
    put(folder / "0.1", 2)
    lanes = Lanes(folder, senders)
    both = lanes.latest({}, 100)
    (senders / "0.1").mkdir(parents=True)
    (senders / "0.1" / "ended").touch()
    assert both.keys() == {"0", "0.1"}, "it had still something to read"
    rest = lanes.latest(both, 100)
    assert rest.keys() == {"0"}
    assert read(folder, lanes, both, rest) == []
    assert (folder / "0.1").exists(), "until the batch without it is done"
    assert lanes.latest(rest, 100) == rest
    assert not (folder / "0.1").exists()


def test_a_kill_while_a_lane_is_deleted_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, senders = tmp_path / "lanes", tmp_path / "instances"
    put(folder / "0.1", *range(8))
    lanes = Lanes(folder, senders)
    rest = lanes.latest({}, 100)
    (senders / "0.1").mkdir(parents=True)
    (senders / "0.1" / "ended").touch()
    rest = lanes.latest(rest, 100)

    def some(path: Path, **_: object) -> None:
        found = path if (path / "readers").exists() else path / "0.1"
        really(found / "readers")
        raise Killed

    really = shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", some)
        with pytest.raises(Killed):
            lanes.latest(rest, 100)
    assert InstanceInbox([folder]).pending() == 0
    assert lanes.latest(rest, 100) == rest == {}


def test_what_is_read_is_known_and_forgotten(tmp_path: Path) -> None:
    lane = put(tmp_path / "up" / "0", 1, 2)
    inbox, lanes = InstanceInbox([tmp_path / "up"]), Lanes(tmp_path / "up", tmp_path / "instances")
    end = lanes.latest({}, 100)
    assert inbox.arrived()["up/0"].records == 2
    assert (inbox.read(), inbox.pending()) == ({"up/0": 0}, 2)
    lanes.latest(end, 100)  # asked for more: what was before is done
    assert (inbox.read(), inbox.pending()) == ({"up/0": 2}, 0)
    inbox.forget()
    assert not list((tmp_path / "up" / "0" / "segments").iterdir())
    assert lane.log.acknowledged(READER).record == 2


def test_by_when_what_a_batch_reads_had_come(tmp_path: Path) -> None:
    put(tmp_path / "0", 1, 2, came_s=10.0)
    put(tmp_path / "0", 3, 4, came_s=20.0)
    put(tmp_path / "0.1", 5, came_s=60.0)
    lanes = Lanes(tmp_path, tmp_path / "instances")
    first = lanes.latest({}, most_records=2)
    assert lanes.came_s(first) == 10.0, "the rest of the lane is not read yet"
    second = lanes.latest(first, most_records=100)
    assert lanes.came_s(second) == (20.0 + 60.0) / 2
    third = lanes.latest(second, most_records=100)
    InstanceInbox([tmp_path]).forget()
    assert lanes.came_s(third) == lanes.came_s(second), "also when what was read is gone"


def test_what_somebody_outside_fed_came_when_it_was_published(tmp_path: Path) -> None:
    before_s = time.time() - 1
    put(tmp_path / "feed" / "0", 1)
    found = InstanceInbox([tmp_path / "feed"]).arrived()["feed/0"]
    assert before_s < found.came_s < time.time() + 1
    lanes = Lanes(tmp_path / "feed", tmp_path / "instances")
    assert lanes.came_s(lanes.latest({}, 100)) == pytest.approx(found.came_s, abs=1.0)


def test_a_plan_stays_as_it_was_made(tmp_path: Path) -> None:
    plans, heads = BatchPlans(tmp_path), iter(range(10, 200, 10))

    def latest(start: object) -> dict[str, Offset]:
        return {"up": {"0": {"record": next(heads), "commit": 1}}}

    first = plans.plan(0, latest)
    assert plans.plan(0, latest) == first, "the same batch again reads the same"
    assert BatchPlans(tmp_path).plan(0, latest) == first, "also after a kill"
    second = plans.plan(1, latest)
    assert (first.start, second.start) == ({"up": {}}, first.end)
    assert plans.plan(7, latest).start == second.end, "numbers may have gaps"
    for batch in range(8, 15):
        plans.plan(batch, latest)
    assert len(list(tmp_path.iterdir())) == 5, "old ones are not kept for ever"


def test_a_fixed_batch_goes_where_it_was_to_go_although_the_view_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = pa.table({"id": pa.array(range(4), pa.int64())})
    killed = RuntimeError("killed")

    def fail(self: FileChannel, table: pa.Table, **told: object) -> None:
        raise killed

    with monkeypatch.context() as patch:
        patch.setattr(FileChannel, "append", fail)
        with pytest.raises(RuntimeError):
            Outbox(tmp_path / "out", lambda to: tmp_path / to).send(3, records, ["b/0", "b/1"], came_s=17.0)
    outbox = Outbox(tmp_path / "out", lambda to: tmp_path / to)
    outbox.send(3, records, ["b/2"], came_s=18.0)
    outbox.send(3, records, ["b/2"], came_s=18.0)

    def got(to: str) -> int:
        return FileChannel(tmp_path / to).log.head().records

    assert (got("b/0"), got("b/1"), got("b/2")) == (2, 2, 0)
    assert FileChannel(tmp_path / "b/0").log.head().came_s == 17.0
    outbox.send(4, records, ["b/2"], came_s=19.0)
    assert got("b/2") == 4
    assert (tmp_path / "b/2" / "among.json").read_text() == '{"instances": 1}'


def test_a_disk_that_was_full_for_a_moment_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    records = pa.table({"id": pa.array(range(4), pa.int64())})
    outbox = Outbox(tmp_path / "out", lambda to: tmp_path / to)
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            outbox.send(3, records, ["b/0"], came_s=17.0)
    outbox.send(3, records, ["b/0"], came_s=17.0)
    assert FileChannel(tmp_path / "b/0").log.head().records == 4


def test_the_number_of_instances_is_what_was_told_last_and_none_where_nobody_has(tmp_path: Path) -> None:
    """A predecessor that has nothing to send goes on telling what was right when it had."""
    inbox = InstanceInbox([tmp_path / "a"])
    assert inbox.among() is None
    for sender, instances, at_s in (("0", 6, 100), ("0.1", 4, 200)):
        put(tmp_path / "a" / sender, 1)
        told = tmp_path / "a" / sender / "among.json"
        told.write_text(json.dumps({"instances": instances}))
        os.utime(told, (at_s, at_s))
    put(tmp_path / "a" / "0.2", 1)
    assert inbox.among() == 4


def test_who_gets_nothing_is_told_by_when_nothing_had_come(tmp_path: Path) -> None:
    inbox, outbox = InstanceInbox([tmp_path / "a"]), Outbox(tmp_path / "outbox", lambda _: tmp_path / "a" / "0")
    assert inbox.quiet_until_s() is None, "nobody has said anything"
    outbox.tell_quiet(100.0, ["b/0"])
    assert inbox.arrived() == {"a/0": Arrived(records=0, came_s=100.0)}
    assert inbox.quiet_until_s() == 100.0
    outbox.send(0, pa.table({"id": [1, 2]}), ["b/0"], came_s=101.0)
    assert inbox.arrived() == {"a/0": Arrived(records=2, came_s=101.0)}
    assert inbox.quiet_until_s() is None, "two records wait"
    outbox.tell_quiet(102.0, ["b/0"])
    lanes = Lanes(tmp_path / "a", tmp_path / "instances")
    read_all = lanes.latest({}, 10)
    lanes.latest(read_all, 10)
    assert inbox.quiet_until_s() == 102.0
    assert lanes.came_s(read_all) == 102.0, "also for those after it"


def test_a_lane_that_is_quiet_does_not_slow_the_clock_of_the_others(tmp_path: Path) -> None:
    put(tmp_path / "0", 1, came_s=10.0)
    put(tmp_path / "0.1", 2, came_s=10.0)
    lanes = Lanes(tmp_path, tmp_path / "instances")
    before = lanes.latest({}, 10)
    put(tmp_path / "0.1", 3, came_s=20.0)
    Outbox(tmp_path / "outbox", lambda _: tmp_path / "0").tell_quiet(20.0, ["b/0"])
    assert lanes.came_s(lanes.latest(before, 10)) == 20.0
