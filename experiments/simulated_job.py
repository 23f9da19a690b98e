"""A Structured Streaming job as a model: batches of stages of tasks on executors that come and go.

A batch takes all rows that came since the one before it, is planned by the driver, and runs its stages one after
another. Tasks go to the executors with the most free slots, as Spark spreads them. An executor that is asked for
comes after `start_s`, and cannot be called back before that. A batch that takes longer than the interval is
followed by the next one at once.

Time is simulated. Whoever decides (`Decider`) looks every so often and asks for executors; those that go are idle.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from elastream.arrivals.load import Load
from elastream.attached.batch import BatchRun, StageRun
from elastream.measurement.whole_job import TasksNow


@dataclass(frozen=True, kw_only=True)
class StageModel:
    tasks: int
    per_row_s: float
    per_task_s: float


@dataclass(frozen=True, kw_only=True)
class JobModel:
    load: Load
    """In rows."""
    interval_s: float
    stages: tuple[StageModel, ...]
    driver_s: float
    cores: int
    """Of an executor."""
    most: int
    """Executors that there may be."""
    initial: int
    start_s: float
    noise: float = 0.05
    """The relative standard deviation of the time of a task."""
    seed: int = 0


class Decider(Protocol):
    """Who asks for executors."""

    every_s: float

    def look(self, job: SimulatedJob) -> None: ...


@dataclass
class _Executor:
    free: int
    idle_since_s: float


@dataclass
class _Batch:
    number: int
    started_s: float
    rows: float
    cores: int
    stages: list[StageRun] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)
    """Times of tasks of the present stage that wait for a slot."""
    running: int = 0
    submitted_s: float = 0.0
    slot_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class JobMeasures:
    executor_s: float
    """From when they were asked for."""
    batches: int
    late: int
    """Batches that took longer than the interval."""
    late_s: float
    """The time in which such batches ran."""
    came_and_went: int
    duration_s: float

    @property
    def late_share(self) -> float:
        return self.late_s / self.duration_s


class SimulatedJob:
    def __init__(self, model: JobModel) -> None:
        self.model = model
        self.now_s = 0.0
        self._ended: list[BatchRun] = []
        self._chance = random.Random(model.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._executors = {
            number: _Executor(free=model.cores, idle_since_s=0.0) for number in range(model.initial)
        }
        self._names = count(model.initial)
        self._coming = 0
        self._batch: _Batch | None = None
        self._numbers = count()
        self._taken_until_s = -model.interval_s
        self._executor_s = self._late_s = self._counted_s = 0.0
        self._batches = self._late = self._came_and_went = 0
        self._at(0.0, self._trigger)

    # What can be seen

    @property
    def up(self) -> int:
        return len(self._executors)

    @property
    def asked_for(self) -> int:
        return self.up + self._coming

    def tasks(self) -> TasksNow:
        batch, left = self._batch, 0
        if batch is not None:
            left = sum(stage.tasks for stage in self.model.stages[len(batch.stages) + 1 :])
            if not batch.running and not batch.pending:  # the driver plans, and no job runs
                left = 0
        idle = [self.now_s - one.idle_since_s for one in self._executors.values() if one.free == self.model.cores]
        return TasksNow(
            running=0 if batch is None else batch.running,
            pending=0 if batch is None else len(batch.pending),
            to_come=left,
            idle_s=tuple(idle),
            slots=self.model.cores,
        )

    def take_ended(self) -> list[BatchRun]:
        """The batches since this was asked last, as Spark tells of them."""
        taken, self._ended = self._ended, []
        return taken

    @property
    def works(self) -> bool:
        """Whether a batch runs."""
        return self._batch is not None

    def measures(self) -> JobMeasures:
        self._count()
        return JobMeasures(
            executor_s=self._executor_s,
            batches=self._batches,
            late=self._late,
            late_s=self._late_s,
            came_and_went=self._came_and_went,
            duration_s=self.now_s,
        )

    # What can be done

    def ask_for(self, executors: int, *, idle_for_s: float = 0.0) -> None:
        """Those that go are the ones that were idle for the longest, and for so long at least."""
        self._count()
        wanted = min(executors, self.model.most)
        for _ in range(max(0, wanted - self.asked_for)):
            self._coming += 1
            self._came_and_went += 1
            self._at(self.now_s + self.model.start_s, self._come)
        idle = sorted(
            (one.idle_since_s, name)
            for name, one in self._executors.items()
            if one.free == self.model.cores and self.now_s - one.idle_since_s >= idle_for_s
        )
        for _, name in idle[: max(0, self.up - wanted)]:
            del self._executors[name]
            self._came_and_went += 1

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Until then, or until something that is waited for has happened."""
        while self._events and self._events[0][0] <= until_s and not stop():
            self.now_s, _, happen = heapq.heappop(self._events)
            happen()
        if not stop():
            self.now_s = max(self.now_s, until_s)

    # What happens

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), happen))

    def _count(self) -> None:
        self._executor_s += self.asked_for * (self.now_s - self._counted_s)
        self._counted_s = self.now_s

    def _come(self) -> None:
        self._count()
        self._coming -= 1
        self._executors[next(self._names)] = _Executor(free=self.model.cores, idle_since_s=self.now_s)
        self._start_tasks()

    def _trigger(self) -> None:
        model, now_s = self.model, self.now_s
        rows = model.load.rate_at(max(0.0, (self._taken_until_s + now_s) / 2)) * (now_s - self._taken_until_s)
        self._taken_until_s = now_s
        cores = self.up * model.cores
        self._batch = _Batch(number=next(self._numbers), started_s=now_s, rows=rows, cores=cores)
        self._at(now_s + model.driver_s, self._submit)

    def _submit(self) -> None:
        batch = self._batch
        assert batch is not None
        stage = self.model.stages[len(batch.stages)]
        each_s = stage.per_task_s + stage.per_row_s * batch.rows / stage.tasks
        batch.pending = [each_s * max(0.1, self._chance.gauss(1.0, self.model.noise)) for _ in range(stage.tasks)]
        batch.submitted_s, batch.slot_s = self.now_s, sum(batch.pending)
        self._start_tasks()

    def _start_tasks(self) -> None:
        batch = self._batch
        while batch is not None and batch.pending:
            free = max((one.free for one in self._executors.values()), default=0)
            if not free:
                return
            most_free = [name for name, one in self._executors.items() if one.free == free]
            name = self._chance.choice(most_free)
            self._executors[name].free -= 1
            batch.running += 1
            self._at(self.now_s + batch.pending.pop(), lambda name=name: self._task_ended(name))  # type: ignore[misc]

    def _task_ended(self, name: int) -> None:
        batch, executor = self._batch, self._executors[name]
        assert batch is not None
        executor.free += 1
        if executor.free == self.model.cores:
            executor.idle_since_s = self.now_s
        batch.running -= 1
        if batch.pending:
            self._start_tasks()
        elif not batch.running:
            self._stage_ended(batch)

    def _stage_ended(self, batch: _Batch) -> None:
        index = len(batch.stages)
        batch.stages.append(
            StageRun(
                tasks=self.model.stages[index].tasks,
                slot_s=batch.slot_s,
                submitted_s=batch.submitted_s,
                completed_s=self.now_s,
                cpu_s=batch.slot_s,
                reads_shuffle=index > 0,
                writes_shuffle=index < len(self.model.stages) - 1,
            )
        )
        if len(batch.stages) < len(self.model.stages):
            self._submit()
        else:
            self._batch_ended(batch)

    def _batch_ended(self, batch: _Batch) -> None:
        took_s, interval_s = self.now_s - batch.started_s, self.model.interval_s
        self._batches += 1
        if took_s > interval_s:
            self._late, self._late_s = self._late + 1, self._late_s + took_s
        self._ended.append(
            BatchRun(
                batch=batch.number,
                started_s=batch.started_s,
                duration_s=took_s,
                rows=batch.rows,
                # what it cost on cores that changed meanwhile nobody can tell
                cores=batch.cores if self.up * self.model.cores == batch.cores else 0,
                stages=tuple(batch.stages),
            )
        )
        self._batch = None
        next_s = (batch.started_s // interval_s + 1) * interval_s
        self._at(max(self.now_s, next_s), self._trigger)


def run_with(job: SimulatedJob, decider: Decider, duration_s: float) -> JobMeasures:
    while job.now_s < duration_s:
        job.run(min(job.now_s + decider.every_s, duration_s))
        decider.look(job)
    return job.measures()
