"""A channel of files: the records lie in Parquet files beside the log.

segments/b17-3f2a/*.parquet    what an attempt at batch 17 wrote; not part of the stream until a commit names it

Every attempt has a folder of its own. A task of an attempt that was given up may still be writing when the batch
is tried again, and must not add a file to the new one.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.cuts import (
    LEAST_TO_CUT,
    MOST_RECORDS_OF_A_FILE,
    Parts,
    TimedFile,
    in_order,
    in_parts,
    read_event_times,
)
from elastream.engines.spark.channels.files_source import FORMAT
from elastream.engines.spark.channels.segments import Commit, Position, Segment, SegmentLog
from elastream.engines.spark.channels.source import read_stream
from elastream.engines.spark.crash_points import CrashPoint, crash_point


class FileChannel:
    def __init__(self, folder: Path, *, writer: str | None = None) -> None:
        """With the name of its writer, where one run after another writes to it."""
        self.log = SegmentLog(folder, writer=writer)
        self._segments = folder / "segments"

    def create(self) -> None:
        self.log.create()
        self._segments.mkdir(exist_ok=True)
        named = {_attempt(segment) for commit in self.log.all_commits() for segment in commit.segments}
        for folder in self._segments.iterdir():
            if folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def write(self, frame: DataFrame, batch: int, *, event_time: str | None = None) -> int:
        folder = self._new_attempt(batch)
        if event_time is None:
            frame.write.parquet(str(folder))
        else:
            ordered = in_order(frame, event_time)
            ordered.write.option("maxRecordsPerFile", MOST_RECORDS_OF_A_FILE).parquet(str(folder))
        parts = self._parts(sorted(folder.glob("*.parquet")), event_time)
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
        self._publish(batch, folder, self._parts([path], None), came_s=came_s)

    def stream(
        self, spark: SparkSession, schema: StructType, *, reader: str, control: Path, at_cuts: bool = False
    ) -> DataFrame:
        folder = self.log.folder
        return read_stream(spark, FORMAT, folder, schema, reader=reader, control=control, at_cuts=at_cuts)

    def tables(self) -> Iterator[pa.Table]:
        for commit in self.log.commits(Position(), self.log.position(Position())):
            for segment in commit.segments:
                yield pq.read_table(self.log.folder / segment.path, partitioning=None)

    def forget(self, readers: Sequence[str]) -> int:
        return self.log.forget(readers, self._delete)

    def _new_attempt(self, batch: int) -> Path:
        return self._segments / f"b{batch}-{uuid.uuid4().hex[:8]}"

    def _parts(self, paths: Sequence[Path], event_time: str | None) -> Parts:
        """What was written, in parts where its event time allows it and there is enough of it."""
        whole = tuple(
            Segment(path=str(path.relative_to(self.log.folder)), records=pq.read_metadata(path).num_rows)
            for path in paths
        )
        if event_time is None or sum(segment.records for segment in whole) < LEAST_TO_CUT:
            return Parts(segments=whole)
        return in_parts(
            [
                TimedFile(path=segment.path, times=read_event_times(self.log.folder / segment.path, event_time))
                for segment in whole
            ]
        )

    def _publish(self, batch: int, folder: Path, parts: Parts, *, came_s: float | None = None) -> int:
        self.log.publish(batch, parts.segments, came_s=came_s, cuts=parts.cuts)
        records = sum(segment.records for segment in parts.segments)
        if records == 0:
            shutil.rmtree(folder, ignore_errors=True)
        return records

    def _delete(self, commit: Commit) -> None:
        for attempt in {_attempt(segment) for segment in commit.segments}:
            shutil.rmtree(self._segments / attempt, ignore_errors=True)


def _attempt(segment: Segment) -> str:
    return Path(segment.path).parent.name
