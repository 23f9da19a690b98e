"""How long batches take on so many cores: tasks are given to cores as Spark does it.

A stage begins when those that it reads have ended; its tasks take any core that is free, those of the batch that
was submitted first before others (Spark's FIFO scheduling, which is the default). Waves of tasks, a longest task,
the critical path over the stages and what queries take from each other all follow from this.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    tasks_s: tuple[float, ...]
    """How long each task takes, in the order in which they are started."""
    after: tuple[int, ...] = ()
    """The stages of this batch that must have ended before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    driver_s: float
    """Before its first stage; what the driver does between and after them is in it, too."""
    stages: tuple[StagePlan, ...]

    @property
    def critical_path_s(self) -> float:
        """What it takes at least, however many cores there are."""
        ends: list[float] = []
        for stage in self.stages:
            begin = max((ends[index] for index in stage.after), default=0.0)
            ends.append(begin + max(stage.tasks_s, default=0.0))
        return self.driver_s + max(ends, default=0.0)


def spread(work_s: float, tasks: int, shape: Sequence[float] = ()) -> tuple[float, ...]:
    """The times of so many tasks that take so long together; `shape` are those that were seen, from the shortest
    to the longest in equal steps, as multiples of their mean.

    The longest is as many times the mean as it was, as that is what a stage waits for; the others share the rest.
    Long and short ones are mixed, as Spark starts tasks in the order of their partitions.
    """
    if tasks < 2 or len(shape) < 2:
        return (work_s / tasks,) * tasks if tasks > 0 else ()
    steps = len(shape) - 1
    longest_s = work_s * min(1.0, max(1.0, shape[-1]) / tasks)
    others = [_between(shape, steps * index / (tasks - 1)) for index in range(tasks - 1)]
    total = sum(others)
    if total <= 0:
        others, total = [1.0] * (tasks - 1), float(tasks - 1)
    found = [min(longest_s, other * (work_s - longest_s) / total) for other in others]
    order = sorted(range(tasks), key=lambda index: (index * _GOLDEN) % 1.0)
    return tuple([*found, longest_s][index] for index in order)


def _between(shape: Sequence[float], place: float) -> float:
    below = min(int(place), len(shape) - 2)
    return shape[below] + (place - below) * (shape[below + 1] - shape[below])


def finish_s(batches: Sequence[BatchPlan], cores: int) -> tuple[float, ...]:
    """When each batch ends, where all are triggered at once and share the cores."""
    if cores < 1:
        raise ValueError(f"cores must be at least 1, found {cores}")
    return _Run(batches, cores).ends()


class _Run:
    def __init__(self, batches: Sequence[BatchPlan], cores: int) -> None:
        self._batches = batches
        self._free = cores
        self._ready: list[tuple[int, int]] = []
        """Stages with tasks that wait, as (batch, stage): the first is served first."""
        self._started = {(b, s): 0 for b, batch in enumerate(batches) for s in range(len(batch.stages))}
        self._left = {
            (b, s): len(stage.tasks_s) for b, batch in enumerate(batches) for s, stage in enumerate(batch.stages)
        }
        self._ended: set[tuple[int, int]] = set()
        self._submitted: set[tuple[int, int]] = set()
        self._events: list[tuple[float, int, int]] = [(batch.driver_s, b, -1) for b, batch in enumerate(batches)]
        self._end_s = [batch.driver_s for batch in batches]

    def ends(self) -> tuple[float, ...]:
        heapq.heapify(self._events)
        while self._events:
            now_s, b, s = heapq.heappop(self._events)
            if s >= 0:
                self._free += 1
                self._task_ended(now_s, b, s)
            else:
                self._submit(now_s, b)
            self._start_tasks(now_s)
        return tuple(self._end_s)

    def _task_ended(self, now_s: float, b: int, s: int) -> None:
        self._left[b, s] -= 1
        if self._left[b, s] == 0:
            self._stage_ended(now_s, b, s)
            self._submit(now_s, b)

    def _stage_ended(self, now_s: float, b: int, s: int) -> None:
        self._ended.add((b, s))
        self._end_s[b] = max(self._end_s[b], now_s)

    def _submit(self, now_s: float, b: int) -> None:
        """The stages of a batch that wait for nothing any more; one without tasks ends at once."""
        for s, stage in enumerate(self._batches[b].stages):
            if (b, s) in self._submitted or any((b, index) not in self._ended for index in stage.after):
                continue
            self._submitted.add((b, s))
            if stage.tasks_s:
                heapq.heappush(self._ready, (b, s))
            else:
                self._stage_ended(now_s, b, s)

    def _start_tasks(self, now_s: float) -> None:
        while self._free and self._ready:
            b, s = self._ready[0]
            tasks_s = self._batches[b].stages[s].tasks_s
            heapq.heappush(self._events, (now_s + tasks_s[self._started[b, s]], b, s))
            self._free -= 1
            self._started[b, s] += 1
            if self._started[b, s] == len(tasks_s):
                heapq.heappop(self._ready)
