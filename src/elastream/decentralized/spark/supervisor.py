"""Keeps one instance alive: `python -m elastream.decentralized.spark.supervisor RUN ADDRESS`.

Every instance has one, started by the instance that made it. It does nothing but wait: when its instance dies it
starts it again, when that has ended for good it ends too. There is nothing above it, and nobody takes over what a
keeper holds: it never gives up, and only waits longer where starts keep failing (exponential backoff). A copy that
its neighbours have given up meanwhile (`takeover.py`) is refused at its next start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.events import EventLog
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder, take_lock
from elastream.errors import ElastreamError

ENDED, DIED, NOT_AGAIN = 0, 1, 3
"""How an instance ends: it is done; it is to be started again; it was refused."""
_LOOK_S = 0.2
_STOP_S = 30.0
_SOON_S = 10.0
"""A start that ends before has failed."""
_LONGEST_PAUSE_S = 60.0


def start_supervisor(run: RunFolder, instance: Address) -> None:
    """In a session of its own: it outlives whoever starts it. Does nothing where one is there already."""
    folder = run.instance(instance)
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.log.open("a") as log:
        command = [sys.executable, "-m", __name__, str(run.path), instance]
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def pause_s(failures: int) -> float:
    """How long to wait before the next start, after so many in a row that failed."""
    return min(2.0 ** min(failures, 10) - 1, _LONGEST_PAUSE_S)


class Supervisor:
    def __init__(self, run: RunFolder, folder: InstanceFolder) -> None:
        self._run = run
        self._folder = folder
        self._events = EventLog(folder.events)

    def keep_alive(self) -> None:
        failures = 0
        while True:
            began_s = time.monotonic()
            code = self._run_once()
            if code in (ENDED, NOT_AGAIN) or self._run.is_over:
                return
            failures = failures + 1 if time.monotonic() - began_s < _SOON_S else 0
            again_in_s = pause_s(failures)
            self._events.record("died", status=code, again_in_s=again_in_s)
            if not self._goes_on_after(again_in_s):
                return

    def _goes_on_after(self, wait_s: float) -> bool:
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not self._run.is_over:
            time.sleep(_LOOK_S)
        return not self._run.is_over

    def _run_once(self) -> int:
        """Its status; ours to stop when the run is to end."""
        command = [sys.executable, "-m", "elastream.decentralized.spark.process"]
        process = subprocess.Popen([*command, str(self._run.path), self._folder.me], stdin=subprocess.PIPE)
        while process.poll() is None and not self._run.is_over:
            time.sleep(_LOOK_S)
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def main(run: str, instance: str) -> None:
    folder = RunFolder(Path(run)).instance(instance)
    try:
        lock = take_lock(folder.path / "supervisor.lock", f"the supervisor of {instance!r}")
    except ElastreamError:
        return
    (folder.path / "supervisor.pid").write_text(str(os.getpid()))
    Supervisor(RunFolder(Path(run)), folder).keep_alive()
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
