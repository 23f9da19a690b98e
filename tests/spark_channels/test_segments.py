"""The durable stream in a folder: whatever happens to its writer, every record is in it once and in order."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastream.engines.spark.channels.segments import Commit, Head, Segment, SegmentLog, StreamPosition
from elastream.errors import ElastreamError


def batch_folder(log: SegmentLog, batch: int) -> Path:
    return log.folder / "segments" / f"b{batch}"


def publish(log: SegmentLog, batch: int, *files: list[int]) -> Head:
    """Write a batch whose files hold these records, one to a line, and publish it."""
    folder = batch_folder(log, batch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = []
    for index, records in enumerate(files):
        path = folder / f"part-{index}"
        path.write_text("\n".join(map(str, records)))
        found.append(Segment(path=str(path.relative_to(log.folder)), records=len(records)))
    return log.publish(batch, found)


def forget(log: SegmentLog, *readers: str) -> int:
    return log.forget(readers, lambda commit: shutil.rmtree(batch_folder(log, commit.batch), ignore_errors=True))


def read(log: SegmentLog, start: StreamPosition, end: StreamPosition) -> list[int]:
    """The records from start to end, read from the files that the commits name."""
    found: list[int] = []
    for commit in log.commits(start, end):
        at = commit.before
        for segment in commit.segments:
            records = [int(line) for line in (log.folder / segment.path).read_text().splitlines()]
            assert len(records) == segment.records
            found += records[max(0, start.record - at) : max(0, end.record - at)]
            at += segment.records
    return found


@contextmanager
def a_log() -> Iterator[SegmentLog]:
    with TemporaryDirectory() as folder:
        log = SegmentLog(Path(folder) / "channel")
        log.create()
        yield log


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    log = SegmentLog(tmp_path / "channel")
    log.create()
    return log


class Channel(RuleBasedStateMachine):
    """A writer that is killed and started again, and two readers that each want every record once."""

    READERS = ("counts", "kept")

    @initialize()
    def make(self) -> None:
        self.folder = TemporaryDirectory()
        self.log = SegmentLog(Path(self.folder.name) / "channel")
        self.log.create()
        self.next_record = 0
        self.batch = -1
        self.newest: list[list[int]] = []
        self.read_by: dict[str, list[int]] = {reader: [] for reader in self.READERS}
        self.at: dict[str, StreamPosition] = {reader: StreamPosition() for reader in self.READERS}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _records(self, sizes: list[int]) -> list[list[int]]:
        files = []
        for size in sizes:
            files.append(list(range(self.next_record, self.next_record + size)))
            self.next_record += size
        return files

    @rule(sizes=st.lists(st.integers(0, 4), max_size=3), gap=st.integers(1, 2))
    def publish(self, sizes: list[int], gap: int) -> None:
        self.batch += gap
        self.newest = self._records(sizes)
        publish(self.log, self.batch, *self.newest)

    @precondition(lambda self: self.batch >= 0)
    @rule()
    def publish_the_newest_again(self) -> None:
        """Its writer died before Spark noted that the batch was done; it asks before it writes anything."""
        assert self.log.is_published(self.batch)
        assert self.log.publish(self.batch, []) == self.log.head()

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def die_between_the_entry_and_the_head(self, sizes: list[int]) -> None:
        head = self.log.folder / "head.json"
        before = head.read_bytes() if head.exists() else None
        self.publish(sizes, 1)
        if before is None:
            head.unlink()
        else:
            head.write_bytes(before)
        self.reopen()

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def die_before_the_entry(self, sizes: list[int]) -> None:
        """Files without an entry: the batch is written again, perhaps with other files."""
        folder = batch_folder(self.log, self.batch + 1)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-9").write_text("-1")
        (self.log.folder / "log" / "0000000000.json.tmp1").write_text("{")
        self.reopen()
        self.publish(sizes, 1)

    @rule()
    def reopen(self) -> None:
        self.log = SegmentLog(self.log.folder)
        self.log.create()

    @rule(reader=st.sampled_from(READERS), most=st.one_of(st.none(), st.integers(1, 7)))
    def read(self, reader: str, most: int | None) -> None:
        start = self.at[reader]
        end = self.log.position(start, most_records=most)
        assert most is None or end.record - start.record <= most
        assert read(self.log, start, end) == list(range(start.record, end.record))
        self.read_by[reader] += read(self.log, start, end)
        self.at[reader] = end

    @rule(reader=st.sampled_from(READERS))
    def acknowledge(self, reader: str) -> None:
        self.log.acknowledge(reader, self.at[reader])

    @rule(reader=st.sampled_from(READERS))
    def start_the_reader_again(self, reader: str) -> None:
        """From what it acknowledged: it must still be there."""
        self.at[reader] = self.log.acknowledged(reader)
        del self.read_by[reader][self.at[reader].record :]

    @rule()
    def forget(self) -> None:
        """The disk then holds nothing but the commits that somebody still reads from."""
        forget(self.log, *self.READERS)
        done = min(self.log.acknowledged(reader).record for reader in self.READERS)
        kept = [json.loads(path.read_text()) for path in (self.log.folder / "log").glob("*.json")]
        assert all(entry["before"] + sum(s["records"] for s in entry["segments"]) > done for entry in kept)
        for entry in kept:
            assert all((self.log.folder / segment["path"]).exists() for segment in entry["segments"])
        assert {commit.number for commit in self.log.all_commits()} == {entry["number"] for entry in kept}

    @rule()
    def die_while_forgetting(self) -> None:
        """The files of the oldest commit that all are done with are gone, its entry is not."""
        done = min(self.log.acknowledged(reader).record for reader in self.READERS)
        for entry in sorted((self.log.folder / "log").glob("*.json"))[:1]:
            commit = json.loads(entry.read_text())
            if commit["before"] + sum(segment["records"] for segment in commit["segments"]) <= done:
                shutil.rmtree(batch_folder(self.log, commit["batch"]), ignore_errors=True)
        self.reopen()

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        head = self.log.head()
        assert head.records == self.next_record
        assert head.batch == self.batch
        for reader in self.READERS:
            assert self.read_by[reader] == list(range(self.at[reader].record))
            assert self.log.pending(reader) == self.next_record - self.log.acknowledged(reader).record
            rest = read(self.log, self.at[reader], StreamPosition(record=head.records, commit=head.commits))
            assert rest == list(range(self.at[reader].record, self.next_record))


TestChannel = Channel.TestCase
TestChannel.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


# --- publishing -------------------------------------------------------------------------------------------------


def test_a_new_stream_is_empty(log: SegmentLog) -> None:
    assert log.head() == Head(commits=0, records=0, batch=-1)
    assert log.position(StreamPosition()) == StreamPosition()
    assert log.pending("anyone") == 0


def test_a_batch_that_is_published_twice_is_there_once(log: SegmentLog) -> None:
    publish(log, 0, [0, 1])
    again = publish(log, 0, [0, 1])
    assert again == Head(commits=1, records=2, batch=0)
    assert read(log, StreamPosition(), log.position(StreamPosition())) == [0, 1]


def test_an_empty_batch_counts_as_published(log: SegmentLog) -> None:
    head = publish(log, 3, [])
    assert head == Head(commits=0, records=0, batch=3)
    assert log.is_published(3)
    assert not log.is_published(4)


def test_an_empty_file_is_not_named_by_the_commit(log: SegmentLog) -> None:
    publish(log, 0, [], [7], [])
    (commit,) = log.commits(StreamPosition(), log.position(StreamPosition()))
    assert [segment.records for segment in commit.segments] == [1]


def test_batches_may_have_gaps(log: SegmentLog) -> None:
    for batch, record in ((0, 0), (4, 1), (9, 2)):
        publish(log, batch, [record])
    assert read(log, StreamPosition(), log.position(StreamPosition())) == [0, 1, 2]
    assert log.head() == Head(commits=3, records=3, batch=9)


def test_the_entry_is_the_truth_where_the_head_was_not_written(log: SegmentLog) -> None:
    publish(log, 0, [0, 1])
    before = (log.folder / "head.json").read_bytes()
    publish(log, 1, [2])
    (log.folder / "head.json").write_bytes(before)
    assert log.head().records == 2, "readers do not see it yet"
    log.create()
    assert log.head() == Head(commits=2, records=3, batch=1)
    assert log.is_published(1)


def test_making_the_folders_of_another_writer_does_not_finish_its_work(log: SegmentLog) -> None:
    publish(log, 0, [0])
    (log.folder / "head.json").unlink()
    log.make_folders()
    assert not (log.folder / "head.json").exists(), "only the writer itself may write the head"
    assert log.head().records == 1, "what is in the stream is known without it"


# --- one writer after another -----------------------------------------------------------------------------------


def opened(folder: Path, writer: str | None) -> SegmentLog:
    log = SegmentLog(folder, writer=writer)
    log.create()
    return log


def publish_by(log: SegmentLog, writer: str, batch: int, *records: int) -> None:
    """In files of its own: another writer has a batch of the same number."""
    path = log.folder / f"{writer}-{batch}"
    path.write_text("\n".join(map(str, records)))
    log.publish(batch, [Segment(path=path.name, records=len(records))])


def test_a_new_writer_goes_on_behind_the_one_before_with_batches_of_its_own(tmp_path: Path) -> None:
    for writer, first in (("a", 0), ("b", 2)):
        log = opened(tmp_path, writer)
        for batch in (0, 1):
            assert not log.is_published(batch)
            publish_by(log, writer, batch, first + batch)
        assert log.is_published(1)
        assert log.head() == Head(commits=first + 2, records=first + 2, batch=1, writer=writer)
    assert read(log, StreamPosition(), log.position(StreamPosition())) == [0, 1, 2, 3]


def test_the_same_writer_knows_its_batches_when_it_comes_back(tmp_path: Path) -> None:
    publish_by(opened(tmp_path, "a"), "a", 7, 0)
    log = opened(tmp_path, "a")
    assert (log.is_published(7), log.is_published(8)) == (True, False)


def test_it_knows_them_also_when_another_has_written_since(tmp_path: Path) -> None:
    publish_by(opened(tmp_path, "a"), "a", 7, 0)
    publish_by(opened(tmp_path, "b"), "b", 9, 1)
    opened(tmp_path, "c")
    log = opened(tmp_path, "a")
    assert (log.is_published(7), log.is_published(8)) == (True, False)
    publish_by(log, "a", 8, 2)
    assert read(log, StreamPosition(), log.position(StreamPosition())) == [0, 1, 2]


def test_a_log_that_names_no_writer_is_anothers(log: SegmentLog) -> None:
    publish(log, 5, [0])
    followed = opened(log.folder, "a")
    assert not followed.is_published(0)
    assert followed.head().records == 1, "and what is in it stays"


def test_what_a_killed_writer_began_is_finished_as_its_own_by_the_next(tmp_path: Path) -> None:
    publish_by(opened(tmp_path, "a"), "a", 0, 0)
    before = (tmp_path / "head.json").read_bytes()
    publish_by(opened(tmp_path, "a"), "a", 1, 1)
    (tmp_path / "head.json").write_bytes(before)  # the entry is there, the head does not count it
    log = opened(tmp_path, "b")
    assert log.head() == Head(commits=2, records=2, batch=-1, writer="b")
    assert opened(tmp_path, "a").is_published(1)


def test_a_head_that_is_lost_is_made_again_with_its_writer(tmp_path: Path) -> None:
    for writer in ("a", "b"):
        publish_by(opened(tmp_path, writer), writer, 3, 0)
    (tmp_path / "head.json").unlink()
    log = opened(tmp_path, "b")
    assert log.head() == Head(commits=2, records=2, batch=3, writer="b")


def test_one_that_still_writes_when_another_has_begun_is_refused(tmp_path: Path) -> None:
    first, second = opened(tmp_path, "a"), opened(tmp_path, "b")
    for late in (lambda: first.is_published(0), lambda: publish_by(first, "a", 0, 0)):
        with pytest.raises(ElastreamError, match="another run, or another sink, has begun to write here"):
            late()
    assert second.head() == Head(writer="b"), "nothing of it is there"


# --- reading ----------------------------------------------------------------------------------------------------


def test_a_position_may_lie_in_the_middle_of_a_commit(log: SegmentLog) -> None:
    publish(log, 0, [0, 1, 2], [3, 4])
    publish(log, 1, [5, 6])
    first = log.position(StreamPosition(), most_records=2)
    second = log.position(first, most_records=4)
    assert (first, second) == (StreamPosition(record=2, commit=1), StreamPosition(record=6, commit=2))
    assert read(log, StreamPosition(), first) == [0, 1]
    assert read(log, first, second) == [2, 3, 4, 5]
    assert read(log, second, log.position(second)) == [6]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), most=st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_parts_of_any_size_are_the_whole(sizes: list[int], most: int) -> None:
    with a_log() as log:
        record = 0
        for batch, size in enumerate(sizes):
            publish(log, batch, list(range(record, record + size)))
            record += size
        at, found, lengths = StreamPosition(), [], []
        while (end := log.position(at, most_records=most)) != at:
            found += read(log, at, end)
            lengths.append(end.record - at.record)
            at = end
    assert found == list(range(record))
    assert all(length == most for length in lengths[:-1])


def test_a_commit_that_is_missing_is_told_of(log: SegmentLog) -> None:
    publish(log, 0, [0])
    publish(log, 1, [1])
    (log.folder / "log" / "0000000000.json").unlink()
    with pytest.raises(ElastreamError, match="records 0 to 1 are missing"):
        read(log, StreamPosition(), log.position(StreamPosition()))


def test_a_commit_that_was_read_in_part_and_is_missing_is_told_of(log: SegmentLog) -> None:
    publish(log, 0, [0, 1, 2])
    publish(log, 1, [3])
    middle = log.position(StreamPosition(), most_records=2)
    (log.folder / "log" / "0000000000.json").unlink()
    with pytest.raises(ElastreamError, match="records 2 to 3 are missing"):
        read(log, middle, log.position(middle))


# --- being done -------------------------------------------------------------------------------------------------


def test_an_acknowledgement_never_goes_back(log: SegmentLog) -> None:
    publish(log, 0, [0, 1, 2])
    log.acknowledge("counts", StreamPosition(record=2, commit=1))
    log.acknowledge("counts", StreamPosition(record=1, commit=1))
    assert log.acknowledged("counts") == StreamPosition(record=2, commit=1)
    assert log.pending("counts") == 1


def publish_at(log: SegmentLog, batch: int, at_s: float, *records: int) -> None:
    publish(log, batch, list(records))
    os.utime(log.folder / "log" / f"{batch:010d}.json", (at_s, at_s))


def test_overdue_is_what_was_there_in_time_and_no_batch_has_taken(log: SegmentLog) -> None:
    for batch in range(10):  # two records a second, from second 100 on
        publish_at(log, batch, 100.0 + batch, 2 * batch, 2 * batch + 1)
    assert log.overdue("counts", since_s=99.0) == 0
    assert log.overdue("counts", since_s=104.5) == 10
    log.acknowledge("counts", StreamPosition(), taken=4)
    assert log.overdue("counts", since_s=104.5) == 6, "a batch has four of them"
    assert log.pending("counts") == 20, "which is not done yet"
    log.acknowledge("counts", StreamPosition(record=5, commit=3), taken=9)  # in the middle of a commit
    assert log.overdue("counts", since_s=104.5) == 1
    assert log.overdue("counts", since_s=200.0) == 11


def test_the_oldest_that_no_batch_has_taken_has_waited_longest(log: SegmentLog) -> None:
    for batch in range(10):  # two records a second, from second 100 on
        publish_at(log, batch, 100.0 + batch, 2 * batch, 2 * batch + 1)
    assert log.waits_s("counts", now_s=112.0) == 12.0
    log.acknowledge("counts", StreamPosition(), taken=4)
    assert log.waits_s("counts", now_s=112.0) == 10.0, "a batch has those of the first two seconds"
    log.acknowledge("counts", StreamPosition(record=5, commit=3), taken=9)  # in the middle of a commit
    assert log.waits_s("counts", now_s=112.0) == 8.0
    log.acknowledge("counts", StreamPosition(record=20, commit=10), taken=20)
    assert log.waits_s("counts", now_s=112.0) == 0.0


def test_the_newest_rate_is_that_between_the_commits_since_a_time(log: SegmentLog) -> None:
    records = iter(range(100))
    for batch, count in enumerate([1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4]):  # one a second; four, from second 105 on
        publish_at(log, batch, 100.0 + batch, *(next(records) for _ in range(count)))
    assert log.newest_per_s(since_s=104.5) == 4.0
    assert log.newest_per_s(since_s=99.0) == pytest.approx(2.8)
    assert log.newest_per_s(since_s=108.0) is None, "of so few commits nobody can tell"


def test_nothing_is_overdue_where_everything_was_forgotten(log: SegmentLog) -> None:
    publish_at(log, 0, 100.0, 0, 1)
    log.acknowledge("counts", log.position(StreamPosition()))
    forget(log, "counts")
    assert log.overdue("counts", since_s=200.0) == 0
    publish_at(log, 1, 150.0, 2)
    assert log.overdue("counts", since_s=200.0) == 1


def test_what_a_batch_has_taken_is_not_given_back(log: SegmentLog) -> None:
    """A reader of an earlier version did not say what its batch takes: it has at least what it is done with."""
    publish_at(log, 0, 100.0, 0, 1, 2)
    log.acknowledge("counts", StreamPosition(record=2, commit=1))
    assert log.overdue("counts", since_s=200.0) == 1


def test_what_the_slowest_reader_needs_is_kept(log: SegmentLog) -> None:
    for batch in range(4):
        publish(log, batch, [2 * batch, 2 * batch + 1])
    log.acknowledge("quick", StreamPosition(record=8, commit=4))
    log.acknowledge("slow", StreamPosition(record=3, commit=2))  # in the middle of the second
    assert forget(log, "quick", "slow") == 1
    slow = log.acknowledged("slow")
    assert read(log, slow, log.position(slow)) == [3, 4, 5, 6, 7]


def test_a_reader_that_has_not_come_yet_needs_everything(log: SegmentLog) -> None:
    publish(log, 0, [0])
    log.acknowledge("quick", StreamPosition(record=1, commit=1))
    assert forget(log, "quick", "not here yet") == 0
    assert forget(log) == 0


def test_a_killed_forgetting_is_finished_by_the_next(log: SegmentLog) -> None:
    publish(log, 0, [0])
    publish(log, 1, [1])
    log.acknowledge("counts", log.position(StreamPosition()))
    shutil.rmtree(batch_folder(log, 0))
    assert forget(log, "counts") == 2
    assert list((log.folder / "log").iterdir()) == []


@pytest.mark.parametrize("torn", [b"", b'{"commits": 1', b"[]", None])
def test_a_head_that_a_power_loss_has_torn_or_taken_follows_from_the_newest_commit(
    log: SegmentLog, torn: bytes | None
) -> None:
    for batch in range(3):
        publish(log, batch, [batch])
    log.acknowledge("counts", log.position(StreamPosition()))
    forget(log, "counts")
    before, path = log.head(), log.folder / "head.json"
    path.unlink() if torn is None else path.write_bytes(torn)
    assert log.head() == before
    log.create()
    assert json.loads(path.read_text())["records"] == 3
    (log.folder / "readers" / "counts.json").write_bytes(b"")
    assert log.acknowledged("counts") == StreamPosition()


def test_a_head_that_is_behind_by_forgotten_commits_is_brought_up_to_date(log: SegmentLog) -> None:
    stale = (log.folder / "head.json").read_bytes() if (log.folder / "head.json").exists() else b"{}"
    for batch in range(3):
        publish(log, batch, [batch])
    log.acknowledge("counts", log.position(StreamPosition()))
    forget(log, "counts")
    (log.folder / "head.json").write_bytes(stale)
    log.create()
    assert (log.head().commits, log.head().records, log.head().batch) == (3, 3, 2)


def test_the_stream_goes_on_after_everything_was_forgotten(log: SegmentLog) -> None:
    publish(log, 0, [0, 1])
    log.acknowledge("counts", log.position(StreamPosition()))
    forget(log, "counts")
    log.create()
    publish(log, 1, [2])
    at = log.acknowledged("counts")
    assert read(log, at, log.position(at)) == [2]


def test_a_commit_knows_where_it_lies(log: SegmentLog) -> None:
    publish(log, 0, [0, 1])
    publish(log, 5, [2], [3, 4])
    second = list(log.commits(StreamPosition(), log.position(StreamPosition())))[1]
    assert isinstance(second, Commit)
    assert (second.number, second.batch, second.before, second.records, second.after) == (1, 5, 2, 3, 5)
    assert asdict(second)["segments"][1] == {"path": "segments/b5/part-1", "records": 2, "first": 0}


# Cuts


def a_cut_log(folder: Path, commits: list[tuple[int, list[int]]]) -> SegmentLog:
    log = SegmentLog(folder)
    log.create()
    for batch, (records, cuts) in enumerate(commits):
        log.publish(batch, [Segment(path=f"b{batch}", records=records)], cuts=cuts)
    return log


def test_a_reader_that_follows_event_time_stops_at_commits_and_cuts_only(tmp_path: Path) -> None:
    log = a_cut_log(tmp_path, [(100, [40, 70]), (10, []), (5, [])])
    at, stops = StreamPosition(), []
    while at.record < 115:
        at = log.position(at, most_records=12, at_cuts=True)
        stops.append(at.record)
    assert stops == [40, 70, 100, 110, 115]
    assert log.position(StreamPosition(), most_records=75, at_cuts=True).record == 70
    assert log.position(StreamPosition(), most_records=112, at_cuts=True).record == 110
    assert log.position(StreamPosition(), most_records=None, at_cuts=True).record == 115


def test_a_reader_that_follows_event_time_and_stands_between_two_cuts_goes_to_the_next_one(tmp_path: Path) -> None:
    log = a_cut_log(tmp_path, [(100, [40, 70]), (10, [])])  # as a version before cuts left it
    assert log.position(StreamPosition(record=50, commit=1), most_records=5, at_cuts=True).record == 70


@given(
    st.lists(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(1, 40)))), max_size=8),
    st.integers(1, 60),
)
def test_stops_of_any_commits_lose_nothing_and_lie_where_they_may(
    drawn: list[tuple[int, set[int]]], most: int
) -> None:
    commits = [(records, sorted(cut for cut in cuts if cut < records)) for records, cuts in drawn]
    allowed, total = set(), 0
    for records, cuts in commits:
        allowed |= {total + cut for cut in cuts} | {total + records}
        total += records
    with TemporaryDirectory() as folder:
        log = a_cut_log(Path(folder), commits)
        at = StreamPosition()
        while at.record < total:
            end = log.position(at, most_records=most, at_cuts=True)
            reachable = [stop for stop in allowed if at.record < stop <= at.record + most]
            following = min(stop for stop in allowed if stop > at.record)
            assert end.record == (max(reachable) if reachable else following)
            assert sum(commit.records for commit in log.commits(at, end)) >= end.record - at.record
            at = end


def test_the_batch_that_a_reader_is_at_is_known(tmp_path: Path) -> None:
    log = a_cut_log(tmp_path, [(100, [])])
    assert log.in_batch("counts") == 0
    log.acknowledge("counts", StreamPosition(record=20, commit=1), taken=90)
    assert log.in_batch("counts") == 70
