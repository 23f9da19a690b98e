"""What is in a durable stream: numbered commits, each of a few segments with a known number of records.

    head.json                 how many commits and records there are: the one small file that readers poll
    log/0000000042.json       commit 42: its batch, its segments, and how many records came before it
    forgotten.json            the head as it was when no commit was left
    readers/counts.json       up to which record this reader is done, and up to which a batch has taken them

Where the records themselves lie is the affair of a channel: in files beside the log, or in a topic of Kafka. The
log entry is the truth. A batch is published by renaming its entry into place: before that nothing of it is in
the stream, after it all of it. A batch that is published a second time (its writer died before it could note that
it was done) changes nothing. A position in the stream is a number of records, so what a reader has still to do is
exact, and a batch may begin and end in the middle of a commit; that of a reader that follows event time ends
with a commit or at one of its cuts (`cuts.py`). Commits that every reader is done with are deleted.

One writer, in one process; any number of readers. Kills are survived at every point, and so are power losses: an
entry is on the disk, behind the records that it names, before its publication returns. The head is not: where it
is torn or behind, it is made from the newest entry, or from `forgotten.json`, which is there before that one goes.

The log of a sink outlives the run that wrote it, and the next run counts its batches from 0 again. So a writer may
have a name, which is in the head and in its entries: a batch is published if an entry of the same writer has
it. One writer follows another; the one before may come back, and goes on behind its own newest batch.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, read_json, write_json

_FORGOTTEN = "forgotten.json"

_FEW_COMMITS = 5  # a rate between fewer would be that of when they are written


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Records one after the other: in a file, by its path, or in a partition of a topic, by its number."""

    path: str
    records: int
    first: int = 0
    """Of the records of that file or partition: where those of this segment begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    number: int
    batch: int
    before: int
    """Records in all commits before this one."""
    segments: tuple[Segment, ...]
    came_s: float | None = None
    """By when its records had come into the pipeline, where the writer knows."""
    writer: str | None = None
    """Whose batch it is, where that can be one of several."""
    cuts: tuple[int, ...] = ()
    """Where within it whoever follows event time may stop: so many of its records."""

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def after(self) -> int:
        return self.before + self.records

    @property
    def stops(self) -> Iterator[int]:
        """Where a reader that follows event time may stop, by the number of records in the stream before it."""
        yield from (self.before + cut for cut in self.cuts)
        yield self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    commits: int = 0
    records: int = 0
    batch: int = -1
    """The newest that its writer has published."""
    came_s: float | None = None
    """Of the newest commit."""
    writer: str | None = None
    """Who writes now, or did so last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamPosition:
    """A place in the stream: so many records lie before it, and so many commits begin before it."""

    record: int = 0
    commit: int = 0


