"""From what Spark tells of a step's batches to the readings of its instances and to what a batch costs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastream.engines.spark.stages import Stages, Work
from elastream.monitor import Reading
from elastream.monitor.batch_cost import LEAST_BATCHES, Batch, BatchCost, fit

_BATCHES_KEPT = 40


@dataclass
class StepMeter:
    """What is remembered of one step's batches from one measurement to the next."""

    name: str
    reads: Sequence[str]
    done: dict[str, int] = field(default_factory=dict)
    """Of each channel that it reads: records up to the end of its last batch."""
    _run: str = ""
    _newest: int = -1
    _cold: bool = True
    _held_back_s: float = 0.0
    _records_in: float = 0.0
    _records_out: float = 0.0
    _busy_s: float = 0.0
    _batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))

    def take(self, progress: Iterable[Mapping[str, Any]], outputs: dict[int, int], stages: Stages) -> None:
        """Take in the batches that ended since the last time, each with what it put out."""
        latest: Work | None = None
        for entry in progress:
            if not self._is_new(entry):
                continue
            work = stages.work(str(entry["runId"]), int(entry["batchId"]))
            self._records_in += entry["numInputRows"]
            self._records_out += outputs.pop(int(entry["batchId"]), 0)
            self.done = {
                channel: int(_record(source["endOffset"]))
                for channel, source in zip(self.reads, entry["sources"], strict=False)
            }
            if work is not None:
                latest = work
                self._busy_s += work.busy_s
                self._learn(entry, work)
        if latest is not None and self._batches:
            self._batches[-1] = _with_longest(self._batches[-1], stages.longest_task_s(latest))

    def readings(self, *, window_s: float, instances: int, backlog: float, held_back_s: float) -> list[Reading]:
        """What happened since the last call, shared evenly: Spark's tasks are no lasting instances."""
        records_in, self._records_in = self._records_in / instances, 0.0
        useful_s, self._busy_s = min(window_s, self._busy_s / instances), 0.0
        held_s, self._held_back_s = min(window_s, held_back_s - self._held_back_s), held_back_s
        records_out, self._records_out = self._records_out / instances, 0.0
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
        return fit(tuple(self._batches), state_partitions=state_partitions, longest_batch_s=longest_batch_s)

    def forget_window(self) -> None:
        """After an action: what happened before it says nothing about what is there now."""
        self._records_in = self._records_out = self._busy_s = 0.0

    def _is_new(self, entry: Mapping[str, Any]) -> bool:
        run, batch = str(entry["runId"]), int(entry["batchId"])
        if run != self._run:
            self._run, self._newest, self._cold = run, -1, True
        if batch <= self._newest or entry["numInputRows"] <= 0:
            return False
        self._newest = batch
        return True

    def _learn(self, entry: Mapping[str, Any], work: Work) -> None:
        cold, self._cold = self._cold, False
        if cold:  # the first batch of a run starts Python workers and opens state: seconds that say nothing
            return
        duration_s = entry["durationMs"].get("triggerExecution", 0) / 1000
        self._batches.append(
            Batch(
                records=entry["numInputRows"],
                busy_s=work.busy_s,
                tasks=work.tasks,
                driver_s=max(0.0, duration_s - work.running_s),
            )
        )


def _with_longest(batch: Batch, longest_task_s: float) -> Batch:
    return Batch(
        records=batch.records,
        busy_s=batch.busy_s,
        tasks=batch.tasks,
        driver_s=batch.driver_s,
        longest_task_s=longest_task_s,
    )


def _record(offset: Any) -> int:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return int(found["record"])
