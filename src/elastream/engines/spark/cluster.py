"""A standalone Spark cluster on this machine for trying out: a master and workers, each a process of its own.

The pip package of Spark has no scripts that start one, but it has the classes. A worker may announce more cores
than the machine has: with costs that are waited for, as in the examples, a laptop then stands for a cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.find_spark_home import _find_spark_home

from elastream.engines.spark.executors import memory_mib
from elastream.engines.spark.rest import get_json
from elastream.engines.spark.session import check_java
from elastream.errors import ElastreamError, InvalidInput

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.1
_MOST_WORKERS = 64
_SETTINGS = "-Dspark.master.rest.enabled=false"  # another way to submit, which nobody asked for


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


class Cluster:
    """As a context: it is up inside, and all of its processes are gone afterwards."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()
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
        return {name: process.pid for name, process in self._processes.items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return when every worker is known to the master."""
        self._port = _checked_port(self.options.host, self.options.port, "--port")
        self._web_port = _checked_port(self.options.host, self.options.web_port, "--web-port")
        check_java()
        try:
            (self.options.folder / "work").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ElastreamError(f"{self.options.folder}: cannot be used: {error.strerror}") from None
        try:
            self._start_master()
            self._wait_until_alive(workers=0)
            for number in range(1, self.options.workers + 1):
                self._start_worker(number)
            self._wait_until_alive(workers=self.options.workers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process, the workers with their executors first; one that does not go is killed."""
        try:
            for process in reversed(self._processes.values()):
                process.terminate()
            deadline_s = time.monotonic() + _STOP_TIMEOUT_S
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline_s - time.monotonic()))
        finally:
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):  # executors are in the group of their worker
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._processes.clear()

    def ended(self) -> list[str]:
        """Who has ended since this was last asked, in words."""
        found = []
        for name, process in self._processes.items():
            if name not in self._told and process.poll() is not None:
                self._told.add(name)
                found.append(f"the {name} has ended {_how(process.returncode)}; its log: {self._log(name)}")
        return found

    @property
    def is_usable(self) -> bool:
        """Whether there is still a master with at least one worker."""
        alive = {name for name, process in self._processes.items() if process.poll() is None}
        return "master" in alive and len(alive) > 1

    def state(self) -> dict[str, Any]:
        """What the master tells of itself: its workers, applications and their executors."""
        found: dict[str, Any] = get_json(f"{self.web_url}/json/")
        return found

    def _start_master(self) -> None:
        command = ["org.apache.spark.deploy.master.Master", "--host", self.options.host]
        self._spawn("master", [*command, "--port", str(self._port), "--webui-port", str(self._web_port)])

    def _start_worker(self, number: int) -> None:
        name = f"worker {number}"
        command = ["org.apache.spark.deploy.worker.Worker", self.master_url, "--host", self.options.host]
        command += ["--cores", str(self.options.cores), "--memory", self.options.memory]
        command += ["--work-dir", str(self.options.folder.resolve() / "work" / str(number)), "--webui-port", "0"]
        self._spawn(name, command)

    def _spawn(self, name: str, command: list[str]) -> None:
        home = _find_spark_home()
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "PYTHONPATH": _absolute(os.environ.get("PYTHONPATH", "")),  # executors run in folders of their own
            "SPARK_LOCAL_IP": self.options.host,  # else the web pages are open to the network
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')} {_SETTINGS}".strip(),
        }
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [os.path.join(home, "bin", "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for us, who then end them in order
            )

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

    def _log(self, name: str) -> Path:
        return self.options.folder / f"{name.replace(' ', '-')}.log"


def _checked_port(host: str, port: int, option: str) -> int:
    """The port, or for 0 one that is free; refused if someone has it, where Spark would quietly take the next."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"{option} must be from 0 to 65535, found {port}")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ElastreamError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose another with {option}, "
                "or 0 for any that is free"
            ) from None
        return int(probe.getsockname()[1])


def _absolute(paths: str) -> str:
    return os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep) if path)


def _how(code: int) -> str:
    if code >= 0:
        return f"with status {code}"
    return f"by {signal.Signals(-code).name}"
