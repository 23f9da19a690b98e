"""From what Spark tells of a step's batches to the readings of its instances and to what a batch costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastream.engines.spark.query import Written
from elastream.engines.spark.stages import Stages, Work
from elastream.monitor import Reading
from elastream.monitor.batch_cost import LEAST_BATCHES, Batch, BatchCost, BatchMemory, fit

_NOTHING = Written(records=0, held_back_s=0.0)


@dataclass
class StepMeter:
    """What is remembered of one step's batches from one measurement to the next."""

    name: str
    _run: str = ""
    _newest: int = -1
    _cold: bool = True
    _held_back_s: float = 0.0
    _records_in: float = 0.0
    _records_out: float = 0.0
    _busy_s: float = 0.0
    _batches: BatchMemory = field(default_factory=BatchMemory)

    def take(self, progress: Iterable[Mapping[str, Any]], written: dict[int, Written], stages: Stages) -> None:
        """Take in the batches that ended since the last time, each with what it put out."""
        latest: tuple[Batch, Work] | None = None
        for entry in progress:
            # also of a batch without input: a watermark that moved on may have let results out
            what = written.pop(int(entry["batchId"]), _NOTHING)
            self._records_out += what.records
            if not self._is_new(entry):
                continue
            self._records_in += entry["numInputRows"]
            work = stages.work(str(entry["runId"]), int(entry["batchId"]))
            if work is not None:
                self._busy_s += work.busy_s
                batch = self._learn(entry, work, what.held_back_s)
                latest = latest if batch is None else (batch, work)
        if latest is not None:
            longest_s = stages.longest_task_s(latest[1])
            self._batches.replace_newest(replace(latest[0], longest_task_s=longest_s))

    def readings(self, *, window_s: float, instances: int, backlog: float, held_back_s: float) -> list[Reading]:
        """What happened since the last call, shared evenly: Spark's tasks are no lasting instances.

        A batch is known when it has ended. Of one that was longer than the window, the part that fits is told of
        now and the rest the next time, records and time alike: the rates are then right in both.
        """
        share = min(1.0, instances * window_s / self._busy_s) if self._busy_s > 0 else 1.0
        useful_s, self._busy_s = self._busy_s * share / instances, self._busy_s * (1 - share)
        records_in, self._records_in = self._records_in * share / instances, self._records_in * (1 - share)
        records_out, self._records_out = self._records_out * share / instances, self._records_out * (1 - share)
        held_s, self._held_back_s = min(window_s, held_back_s - self._held_back_s), held_back_s
        return [
            Reading(
                operator=self.name,
                instance=index,
                window_s=window_s,
                useful_s=useful_s,
                records_in=records_in,
                records_out=records_out,
                backlog=backlog / instances,
                wait_out_s=held_s,
                wait_in_s=max(0.0, window_s - useful_s - held_s),
            )
            for index in range(instances)
        ]

    @property
    def is_too_new(self) -> bool:
        """It works, but has not yet done enough batches to know what one costs."""
        return 0 < len(self._batches) < LEAST_BATCHES

    def cost(self, *, state_partitions: int, longest_batch_s: float) -> BatchCost | None:
        return fit(self._batches.batches(), state_partitions=state_partitions, longest_batch_s=longest_batch_s)

    def forget_window(self, *, held_back_s: float) -> None:
        """After an action: what happened before it says nothing about what is there now."""
        self._records_in = self._records_out = self._busy_s = 0.0
        self._held_back_s = held_back_s

    def _is_new(self, entry: Mapping[str, Any]) -> bool:
        run, batch = str(entry["runId"]), int(entry["batchId"])
        if run != self._run:
            self._run, self._newest, self._cold = run, -1, True
        if batch <= self._newest or entry["numInputRows"] <= 0:
            return False
        self._newest = batch
        return True

    def _learn(self, entry: Mapping[str, Any], work: Work, held_back_s: float) -> Batch | None:
        cold, self._cold = self._cold, False
        if cold:  # the first batch of a run starts Python workers and opens state: seconds that say nothing
            return None
        duration_s = entry["durationMs"].get("triggerExecution", 0) / 1000
        batch = Batch(
            records=entry["numInputRows"],
            busy_s=work.busy_s,
            tasks=work.tasks,
            driver_s=max(0.0, duration_s - work.running_s - held_back_s),
            state_partitions=max(
                (int(op["numShufflePartitions"]) for op in entry.get("stateOperators", ())), default=0
            ),
        )
        self._batches.add(batch)
        return batch