class SegmentLog:
    def __init__(self, folder: Path, *, writer: str | None = None) -> None:
        """The name of a writer is needed only where another one comes after it."""
        self.folder = folder
        self._writer = writer
        self._noted: dict[str, StreamPosition] = {}

    # Writing

    def create(self) -> None:
        """Make the folders, finish what a killed writer began, and follow it if it was another: for the writer."""
        self.make_folders()
        head, known = self.head(), self._known_without_head()
        if known.commits > head.commits or read_json(self.folder / "head.json") is None:
            head = max(head, known, key=lambda one: one.commits)
            if head.commits > 0:
                self._write_head(head)
        if head.writer != self._writer:
            self._write_head(replace(head, writer=self._writer, batch=self._newest_own_batch()))

    def make_folders(self) -> None:
        for name in ("log", "readers"):
            make_folder(self.folder / name)

    def is_published(self, batch: int) -> bool:
        return batch <= self._own_head().batch

    def publish(
        self,
        batch: int,
        segments: Iterable[Segment],
        *,
        came_s: float | None = None,
        cuts: Sequence[int] = (),
    ) -> Head:
        """Make a batch part of the stream."""
        head = self._own_head()
        if batch <= head.batch:
            return head
        filled = tuple(segment for segment in segments if segment.records > 0)
        if filled:
            commit = Commit(
                number=head.commits,
                batch=batch,
                before=head.records,
                segments=filled,
                came_s=came_s,
                writer=self._writer,
                cuts=tuple(cuts),
            )
            write_json(self._entry(commit.number), asdict(commit))
            crash_point(CrashPoint.IN_THE_PUBLICATION, self.folder.name)
            after = _head_after(commit)
        else:
            after = replace(head, batch=batch)  # nothing was written, so nothing can be published twice
        self._write_head(after)
        return after

    def _own_head(self) -> Head:
        head = self.head()
        if head.writer != self._writer:
            raise ElastreamError(
                f"{self.folder}: another run, or another sink, has begun to write here; let them run one after "
                "the other, or give each a folder of its own"
            )
        return head

    def _newest_own_batch(self) -> int:
        """As far as the entries tell: a batch that has none had no records, and may be published again."""
        return max((commit.batch for commit in self.all_commits() if commit.writer == self._writer), default=-1)

    def _write_head(self, head: Head) -> None:
        write_json(self.folder / "head.json", asdict(head), lasting=False)

    # Reading

    def head(self) -> Head:
        found = read_json(self.folder / "head.json")
        return self._known_without_head() if found is None else Head(**found)

    def _known_without_head(self) -> Head:
        """It may lack batches without records, which leave no entry: publishing one again does nothing."""
        numbers = self._numbers()
        newest = self._read_commit(numbers[-1]) if numbers else None
        of_entry = Head() if newest is None else _head_after(newest)
        found = read_json(self.folder / _FORGOTTEN)
        forgotten = Head() if found is None else Head(**found)
        return max(of_entry, forgotten, key=lambda one: one.commits)

    def commits(self, start: StreamPosition, end: StreamPosition) -> Iterator[Commit]:
        """The commits that hold the records from start to end."""
        reached = start.record
        # the last commit that begins before the start may reach beyond it
        for number in range(max(0, start.commit - 1), end.commit):
            commit = self._read_commit(number)
            if commit is None or commit.after <= reached:
                continue
            if commit.before > reached:
                break
            reached = commit.after
            yield commit
        if reached < end.record:
            raise ElastreamError(
                f"{self.folder}: records {reached} to {end.record - 1} are missing, though a reader has still to "
                "read them"
            )

    def position(
        self, start: StreamPosition, *, most_records: int | None = None, at_cuts: bool = False
    ) -> StreamPosition:
        """The end of the stream, or of its first so many records after start.

        At cuts, it is the last end of a commit, or cut within one, before that; the next one where there is none.
        """
        head = self.head()
        end = StreamPosition(record=head.records, commit=head.commits)
        if most_records is None or end.record - start.record <= most_records:
            return end
        record, found = start.record + most_records, start
        for commit in self.commits(start, end):
            if not at_cuts and commit.after >= record:
                return StreamPosition(record=record, commit=commit.number + 1)
            for stop in commit.stops if at_cuts else ():
                if found.record > start.record and stop > record:
                    return found
                if stop > start.record:
                    found = StreamPosition(record=stop, commit=commit.number + 1)
        if at_cuts:
            return found
        raise AssertionError("the head counts more records than the commits hold")

    def acknowledge(
        self, reader: str, position: StreamPosition, *, taken: int | None = None, lasting: bool = False
    ) -> None:
        """The reader will not ask for anything before this position again; its batch goes up to record `taken`.

        Lasting where nothing else tells the reader where it was.
        """
        before, taken_before = self._progress(reader)
        taken = max(position.record, taken_before if taken is None else taken)
        if position.record > before.record or taken != taken_before:
            position = max(position, before, key=lambda one: one.record)
            path = self.folder / "readers" / f"{reader}.json"
            write_json(path, {**asdict(position), "taken": taken}, lasting=lasting)

    def note_acknowledged(self, readers: Sequence[str]) -> None:
        """From here on nothing is forgotten that they acknowledge later: someone brings to the disk that they have
        read what they acknowledged up to now."""
        self._noted = {reader: self.acknowledged(reader) for reader in readers}

    def acknowledged(self, reader: str) -> StreamPosition:
        return self._progress(reader)[0]

    def _progress(self, reader: str) -> tuple[StreamPosition, int]:
        """Up to where the reader is done, and up to which record its batch goes."""
        found = read_json(self.folder / "readers" / f"{reader}.json")
        if found is None:
            return StreamPosition(), 0
        taken = found.pop("taken", found["record"])
        return StreamPosition(**found), int(taken)

    def batch_of(self, reader: str) -> tuple[StreamPosition, StreamPosition]:
        """From where to where the batch reads that the reader is at."""
        done, taken = self._progress(reader)
        return done, self.position(done, most_records=taken - done.record) if taken > done.record else done

    def in_batch(self, reader: str) -> int:
        """Records of the batch that the reader is at."""
        done, taken = self._progress(reader)
        return taken - done.record

    def pending(self, reader: str) -> int:
        """Records that the reader has still to do."""
        return self.head().records - self.acknowledged(reader).record

    def overdue(self, reader: str, *, since_s: float) -> int:
        """Records that were published before this time, and that no batch of the reader has taken yet."""
        done, taken = self._progress(reader)
        # commits are published one after the other, so it takes few looks to find the last one before that time
        numbers = range(max(0, done.commit - 1), self.head().commits)
        older = bisect_right(numbers, since_s, key=self._published_s)
        commit = self._read_commit(numbers[older - 1]) if older else None
        return 0 if commit is None else max(0, commit.after - taken)

    def waits_s(self, reader: str, *, now_s: float) -> float:
        """For how long the oldest record has waited that no batch of the reader has taken; 0 where none waits."""
        done, taken = self._progress(reader)
        numbers = range(max(0, done.commit - 1), self.head().commits)
        first = bisect_right(numbers, taken, key=self._reaches)
        return max(0.0, now_s - self._published_s(numbers[first])) if first < len(numbers) else 0.0

    def _reaches(self, number: int) -> int:
        commit = self._read_commit(number)
        return 0 if commit is None else commit.after  # 0 where everyone is done with it

    def newest_per_s(self, *, since_s: float) -> float | None:
        """Records per second from the first commit after this time to the last; None where they are too few."""
        numbers = range(self.head().commits)
        newer = numbers[bisect_right(numbers, since_s, key=self._published_s) :]
        if len(newer) < _FEW_COMMITS:
            return None
        first, last = self._read_commit(newer[0]), self._read_commit(newer[-1])
        took_s = self._published_s(newer[-1]) - self._published_s(newer[0])
        return (last.after - first.after) / took_s if first and last and took_s > 0 else None

    def came_s(self, position: StreamPosition) -> float:
        """By when what lies before this position had come into the pipeline: as told, or when it was published."""
        for number in (position.commit - 1, position.commit):  # the one before it may be forgotten by now
            commit = self._read_commit(number)
            if commit is not None:
                return self._published_s(number) if commit.came_s is None else commit.came_s
        return self.newest_came_s()

    def newest_came_s(self) -> float:
        """By when everything had come into the pipeline that is in the stream; 0 where that is nothing."""
        told = self.head().came_s
        return _written_s(self.folder / "head.json") if told is None else told

    def _published_s(self, number: int) -> float:
        return _written_s(self._entry(number))  # 0 where everyone is done with it

    def forget(self, readers: Sequence[str], delete: Callable[[Commit], None]) -> int:
        """Delete the commits that all these readers are done with, and what they name; how many there were."""
        done = self.done_with(readers)
        if done and done[-1].number == self.head().commits - 1:
            write_json(self.folder / _FORGOTTEN, asdict(_head_after(done[-1])))
        for commit in done:
            # the records first: an entry without them is found and finished by the next call
            delete(commit)
            crash_point(CrashPoint.IN_FORGETTING, self.folder.name)
            self._entry(commit.number).unlink(missing_ok=True)
        return len(done)

    def done_with(self, readers: Sequence[str]) -> list[Commit]:
        """The commits, from the oldest on, that all these readers are done with."""
        if not readers:
            return []
        acknowledged = min((self._noted.get(reader) or self.acknowledged(reader)).record for reader in readers)
        found: list[Commit] = []
        for number in self._numbers():
            commit = self._read_commit(number)
            if commit is None or commit.after > acknowledged or commit.number >= self.head().commits:
                break
            found.append(commit)
        return found

    def all_commits(self) -> Iterator[Commit]:
        """Those that were not forgotten, published or about to be."""
        for number in self._numbers():
            commit = self._read_commit(number)
            if commit is not None:
                yield commit

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / "log").glob("*.json"))

    def _entry(self, number: int) -> Path:
        return self.folder / "log" / f"{number:010d}.json"

    def _read_commit(self, number: int) -> Commit | None:
        try:
            found = json.loads(self._entry(number).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise ElastreamError(f"{self._entry(number)}: a commit was expected, found a torn file") from None
        segments = tuple(Segment(**segment) for segment in found.pop("segments"))
        return Commit(segments=segments, cuts=tuple(found.pop("cuts", ())), **found)


def _head_after(commit: Commit) -> Head:
    return Head(
        commits=commit.number + 1,
        records=commit.after,
        batch=commit.batch,
        came_s=commit.came_s,
        writer=commit.writer,
    )


def _written_s(path: Path) -> float:
    """0 where there is none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
