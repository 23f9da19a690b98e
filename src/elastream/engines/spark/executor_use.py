"""What the processes that run tasks use of the machine: the cores that Python workers take, and the heap.

Spark tells the core time of every task, without that of the Python worker that it waits for. Where the tasks run
in the driver's own process (`--master local[...]`), its Python workers are processes below it, and the system
counts what they use. It does not say for which operator: it is shared among them by the time in which their tasks
ran while the JVM computed nothing. On a cluster the core time is that of the JVM alone.

The heap is that of the driver, or on a cluster the most that executors told of with their heartbeats.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil
from pyspark.sql import SparkSession

from elastream.engines.spark.executors import is_local, memory_mib

_MIB = 1024 * 1024


class PythonCores:
    """Core time of the processes below one process, which must be on this machine."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._seen_s = self._count_s()

    def look(self) -> float:
        """Seconds since the last look."""
        before_s, self._seen_s = self._seen_s, self._count_s()
        return max(0.0, self._seen_s - before_s)

    def _count_s(self) -> float:
        """With the time of those that have ended, which the one above them counts once it has waited for them."""
        counted_s = 0.0
        for below in psutil.Process(self._process).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                counted_s += sum(below.cpu_times()[:4])
        return counted_s


class Heap:
    def __init__(self, spark: SparkSession, executor_memory: str) -> None:
        self._memory: Any = None
        self._most_bytes = memory_mib(executor_memory) * _MIB
        if is_local(str(spark.sparkContext.master)):
            jvm: Any = spark.sparkContext._jvm
            self._memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()

    def utilization(self, told_bytes: float) -> float | None:
        """Of the heap now, or of what executors told; none where they did not."""
        if self._memory is not None:
            usage = self._memory.getHeapMemoryUsage()
            return float(usage.getUsed()) / float(usage.getMax())
        return min(1.0, told_bytes / self._most_bytes) if told_bytes > 0 else None


def python_cores(spark: SparkSession) -> PythonCores | None:
    if not is_local(str(spark.sparkContext.master)):
        return None
    jvm: Any = spark.sparkContext._jvm
    return PythonCores(int(jvm.java.lang.ProcessHandle.current().pid()))
