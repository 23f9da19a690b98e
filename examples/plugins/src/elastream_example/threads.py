"""An engine: one operator, whose instances are threads of this process, and a source that brings it work.

    {"name": "thumbnails", "per_s": 60, "cost_s": 0.05}

is a job for it: 60 pieces of work arrive every second, and each keeps a thread busy for 0.05 s.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elastream import (
    Dataflow,
    Decision,
    InvalidInput,
    Operator,
    Plan,
    Reading,
    RescaleOutcome,
    Snapshot,
    option,
)

SOURCE, WORK = "arrivals", "work"


@dataclass(frozen=True, kw_only=True)
class Threads:
    """The kind of engine: its fields are its options, and it reads jobs."""

    most: int = option(8, "threads that the work may have", unit="threads", least=1)

    def read(self, target: Path) -> ThreadsJob:
        try:
            found = json.loads(Path(target).read_text(encoding="utf-8"))
            name, per_s, cost_s = str(found["name"]), float(found["per_s"]), float(found["cost_s"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"{target}: JSON with name, per_s and cost_s expected, found {error!r}") from None
        return ThreadsJob(name=name, per_s=per_s, cost_s=cost_s, most=self.most)


@dataclass(frozen=True, kw_only=True)
class ThreadsJob:
    """What was read, and is not started yet."""

    name: str
    per_s: float
    cost_s: float
    most: int

    def graph(self) -> Dataflow:
        return Dataflow.of(
            [Operator(name=SOURCE, source=True), Operator(name=WORK, max_parallelism=self.most)], [(SOURCE, WORK)]
        )

    @contextmanager
    def running(self, folder: Path) -> Iterator[ThreadsEngine]:
        engine = ThreadsEngine(self)
        try:
            yield engine
        finally:
            engine.stop()


@dataclass(eq=False)
class Worker:
    """An instance: what it did since it was last asked."""

    useful_s: float = 0.0
    records: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


class ThreadsEngine:
    """What the manager is given: graph, plan, measure and rescale."""

    def __init__(self, job: ThreadsJob) -> None:
        self._job = job
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._arrived = 0
        self._workers: list[Worker] = []
        self._ended = threading.Event()
        threading.Thread(target=self._bring, daemon=True).start()
        self._resize(1)

    def stop(self) -> None:
        self._ended.set()
        self._resize(0)

    # the port

    def graph(self) -> Dataflow:
        return self._job.graph()

    def plan(self) -> Plan:
        return Plan({WORK: len(self._workers)})

    def measure(self) -> Snapshot:
        window_s = time.monotonic() - self._marked_s
        readings = [
            Reading(
                operator=WORK,
                instance=number,
                window_s=window_s,
                useful_s=min(worker.useful_s, window_s),  # what it began in the window before counts when it ends
                records_in=worker.records,
                records_out=worker.records,
                backlog=self._waiting.qsize() / len(self._workers),
            )
            for number, worker in enumerate(self._workers)
        ]
        arrived = self._arrived
        self._mark()
        return Snapshot(
            dataflow=self.graph(),
            plan=self.plan(),
            source_rates={SOURCE: arrived / window_s},
            readings=tuple(readings),
            at_s=time.time(),
        )

    def rescale(self, decision: Decision) -> RescaleOutcome:
        began_s = time.monotonic()
        self._resize(decision.after[WORK])
        return RescaleOutcome(plan=self.plan(), succeeded=True, took_s=time.monotonic() - began_s)

    # its threads

    def _resize(self, wanted: int) -> None:
        for worker in self._workers[wanted:]:
            worker.ended.set()
        new = [Worker() for _ in range(wanted - len(self._workers))]
        self._workers = [*self._workers[:wanted], *new]
        for worker in new:
            threading.Thread(target=self._work, args=(worker,), daemon=True).start()
        self._mark()

    def _mark(self) -> None:
        """A window begins, as after every measurement and after every action."""
        self._marked_s, self._arrived = time.monotonic(), 0
        for worker in self._workers:
            worker.useful_s, worker.records = 0.0, 0

    def _bring(self) -> None:
        began_s, brought = time.monotonic(), 0
        while not self._ended.wait(0.02):
            due = int((time.monotonic() - began_s) * self._job.per_s)
            for number in range(brought, due):
                self._waiting.put(number)
            self._arrived += due - brought
            brought = due

    def _work(self, worker: Worker) -> None:
        while not worker.ended.is_set():
            try:
                self._waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            began_s = time.monotonic()
            time.sleep(self._job.cost_s)  # the work
            worker.useful_s += time.monotonic() - began_s
            worker.records += 1
