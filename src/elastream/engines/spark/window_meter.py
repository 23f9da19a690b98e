"""What all steps of a pipeline did in a window: read from Spark, the channels and the operating system."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from elastream.dataflow import Dataflow
from elastream.engines.spark.accounts import Books
from elastream.engines.spark.core_waits import CoreWaits
from elastream.engines.spark.event_time import EventTimes
from elastream.engines.spark.executor_use import Heap, python_cores
from elastream.engines.spark.latency import Pace
from elastream.engines.spark.measurements import StepMeter
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.stages import Stages
from elastream.engines.spark.watermark_watch import WatermarkWatch
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError
from elastream.measurement import Reading
from elastream.measurement.accounts import drops_text
from elastream.measurement.batch_cost import BatchCost

_PARTS = 3  # of a window: in the last of them a load that stepped within it has come to its new level


@dataclass(frozen=True, kw_only=True)
class Window:
    source_rates: Mapping[str, float]
    newest_rates: Mapping[str, float]
    readings: tuple[Reading, ...]
    notes: tuple[str, ...]


class WindowMeter:
    """A window begins with a mark or with the end of the one before, and ends when it is measured."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        workspace: Workspace,
        queries: Mapping[str, StepQuery],
        books: Books,
        stages: Stages,
        *,
        pace: Pace,
        executor_memory: str,
    ) -> None:
        self.costs: dict[str, BatchCost] = {}
        """What a batch costs, of the operators where that is known."""
        self._pipeline = pipeline
        self._workspace = workspace
        self._queries = queries
        self._books = books
        self._stages = stages
        self._pace = pace
        self._meters = {step.name: StepMeter(step.name, pace.interval_of_s(step)) for step in pipeline.steps}
        self._sources = pipeline.graph().sources
        self._event_time = EventTimes()
        self._watermarks: dict[str, WatermarkWatch] = {}
        self._core_waits = _core_waits(spark)
        self._python_cores = python_cores(spark)
        self._heap = Heap(spark, executor_memory)
        self._marked_s = 0.0
        self._arrived: dict[str, int] = {}

    def watch(self, event_time: EventTimes) -> None:
        """From now on the watermarks of the steps that follow event time."""
        self._event_time = event_time
        followers = [name for name, step in event_time.steps.items() if step.followed]
        self._watermarks = {name: WatermarkWatch(name) for name in followers}

    def mark(self) -> None:
        """From here on the next measurement counts."""
        self.take_in()  # so that it is not counted as having happened after the action
        self._marked_s = time.monotonic()
        self._arrived = self._count_arrived()
        for name, query in self._queries.items():
            self._meters[name].forget_window(held_back_s=query.held_back_s, now_s=time.time())
        self._python_share()  # as above

    def take_in(self) -> list[str]:
        """Take in the batches that ended since the last time; what was missed, as text."""
        # in this order: of a batch that has ended all stages are known, of one that is about to only some
        progress = {name: query.recent_progress() for name, query in self._queries.items()}
        for name, entries in progress.items():
            self._books.take(name, entries)
        try:
            gaps = self._stages.look()
        except ElastreamError as error:  # a machine with far too much to do; the batches are still there next time
            return [str(error)]
        core_wait = None if self._core_waits is None else self._core_waits.look()
        for name, entries in progress.items():
            if name in self._watermarks:
                self._watermarks[name].progress(entries)
            gaps += self._meters[name].take(entries, self._queries[name].written, self._stages, core_wait)
            self._queries[name].forget_ended()
        return gaps

    def window(self, graph: Dataflow) -> Window:
        """What was taken in since the mark; the next window begins here."""
        now_s = time.monotonic()  # a clock that is set would make a window of any length
        window_s, counts = now_s - self._marked_s, self._count_arrived()
        arrived = {name: count - self._arrived[name] for name, count in counts.items()}
        python_share = self._python_share()
        readings = tuple(self._reading(graph, name, window_s, arrived, python_share) for name in graph.order)
        self._learn(graph)
        self._marked_s, self._arrived = now_s, counts
        return Window(
            source_rates={name: count / window_s for name, count in arrived.items()},
            newest_rates=self._newest_rates(window_s),
            readings=readings,
            notes=(*_late_notes(readings), *self._watermark_notes()),
        )

    def too_new(self, names: Iterable[str]) -> list[str]:
        """Operators with too few batches to know what one costs."""
        return [name for name in names if self._meters[name].is_too_new]

    def _python_share(self) -> float:
        """What Python workers computed since the last call, for each second in which the JVM's tasks did not."""
        python_s = 0.0 if self._python_cores is None else self._python_cores.look()
        other_s = sum(meter.other_s for meter in self._meters.values())
        return min(1.0, python_s / other_s) if other_s > 0 else 0.0

    def _count_arrived(self) -> dict[str, int]:
        """Records of each source, from the beginning."""
        return {name: self._workspace.channel(name).log.head().records for name in self._sources}

    def _newest_rates(self, window_s: float) -> dict[str, float]:
        since_s = time.time() - window_s / _PARTS
        logs = {name: self._workspace.channel(name).log for name in self._sources}
        found = {name: log.newest_per_s(since_s=since_s) for name, log in logs.items()}
        return {name: rate for name, rate in found.items() if rate is not None}

    def _watermark_notes(self) -> list[str]:
        notes: list[str] = []
        for name, watch in self._watermarks.items():
            followed = self._event_time.steps[name].followed
            brought = {read: self._workspace.channel(read).log.head().records for read in followed}
            watch.inputs(brought, now_s=time.monotonic())
            notes += watch.notes(clock_s=time.time(), now_s=time.monotonic())
        return notes

    def _reading(
        self, graph: Dataflow, name: str, window_s: float, arrived: Mapping[str, int], python_share: float
    ) -> Reading:
        if name not in self._queries:  # a feed: another process writes it, and nothing holds it back
            count = arrived[name]
            return Reading(operator=name, window_s=window_s, useful_s=0, records_in=count, records_out=count)
        query, meter = self._queries[name], self._meters[name]
        logs = [self._workspace.channel(read).log for read in self._pipeline[name].reads]
        now_s = time.time()
        since_s = now_s - self._pace.longest_of_s(self._pipeline[name])
        return meter.reading(
            window_s=window_s,
            instances=1 if graph[name].source else query.parallelism,
            backlog=sum(log.pending(name) for log in logs),
            overdue=sum(log.overdue(name, since_s=since_s) for log in logs) if logs else None,
            waits_s=max((log.waits_s(name, now_s=now_s) for log in logs), default=0.0),
            held_back_s=query.held_back_s,
            python_cpu_s=meter.other_s * python_share,
            heap_utilization=self._heap.utilization(meter.heap_bytes),
        )

    def _learn(self, graph: Dataflow) -> None:
        for name in graph.scalable:
            partitions = graph[name].state_partitions or 0
            longest_s = self._pace.longest_of_s(self._pipeline[name])
            cost = self._meters[name].cost(state_partitions=partitions, longest_batch_s=longest_s)
            if cost is not None:
                self.costs[name] = cost if self._pace.latency_s is None else cost.with_room()


def _core_waits(spark: SparkSession) -> CoreWaits | None:
    """Only where the tasks run in the driver's own process: what other machines count is not known here."""
    if not str(spark.sparkContext.master).startswith("local["):
        return None
    jvm: Any = spark.sparkContext._jvm
    return CoreWaits(int(jvm.java.lang.ProcessHandle.current().pid()))


def _late_notes(readings: Iterable[Reading]) -> list[str]:
    return [drops_text(reading.operator) for reading in readings if reading.records_late]
