"""A job from outside: what size it needs, by what its driver's REST API tells, and its checkpoint where it can be
read. Nothing of the job is touched.

The API knows jobs and stages, not the driver's own steps, nor what waits at the sources. A batch lasts from the
submission of its first job to the end of its last; what the driver does before and after that is seen only in the
checkpoint, whose offsets tell when a batch was triggered and whose commits when it had ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.bounds import Bound, bound_of
from elastream.attached.from_spark import batch_of, epoch_s, profiled, query_of, stages_by_batch
from elastream.attached.load import QueryLoad
from elastream.attached.sizing import Size, Wanted, fewest, planned
from elastream.attached.watch import Arrival, QueryWatch
from elastream.engines.spark.rest import get_json
from elastream.errors import ElastreamError, InvalidInput

_IDLE = 0.05  # of the time between two batches: less, and one follows the other at once
_LEAST_SPANS = 3
_MOST_PROFILED = 3  # batches of a query whose tasks are asked for at each look
_FIRST_ANSWER_S = 15.0  # by then a driver has answered, if there is one


@dataclass(frozen=True, kw_only=True, slots=True)
class JobAdvice:
    """What is said of a job."""

    application: str
    executors: int
    cores: int
    """Of an executor."""
    local: bool
    """Tasks run in the driver: then there is one executor, and what is sized are its cores."""
    loads: tuple[QueryLoad, ...]
    size: Size | None
    """None while too little is known."""
    bounds: tuple[Bound, ...]
    unknown: tuple[str, ...]
    """Queries of which too few batches were seen."""

    @property
    def had(self) -> int:
        """What is sized: executors, or cores where there is one executor."""
        return self.cores if self.local else self.executors

    @property
    def saves(self) -> float | None:
        """The share of what the job has that it does not need."""
        return None if self.size is None or not self.had else 1 - self.size.executors / self.had


@dataclass
class Outside:
    """Looks at a driver again and again, and remembers its batches."""

    url: str
    latency_s: float | None = None
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    """By the id of the query."""
    get: Callable[[str], Any] = get_json
    watches: dict[str, QueryWatch] = field(default_factory=dict)
    _cores: int = 1
    _executors: int = 0
    _local: bool = False
    _application: str = ""

    def look(self) -> None:
        base = self._base()
        self._count(self.get(f"{base}/executors"))
        jobs = self.get(f"{base}/jobs")
        told = {key: (name, query) for job in jobs if (key := batch_of(job)) for name, query in [query_of(job)]}
        found = stages_by_batch(jobs, self.get(f"{base}/stages?status=complete"))
        for (run, number), stages in sorted(found.items(), key=lambda item: item[0][1]):
            name, query = told[run, number]
            watch = self.watches.setdefault(run, QueryWatch(name=name, run=run, asked_latency_s=self.latency_s))
            if number > watch.newest:
                watch.newest = number
                self._take(watch, query, number, [job for job in jobs if batch_of(job) == (run, number)], stages)
        for watch in self.watches.values():
            watch.interval_s = interval_of(list(watch.batches))
            self._profile(base, watch)

    def _base(self) -> str:
        applications = self.get(f"{self.url.rstrip('/')}/api/v1/applications")
        if not applications:
            raise ElastreamError(f"{self.url}: no application is there")
        self._application = str(applications[0]["id"])
        return f"{self.url.rstrip('/')}/api/v1/applications/{self._application}"

    def _count(self, executors: Sequence[Mapping[str, Any]]) -> None:
        active = [one for one in executors if one["isActive"] and int(one["totalCores"]) > 0]
        of_cluster = [one for one in active if one["id"] != "driver"]
        self._local = not of_cluster and bool(active)
        counted = of_cluster or active
        self._executors = len(counted)
        self._cores = max((int(one["totalCores"]) for one in counted), default=self._cores)

    def _take(
        self,
        watch: QueryWatch,
        query: str,
        number: int,
        jobs: Sequence[Mapping[str, Any]],
        stages: tuple[StageRun, ...],
    ) -> None:
        batch = batch_from_jobs(number, jobs, stages, cores=max(1, self._executors * self._cores))
        if query in self.checkpoints:
            batch = with_checkpoint(batch, self.checkpoints[query])
        watch.arrivals.append(Arrival(started_s=batch.started_s, rows=batch.rows, left=None))
        if number > 0:
            watch.learn(batch)

    def _profile(self, base: str, watch: QueryWatch) -> None:
        """How the tasks of the newest batches shared their time; Spark may have forgotten them."""
        newest = [batch for batch in list(watch.batches)[-_MOST_PROFILED:] if not batch.stages[0].quantiles_s]
        for batch in newest:
            watch.batches[list(watch.batches).index(batch)] = profiled(batch, lambda path: self.get(base + path))

    def advice(self, *, target_utilization: float, most: int | None = None) -> JobAdvice:
        loads = tuple(watch.load() for watch in self.watches.values())
        known = tuple(load for load in loads if load.model is not None)
        unknown = tuple(load.name for load in loads if load.model is None)
        wanted = Wanted(target_utilization=target_utilization)
        cores, had = (1, self._cores) if self._local else (self._cores, self._executors)
        size = None
        if known and not unknown:
            size = fewest(known, wanted, cores=cores, least=1, most=most or max(64, 4 * had))
        bounds = [bound_of(load, planned(load, wanted)) for load in known]
        return JobAdvice(
            application=self._application,
            executors=self._executors,
            cores=self._cores,
            local=self._local,
            loads=known,
            size=size,
            bounds=tuple(bound for bound in bounds if bound is not None),
            unknown=unknown,
        )


def watched(
    outside: Outside,
    *,
    for_s: float,
    every_s: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outside:
    """Looks until the time is over. A driver that has answered may be away for a while; one that never does is an
    error soon, as the address is then most likely wrong."""
    began_s, failed, seen = clock(), None, False
    while True:
        try:
            outside.look()
            seen = True
        except ElastreamError as error:
            failed = error
        left_s = began_s + (for_s if seen else min(for_s, _FIRST_ANSWER_S)) - clock()
        if left_s <= 0:
            break
        wait(min(every_s, left_s))
    if not seen and failed is not None:
        raise failed
    return outside


def batch_from_jobs(
    number: int, jobs: Sequence[Mapping[str, Any]], stages: tuple[StageRun, ...], *, cores: int
) -> BatchRun:
    begin_s = min(epoch_s(job["submissionTime"]) for job in jobs)
    ends = [epoch_s(job["completionTime"]) for job in jobs if "completionTime" in job]
    end_s = max([*ends, *(stage.completed_s for stage in stages)])
    rows = sum(stage.rows_in for stage in stages if not stage.reads_shuffle)
    return BatchRun(
        batch=number, started_s=begin_s, duration_s=end_s - begin_s, rows=rows, cores=cores, stages=stages
    )


def with_checkpoint(batch: BatchRun, folder: Path) -> BatchRun:
    """With when it was really triggered and committed; as it is where its files are not there (any more)."""
    try:
        lines = (folder / "offsets" / str(batch.batch)).read_text(encoding="utf-8").splitlines()
        begin_s = float(json.loads(lines[1])["batchTimestampMs"]) / 1000
        end_s = (folder / "commits" / str(batch.batch)).stat().st_mtime
    except (OSError, ValueError, LookupError, TypeError):
        return batch
    if not begin_s <= batch.started_s <= end_s:  # of another run, or by another clock
        return batch
    return replace(batch, started_s=begin_s, duration_s=end_s - begin_s)


def checkpoints_in(folders: Sequence[Path]) -> dict[str, Path]:
    """By the id of their query, which Spark writes into them."""
    found = {}
    for folder in folders:
        try:
            found[str(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])] = folder
        except (OSError, ValueError, LookupError) as error:
            raise InvalidInput(
                f"--checkpoint {folder}: expected the checkpoint of a query, with a file metadata: {error}"
            ) from None
    return found


def interval_of(batches: Sequence[BatchRun]) -> float:
    """The trigger interval by when batches began; 0 where one follows the other at once."""
    spans = [
        (after.started_s - before.started_s, before.duration_s)
        for before, after in pairwise(batches)
        if after.batch == before.batch + 1
    ]
    waiting = [span_s for span_s, took_s in spans if span_s > took_s * (1 + _IDLE)]
    if len(waiting) < _LEAST_SPANS or 2 * len(waiting) < len(spans):
        return 0.0
    return median(waiting)
