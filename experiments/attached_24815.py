"""A job under the rule of SPARK-24815's closed pull request, which no Spark has: for comparing on a real cluster.

    python -m experiments.attached_24815 MOST JOB.PY ARGUMENTS...

A thread beside the job's looks at the tasks and the executors five times a second, where Spark would look ten
times, and asks for as many executors as `elastream.policies.spark_dra` says. Idle ones go as Spark lets them go.
"""

from __future__ import annotations

import logging
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

from elastream.engines.spark.executor_client import ExecutorClient
from elastream.engines.spark.rest import RestApi
from elastream.measurement.whole_job import TasksNow
from elastream.policies.executors_memory import AllocationMemory
from elastream.policies.spark_dra import SparkDynamicAllocation

_EVERY_S = 0.2
_log = logging.getLogger(__name__)


class Looks:
    def __init__(self, spark: Any, most: int) -> None:
        self._client = ExecutorClient(spark)
        self._tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
        self._api = RestApi(str(spark.sparkContext.uiWebUrl), str(spark.sparkContext.applicationId))
        self._policy = SparkDynamicAllocation(by_job=True, max_executors=most)
        self._memory = AllocationMemory()
        self._asked = 0
        self._idle_since_s: dict[str, float] = {}

    def run(self) -> None:
        self._client.request(0)
        while not self._client.is_stopped:
            try:
                self._look(time.monotonic())
            except Exception as error:  # a stage that ended between two calls, or a session that ends
                _log.debug("%s", error)
            time.sleep(_EVERY_S)

    def _look(self, now_s: float) -> None:
        up = self._client.up()
        idle_s = self._idle(up, now_s)
        tasks = self._tasks(tuple(idle_s.values()))
        self._memory, wanted = self._policy.look(self._memory, tasks, now_s=now_s, executors=len(up))
        target = self._memory.target
        if target != self._asked:
            self._client.request(target)
            self._asked = target
        if wanted < len(up):
            longest_first = sorted(idle_s, key=lambda name: -idle_s[name])
            self._client.kill_idle(tuple(longest_first[: len(up) - wanted]))

    def _idle(self, up: tuple[str, ...], now_s: float) -> dict[str, float]:
        """For how long each has had no task."""
        working = {str(one["id"]) for one in self._api.get("/executors") if one["activeTasks"]}
        self._idle_since_s = {name: self._idle_since_s.get(name, now_s) for name in up if name not in working}
        return {name: now_s - since_s for name, since_s in self._idle_since_s.items()}

    def _tasks(self, idle_s: tuple[float, ...]) -> TasksNow:
        active = list(self._tracker.getActiveStageIds())
        infos = [found.get() for stage in active if (found := self._tracker.getStageInfo(stage)).isDefined()]
        running = sum(int(info.numActiveTasks()) for info in infos)
        pending = sum(
            max(0, int(info.numTasks()) - int(info.numActiveTasks()) - int(info.numCompletedTasks()))
            for info in infos
        )
        return TasksNow(running=running, pending=pending, to_come=self._to_come(active), idle_s=idle_s, slots=1)

    def _to_come(self, active: list[int]) -> int:
        total = 0
        for job in self._tracker.getActiveJobIds():
            told = self._tracker.getJobInfo(job)
            for stage in told.get().stageIds() if told.isDefined() else ():
                found = self._tracker.getStageInfo(stage)
                if stage not in active and found.isDefined() and int(found.get().numCompletedTasks()) == 0:
                    total += int(found.get().numTasks())
        return total


def main(most: str, script: str, *arguments: str) -> None:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.Builder
    original = builder.getOrCreate

    def get_or_create(self: Any) -> Any:
        session = original(self)
        builder.getOrCreate = original
        threading.Thread(target=Looks(session, int(most)).run, name="spark-24815", daemon=True).start()
        return session

    builder.getOrCreate = get_or_create
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
