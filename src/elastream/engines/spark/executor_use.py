"""What the processes that run tasks use of the machine: the cores that Python workers take, and the heap.

Spark tells the core time of every task, without that of the Python worker that it waits for. Where the tasks run
in the driver's own process (`--master local[...]`), its Python workers are processes below it, and Linux counts
what they use. It does not say for which operator: it is shared among them by the time in which their tasks ran
while the JVM computed nothing. Elsewhere, or on another system, the core time is that of the JVM alone.

The heap is that of the driver, or on a cluster the most that executors told of with their heartbeats.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from elastream.engines.spark.executors import is_local, memory_mib

_MIB = 1024 * 1024


class PythonCores:
    """Core time of the processes below one process, which must be on this machine."""

    def __init__(self, process: int, *, proc: Path = Path("/proc"), ticks_per_s: float | None = None) -> None:
        self._process = process
        self._proc = proc
        self._ticks_per_s = os.sysconf("SC_CLK_TCK") if ticks_per_s is None else ticks_per_s
        self._seen_s = self._count_s()

    def look(self) -> float:
        """Seconds since the last look."""
        before_s, self._seen_s = self._seen_s, self._count_s()
        return max(0.0, self._seen_s - before_s)

    def _count_s(self) -> float:
        parents = {process: (parent, ticks) for process, parent, ticks in self._processes()}
        return sum(ticks for process, (_, ticks) in parents.items() if self._is_below(process, parents)) / (
            self._ticks_per_s
        )

    def _is_below(self, process: int, parents: dict[int, tuple[int, int]]) -> bool:
        while process in parents:
            process = parents[process][0]
            if process == self._process:
                return True
        return False

    def _processes(self) -> Iterator[tuple[int, int, int]]:
        """Number, parent, and ticks with those of children that have ended."""
        for path in self._proc.glob("[0-9]*/stat"):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has ended
                continue
            # the name may have spaces and brackets: what counts comes after the last one
            fields = text.rpartition(")")[2].split()
            if len(fields) > 14:
                yield int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15]))


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
