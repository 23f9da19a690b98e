"""A standalone Spark cluster on this machine for trying out: a master and workers, each a process of its own.

A worker may announce more cores than the machine has: with costs that are waited for, as in the examples, a laptop
then stands for a cluster.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elastream.engines.spark.daemons import Daemons
from elastream.engines.spark.executors import memory_mib
from elastream.engines.spark.java import check_java
from elastream.engines.spark.ports import checked_port
from elastream.engines.spark.rest import get_json
from elastream.errors import ElastreamError, InvalidInput

_START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_MOST_WORKERS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterOptions:
    folder: Path
    """Where logs and the executors' working folders are kept."""
    workers: int = 3
    cores: int = 4
    """That each worker announces."""
    memory: str = "2g"
    """That each worker announces; an executor takes its part of it."""
    host: str = "127.0.0.1"
    port: int = 7077
    """Of the master; 0 for any that is free."""
    web_port: int = 8080

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= _MOST_WORKERS:
            raise InvalidInput(f"--workers must be from 1 to {_MOST_WORKERS}, found {self.workers}")
        if self.cores < 1:
            raise InvalidInput(f"--cores must be at least 1, found {self.cores}")
        memory_mib(self.memory)


class StandaloneCluster:
    """As a context: it is up inside, and all of its processes are gone afterwards."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.daemons = Daemons(options.folder)
        self._port = 0
        self._web_port = 0

    @property
    def master_url(self) -> str:
        return f"spark://{self.options.host}:{self._port}"

    @property
    def web_url(self) -> str:
        return f"http://{self.options.host}:{self._web_port}"

    @property
    def pids(self) -> dict[str, int]:
        return self.daemons.pids

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_master(self) -> None:
        """Without any worker: return when it answers."""
        options = self.options
        self._port = checked_port(options.host, options.port, "--port")
        self._web_port = checked_port(options.host, options.web_port, "--web-port")
        check_java()
        self.daemons.make_folder()
        try:
            self.daemons.start_master(host=options.host, port=self._port, web_port=self._web_port)
            self._wait_until_alive(workers=0)
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Return when every worker is known to the master."""
        options = self.options
        self.start_master()
        try:
            for number in range(1, options.workers + 1):
                self.daemons.start_worker(
                    f"worker {number}",
                    master=self.master_url,
                    host=options.host,
                    cores=options.cores,
                    memory=options.memory,
                )
            self._wait_until_alive(workers=options.workers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process, the workers with their executors first."""
        self.daemons.stop()

    def ended(self) -> list[str]:
        """Who has ended since this was last asked, as text."""
        return self.daemons.ended()

    @property
    def is_usable(self) -> bool:
        """Whether there is still a master with at least one worker."""
        alive = self.daemons.alive
        return "master" in alive and len(alive) > 1

    def state(self) -> dict[str, Any]:
        """What the master tells of itself: its workers, applications and their executors."""
        found: dict[str, Any] = get_json(f"{self.web_url}/json/")
        return found

    def _wait_until_alive(self, *, workers: int) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not self._is_alive(workers):
            ended = self.ended()
            if ended:
                raise ElastreamError(f"the cluster did not start: {'; '.join(ended)}")
            if time.monotonic() > deadline_s:
                raise ElastreamError(
                    f"the cluster did not start within {_START_TIMEOUT_S:.0f} s; its logs: {self.options.folder}"
                )
            time.sleep(_POLL_S)

    def _is_alive(self, workers: int) -> bool:
        try:
            state = self.state()
        except ElastreamError:
            return False
        return bool(state["status"] == "ALIVE" and state["aliveworkers"] >= workers)
