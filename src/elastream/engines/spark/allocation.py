"""Executors that follow the pipeline while it runs: the thin part that talks to Spark.

Spark has one client for this (`executor_client.py`). Its own user, the thread of dynamic allocation, goes by tasks
that wait and executors that idle, which says little of a micro-batch pipeline: between two batches everything
idles. So that thread is stopped, and the same client is asked for as many executors as the plan needs. Nothing of
this restarts a query.

Only `_fitting` knows a cluster manager: a standalone master tells how much room there is. Of the others one learns
it by waiting. On which nodes of a standalone cluster executors run is the affair of `on_nodes.py`.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.engines.spark.executor_client import ExecutorClient
from elastream.engines.spark.executor_readings import ExecutorMeter
from elastream.engines.spark.executors import (
    Executor,
    ExecutorOptions,
    fitting_executors,
    is_local,
    local_shortage,
    shortage,
    size_for,
    to_release,
)
from elastream.engines.spark.rest import RestApi, get_json, post
from elastream.errors import ElastreamError
from elastream.measurement.executor import ExecutorReading
from elastream.nodes import NodePool
from elastream.nodes.places import Placement

_FIRST_TIMEOUT_S = 120.0
_MORE_TIMEOUT_S = 60.0  # a node that has to be rented first takes longer: the pipeline goes on meanwhile
_POLL_S = 0.2


class Allocation(Protocol):
    """Who provides the slots. What is missing is told as text, and the run goes on with what there is.

    Where instances have nodes, these are chosen before each action; a NoNodeLeftError ends it before it has begun.
    """

    def choose(self, plan: Mapping[str, int], wanted: Placement) -> str:
        """Before an action: on which nodes the plan will run; what had to be chosen again, as text."""

    def begin(self, slots: int) -> str | None:
        """Before the queries start."""

    def make_room(self, slots: int) -> str | None:
        """Before operators get more tasks: returns when their executors are up."""

    def release(self, slots: int, state_tasks: Callable[[], Mapping[str, int]]) -> str | None:
        """After operators got fewer tasks: executors that are too many go when their tasks have ended."""

    def tend(self) -> list[str]:
        """Before a measurement: replace what is gone; what spoils the measurement, as text."""

    def nodes(self) -> tuple[NodePool | None, Placement]:
        """The nodes that there are, and those of each operator."""

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        """What there is to run tasks, and how busy it was since the last call."""

    def fetches(self) -> Mapping[str, Fetches]:
        """What the tasks of operators wait for, where delays between nodes are emulated."""

    def own_batch(self, operator: str, frame: DataFrame) -> None:
        """Before a batch is written: to run it on the executors of its operator, where it has any."""


class _WithoutNodes:
    """Wherever there is a core."""

    def choose(self, plan: Mapping[str, int], wanted: Placement) -> str:
        return ""

    def tend(self) -> list[str]:
        return []

    def nodes(self) -> tuple[NodePool | None, Placement]:
        return None, {}

    def fetches(self) -> Mapping[str, Fetches]:
        return {}

    def own_batch(self, operator: str, frame: DataFrame) -> None:
        pass


def allocation_for(spark: SparkSession, api: RestApi, options: ExecutorOptions) -> Allocation:
    master = str(spark.sparkContext.master)
    return Threads(master, api) if is_local(master) else Executors(spark, api, options)


class Threads(_WithoutNodes):
    """A local master: tasks are threads of the driver, of which there are as many as it says."""

    def __init__(self, master: str, api: RestApi) -> None:
        self._master = master
        self._api = api
        self._meter = ExecutorMeter()

    def begin(self, slots: int) -> str | None:
        return self.make_room(slots)

    def make_room(self, slots: int) -> str | None:
        return local_shortage(slots, self._master)

    def release(self, slots: int, state_tasks: Callable[[], Mapping[str, int]]) -> str | None:
        return None

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        return self._meter.readings(self._api.get("/executors"), now_s=time.monotonic())


class Executors(_WithoutNodes):
    def __init__(self, spark: SparkSession, api: RestApi, options: ExecutorOptions) -> None:
        self._master = str(spark.sparkContext.master)
        self._application = spark.sparkContext.applicationId
        self._api = api
        self._options = options
        self._client = ExecutorClient(spark)
        self._meter = ExecutorMeter()

    def begin(self, slots: int) -> str | None:
        """Without a single executor nothing would ever run, and that is an error."""
        self.take_over()
        self.request(size_for(slots, self._options).target)
        self._wait(1, _FIRST_TIMEOUT_S)
        if not self.up():
            raise ElastreamError(
                f"{self._master}: no executor came within {_FIRST_TIMEOUT_S:.0f} s; either no worker has "
                f"{self._options.cores} cores and {self._options.memory} of memory to spare, or executors fail to "
                "start (the master's web page tells): see --executor-cores and --executor-memory"
            )
        return self.make_room(slots)

    def make_room(self, slots: int) -> str | None:
        size = size_for(slots, self._options)
        up = len(self.up())
        if size.target > up:  # if it is lower, the operators still have their tasks: see release
            self.request(size.target)
        fitting = self._fitting() if size.needed > up else None
        self._wait(size.needed if fitting is None else min(size.needed, fitting), _MORE_TIMEOUT_S)
        return shortage(slots, up=len(self.up()), options=self._options, fitting=fitting)

    def release(self, slots: int, state_tasks: Callable[[], Mapping[str, int]]) -> str | None:
        target = size_for(slots, self._options).target
        up = self.up()
        try:
            self.request(target)  # first, or the cluster would replace those that go
            if len(up) > target:
                self._decommission(to_release(self._described(up, state_tasks()), keep=target))
        except ElastreamError as error:  # the operators have their new size, so the action has not failed
            return f"executors that are too many stay for now: {error}"
        return None

    def take_over(self) -> None:
        """From Spark's own thread, which would start and stop executors by its lights."""
        self._client.stop_dynamic_allocation()

    def active(self) -> list[tuple[Mapping[str, Any], str]]:
        """What Spark tells of each executor that is there, and its host; one that is about to come has none."""
        entries = [entry for entry in self._api.get("/executors") if entry["isActive"] and entry["id"] != "driver"]
        hosts = ((entry, str(entry["hostPort"]).rpartition(":")[0]) for entry in entries)
        return [(entry, host) for entry, host in hosts if host]

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        entries, now_s = self._api.get("/executors"), time.monotonic()
        return self._meter.readings(entries, now_s=now_s, taking_tasks=self.up())

    def up(self) -> tuple[str, ...]:
        """Those that take tasks; one that is on its way out does not."""
        return self._client.up()

    def request(self, total: int) -> None:
        self._client.request(total)

    def _decommission(self, executors: tuple[str, ...]) -> None:
        self._client.decommission(executors, "the plan has fewer slots")

    def _wait(self, count: int, timeout_s: float) -> None:
        """Until so many are up, or the time is."""
        deadline_s = time.monotonic() + timeout_s
        while len(self.up()) < count and time.monotonic() < deadline_s:
            if self._client.is_stopped:
                raise ElastreamError(f"{self._master} has ended this application; its web page may tell why")
            time.sleep(_POLL_S)

    def _described(self, up: tuple[str, ...], state_tasks: Mapping[str, int]) -> list[Executor]:
        active = {str(entry["id"]): int(entry["activeTasks"]) for entry in self._api.get("/executors")}
        return [
            Executor(id=name, active_tasks=active.get(name, 0), state_tasks=state_tasks.get(name, 0))
            for name in up
        ]

    def _fitting(self) -> int | None:
        """How many executors there is room for; None where nobody tells: a page behind a proxy, or none."""
        if not self._master.startswith("spark://"):
            return None
        try:
            return fitting_executors(get_json(f"{self._master_page()}/json/"), self._application, self._options)
        except (ElastreamError, LookupError):
            return None

    def decommission_hosts(self, hosts: Sequence[str]) -> None:
        """Let all workers on these hosts, and their executors, finish what they have and take nothing new.

        The master is told, or it might give a worker whose executor has gone another one. Where it does not take
        that from us, the executors are told: the worker is stopped soon after.
        """
        query = urllib.parse.urlencode([("host", host) for host in hosts])
        try:
            post(f"{self._master_page()}/workers/kill/?{query}")
        except ElastreamError:
            self._decommission(tuple(str(entry["id"]) for entry, host in self.active() if host in hosts))

    def _master_page(self) -> str:
        """Of a standalone master. Its address is not in the driver, but an executor's logs are on the page of its
        worker, which knows it."""
        logs = [entry["executorLogs"] for entry in self._api.get("/executors") if entry["executorLogs"]]
        if not logs:
            raise ElastreamError(f"{self._master}: no executor is there that tells the master's web page")
        page = urllib.parse.urlsplit(logs[0]["stdout"])
        worker = get_json(f"{page.scheme}://{page.netloc}/json/")
        return str(worker["masterwebuiurl"]).rstrip("/")
