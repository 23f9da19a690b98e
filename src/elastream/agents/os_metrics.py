"""What the operating system knows of a machine, or of one process on it and the processes that it started.

Shares are of what may be used: the CPU utilization of a process is that of the cores it may run on, so that one
which is bound to two cores and fills them is at 100 %, however many the machine has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from elastream.errors import InvalidInput

_OPEN_FILES = Path("/proc/sys/fs/file-nr")  # of the whole machine; only Linux counts them


class MachineMetrics:
    """Of the whole machine."""

    def __init__(self, disk: Path) -> None:
        self._disk = _existing(disk)
        psutil.cpu_percent()  # it tells what happened since the call before, so there has to be one

    def readers(self) -> Mapping[str, Callable[[], float]]:
        found: dict[str, Callable[[], float]] = {
            "cpu_utilization": psutil.cpu_percent,
            "memory_utilization": lambda: psutil.virtual_memory().percent,
            "disk_utilization": lambda: psutil.disk_usage(str(self._disk)).percent,
        }
        if _OPEN_FILES.exists():
            found["open_files"] = lambda: float(_OPEN_FILES.read_text().split()[0])
        return found


class ProcessMetrics:
    """Of one process and its children; of a process that has ended there is nothing to read."""

    def __init__(self, pid: int, disk: Path, cores: float | None = None) -> None:
        self._disk = _existing(disk)
        try:
            self._process = psutil.Process(pid)
            self._cores = cores or _cores(self._process)
        except (psutil.Error, ValueError, OverflowError):
            raise InvalidInput(f"there is no process {pid} to be read") from None
        self._used_s = self._cpu_s()
        self._looked_s = time.monotonic()

    def readers(self) -> Mapping[str, Callable[[], float]]:
        return {
            "cpu_utilization": self._cpu_utilization,
            "memory_utilization": self._memory_utilization,
            "disk_utilization": lambda: psutil.disk_usage(str(self._disk)).percent,
            "open_files": lambda: float(sum(process.num_fds() for process in self._family())),
        }

    def _family(self) -> Iterator[psutil.Process]:
        yield self._process
        yield from self._process.children(recursive=True)

    def _cpu_s(self) -> Mapping[tuple[int, float], float]:
        """The time that each process has used, by what tells it from others that had its number."""
        found = {}
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                found[process.pid, process.create_time()] = times.user + times.system
        return found

    def _cpu_utilization(self) -> float:
        before, before_s = self._used_s, self._looked_s
        self._used_s, self._looked_s = self._cpu_s(), time.monotonic()
        used_s = sum(now_s - before.get(process, 0.0) for process, now_s in self._used_s.items())
        passed_s = max(1e-3, self._looked_s - before_s)
        return min(100.0, max(0.0, 100 * used_s / passed_s / self._cores))

    def _memory_utilization(self) -> float:
        resident = 0
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                resident += process.memory_info().rss
        return min(100.0, 100 * resident / psutil.virtual_memory().total)


OsMetrics = MachineMetrics | ProcessMetrics


def read_os(metrics: Mapping[str, Callable[[], float]], wanted: frozenset[str]) -> dict[str, float]:
    """Those that are wanted; what cannot be read now is left out."""
    found = {}
    for name in wanted & metrics.keys():
        with suppress(psutil.Error, OSError, ValueError):
            found[name] = float(metrics[name]())
    return found


def _cores(process: psutil.Process) -> int:
    affinity = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    return len(affinity) if affinity else os.cpu_count() or 1


def _existing(disk: Path) -> Path:
    if not disk.exists():
        raise InvalidInput(f"{disk}: there is no such folder, so nothing to say of its disk")
    return disk
