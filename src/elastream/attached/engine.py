"""An attached job as an engine of the manager: its one operator are the executors, its sources are the queries."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.executors import Holder
from elastream.attached.from_spark import batch_from_progress, profiled, stages_by_batch
from elastream.attached.policy import EXECUTORS, JobSnapshot
from elastream.attached.session import Queries
from elastream.attached.watch import QueryWatch
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.executor_readings import ExecutorMeter, if_told
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import EngineFailed, RescaleOutcome
from elastream.measurement import Reading
from elastream.measurement.whole_job import WholeJob

_log = logging.getLogger(__name__)

_SIZES = 1000
_NO_QUERY = "no query yet"
_BUDGET = 0.01  # of the time that looking at stages may take: it costs the driver as much
_LONGEST_REST_S = 60.0  # between two looks, however long they take: what batches cost may change
_FIRST_BATCHES = 6  # of a query, until which the looks are not held back by it: nothing else is known of it


class AttachedEngine:
    """Every call that fails because Spark does not answer is an ElastreamError, after which the loop goes on; once
    the session is stopped, EngineFailed ends it."""

    def __init__(
        self,
        *,
        queries: Queries,
        holder: Holder,
        get: Callable[[str], Any],
        least: int,
        most: int,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries, self._holder, self._get = queries, holder, get
        self._least, self._most = least, most
        self._now, self._steady = now, steady
        self._meter = ExecutorMeter()
        self._cores = 1
        self._measured_s = steady()
        self._next_look_s = steady()
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_SIZES)
        """When there were how many cores, as far as somebody looked."""
        self.beat_s = steady()
        """When it was last heard of, for the watchdog."""

    def graph(self) -> Dataflow:
        names = [watch.name for watch in self._queries.sized] or [_NO_QUERY]
        sources = [Operator(name=name, source=True) for name in names]
        shared = Operator(name=EXECUTORS, min_parallelism=self._least, max_parallelism=self._most)
        return Dataflow.of([*sources, shared], [(name, EXECUTORS) for name in names])

    def plan(self) -> Plan:
        return Plan({EXECUTORS: max(1, self._spark(self._holder.count))})

    def measure(self) -> JobSnapshot:
        self.beat_s = self._steady()
        self._spark(self._queries.look)
        executors = self._count_executors()
        if self._may_look():
            self._look_at_stages()
        window_s, self._measured_s = self._steady() - self._measured_s, self._steady()
        sized, plan = self._queries.sized, self.plan()
        rates = {watch.name: watch.arriving_per_s() for watch in sized} or {_NO_QUERY: 0.0}
        return JobSnapshot(
            dataflow=self.graph(),
            plan=plan,
            source_rates=rates,
            readings=(_reading(sized, plan[EXECUTORS], self._cores, max(window_s, 0.001)),),
            at_s=self._now(),
            executors=executors,
            notes=tuple(f"{name}: {why}" for name, why in self._queries.left_alone.items()),
            job=WholeJob(batches=tuple(batch for watch in sized for batch in watch.take_ended())),
            loads=tuple(watch.load() for watch in sized),
            cores=self._cores,
            left_alone=dict(self._queries.left_alone),
        )

    def rescale(self, decision: Decision) -> RescaleOutcome:
        began_s, wanted = self._steady(), decision.after[EXECUTORS]
        told = self._spark(lambda: self._holder.change(wanted, self._beat))
        plan = self.plan()
        self._sizes.append((self._now(), plan[EXECUTORS] * self._cores))
        self._measured_s = self._steady()
        grew_short = plan[EXECUTORS] < min(wanted, decision.before[EXECUTORS] + 1)
        return RescaleOutcome(plan=plan, succeeded=not grew_short, took_s=self._steady() - began_s, detail=told)

    def _batch(self, entry: Mapping[str, Any], stages: tuple[StageRun, ...]) -> BatchRun | None:
        """None for one while which the size changed: nobody can tell what it cost on which."""
        batch = batch_from_progress(entry, stages, cores=1)
        begin, end = (cores_at(self._sizes, s) for s in (batch.started_s, batch.started_s + batch.duration_s))
        return replace(batch, cores=end) if begin == end else None

    def _beat(self) -> None:
        self.beat_s = self._steady()

    def _spark(self, call: Callable[[], Any]) -> Any:
        """What the JVM does not answer is told as the port to engines wants it."""
        try:
            if self._holder.is_gone():
                raise EngineFailed("the session was stopped")
            return call()
        except (ElastreamError, EngineFailed):
            raise
        except Exception as error:  # py4j has many, and which one depends on when the JVM went
            if _is_gone(self._holder):
                raise EngineFailed("the session was stopped") from None
            raise ElastreamError(f"Spark does not answer: {_one_line(error)}") from None

    def _count_executors(self) -> tuple[Any, ...]:
        entries: Sequence[Mapping[str, Any]] = self._get("/executors")
        if self._holder.can_change:
            cores = [
                int(entry["totalCores"]) for entry in entries if entry["id"] != "driver" and entry["isActive"]
            ]
            self._cores = max(cores, default=self._cores) or self._cores
        self._sizes.append((self._now(), max(1, self._spark(self._holder.count)) * self._cores))
        return if_told(lambda: self._meter.readings(entries, now_s=self._steady()))

    def _may_look(self) -> bool:
        too_new = any(len(watch.batches) < _FIRST_BATCHES and watch.untold() for watch in self._queries.sized)
        return too_new or self._steady() >= self._next_look_s

    def _look_at_stages(self) -> None:
        began_s = self._steady()
        try:
            stages = stages_by_batch(self._get("/jobs"), self._get("/stages?status=complete"))
            for watch in self._queries.sized:
                known = {
                    number: entry for number, entry in watch.untold().items() if (watch.run, number) in stages
                }
                for number, entry in known.items():
                    batch = self._batch(entry, stages[watch.run, number])
                    if batch is None:
                        watch.forget(number)
                    else:
                        watch.learn(profiled(batch, self._get) if number == max(known) else batch)
        except (LookupError, TypeError, ValueError) as error:
            raise ElastreamError(
                f"Spark's REST API tells something else than expected: {_one_line(error)}"
            ) from None
        finally:
            took_s = self._steady() - began_s
            self._next_look_s = self._steady() + min(_LONGEST_REST_S, took_s / _BUDGET)


def cores_at(sizes: Sequence[tuple[float, int]], at_s: float) -> int:
    """By who looked last before that time, or first of all."""
    before = [cores for seen_s, cores in sizes if seen_s <= at_s]
    return before[-1] if before else sizes[0][1]


def _is_gone(holder: Holder) -> bool:
    try:
        return holder.is_gone()
    except Exception:
        return True


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no text'}"


def _reading(watches: Sequence[QueryWatch], executors: int, cores: int, window_s: float) -> Reading:
    """Of all executors together; rates are those of batches, which need not end with the window."""
    known = [watch for watch in watches if watch.batches]
    busy_s = sum(_busy_share(watch) for watch in known) * window_s / cores
    waiting = [watch.waiting for watch in watches if watch.waiting is not None]
    taken = sum(watch.taken_per_s() for watch in watches) * window_s
    return Reading(
        operator=EXECUTORS,
        instances=executors,
        window_s=window_s,
        useful_s=min(busy_s, executors * window_s),
        records_in=taken,
        records_out=taken,
        backlog=sum(waiting) if waiting else None,
        latency_s=max((watch.batches[-1].duration_s for watch in known), default=None),
    )


def _busy_share(watch: QueryWatch) -> float:
    """Slot seconds each second, of the newest batch."""
    newest = watch.batches[-1]
    return newest.slot_s / max(watch.interval_s, newest.duration_s, 0.001)
