"""Task events of a Google cluster (the 2011 trace), read from its files and replayed in time.

The trace's times are in microseconds and begin 600 s before its period; what ran then already has time 0. Those
events are spread evenly over the 600 s, so that they do not come as one burst; no statistic is that early. A
replay goes at the trace's own pace (speed 1), accelerated, or as fast as its readers take it (speed infinite). The
SEEP thesis caps the acceleration at 100 (5.3.3) and uses 1,000 (5.3.5); here it may be any. An event that is due
while a batch runs comes with the next one, late by a batch; the pace holds on average.

What no statistic needs is dropped before anything else sees it, as in the thesis: events of tasks that are on no
machine, and those that change nothing there (a submission). What is left is numbered from 0 without gaps, by which
whoever counts can tell that nothing is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from elastream.errors import InvalidInput

EXTRACT = Path(__file__).parent / "google2011" / "task_events.csv.gz"
AS_FAST_AS_POSSIBLE = float("inf")
SCHEMA = (
    "number bigint, at_us bigint, machine bigint, job bigint, task bigint, runs boolean, "
    "cpu double, memory double, disk double"
)
_FORMAT = "google_task_events"
_BEGINS_US = 600_000_000
_MOST_EVENTS = 2_000  # of a batch, so that a burst does not become one long batch


class EventType(IntEnum):
    SUBMIT = 0
    SCHEDULE = 1
    EVICT = 2
    FAIL = 3
    FINISH = 4
    KILL = 5
    LOST = 6
    UPDATE_PENDING = 7
    UPDATE_RUNNING = 8


_RUNS = (EventType.SCHEDULE, EventType.UPDATE_RUNNING)
_ENDS = (EventType.EVICT, EventType.FAIL, EventType.FINISH, EventType.KILL, EventType.LOST)
_COLUMNS = {
    "at_us": pa.int64(),
    "missing": pa.int64(),
    "job": pa.int64(),
    "task": pa.int64(),
    "machine": pa.int64(),
    "event_type": pa.int64(),
    "user": pa.string(),
    "scheduling_class": pa.int64(),
    "priority": pa.int64(),
    "cpu": pa.float64(),
    "memory": pa.float64(),
    "disk": pa.float64(),
    "different_machine": pa.string(),
}


def read_task_events(path: Path) -> pa.Table:
    """All events of a file of the trace, compressed or not, in its order."""
    try:
        return pv.read_csv(
            path,
            read_options=pv.ReadOptions(column_names=list(_COLUMNS)),
            convert_options=pv.ConvertOptions(column_types=_COLUMNS),
        )
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path}: not task events of the 2011 trace: {error}") from None


def needed(events: pa.Table) -> pa.Table:
    """What the statistics need of the events, numbered: a task begins to run on a machine, or ends there."""
    types = events["event_type"]
    runs = pc.is_in(types, pa.array(_RUNS, pa.int64()))
    ends = pc.is_in(types, pa.array(_ENDS, pa.int64()))
    keep = pc.and_(pc.is_valid(events["machine"]), pc.or_(runs, ends))
    kept = events.append_column("runs", runs).filter(keep)
    columns = {"number": pa.array(range(kept.num_rows), pa.int64())}
    columns["at_us"] = pa.array(_spread(kept["at_us"].to_numpy()), pa.int64())
    for name in ("machine", "job", "task", "runs"):
        columns[name] = kept[name]
    for name in ("cpu", "memory", "disk"):  # what a task does not ask for is nothing
        columns[name] = pc.fill_null(kept[name], 0.0)
    return pa.table(columns)


def _spread(at_us: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Those of time 0 over the time before the trace's period, in their order."""
    early = int(np.searchsorted(at_us, 1))
    return np.concatenate([np.arange(early) * _BEGINS_US // max(1, early), at_us[early:]])


@dataclass(frozen=True, kw_only=True)
class TraceReplay:
    """When each event is due."""

    at_us: np.ndarray[Any, np.dtype[np.int64]]
    """Of the events, in order."""
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise InvalidInput(f"the speed of a replay must be above 0, found {self.speed}")

    def due(self, first: int, elapsed_s: float) -> int:
        """How many events are due so long after the first of them was: those before it, and it, among them."""
        if first >= len(self.at_us) or np.isinf(self.speed):
            return len(self.at_us)
        now_us = self.at_us[first] + elapsed_s * self.speed * 1e6
        return int(np.searchsorted(self.at_us, now_us, side="right"))

    @property
    def lasts_s(self) -> float:
        return float(self.at_us[-1] - self.at_us[0]) / 1e6 / self.speed


def replay_of(path: Path, speed: float) -> TraceReplay:
    return TraceReplay(at_us=_EVENTS[str(path)]["at_us"].to_numpy(), speed=speed)


class _ReadOnce(dict[str, pa.Table]):
    """The events of each file. To other processes it is sent empty: they read for themselves."""

    def __missing__(self, path: str) -> pa.Table:
        self[path] = needed(read_task_events(Path(path)))
        return self[path]

    def __reduce__(self) -> tuple[type[_ReadOnce], tuple[()]]:
        return (_ReadOnce, ())


_EVENTS = _ReadOnce()


def replayed(
    spark: SparkSession, path: Path, *, speed: float = AS_FAST_AS_POSSIBLE, most_events: int = _MOST_EVENTS
) -> DataFrame:
    """The events as a stream. Begun anew in the middle, the pace goes on from there."""
    replay_of(path, speed)  # refuses what cannot be read, before a query is started for it
    spark.dataSource.register(TaskEvents)
    options = {"path": str(path.absolute()), "speed": str(speed), "most_events": str(most_events)}
    return spark.readStream.format(_FORMAT).options(**options).load()


class TaskEvents(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        del schema
        return TaskEventsReader(
            Path(self.options["path"]), float(self.options["speed"]), int(self.options["most_events"])
        )


@dataclass
class _Part(InputPartition):
    first: int
    last: int


class TaskEventsReader(DataSourceStreamReader):
    def __init__(self, path: Path, speed: float, most_events: int) -> None:
        self._path = path
        self._speed = speed
        self._most_events = most_events
        self._began: tuple[int, float] | None = None
        """With which event, and when."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"event": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._most_events)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        del limit
        if self._began is None:
            self._began = (start["event"], time.monotonic())
        first, began_s = self._began
        due = replay_of(self._path, self._speed).due(first, time.monotonic() - began_s)
        return {"event": min(max(due, start["event"]), start["event"] + self._most_events)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Part(start["event"], end["event"])] if end["event"] > start["event"] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Part)
        yield from _EVENTS[str(self._path)].slice(partition.first, partition.last - partition.first).to_batches()
