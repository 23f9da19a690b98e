"""From what Spark tells of a step's batches to the readings of its instances and to what a batch costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from elastream.engines.spark.ledger import can_drop, dropped_as_late
from elastream.engines.spark.query import Written
from elastream.engines.spark.stages import Stages, Work
from elastream.errors import ElastreamError
from elastream.measurement import Reading
from elastream.measurement.batch_cost import LEAST_BATCHES, Batch, BatchCost, BatchMemory, fit
from elastream.measurement.tasks import TaskSpread

_NOTHING = Written(records=0, held_back_s=0.0)


@dataclass(frozen=True, slots=True)
class _Mean:
    total: float = 0.0
    count: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count

    def with_values(self, value: float, count: float) -> _Mean:
        return _Mean(self.total + value * count, self.count + count)


@dataclass
class StepMeter:
    """What is remembered of one step's batches from one measurement to the next."""

    name: str
    batch_interval_s: float = 0.0
    _run: str = ""
    _newest: int = -1
    _cold: bool = True
    _held_back_s: float = 0.0
    _records_in: float = 0.0
    _records_out: float = 0.0
    _late: float | None = None
    """Dropped as late; none where the query has no event time."""
    _told: set[tuple[str, int, str]] = field(default_factory=set)
    """The progress that was looked at before, as far as Spark still has it."""
    _busy_s: float = 0.0
    _core_wait_s: float | None = None
    _cpu_s: float = 0.0
    _other_s: float = 0.0
    _batch_s: float = 0.0
    """How long the last batch took."""
    _marked_s: float = 0.0
    """When the last action ended, as the time of day."""
    _begun_before: bool = False
    """Whether a batch of this window began before that: perhaps with many more tasks than there are instances."""
    _latency: _Mean = field(default_factory=_Mean)
    heap_bytes: float = 0.0
    """The most in the batches of this window, where executors tell."""
    _spread: TaskSpread | None = None
    """Of the newest batch that was asked for."""
    _batches: BatchMemory = field(default_factory=BatchMemory)

    def take(
        self,
        progress: Sequence[Mapping[str, Any]],
        written: dict[int, Written],
        stages: Stages,
        core_wait: float | None = None,
    ) -> list[str]:
        """Take in the batches that ended since the last time, and what each put out; what was missed, as text.

        `core_wait` is what tasks waited for a core for each second that they had one, where that is known.
        """
        latest: tuple[Batch, Work] | None = None
        self._count_late(progress)
        for entry in progress:
            # also of a batch without input: a watermark that moved on may have let results out
            what = written.pop(int(entry["batchId"]), _NOTHING)
            self._records_out += what.records
            if not self._is_new(entry):
                continue
            self._records_in += entry["numInputRows"]
            self._begun_before |= _began_s(entry) < self._marked_s
            self._time(entry)
            work = stages.work(str(entry["runId"]), int(entry["batchId"]))
            if work is not None:
                useful_s = self._useful_s(work, core_wait)
                batch = self._learn(entry, work, useful_s, what.held_back_s)
                latest = latest if batch is None else (batch, work)
        if latest is not None:
            try:
                balance, self._spread = stages.spread(latest[1])
            except ElastreamError:  # Spark has forgotten its tasks already; what the batch cost is known
                balance = None
            self._batches.replace_newest(replace(latest[0], balance=balance))
        # Spark keeps the progress of so many batches only
        gone = [number for number in list(written) if progress and number < int(progress[0]["batchId"])]
        for number in gone:
            del written[number]
        return [f"{len(gone)} batches of {self.name} were gone before a look at them"] if gone else []

    @property
    def other_s(self) -> float:
        """Time of its tasks in which the JVM computed nothing: perhaps Python did, or a disk was waited for."""
        return self._other_s

    def reading(
        self,
        *,
        window_s: float,
        instances: int,
        backlog: float,
        held_back_s: float,
        overdue: float | None = None,
        waits_s: float = 0.0,
        python_cpu_s: float = 0.0,
        heap_utilization: float | None = None,
    ) -> Reading:
        """What happened since the last call, of all instances together: Spark's tasks are no lasting instances.

        A batch is known when it has ended. Of one that was longer than the window, the part that fits is told of
        now and the rest the next time, records and time alike: the rates are then right in both. Of one that an
        action fell into the rest is forgotten: it is that of instances that there are no more.
        """
        latency_s = self._take_latency_s(waits_s if overdue else 0.0)
        ran_s = self._busy_s + (self._core_wait_s or 0.0)
        share = min(1.0, instances * window_s / ran_s) if ran_s > 0 else 1.0
        rest, self._begun_before = 0.0 if self._begun_before else 1 - share, False
        core_wait_s = None
        if self._core_wait_s is not None:
            core_wait_s, self._core_wait_s = self._core_wait_s * share, self._core_wait_s * rest
        cpu_s, self._cpu_s = self._cpu_s * share, self._cpu_s * rest
        self._other_s = self.heap_bytes = 0.0
        useful_s, self._busy_s = self._busy_s * share, self._busy_s * rest
        records_in, self._records_in = self._records_in * share, self._records_in * rest
        records_out, self._records_out = self._records_out * share, self._records_out * rest
        # whole, however long the batch was: a loss is told at once
        late, self._late = self._late, None if self._late is None else 0.0
        held_s, self._held_back_s = min(window_s, held_back_s - self._held_back_s) * instances, held_back_s
        spread, self._spread = self._spread, None
        return Reading(
            operator=self.name,
            instances=instances,
            window_s=window_s,
            useful_s=useful_s,
            records_in=records_in,
            records_out=records_out,
            records_late=late,
            backlog=backlog,
            overdue=overdue,
            wait_out_s=held_s,
            wait_in_s=max(0.0, instances * window_s - useful_s - held_s - (core_wait_s or 0.0)),
            wait_core_s=core_wait_s,
            latency_s=latency_s,
            cpu_utilization=min(1.0, (cpu_s + python_cpu_s) / (instances * window_s)),
            heap_utilization=heap_utilization,
            tasks=spread,
        )

    @property
    def is_too_new(self) -> bool:
        """It works, but has not yet done enough batches to know what one costs; a cold one says nothing of it."""
        return (len(self._batches) > 0 or not self._cold) and len(self._batches) < LEAST_BATCHES

    def cost(self, *, state_partitions: int, longest_batch_s: float) -> BatchCost | None:
        return fit(self._batches.batches(), state_partitions=state_partitions, longest_batch_s=longest_batch_s)

    def forget_window(self, *, held_back_s: float, now_s: float = 0.0) -> None:
        """After an action: what happened before it says nothing about what is there now."""
        self._marked_s, self._begun_before = now_s, False
        self._records_in = self._records_out = self._busy_s = self._cpu_s = self._other_s = self.heap_bytes = 0.0
        self._latency = _Mean()
        self._core_wait_s = self._spread = None
        self._held_back_s = held_back_s

    def _is_new(self, entry: Mapping[str, Any]) -> bool:
        run, batch = str(entry["runId"]), int(entry["batchId"])
        if run != self._run:
            self._run, self._newest, self._cold = run, -1, True
        if batch <= self._newest or entry["numInputRows"] <= 0:
            return False
        self._newest = batch
        return True

    def _count_late(self, progress: Sequence[Mapping[str, Any]]) -> None:
        """Also of batches without input, and of those before an action: what is lost is lost.

        A look that finds nothing to do has the number of the batch after it: the time of its trigger differs.
        """
        known, self._told = self._told, set()
        for entry in progress:
            key = (str(entry["runId"]), int(entry["batchId"]), str(entry.get("timestamp")))
            self._told.add(key)
            if can_drop(entry) and key not in known:
                self._late = (self._late or 0.0) + dropped_as_late(entry)

    def _useful_s(self, work: Work, core_wait: float | None) -> float:
        """The useful time of a batch: without what its tasks waited for a core."""
        waited_s = 0.0
        if core_wait is not None:
            waited_s = max(0.0, min(work.busy_s - work.cpu_s, work.cpu_s * core_wait))
            self._core_wait_s = (self._core_wait_s or 0.0) + waited_s
        self._busy_s += work.busy_s - waited_s
        self._cpu_s += work.cpu_s
        self._other_s += max(0.0, work.busy_s - waited_s - work.cpu_s)
        self.heap_bytes = max(self.heap_bytes, work.heap_bytes)
        return work.busy_s - waited_s

    def _time(self, entry: Mapping[str, Any]) -> None:
        """A record waits for the batch before its own to end, or for the next trigger: half of that on average."""
        before_s, self._batch_s = self._batch_s, _duration_s(entry)
        latency_s = max(before_s, self.batch_interval_s) / 2 + self._batch_s
        self._latency = self._latency.with_values(latency_s, entry["numInputRows"])

    def _take_latency_s(self, waits_s: float) -> float | None:
        """Of the batches of this window; but what is overdue has waited for so long, and has a batch before it."""
        found, self._latency = self._latency, _Mean()
        known_s = found.mean if found.count > 0 else None
        return max(known_s or 0.0, waits_s + self._batch_s) if waits_s > 0 else known_s

    def _learn(self, entry: Mapping[str, Any], work: Work, useful_s: float, held_back_s: float) -> Batch | None:
        cold, self._cold = self._cold, False
        if cold:  # the first batch of a run starts Python workers and opens state: seconds that say nothing
            return None
        duration_s = _duration_s(entry)
        batch = Batch(
            records=entry["numInputRows"],
            busy_s=useful_s,
            tasks=work.tasks,
            driver_s=max(0.0, duration_s - work.running_s - held_back_s),
            state_partitions=max(
                (int(op["numShufflePartitions"]) for op in entry.get("stateOperators", ())), default=0
            ),
        )
        self._batches.add(batch)
        return batch


def _began_s(entry: Mapping[str, Any]) -> float:
    """As the time of day; in the future where Spark does not tell."""
    begun = entry.get("timestamp")
    return math.inf if begun is None else datetime.fromisoformat(str(begun)).timestamp()


def _duration_s(entry: Mapping[str, Any]) -> float:
    return float(entry["durationMs"].get("triggerExecution", 0)) / 1000
