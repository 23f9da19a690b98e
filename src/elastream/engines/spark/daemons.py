"""Spark's own master and workers as processes of ours: each has a log, and all of them end with us.

The pip package of Spark has no scripts that start them, but it has the classes. Each runs under `with_parent.py`,
so that none is left behind when we are killed, and leads a process group, which its executors belong to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from elastream.engines.spark import with_parent
from elastream.engines.spark.channels.emulated_delays import NODE_VARIABLE
from elastream.errors import ElastreamError

_STOP_TIMEOUT_S = 15.0
_SETTINGS = (
    "-Dspark.master.rest.enabled=false "  # another way to submit, which nobody asked for
    "-Dspark.decommission.enabled=true "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # they do little, and are to be up soon
)


class Daemons:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()

    @property
    def pids(self) -> dict[str, int]:
        """Each is the number of the daemon's process group as well."""
        return {name: process.pid for name, process in self._processes.items()}

    def make_folder(self) -> None:
        try:
            (self.folder / "work").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ElastreamError(f"{self.folder}: cannot be used: {error.strerror}") from None

    def start_master(self, *, host: str, port: int, web_port: int) -> None:
        command = ["org.apache.spark.deploy.master.Master", "--host", host, "--port", str(port)]
        self._spawn("master", _spark_class([*command, "--webui-port", str(web_port)]), host)

    def start_worker(
        self, name: str, *, master: str, host: str, cores: int, memory: str, node: str | None = None
    ) -> None:
        """`node` is what its tasks find in their environment, where the worker is a node."""
        work = self.folder.resolve() / "work" / name.replace(" ", "-")
        command = ["org.apache.spark.deploy.worker.Worker", master, "--host", host]
        command += ["--cores", str(cores), "--memory", memory, "--work-dir", str(work), "--webui-port", "0"]
        self._spawn(name, _spark_class(command), host, node=node)

    def start_command(self, name: str, command: Sequence[str], *, node: str | None = None) -> None:
        """A worker that another command starts, on another machine say; it runs for as long as that does."""
        self._spawn(name, list(command), None, node=node)

    def stop(self, names: Iterable[str] | None = None) -> None:
        """End these, or all, the last that was started first; one that does not go is killed."""
        stopping = list(reversed(self._processes)) if names is None else [n for n in names if n in self._processes]
        processes = [self._processes[name] for name in stopping]
        try:
            for process in processes:
                if process.stdin is not None:
                    process.stdin.close()
            deadline_s = time.monotonic() + _STOP_TIMEOUT_S
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline_s - time.monotonic()))
        finally:
            for name, process in zip(stopping, processes, strict=True):
                with contextlib.suppress(ProcessLookupError):  # executors are in the group of their worker
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                del self._processes[name]
                self._told.discard(name)

    def is_alive(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    @property
    def alive(self) -> tuple[str, ...]:
        return tuple(filter(self.is_alive, self._processes))

    def ended(self) -> list[str]:
        """Who has ended since this was last asked, as text."""
        found = []
        for name in self._processes:
            if name not in self._told and not self.is_alive(name):
                self._told.add(name)
                found.append(self.how_ended(name))
        return found

    def how_ended(self, name: str) -> str:
        """Of one that is not alive."""
        return f"the {name} has ended {_how(self._processes[name].returncode)}; its log: {self._log(name)}"

    def _spawn(self, name: str, command: list[str], host: str | None, *, node: str | None = None) -> None:
        if name in self._processes:
            self.stop([name])  # its executors may have outlived it
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, with_parent.__file__, *command],
                stdin=subprocess.PIPE,  # ours: when it ends, so do they
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(host, node),
                start_new_session=True,  # Ctrl-C in the terminal is for us, who then end them in order
            )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"


def _spark_class(command: list[str]) -> list[str]:
    return [os.path.join(_find_spark_home(), "bin", "spark-class"), *command]


def _environment(host: str | None, node: str | None) -> dict[str, str]:
    environment = {
        **os.environ,
        "SPARK_HOME": _find_spark_home(),
        "PYTHONPATH": _absolute(os.environ.get("PYTHONPATH", "")),  # executors run in folders of their own
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')} {_SETTINGS}".strip(),
    }
    if host is not None:
        environment["SPARK_LOCAL_IP"] = host  # else the web pages are open to the network
    if node is not None:
        environment[NODE_VARIABLE] = node
    return environment


def _absolute(paths: str) -> str:
    return os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep) if path)


def _how(status: int) -> str:
    """A status above 128 is the signal that ended the daemon itself, see `with_parent.py`."""
    number = -status if status < 0 else status - 128
    if number in {entry.value for entry in signal.Signals}:
        return f"by {signal.Signals(number).name}"
    return f"with status {status}"
