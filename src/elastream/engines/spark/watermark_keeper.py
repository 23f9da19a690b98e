"""Writes down the watermark of each input of a query after every batch, and gives them back to Spark at a start.

Spark has no call for it. Its tracker of watermarks is asked and set in the JVM, in what is not public and may be
different in another release: where it is not found the query runs as in plain Spark, and says so. It is safe to do
while `foreachBatch` has the batch: Spark's own thread waits for it, has set up its tracker, and looks at the
watermarks of the inputs only when the batch is over, just before it commits it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from elastream.engines.spark.input_watermarks import (
    DeclaredWatermark,
    InputWatermarks,
    Marks,
    later,
    read_input_watermarks,
    write_input_watermarks,
)
from elastream.engines.spark.logical_plan import nodes_of, output_of, relations_of

_log = logging.getLogger(__name__)

_WATERMARK = "EventTimeWatermark"
_NOT_THERE = (Py4JError, PySparkException, AttributeError, TypeError, LookupError)
"""What Python sees of a class, a method or a field that the JVM does not have, or that is something else."""


class Tracker(Protocol):
    """Of a query that runs a batch; watermarks go by the ids of their nodes in the plan."""

    def query_id(self) -> str: ...

    def marks(self) -> dict[str, int | None]:
        """As the batches before have left them."""
        ...

    def marks_of_batch(self) -> dict[str, int | None]:
        """By the records of the batch that runs alone."""
        ...

    def put(self, marks: Mapping[str, int]) -> None: ...


class WatermarkKeeper:
    """Of one run of a query."""

    def __init__(
        self, name: str, declared: Mapping[str, DeclaredWatermark], path: Path, tracker: Callable[[], Tracker]
    ) -> None:
        """`declared` are the watermarks of its plan by the ids of their nodes; `tracker` is asked in a batch."""
        self._name = name
        self._ids = tuple(declared)
        self._declared = tuple(declared.values())
        self._path = path
        self._open = tracker
        self._tracker: Tracker | None = None
        self._kept: InputWatermarks | None = None
        self._closed = False

    def batch_begins(self, batch: int) -> None:
        """With the first one of the run, give back what the run before has left."""
        if self._kept is None:
            self._guarded(lambda: self._give_back(batch))

    def batch_ends(self, batch: int) -> None:
        """Its records are through, and Spark has not committed it yet."""
        self._guarded(lambda: self._keep(batch))

    def close(self) -> None:
        """Another run follows: a batch of this one that was interrupted may still be on its way."""
        self._closed = True

    def _give_back(self, batch: int) -> None:
        self._tracker = tracker = self._open()
        self._in_order(tracker.marks())  # its watermarks are those of the plan, or nothing is done
        fresh = InputWatermarks(query=tracker.query_id(), declared=self._declared)
        found = read_input_watermarks(self._path)
        if found is not None and found.query == fresh.query and found.declared != fresh.declared:
            _log.warning(
                "%r declares other watermarks than before: each input must bring a record before they move on",
                self._name,
            )
        self._kept = fresh.following(found, batch)
        marks = zip(self._ids, self._kept.newest or (), strict=False)
        tracker.put({id_: mark for id_, mark in marks if mark is not None})

    def _keep(self, batch: int) -> None:
        assert self._tracker is not None
        assert self._kept is not None
        marks = later(self._in_order(self._tracker.marks()), self._in_order(self._tracker.marks_of_batch()))
        if not self._closed:
            self._kept = self._kept.with_batch(batch, marks)
            write_input_watermarks(self._path, self._kept)

    def _in_order(self, marks: Mapping[str, int | None]) -> Marks:
        if set(marks) != set(self._ids):
            raise LookupError(f"watermarks of {len(self._ids)} nodes of the plan expected, found {len(marks)}")
        return tuple(marks[id_] for id_ in self._ids)

    def _guarded(self, ask: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            ask()
        except _NOT_THERE as error:
            self.close()
            _tell_not_kept(self._name, error)


def keeper_of(spark: SparkSession, name: str, frame: DataFrame, path: Path) -> WatermarkKeeper | None:
    """For the run of a query that is about to start. None where it has a single watermark, which Spark keeps."""
    try:
        declared = declared_watermarks(frame)
    except _NOT_THERE as error:
        _tell_not_kept(name, error)
        return None
    if len(declared) < 2:
        return None
    return WatermarkKeeper(name, declared, path, lambda: SparkTracker(spark, name))


def _tell_not_kept(name: str, error: Exception) -> None:
    _log.warning(
        "%r: the watermarks of its inputs cannot be kept in this release of Spark, or just now (%s): after a "
        "restart they move on once each input has brought a record",
        name,
        (str(error) or repr(error)).splitlines()[0],
    )


def declared_watermarks(frame: DataFrame) -> dict[str, DeclaredWatermark]:
    """Those of a plan by the ids of their nodes, in its order; below a join with itself one may stand twice."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    found = {}
    for node in nodes_of(plan):
        if node.nodeName() == _WATERMARK:
            mark = next(one for one in output_of(node) if one.id == int(node.eventTime().exprId().id()))
            found[str(node.nodeId().toString())] = DeclaredWatermark(
                reads=tuple(sorted({Path(folder).name for folder, _ in relations_of(node)})),
                column=mark.name,
                delay_ms=mark.watermark_delay_ms or 0,
            )
    return found


class SparkTracker:
    """In the JVM, of Spark 4."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        """By the name of the query: the object of one that was just started may not be there yet."""
        query = next((one for one in spark.streams.active if one.name == name), None)
        if query is None:
            raise LookupError(f"no query {name!r} is active")
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self._execution: Any = query._jsq.streamingQuery()

    def query_id(self) -> str:
        return str(self._execution.id().toString())

    def marks(self) -> dict[str, int | None]:
        return _marks(self._execution.watermarkTracker())

    def marks_of_batch(self) -> dict[str, int | None]:
        """By a tracker of its own, which knows of nothing before: Spark's is told once the batch is over."""
        runtime = self._jvm.org.apache.spark.sql.execution.streaming.runtime
        alone = runtime.WatermarkTracker.apply(self._spark._jsparkSession.conf(), self._execution.logicalPlan())
        alone.updateWatermark(self._execution.lastExecution().executedPlan())
        return _marks(alone)

    def put(self, marks: Mapping[str, int]) -> None:
        if not marks:
            return
        tracker = self._execution.watermarkTracker()
        field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
        field.setAccessible(True)
        held = field.get(tracker)
        for id_, mark in marks.items():
            held.put(self._jvm.java.util.UUID.fromString(id_), self._some(mark))
        # read under the tracker's lock, by which Spark's thread is sure to see it, too
        if (found := _marks(tracker)) != {**found, **marks}:
            raise LookupError(f"watermarks {dict(marks)} were set, and are {found}")

    def _some(self, mark: int) -> Any:
        """Scala's `Some` of a Java `Long`: py4j would make an `Integer` of a number that fits into one."""
        boxed = self._jvm.java.util.stream.LongStream.of(mark).boxed().findFirst()
        return self._jvm.scala.jdk.javaapi.OptionConverters.toScala(boxed)


def _marks(tracker: Any) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    entries = tracker.watermarkMap().iterator()
    while entries.hasNext():
        entry = entries.next()
        mark = entry._2()
        found[str(entry._1().toString())] = int(mark.get()) if mark.isDefined() else None
    return found
