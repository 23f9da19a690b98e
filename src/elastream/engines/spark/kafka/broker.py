"""A broker of Kafka on this machine: one node in KRaft mode that listens on loopback only.

    with Broker(folder) as broker:
        ...  # broker.servers

For development and tests. It lives as long as its parent; what it was given lies in the folder, and one that is
started there again, also after a kill, has all of it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from elastream.engines.spark import with_parent
from elastream.engines.spark.java import find_java
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.engines.spark.ports import free_port
from elastream.errors import ElastreamError

HOST = "127.0.0.1"
_HEAP = "256m"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.1
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    # one node: there is nobody to keep a copy
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # a mistyped topic is an error, not a new topic
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # by default half of our heap, taken at the start: now and then there was no room for it
    "log.cleaner.dedupe.buffer.size": "8388608",
    # how soon the disk is given back after records were deleted
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "1000",
}


class Broker:
    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        """On any port that is free where none is given; it keeps the port when it is started again."""
        self._folder = folder
        self._port = port or free_port(HOST)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def log_file(self) -> Path:
        return self._folder / "broker.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when it answers."""
        if _is_listening(self._port):
            raise ElastreamError(f"port {self._port} is in use: stop what listens there, or choose another --port")
        java, jars = find_java(), kafka_jars().paths(JarUse.BROKER)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            properties = self._write_properties()
        except OSError as error:
            raise ElastreamError(f"{self._folder}: cannot be used: {error.strerror}") from None
        command = [java, f"-Xmx{_HEAP}", "-XX:TieredStopAtLevel=1", "-Dorg.apache.logging.log4j.level=WARN"]
        command += ["-cp", os.pathsep.join(map(str, jars))]
        with self._locked() as lock, self.log_file.open("ab") as log:
            if not (self._folder / "data" / "meta.properties").exists():
                self._format([*command, "kafka.tools.StorageTool"], properties)
            self._process = subprocess.Popen(
                [sys.executable, with_parent.__file__, *command, "kafka.Kafka", str(properties)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; and it can be killed with all that it started
                pass_fds=(lock,),
            )
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill()
            raise

    def wait(self) -> int:
        """Until it ends by itself."""
        assert self._process is not None
        return self._process.wait()

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """As a crash would: it has no time to put anything in order."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while _is_listening(self._port) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)  # what we have waited for is its parent
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The folder is ours, and then that of the process that is given the lock, until it has ended."""
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT)
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S  # one whose parent was killed needs a moment to end
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline_s:
                        raise ElastreamError(f"{self._folder}: another broker runs in this folder") from None
                    time.sleep(_POLL_S)
            yield lock
        finally:
            os.close(lock)

    def _write_properties(self) -> Path:
        controller = free_port(HOST)
        given = _PROPERTIES | {
            "listeners": f"BROKER://{self.servers},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"BROKER://{self.servers}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self._folder.absolute() / "data"),
        }
        path = self._folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="utf-8")
        return path

    def _format(self, tool: list[str], properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # a cluster id that began with a dash would be taken for an option
        command = [*tool, "format", f"--cluster-id={cluster}", "--config", str(properties), "--ignore-formatted"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise ElastreamError(f"{self._folder}: cannot be formatted: {_last_line(done.stdout)}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not _is_listening(self._port):
            if process.poll() is not None:
                said = _last_line(self.log_file.read_text(encoding="utf-8", errors="replace"))
                raise ElastreamError(f"the broker ended while it started: {said} (all of it: {self.log_file})")
            if time.monotonic() > deadline_s:
                raise ElastreamError(f"the broker does not answer after {_START_TIMEOUT_S:g} s: {self.log_file}")
            time.sleep(_POLL_S)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
