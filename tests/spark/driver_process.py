"""A driver as a process of its own, which is there to be rescaled, killed with all that it started, and started
again. It says `ready` when it is, takes commands on its standard input, and answers in its log."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from elastream.engines.spark.crash_points import VARIABLE

PATIENCE_S = 600.0  # for a machine that does other things too
_POLL_S = 0.05


class DriverProcess:
    """A program, in a session of its own so that everything that it starts can be found and killed."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        log: Path,
        crash_at: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        self._log_begins = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as opened:
            self._process = subprocess.Popen(
                [sys.executable, program, *arguments],
                stdin=subprocess.PIPE,
                stdout=opened,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {}), **({VARIABLE: crash_at} if crash_at else {})},
                start_new_session=True,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_ready(self) -> None:
        self.wait_until(lambda: "ready" in self.said(), "ready")

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not true():
            assert self._process.poll() is None, f"the driver ended before it was {what}:\n{self.last_said()}"
            assert time.monotonic() < deadline_s, f"the driver is not {what} in time:\n{self.last_said()}"
            time.sleep(_POLL_S)

    def ask(self, line: str, answer: str, *, wait: bool = True) -> None:
        """Give a command, and wait for the word that its answer begins with."""
        answers = self.said().count(answer)
        self.command(line)
        if wait:
            self.wait_until(lambda: self.said().count(answer) > answers, f"{answer}, after {line!r}")

    def rescale(self, wanted: Mapping[str, int], *, wait: bool = True) -> None:
        self.ask("rescale " + in_words(wanted), "rescaled", wait=wait)

    def stop(self) -> None:
        self.command("stop")
        assert self._process.wait(PATIENCE_S) == 0, f"the driver did not stop well:\n{self.last_said()}"

    def wait_crashed(self) -> None:
        code = self._process.wait(PATIENCE_S)
        assert code == -signal.SIGKILL, f"the driver did not crash where it should:\n{self.last_said()}"

    def kill(self) -> None:
        """Kill the driver, its JVM and the Python workers, and return when none of them is left.

        Spark gives the workers a process group of their own, but they stay in the session.
        """
        kill_session(self._process.pid)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def ended_by_itself(self) -> bool:
        return self.has_ended and self._process.returncode != -signal.SIGKILL

    def said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read().decode(errors="replace")

    def last_said(self) -> str:
        return "\n".join(self.said().splitlines()[-60:])


def in_words(numbers: Mapping[str, int]) -> str:
    return " ".join(f"{name}={count}" for name, count in numbers.items())


def commands_given() -> queue.Queue[str]:
    """Of a driver: the lines of standard input, read in a thread so that waiting for one can end."""
    commands: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line)
        commands.put("stop")

    threading.Thread(target=read, daemon=True).start()
    return commands


def from_words(words: Sequence[str]) -> dict[str, int]:
    return {name: int(count) for name, count in (word.split("=") for word in words)}


def kill_session(session: int) -> None:
    """Kill every process of a session, and return when none of them is left."""
    deadline_s = time.monotonic() + PATIENCE_S
    while members := list(members_of(session)):
        assert time.monotonic() < deadline_s, f"processes {members} of a killed driver do not go away"
        for member in members:
            _kill(member)
        time.sleep(0.01)


def members_of(session: int) -> Iterator[int]:
    """The processes of a session that are not dead."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        pid, state = line.split()[:2]
        try:
            if not state.startswith("Z") and os.getsid(int(pid)) == session:
                yield int(pid)
        except ProcessLookupError:
            continue


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
