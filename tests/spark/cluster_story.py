"""Executors come, are killed and go under a running pipeline: an application of its own, on a cluster.

    python cluster_story.py MASTER FOLDER

In the end it prints as JSON what it saw; what the sinks keep is for whoever started it to look at.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from running import Numbers, Running, kept, records, wait_until

from elastream.engines.spark import allocation
from elastream.engines.spark.allocation import Executors
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, session_settings, starting_slots
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session, stop_session

KEYS = 7
EXECUTOR = ExecutorOptions(cores=4, memory="512m")
BATCH_INTERVAL_S = 0.5
_RECORDS_PER_TICK = 4  # a batch has at most as many tasks as records, each with a Python process


def pipeline(folder: Path) -> Pipeline:
    """Four slots to begin with: one for each operator and each sink."""
    numbered = Pipeline("cluster")
    numbered.feed("numbers", schema="id bigint")

    @numbered.operator(reads="numbers")
    def marked(numbers: DataFrame) -> DataFrame:
        return numbers.select("id", (F.col("id") % KEYS).alias("key"))

    @numbered.operator(reads="marked", state_partitions=2, output_mode="update")
    def counts(marked: DataFrame) -> DataFrame:
        return marked.groupBy("key").count()

    numbered.keep("kept_marked", reads="marked", folder=kept(folder, "marked"))
    numbered.keep("kept_counts", reads="counts", folder=kept(folder, "counts"))
    return numbered


class Story:
    def __init__(self, running: Running, executors: Executors, application: str) -> None:
        self.seen: dict[str, object] = {}
        self._running = running
        self._executors = executors
        self._application = application
        self._numbers = Numbers(running, "numbers", per_tick=_RECORDS_PER_TICK)

    def tell(self) -> None:
        with self._numbers:
            self._live()
        self._running.drain()
        self.seen["numbers"] = self._numbers.count

    def _live(self) -> None:
        self._batches()
        runs = self._running.runs()
        self.seen["executors at first"] = len(self._executors.up())
        self.seen["grown"] = self._running.rescale(marked=9).detail  # 12 slots
        self.seen["executors after growing"] = len(self._executors.up())
        self.seen["above all workers"] = self._running.rescale(marked=10).detail
        self._batches()
        self.seen["killed"], self.seen["replacements"] = self._kill_one()
        self._batches()
        self.seen["shrunk"] = self._running.rescale(marked=5).detail  # 8 slots
        told = self._executors.executor_readings()
        self.seen["cores of those that stay"] = [executor.cores for executor in told if not executor.leaving]
        wait_until(lambda: len(self._processes()) == 2, lambda: f"two executors are left of {self._processes()}")
        self._batches()
        self.seen["executors after shrinking"] = len(self._executors.up())
        self.seen["runs changed"] = [name for name, run in self._running.runs().items() if runs[name] != run]

    def _kill_one(self) -> tuple[str, list[str]]:
        up = set(self._executors.up())
        victim, pid = min(self._processes().items())
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: victim not in self._executors.up() and len(self._executors.up()) == len(up),
            lambda: f"{victim} of {up} is replaced, there are {self._executors.up()}",
        )
        return victim, sorted(set(self._executors.up()) - up)

    def _batches(self) -> None:
        """Wait until every query has done two more."""
        before = {name: self._committed(name) for name in self._running.runs()}

        def are_further() -> bool:
            self._running.revive()
            return all(self._committed(name) >= count + 2 for name, count in before.items())

        wait_until(are_further, lambda: f"two batches more than {before}")

    def _committed(self, name: str) -> int:
        commits = (self._running.workspace.checkpoint(name) / "commits").glob("[0-9]*")
        return max((int(path.name) for path in commits), default=-1)

    def _processes(self) -> dict[str, int]:
        """The executors of this application that are running, with their process ids."""
        command = ["ps", "-A", "-ww", "-o", "pid=,args="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        found = {}
        for line in listed.stdout.splitlines():
            pid, program, *words = line.split()
            if program.endswith("java") and self._application in words and "--executor-id" in words:
                found[words[words.index("--executor-id") + 1]] = int(pid)
        return found


def live(
    master: str,
    folder: Path,
    told: Callable[[Running, Executors, str], Story],
    *,
    executor: ExecutorOptions = EXECUTOR,
    **more: str,
) -> dict[str, object]:
    """A story from the beginning to the end of its application; what it saw."""
    allocation._MORE_TIMEOUT_S = 300.0  # a slow machine is not to be taken for a full cluster
    declared = pipeline(folder)
    settings = session_settings(executor, slots=starting_slots(declared))
    # tasks may fail for reasons of their own on a slow machine, which is not to be taken for what is tested
    settings |= {"spark.ui.port": "0", "spark.task.maxFailures": "20", **more}
    spark = start_session("cluster", master=master, settings=settings)
    running = Running(spark, declared, folder)
    running.engine = SparkEngine(
        declared, spark, folder / "run", batch_interval_s=BATCH_INTERVAL_S, executors=executor
    )
    executors = running.engine._allocation
    assert isinstance(executors, Executors)
    try:
        with running:
            story = told(running, executors, spark.sparkContext.applicationId)
            story.tell()
    finally:
        stop_session(spark)
    return story.seen


def check_kept(folder: Path, numbers: int) -> None:
    """Every number has come out once."""
    marked = list(records(FileChannel(kept(folder, "marked"))))
    assert sorted(marked) == [(number, number % KEYS) for number in range(numbers)]
    counts = list(records(FileChannel(kept(folder, "counts"))))
    assert len(set(counts)) == len(counts), "every count only grows"
    assert dict(sorted(counts)) == Counter(number % KEYS for number in range(numbers))


if __name__ == "__main__":
    print(json.dumps(live(sys.argv[1], Path(sys.argv[2]), Story)))
