"""Where a commit may be read in parts without upsetting event time.

The tasks of a batch each write their records in the order of event time. A **cut** is a moment: in front of it
are the records before that moment, from all files, behind it the others. The segments of the commit are listed
part after part, so that what lies between two cuts is contiguous in the stream, and a cut is a number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream.engines.spark.channels.segments import Segment

Times = npt.NDArray[np.int64]

_LEAST_RECORDS = 200  # of a part: as many as a batch may have in the beginning
LEAST_TO_CUT = 2 * _LEAST_RECORDS
_MOST_PARTS = 256
_MOST_SEGMENTS = 4_096  # of a commit, whose entry in the log is read for every batch
MOST_RECORDS_OF_A_FILE = 50_000
"""A part in the middle of a file is found by reading what lies before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedFile:
    path: str
    times: Times
    """Of its records, rising; what has no time comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    segments: tuple[Segment, ...]
    cuts: tuple[int, ...] = ()
    """Records in front of each, from the beginning of the commit; its end is not among them."""


def in_parts(files: Sequence[TimedFile]) -> Parts:
    """The files of a commit as segments, part after part; as one part where a file is not in order."""
    if any(np.any(np.diff(file.times) < 0) for file in files):
        return Parts(segments=tuple(Segment(path=file.path, records=len(file.times)) for file in files), cuts=())
    bounds = _bounds(files)
    edges = [np.concatenate(([0], np.searchsorted(file.times, bounds), [len(file.times)])) for file in files]
    segments: list[Segment] = []
    cuts: list[int] = []
    done = 0
    for part in range(len(bounds) + 1):
        for file, edge in zip(files, edges, strict=True):
            first, last = int(edge[part]), int(edge[part + 1])
            if first < last:
                segments.append(Segment(path=file.path, first=first, records=last - first))
                done += last - first
        cuts.append(done)
    total = sum(len(file.times) for file in files)
    return Parts(segments=tuple(segments), cuts=tuple(sorted({cut for cut in cuts if 0 < cut < total})))


def in_order(frame: DataFrame, event_time: str) -> DataFrame:
    """Each task's records by event time; without a shuffle."""
    return frame.sortWithinPartitions(F.col("`" + event_time.replace("`", "``") + "`"))


def read_event_times(path: Path, event_time: str) -> Times:
    """Of the records of a Parquet file, as numbers that sort as Spark sorts them: nulls first."""
    with pq.ParquetFile(path, memory_map=True) as file:
        columns = [batch.column(event_time) for batch in file.iter_batches(columns=[event_time])]
    least = pa.scalar(np.iinfo(np.int64).min, pa.int64())
    times = [pc.fill_null(column.cast(pa.int64()), least).to_numpy() for column in columns]
    return np.concatenate(times) if times else np.empty(0, dtype=np.int64)


def _bounds(files: Sequence[TimedFile]) -> Times:
    """The moments to cut at: as many records between them as a part should have."""
    total = sum(len(file.times) for file in files)
    at_once = max(1, _files_at_once(files))
    parts = min(_MOST_PARTS, total // _LEAST_RECORDS, _MOST_SEGMENTS // at_once)
    if parts < 2:
        return np.empty(0, dtype=np.int64)
    times = np.sort(np.concatenate([file.times for file in files]))
    return np.unique(times[[total * part // parts for part in range(1, parts)]])


def _files_at_once(files: Sequence[TimedFile]) -> int:
    """How many files have records around the same time, at the most."""
    begins = np.sort([file.times[0] for file in files if len(file.times)])
    ends = np.sort([file.times[-1] for file in files if len(file.times)])
    open_at = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="left")
    return int(open_at.max(initial=0))
