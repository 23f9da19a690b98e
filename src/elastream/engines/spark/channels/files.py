"""A channel of files: the records lie in Parquet files beside the log.

segments/b17-3f2a/*.parquet    what an attempt at batch 17 wrote; not part of the stream until a commit names it
segments/b17-3f2a.writing/     the same while Spark writes it

Every attempt has a folder of its own. A task of an attempt that was given up may still be writing when the batch
is tried again, and must not add a file to the new one. A task that was given up for another of the same attempt
would write to the same file; so the folder is renamed before anyone looks at what is in it.

**No publication is empty by mistake.** The tasks count the records that they put out, and a batch is published
only if the files that are found hold as many. Whatever came between (Spark wrote to another file system, a folder
or a file is gone, a file is cut off), the batch fails with both numbers; Spark has not noted it as done, so its
input stays where it is and the batch is run again.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.counting import counting
from elastream.engines.spark.channels.cuts import (
    LEAST_TO_CUT,
    MOST_RECORDS_OF_A_FILE,
    Parts,
    TimedFile,
    in_order,
    in_parts,
    read_event_times,
)
from elastream.engines.spark.channels.files_source import FORMAT, read_slice
from elastream.engines.spark.channels.segments import Commit, Segment, SegmentLog, StreamPosition
from elastream.engines.spark.channels.source import read_stream
from elastream.engines.spark.channels.splits import splits
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.local_paths import for_spark
from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, sync_files, sync_folders


class FileChannel:
    def __init__(self, folder: Path, *, writer: str | None = None) -> None:
        """With the name of its writer, where one run after another writes to it."""
        self.log = SegmentLog(folder, writer=writer)
        self._segments = folder / "segments"

    def create(self) -> None:
        self.log.create()
        make_folder(self._segments)
        named = {_attempt(segment) for commit in self.log.all_commits() for segment in commit.segments}
        for folder in self._segments.iterdir():
            if folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def write(self, frame: DataFrame, batch: int, *, event_time: str | None = None) -> int:
        folder = self._new_attempt(batch)
        counted = _write_parquet(frame, folder, event_time)
        segments = [self._segment(path) for path in sorted(folder.glob("*.parquet"))]
        self._check_all_there(batch, folder, segments, records=counted)
        parts = self._parts(segments, event_time)
        crash_point(CrashPoint.AFTER_THE_TASKS, self.log.folder.name)
        return self._publish(batch, folder, parts)

    def append(self, records: pa.Table, *, batch: int | None = None, came_s: float | None = None) -> None:
        """With a number of its own a batch is put in once, however often it is given."""
        if batch is None:
            batch = self.log.head().batch + 1
        elif self.log.is_published(batch):
            return
        folder = self._new_attempt(batch)
        folder.mkdir(parents=True)
        path = folder / "records.parquet"
        pq.write_table(records, path)
        segments = [self._segment(path)]
        self._check_all_there(batch, folder, segments, records=records.num_rows)
        self._publish(batch, folder, Parts(segments=tuple(segments)), came_s=came_s)

    def stream(
        self, spark: SparkSession, schema: StructType, *, reader: str, control: Path, at_cuts: bool = False
    ) -> DataFrame:
        folder = self.log.folder
        return read_stream(spark, FORMAT, folder, schema, reader=reader, control=control, at_cuts=at_cuts)

    def tables(self) -> Iterator[pa.Table]:
        for commit in self.log.commits(StreamPosition(), self.log.position(StreamPosition())):
            for segment in commit.segments:
                yield pq.read_table(self.log.folder / segment.path, partitioning=None)

    def between(
        self, first: StreamPosition, last: StreamPosition, expected: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Some of its records in order, without Spark."""
        for part in splits(self.log.commits(first, last), first, last, 1):
            for one in part:
                yield from read_slice(self.log.folder, one, expected)

    def forget(self, readers: Sequence[str]) -> int:
        return self.log.forget(readers, self._delete)

    def _new_attempt(self, batch: int) -> Path:
        return self._segments / f"b{batch}-{uuid.uuid4().hex[:8]}"

    def _segment(self, path: Path) -> Segment:
        try:
            records = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException) as error:  # gone again, or cut off
            raise ElastreamError(f"{path}: cannot be read after it was written: {error}") from error
        return Segment(path=str(path.relative_to(self.log.folder)), records=records)

    def _check_all_there(self, batch: int, folder: Path, segments: Sequence[Segment], *, records: int) -> None:
        """Before it is published: that what is found is what was written."""
        found = sum(segment.records for segment in segments)
        if found != records:
            raise ElastreamError(
                f"{self.log.folder.name}: batch {batch} has {records} records, and {found} are found where it was "
                f"written, in {folder}: nothing of it is published, and its input is kept; does Spark see another "
                "folder there?"
            )

    def _parts(self, segments: Sequence[Segment], event_time: str | None) -> Parts:
        """What was written, in parts where its event time allows it and there is enough of it."""
        if event_time is None or sum(segment.records for segment in segments) < LEAST_TO_CUT:
            return Parts(segments=tuple(segments))
        return in_parts(
            [
                TimedFile(path=segment.path, times=read_event_times(self.log.folder / segment.path, event_time))
                for segment in segments
            ]
        )

    def _publish(self, batch: int, folder: Path, parts: Parts, *, came_s: float | None = None) -> int:
        sync_files({self.log.folder / segment.path for segment in parts.segments if segment.records > 0})
        sync_folders([folder, self._segments])  # an entry must not name what a power loss takes
        self.log.publish(batch, parts.segments, came_s=came_s, cuts=parts.cuts)
        records = sum(segment.records for segment in parts.segments)
        if records == 0:
            shutil.rmtree(folder, ignore_errors=True)
        return records

    def _delete(self, commit: Commit) -> None:
        for attempt in {_attempt(segment) for segment in commit.segments}:
            shutil.rmtree(self._segments / attempt, ignore_errors=True)


def _write_parquet(frame: DataFrame, folder: Path, event_time: str | None) -> int:
    """How many records the tasks have put out; how many are there is another question."""
    counted, records = counting(frame if event_time is None else in_order(frame, event_time))
    writing = folder.with_name(f"{folder.name}.writing")
    most = {} if event_time is None else {"maxRecordsPerFile": str(MOST_RECORDS_OF_A_FILE)}
    counted.write.options(**most).parquet(for_spark(writing))
    with suppress(FileNotFoundError):  # then none are there
        os.rename(writing, folder)
    return records()


def _attempt(segment: Segment) -> str:
    return Path(segment.path).parent.name
