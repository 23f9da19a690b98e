"""From what Spark's REST API tells of executors (`/executors`) to readings of them.

Where tasks run in the driver's process it is the one executor, with as many cores as the master has threads. Spark
does not tell how long its tasks ran (only how long the driver has been up): they are those of all operators. On a
cluster the driver is in the list as well, without a core, and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from math import fsum
from typing import Any

from elastream.errors import ElastreamError
from elastream.measurement import Reading
from elastream.measurement.executor import ExecutorReading

_DRIVER = "driver"


def if_told(read: Callable[[], tuple[ExecutorReading, ...]]) -> tuple[ExecutorReading, ...]:
    """Nothing where Spark does not answer, or not as expected: nothing but what is shown depends on them."""
    try:
        return read()
    except (ElastreamError, LookupError, TypeError, ValueError):
        return ()


def alone_with(readings: Iterable[Reading], executors: tuple[ExecutorReading, ...]) -> tuple[ExecutorReading, ...]:
    """An executor that is the only one was busy with all that the instances did, if nothing better is known."""
    if len(executors) != 1 or executors[0].busy_cores is not None:
        return executors
    busy = fsum(
        (found.useful_s + (found.wait_core_s or 0.0)) / found.window_s for found in readings if found.window_s
    )
    return (replace(executors[0], busy_cores=min(float(executors[0].cores), busy)),)


class ExecutorMeter:
    """Remembers how long the tasks of each executor ran, to tell how many of its slots were busy since then."""

    def __init__(self) -> None:
        self._looked_s: float | None = None
        self._ran_s: dict[str, float] = {}

    def readings(
        self, entries: Iterable[Mapping[str, Any]], *, now_s: float, taking_tasks: Container[str] | None = None
    ) -> tuple[ExecutorReading, ...]:
        """`taking_tasks` are those that Spark gives tasks to; one that is not among them is on its way out."""
        present = [entry for entry in entries if entry["isActive"] and entry["totalCores"] > 0 and _host(entry)]
        since_s = None if self._looked_s is None else now_s - self._looked_s
        found = tuple(self._reading(entry, since_s, taking_tasks) for entry in present)
        self._looked_s = now_s
        self._ran_s = {str(entry["id"]): _ran_s(entry) for entry in present}
        return found

    def _reading(
        self, entry: Mapping[str, Any], since_s: float | None, taking_tasks: Container[str] | None
    ) -> ExecutorReading:
        name = str(entry["id"])
        return ExecutorReading(
            id=name,
            host=_host(entry),
            cores=int(entry["totalCores"]),
            processors=_own_processors() if name == _DRIVER else None,
            active_tasks=int(entry["activeTasks"]),
            busy_cores=self._busy_cores(entry, since_s),
            memory_used_bytes=_amount(entry.get("memoryUsed")),
            memory_bytes=_amount(entry.get("maxMemory")),
            # told with heartbeats: nothing, or a zero, before the first
            peak_heap_bytes=_amount((entry.get("peakMemoryMetrics") or {}).get("JVMHeapMemory")) or None,
            leaving=taking_tasks is not None and name not in taking_tasks,
        )

    def _busy_cores(self, entry: Mapping[str, Any], since_s: float | None) -> float | None:
        """A task is counted when it has ended: one that began long ago may be more than there was time for."""
        if not since_s or since_s < 0 or entry["id"] == _DRIVER:
            return None
        ran_s = _ran_s(entry) - self._ran_s.get(str(entry["id"]), 0.0)
        return min(float(entry["totalCores"]), max(0.0, ran_s / since_s))


def _own_processors() -> int | None:
    """Of this machine, which is the driver's, too."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _host(entry: Mapping[str, Any]) -> str:
    """Nothing for one that is only about to come."""
    return str(entry["hostPort"]).rpartition(":")[0]


def _ran_s(entry: Mapping[str, Any]) -> float:
    return float(entry["totalDuration"]) / 1000


def _amount(value: Any) -> float | None:
    return None if value is None else float(value)
