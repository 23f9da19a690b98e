"""Processes that are started for Spark: they end with whoever started them, and tell how they ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from elastream.engines.spark.daemons import Daemons
from tests.patience import wait_until

_STARTS_ONE = """
import sys, time
from pathlib import Path
from elastream.engines.spark.daemons import Daemons
daemons = Daemons(Path(sys.argv[1]))
sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(999)"
daemons.start_command("worker a", [sys.executable, "-c", sleeps])
print("started", flush=True)
time.sleep(999)
"""


def test_they_end_when_the_one_who_started_them_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _STARTS_ONE, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        log = tmp_path / "worker-a.log"
        wait_until(lambda: log.read_text().endswith("\n"))
        pid = int(log.read_text())
        assert psutil.pid_exists(pid)
        parent.kill()
    wait_until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("raise SystemExit(3)", "with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL"),
    ],
)
def test_how_one_ended_is_told_once(tmp_path: Path, code: str, how: str) -> None:
    daemons = Daemons(tmp_path)
    daemons.start_command("worker a", [sys.executable, "-c", code])
    wait_until(lambda: not daemons.is_alive("worker a"))
    assert daemons.ended() == [f"the worker a has ended {how}; its log: {tmp_path / 'worker-a.log'}"]
    assert daemons.ended() == []
    daemons.stop()
    assert daemons.pids == {}


def test_one_can_be_stopped_and_started_again_beside_the_others(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    for name in ("a", "b"):
        daemons.start_command(name, ["sleep", "999"])
    first = daemons.pids["a"]
    daemons.stop(["a"])
    assert daemons.alive == ("b",)
    assert not psutil.pid_exists(first)
    daemons.start_command("a", ["sleep", "999"])
    assert set(daemons.alive) == {"a", "b"}
    daemons.stop()
    assert daemons.alive == ()
