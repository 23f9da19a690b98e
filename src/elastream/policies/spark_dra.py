"""Spark's dynamic allocation of executors, and what SPARK-24815 wanted to make of it for Structured Streaming.

    needed = ceil((running + pending) · allocation ratio / slots of an executor)

Tasks that wait for `scheduler_backlog_timeout_s` add one executor, then 2, 4, 8, ... each
`sustained_backlog_timeout_s`, up to what is needed. An executor that was idle for `executor_idle_timeout_s` goes.

The pull request (42352, closed) also counts the tasks of stages that were not submitted yet, and gives up its
backlog timer only when no stage of any job waits. Idle executors do not go at once: the first look at them arms a
timer; when it has run out, the share `deallocation_ratio` of those that are idle goes, and it is armed again.

Spark looks every 100 ms. Neither reads the trigger interval: a batch that begins makes tasks wait, however much
time there is for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from elastream.measurement import Snapshot
from elastream.measurement.whole_job import TasksNow
from elastream.options import check_bounds, option
from elastream.policies.catalog import policy
from elastream.policies.executors_memory import AllocationMemory
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Proposal
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS, executors_asked_for, no_opinion

_UNLIMITED = 2**31 - 1
_NEEDS = "tasks that run and wait, and for how long executors were idle, every 100 ms"


@policy(
    "spark-24815",
    summary="SPARK-24815's closed pull request: dynamic allocation that removes idle executors by a timer",
    needs=_NEEDS,
    good_for="comparing whole jobs: no Spark has it",
    preset={"by_job": True},
    whole_jobs=True,
)
@policy(
    "spark-dra",
    summary="Spark's dynamic allocation: more executors while tasks wait, fewer when they were idle",
    needs=_NEEDS,
    good_for="comparing whole jobs: to run with it, start Spark with spark.dynamicAllocation.enabled=true",
    whole_jobs=True,
)
@dataclass(frozen=True, kw_only=True)
class SparkDynamicAllocation:
    min_executors: int = option(0, "spark.dynamicAllocation.minExecutors", unit="executors", least=0)
    max_executors: int = option(
        _UNLIMITED,
        "spark.dynamicAllocation.maxExecutors; Spark has no limit by default",
        unit="executors",
        least=1,
    )
    allocation_ratio: float = option(
        1.0, "spark.dynamicAllocation.executorAllocationRatio", unit="share", least=0.01, most=1
    )
    scheduler_backlog_timeout_s: float = option(
        1.0, "spark.dynamicAllocation.schedulerBacklogTimeout", unit="s", least=0
    )
    sustained_backlog_timeout_s: float = option(
        1.0, "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout", unit="s", least=0.001
    )
    executor_idle_timeout_s: float = option(60.0, "spark.dynamicAllocation.executorIdleTimeout", unit="s", least=0)
    by_job: bool = option(False, "as the pull request: stages to come count, and idle executors go by a timer")
    deallocation_ratio: float = option(
        1.0, "of the pull request: the share of the idle executors that goes", unit="share", least=0.01, most=1
    )
    deallocation_timeout_s: float | None = option(
        None, "of the pull request: how often; none is the idle timeout", unit="s", least=0
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def name(self) -> str:
        return "spark-24815" if self.by_job else "spark-dra"

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        if snapshot.job is None:
            return no_opinion(snapshot, self.name, ONLY_WHOLE_JOBS)
        if snapshot.job.tasks is None or knowledge.executors.executors is None:
            return no_opinion(snapshot, self.name, "it looks at tasks every 100 ms, which only Spark itself does")
        wanted, target = knowledge.executors.executors, knowledge.executors.allocation.target
        return executors_asked_for(snapshot, self.name, max(1, wanted), f"{target} are asked for, so {wanted}")

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        if snapshot.job is None or snapshot.job.tasks is None:
            return knowledge
        (name,) = snapshot.dataflow.scalable
        memory, executors = self.look(
            knowledge.executors.allocation,
            snapshot.job.tasks,
            now_s=knowledge.watched_s,
            executors=snapshot.plan[name],
        )
        return replace(knowledge, executors=replace(knowledge.executors, allocation=memory, executors=executors))

    def look(
        self, memory: AllocationMemory, tasks: TasksNow, *, now_s: float, executors: int
    ) -> tuple[AllocationMemory, int]:
        """One of Spark's looks; how many executors there are to be after it."""
        memory = self._timed(memory, tasks, now_s)
        memory = self._asked(memory, tasks, now_s, executors)
        memory, removed = self._removed(memory, tasks, now_s)
        # those that go may not be missed at once
        left = max(executors - removed, min(executors, max(self.min_executors, memory.target)))
        return memory, max(left, memory.target)

    def _timed(self, memory: AllocationMemory, tasks: TasksNow, now_s: float) -> AllocationMemory:
        """The timer of tasks that wait: armed by the first, given up when none waits."""
        if not tasks.pending and not (self.by_job and tasks.to_come):
            return replace(memory, adds_s=None, add=1)
        if memory.adds_s is None and tasks.pending:
            return replace(memory, adds_s=now_s + self.scheduler_backlog_timeout_s)
        return memory

    def _asked(self, memory: AllocationMemory, tasks: TasksNow, now_s: float, executors: int) -> AllocationMemory:
        """The target falls with what is needed; it grows from what is there, were it lower than that."""
        needed = min(self.max_executors, max(self.min_executors, self.needed(tasks)))
        if needed < memory.target:
            return replace(memory, target=needed, add=1)
        if memory.adds_s is None or now_s < memory.adds_s:
            return memory
        target = max(memory.target, min(max(memory.target, executors) + memory.add, needed))
        add = 2 * memory.add if target == memory.target + memory.add else 1
        return replace(memory, target=target, add=add, adds_s=now_s + self.sustained_backlog_timeout_s)

    def needed(self, tasks: TasksNow) -> int:
        counted = tasks.running + tasks.pending + (tasks.to_come if self.by_job else 0)
        return math.ceil(counted * self.allocation_ratio / tasks.slots)

    def _removed(self, memory: AllocationMemory, tasks: TasksNow, now_s: float) -> tuple[AllocationMemory, int]:
        idle = sum(idle_s >= self.executor_idle_timeout_s for idle_s in tasks.idle_s)
        if not self.by_job:
            return memory, idle
        again_s = (
            self.executor_idle_timeout_s if self.deallocation_timeout_s is None else self.deallocation_timeout_s
        )
        if memory.removes_s is None:
            return (replace(memory, removes_s=now_s + again_s) if idle else memory), 0
        if now_s < memory.removes_s or not idle:
            return memory, 0
        return replace(memory, removes_s=now_s + again_s), math.ceil(idle * self.deallocation_ratio)
