"""What Spark tells of the executors on this machine: an agent beside a worker reads its share of every operator.

The driver's REST API has each task with its executor, and the description of its job begins with the name of the
query, which is the operator's. So of every batch that ended since the last look the tasks that ran here are known,
and by how many of them a batch has here, what one instance did. Which executors are here, and how large their heap
may be, the processes of this machine say.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import psutil

from elastream.agents.fetching import fetched
from elastream.errors import ElastreamError, InvalidInput
from elastream.formats import read_json

_HEAP = re.compile(r"-Xmx(\d+)([kmgKMG])")
_BREAK = re.compile(r"<br/>|\n")
_BYTES = {"k": 2**10, "m": 2**20, "g": 2**30}

Executors = Callable[[str], Mapping[str, int]]
"""Of an application: those that are here, and the most bytes that the heap of each may hold."""


def executors_here(application: str, worker: int | None = None) -> Mapping[str, int]:
    """On this machine, or below the process of one worker."""
    found = {}
    for process in psutil.process_iter() if worker is None else psutil.Process(worker).children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline()
            named = dict(pairwise(words))
            if named.get("--app-id") == application and "--executor-id" in named:
                heap = _HEAP.search(" ".join(words))
                most = int(heap[1]) * _BYTES[heap[2].lower()] if heap else psutil.virtual_memory().total // 4
                found[named["--executor-id"]] = most
    return found


class SparkMetrics:
    """An `EngineMetrics`: utilization, CPU (of the JVM) and heap of the operators, on the executors here."""

    def __init__(
        self,
        url: str,
        operators: Collection[str],
        executors: Executors = executors_here,
        *,
        fetch: Callable[[str], str] = fetched,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url` is that of the driver's page."""
        self._url, self._operators = url.rstrip("/") + "/api/v1/applications", operators
        self._executors, self._fetch, self._steady = executors, fetch, steady
        self._application = ""
        self._seen: frozenset[tuple[int, int]] | None = None
        self._looked_s = 0.0

    def __call__(self) -> Mapping[str, Mapping[str, float]]:
        """Nothing of an operator whose batch under way is the first that ends after the last look."""
        here = self._executors(self._named())
        stages = [stage for stage in self._stages() if _operator(stage) in self._operators]
        ended = [stage for stage in stages if stage["status"] == "COMPLETE"]
        before, self._seen = self._seen, frozenset(map(_key, ended))
        before_s, self._looked_s = self._looked_s, self._steady()
        if before is None or not here:
            return {}
        new = [stage for stage in ended if _key(stage) not in before]
        running = {_operator(stage) for stage in stages if stage["status"] == "ACTIVE"}
        found = {}
        for name in self._operators:
            own = [stage for stage in new if _operator(stage) == name]
            if own:
                found[name] = _of_instance(
                    [self._in_full(stage) for stage in own], here, self._looked_s - before_s
                )
            elif name not in running:
                found[name] = {"utilization": 0.0, "cpu_utilization": 0.0}
        return found

    def _named(self) -> str:
        """The application; a driver that was started again has another."""
        if not self._application:
            match self._ask(""):
                case [{"id": str(name)}, *_]:
                    self._application, self._seen = name, None
                case other:
                    raise InvalidInput(f"{self._url}: Spark's applications were expected, found {other!r:.80}")
        return self._application

    def _stages(self) -> list[Mapping[str, Any]]:
        try:
            return list(self._ask(f"/{self._application}/stages"))
        except ElastreamError:
            self._application = ""
            raise

    def _in_full(self, stage: Mapping[str, Any]) -> Mapping[str, Any]:
        stage_id, attempt = _key(stage)
        return dict(self._ask(f"/{self._application}/stages/{stage_id}/{attempt}"))

    def _ask(self, path: str) -> Any:
        return read_json(self._fetch(self._url + path), self._url + path)


def _key(stage: Mapping[str, Any]) -> tuple[int, int]:
    return stage["stageId"], stage["attemptId"]


def _operator(stage: Mapping[str, Any]) -> str:
    return _BREAK.split(str(stage.get("description", "")), maxsplit=1)[0]


def _of_instance(
    stages: Iterable[Mapping[str, Any]], here: Mapping[str, int], window_s: float
) -> Mapping[str, float]:
    """What one of its instances here did on average; nothing where none of its tasks ran here."""
    ran_ms = cpu_ns = 0.0
    tasks: Counter[str] = Counter()
    """Of each batch, in the stage that has most of them here."""
    heap = 0.0
    for stage in stages:
        own = [task for task in stage["tasks"].values() if task["executorId"] in here]
        tasks[stage["description"]] = max(tasks[stage["description"]], len(own))
        for metrics in (task["taskMetrics"] for task in own if "taskMetrics" in task):
            ran_ms += metrics["executorRunTime"] - metrics["shuffleReadMetrics"]["fetchWaitTime"]
            cpu_ns += metrics["executorCpuTime"]
        for name, told in (stage.get("executorSummary") or {}).items():
            peak = (told.get("peakMemoryMetrics") or {}).get("JVMHeapMemory", 0)
            heap = max(heap, peak / here[name] if name in here else 0.0)
    instances = tasks.total() / max(1, len(tasks))
    if not instances:
        return {}
    found = {
        "utilization": min(100.0, 100 * ran_ms / 1000 / window_s / instances),
        "cpu_utilization": 100 * cpu_ns / 1e9 / window_s / instances,
    }
    return found if not heap else {**found, "heap_utilization": min(100.0, 100 * heap)}
