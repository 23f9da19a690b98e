"""The one client that Spark has for executors, `ExecutorAllocationClient`, as standalone clusters, YARN and
Kubernetes implement it. Its own user is the thread of dynamic allocation, which is stopped and may be given back.

Nothing but the JVM behind a session is used, so that it works with every classic PySpark; see `allocation.py` for
pipelines of elastream and `attached/` for jobs of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastream.errors import ElastreamError

_OWN = "_executorAllocationManager"


class ExecutorClient:
    def __init__(self, spark: Any) -> None:
        self._master = str(spark.sparkContext.master)
        self._jvm: Any = spark.sparkContext._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self._backend: Any = self._context.schedulerBackend()

    @property
    def is_stopped(self) -> bool:
        return bool(self._context.isStopped())

    def up(self) -> tuple[str, ...]:
        """Those that take tasks; one that is on its way out does not."""
        found = self._context.getExecutorIds()
        ids = [str(found.apply(index)) for index in range(found.size())]
        return tuple(name for name in ids if self._backend.isExecutorActive(name))

    def request(self, total: int) -> None:
        if not self._context.requestTotalExecutors(total, 0, self._map({})):
            raise ElastreamError(f"{self._master} does not take a request for {total} executors")

    def request_by_profile(self, totals: Mapping[int, int]) -> None:
        """So many executors of each resource profile, and of no other."""
        nowhere = self._map({})
        counts, local = self._map(totals), self._map(dict.fromkeys(totals, 0))
        if not self._backend.requestTotalExecutors(counts, local, self._map(dict.fromkeys(totals, nowhere))):
            raise ElastreamError(f"{self._master} does not take a request for {sum(totals.values())} executors")

    def add_profile(self, profile: Any) -> None:
        """Spark refuses it where the cluster manager knows no profiles."""
        self._context.resourceProfileManager().addResourceProfile(profile)

    def decommission(self, executors: tuple[str, ...], why: str) -> None:
        """They finish their tasks and hand on what they keep; Spark must have been started for that."""
        nobody = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        told = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(why, nobody)
        for name in executors:
            self._backend.decommissionExecutor(name, told, False, False)

    def _map(self, entries: Mapping[int, Any]) -> Any:
        """As Scala has them."""
        found = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        for key, value in entries.items():
            found = found.updated(key, value)
        return found

    def kill_idle(self, executors: tuple[str, ...]) -> tuple[str, ...]:
        """End those of them that run no task now; which."""
        wanted = self._jvm.PythonUtils.toSeq(list(executors))
        ended = self._backend.killExecutors(wanted, False, False, False)
        return tuple(str(ended.apply(index)) for index in range(ended.size()))

    def has_active_jobs(self) -> bool:
        return len(self._context.statusTracker().getActiveJobIds()) > 0

    def stop_dynamic_allocation(self) -> bool:
        """Stop the thread that would start and stop executors by its own lights; whether there was one."""
        own = self._context.executorAllocationManager()
        if not own.isDefined():
            return False
        own.get().stop()
        return True

    def start_dynamic_allocation(self) -> None:
        """A new one in the place of the one that was stopped, which cannot be started again. The context stops it
        when it ends itself."""
        allocation = self._jvm.org.apache.spark.ExecutorAllocationManager(
            self._backend,
            self._context.listenerBus(),
            self._context.conf(),
            self._context.cleaner(),
            self._jvm.org.apache.spark.util.SystemClock(),
            self._context.resourceProfileManager(),
            self._context.shuffleDriverComponents().supportsReliableStorage(),
        )
        held = self._jvm.java.lang.Class.forName("org.apache.spark.SparkContext").getDeclaredField(_OWN)
        held.setAccessible(True)
        held.set(self._context, self._jvm.scala.Some(allocation))
        allocation.start()
