"""Executors of a job that is not ours: taken over, asked for, let go, and given back as they were configured.

An executor that goes is decommissioned where the job was started for that (`spark.decommission.enabled`). Else it
is ended between two batches, when nothing runs on it: what it keeps of state is read again from the checkpoint, as
after any loss of an executor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from elastream.engines.spark.executor_client import ExecutorClient
from elastream.errors import ElastreamError

_log = logging.getLogger(__name__)

_COME_S = 60.0  # the job goes on meanwhile, so it is only the manager that waits
_GO_S = 20.0
_POLL_S = 0.2
_LOCKED_S = 60.0  # for which giving back waits for a manager that hangs in a call
_EVERYTHING = 2**31 - 1
_MANY = 1000  # executors, where neither the job nor its owner says how many there may be
_DEFAULT_INSTANCES = 2  # of Spark, on YARN and Kubernetes


class Holder(Protocol):
    """Who has the executors of a job: how many there are, and how to change that."""

    @property
    def can_change(self) -> bool: ...

    def most(self) -> int:
        """As many as the job may have by its own settings."""

    def take(self, least: int, most: int) -> None: ...

    def count(self) -> int: ...

    def change(self, total: int, alive: Callable[[], None]) -> str:
        """Ask for so many, and wait a while for them; what was not to be had, as text."""

    def give_back(self) -> None: ...

    def is_gone(self) -> bool: ...


class LocalCores:
    """`local[N]`: the cores of the driver stand for executors, and cannot be changed."""

    can_change = False

    def __init__(self, spark: Any) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._cores = int(spark.sparkContext.defaultParallelism)

    def most(self) -> int:
        return self._cores

    def take(self, least: int, most: int) -> None:
        pass

    def count(self) -> int:
        return self._cores

    def change(self, total: int, alive: Callable[[], None]) -> str:
        raise ElastreamError("a local master has no executors to ask for")

    def give_back(self) -> None:
        pass

    def is_gone(self) -> bool:
        return bool(self._context.isStopped())


class ClusterExecutors:
    can_change = True

    def __init__(self, spark: Any) -> None:
        self._client = ExecutorClient(spark)
        conf = spark.sparkContext.getConf()
        self._decommissions = conf.get("spark.decommission.enabled", "false") == "true"
        default = _EVERYTHING if str(spark.sparkContext.master).startswith("spark://") else _DEFAULT_INSTANCES
        self._configured = _number(conf, "spark.executor.instances") or default
        self._dynamic_most = _number(conf, "spark.dynamicAllocation.maxExecutors")
        self._cores_most = (_number(conf, "spark.cores.max") or 0) // (_number(conf, "spark.executor.cores") or 1)
        self._initial = max(
            _number(conf, f"spark.dynamicAllocation.{which}Executors") or 0 for which in ("initial", "min")
        )
        self._was_dynamic = False
        self._taken = False
        self._lock = threading.Lock()
        """One at a time: the manager, whoever detaches, and the watchdog."""

    def most(self) -> int:
        for found in (self._dynamic_most, self._configured, self._cores_most):
            if found and found < _EVERYTHING:
                return found
        return _MANY

    def take(self, least: int, most: int) -> None:
        """It begins with as many as it would have had: executors may still be on their way."""
        with self._locked():
            self._was_dynamic = self._client.stop_dynamic_allocation()
            self._taken = True
            begins = max(self._initial, len(self._client.up())) if self._was_dynamic else self._configured
            self._client.request(min(most, max(least, begins)))
        _log.info("executors are asked for by elastream%s", " instead of dynamic allocation" * self._was_dynamic)

    def count(self) -> int:
        return len(self._client.up())

    def change(self, total: int, alive: Callable[[], None]) -> str:
        with self._locked():
            if not self._taken:
                raise ElastreamError("the executors were given back")
            self._client.request(total)  # first, or the cluster would replace those that go
            if len(self._client.up()) > total:
                self._let_go(total, alive)
        deadline_s = time.monotonic() + _COME_S
        while self.count() < total and time.monotonic() < deadline_s and self._taken:
            alive()
            time.sleep(_POLL_S)
        found = self.count()
        return "" if found == total else f"{total} were asked for, and {found} are there"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Whoever cannot have it goes on without: a manager that hangs may not keep the executors."""
        held = self._lock.acquire(timeout=_LOCKED_S)
        try:
            yield
        finally:
            if held:
                self._lock.release()

    def _let_go(self, keep: int, alive: Callable[[], None]) -> None:
        if self._decommissions:
            self._client.decommission(self._newest(keep), "the job needs fewer executors")
            return
        deadline_s = time.monotonic() + _GO_S
        while self._client.has_active_jobs() and time.monotonic() < deadline_s:
            alive()
            time.sleep(_POLL_S / 10)  # a batch may follow soon
        self._client.kill_idle(self._newest(keep))
        while len(self._client.up()) > keep and time.monotonic() < deadline_s:
            alive()
            time.sleep(_POLL_S)
            self._client.kill_idle(self._newest(keep))

    def _newest(self, keep: int) -> tuple[str, ...]:
        up = sorted(self._client.up(), key=lambda name: (int(name) if name.isdigit() else 0, name))
        return tuple(up[keep:])

    def give_back(self) -> None:
        """To dynamic allocation, or as many as were configured; doing it again changes nothing."""
        with self._locked():
            if not self._taken:
                return
            self._taken = False
            if self._client.is_stopped:
                return
            if self._was_dynamic:
                self._client.start_dynamic_allocation()
            else:
                self._client.request(self._configured)
        _log.info("executors are given back: %s", "dynamic allocation" if self._was_dynamic else "as configured")

    def is_gone(self) -> bool:
        return self._client.is_stopped


def _number(conf: Any, name: str) -> int | None:
    written = str(conf.get(name, None) or "")
    return int(written) if written.isdigit() else None
