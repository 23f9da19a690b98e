"""How much work each batch was: task times from the driver's REST API.

The API gives jobs with the group they belong to, which is the run of a query, and the batch in their description;
and stages with the time that their tasks ran. Useful time is that, less waiting for shuffled data.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastream.engines.spark.rest import RestApi
from elastream.errors import ElastreamError
from elastream.measurement.tasks import QUANTILES, TaskSpread

_BATCH = re.compile(r"batch = (\d+)")
_MOST_REMEMBERED = 2000
_MOST_TASKS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StageWork:
    """An attempt of a stage that has ended."""

    stage: int
    attempt: int
    tasks: int
    records: float
    """That its tasks read together."""

    @property
    def path(self) -> str:
        return f"/stages/{self.stage}/{self.attempt}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of one batch, over all of its stages."""

    busy_s: float
    tasks: int
    """Of the stage with the most tasks: what the operator's work really ran as."""
    running_s: float
    """Time during which some stage ran."""
    stages: tuple[StageWork, ...]
    evenly_s: float
    """How long its stages would take if the tasks of each were all alike."""
    cpu_s: float = 0.0
    """The part of the busy time that a core computed, without that of Python workers."""
    heap_bytes: float = 0.0
    """The most that the heap of an executor held meanwhile, as its heartbeats told; 0 where they did not."""


class Stages:
    """Looks at the REST API and remembers the work of recent batches."""

    def __init__(self, api: RestApi) -> None:
        self._api = api
        self._newest_job = -1
        self._work: OrderedDict[tuple[str, int], Work] = OrderedDict()

    def look(self) -> list[str]:
        """Take in what was finished since the last look; what was missed, as text."""
        jobs = sorted(self._api.get("/jobs"), key=lambda job: int(job["jobId"]))
        stages = {stage["stageId"]: stage for stage in self._api.get("/stages?status=complete")}
        gaps = []
        if jobs and self._newest_job >= 0 and int(jobs[0]["jobId"]) > self._newest_job + 1:
            gaps.append(
                f"jobs {self._newest_job + 1} to {int(jobs[0]['jobId']) - 1} were gone before a look at them"
            )
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for job in jobs:
            batch = _BATCH.search(job.get("description") or "")
            if batch is not None and "jobGroup" in job and job["status"] != "RUNNING":
                key = (job["jobGroup"], int(batch[1]))
                found.setdefault(key, []).extend(stages[s] for s in job["stageIds"] if s in stages)
        for key, parts in found.items():
            if parts:
                self._work[key] = _work(parts)
        while len(self._work) > _MOST_REMEMBERED:
            self._work.popitem(last=False)
        self._newest_job = max((int(job["jobId"]) for job in jobs), default=self._newest_job)
        return gaps

    def work(self, run: str, batch: int) -> Work | None:
        return self._work.get((run, batch))

    def spread(self, work: Work) -> tuple[float, TaskSpread | None]:
        """How evenly the tasks of a batch shared its time, and how the tasks of a stage shared its records.

        The first is the mean task time over the longest, as a stage takes as long as the longest of its tasks. The
        second is of the stage in which most of that time is lost to uneven records: one that costs next to nothing
        may be as uneven as it likes.
        """
        found = [self._spread(stage) for stage in work.stages]
        longest_s = sum(spread.busy_s[-1] for spread in found)
        balance = min(1.0, work.evenly_s / longest_s) if longest_s > 0 else 1.0
        with_records = [spread for spread in found if spread.skew is not None]
        return balance, max(with_records, key=_lost_s, default=None)

    def _spread(self, stage: StageWork) -> TaskSpread:
        summary = self._api.get(f"{stage.path}/taskSummary?quantiles={','.join(map(str, QUANTILES))}")
        return TaskSpread(
            tasks=stage.tasks,
            records_total=stage.records,
            records=_records(summary),
            busy_s=tuple(float(run_ms) / 1000 for run_ms in summary["executorRunTime"]),
        )

    def last_tasks(self, run: str) -> Counter[str]:
        """How many tasks of the newest batch of a run each executor had in its last stage."""
        batches = [batch for known, batch in self._work if known == run]
        if not batches:
            return Counter()
        last = self._work[run, max(batches)].stages[-1]
        try:
            tasks = self._api.get(f"{last.path}/taskList?length={_MOST_TASKS}")
        except ElastreamError:  # so long ago that Spark has forgotten it
            return Counter()
        return Counter(str(task["executorId"]) for task in tasks)


def _lost_s(spread: TaskSpread) -> float:
    """What the longest task would not take, were the records of the stage even."""
    return spread.busy_s[-1] * (1 - 1 / max(1.0, spread.skew or 1.0))


def _work(stages: list[dict[str, Any]]) -> Work:
    stages = sorted(stages, key=lambda stage: (int(stage["stageId"]), int(stage["attemptId"])))
    busy_ms = sum(s["executorRunTime"] - s.get("shuffleFetchWaitTime", 0) for s in stages)
    evenly_ms = sum(s["executorRunTime"] / max(1, s["numCompleteTasks"]) for s in stages)
    return Work(
        busy_s=busy_ms / 1000,
        tasks=max(stage["numCompleteTasks"] for stage in stages),
        running_s=sum(_lasted_s(stage) for stage in stages),
        stages=tuple(
            StageWork(
                stage=stage["stageId"],
                attempt=stage["attemptId"],
                tasks=max(1, stage["numCompleteTasks"]),
                records=max(stage.get("inputRecords", 0), stage.get("shuffleReadRecords", 0)),
            )
            for stage in stages
        ),
        evenly_s=evenly_ms / 1000,
        cpu_s=sum(s.get("executorCpuTime", 0) for s in stages) / 1e9,
        heap_bytes=max((s.get("peakExecutorMetrics") or {}).get("JVMHeapMemory", 0) for s in stages),
    )


def _records(summary: dict[str, Any]) -> tuple[float, ...]:
    """That a task read: from a source, or from the stage before it."""
    read = summary.get("inputMetrics", {}).get("recordsRead", ())
    shuffled = summary.get("shuffleReadMetrics", {}).get("readRecords", ())
    return tuple(max((read, shuffled), key=lambda counts: max(counts, default=0.0)) or (0.0,) * len(QUANTILES))


def _lasted_s(stage: dict[str, Any]) -> float:
    try:
        return (_time(stage["completionTime"]) - _time(stage["submissionTime"])).total_seconds()
    except KeyError:
        return 0.0


def _time(text: str) -> datetime:
    return datetime.strptime(text.replace("GMT", "+0000"), "%Y-%m-%dT%H:%M:%S.%f%z")
