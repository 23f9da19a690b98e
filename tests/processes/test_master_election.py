"""Several masters, of which one leads: killed, stopped for a while and back; no action is done twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import elastream
from elastream.agents.engine_metrics import write_metrics
from tests import patience

_COMMAND = "from elastream.cli import main; main()"

ENGINE = '''\
"""It notes every size that it is given, with the process that gave it."""
import os
from pathlib import Path

class Noting:
    def __init__(self):
        self.file = Path("given")

    def operators(self):
        return ["map"]

    def current_size(self, operator):
        given = self.file.read_text().split() if self.file.exists() else []
        return int(given[-1].split(":")[1]) if given else 1

    def original_size(self, operator):
        return 1

    def set_size(self, operator, size):
        with self.file.open("a") as file:
            file.write(f"{os.getpid()}:{size} ")
'''

RULES = """\
rules:
  - name: long queue
    scale_out: map
    by: 1
    never_above: 8
    when: [{metric: queue_length, above: 100, for_at_least: 2 s, longest_hole: 60 s}]
    unless_scaled_out_within: 1 h
"""


class MasterProcess:
    """What it says is collected by a thread."""

    def __init__(self, folder: Path, port: int) -> None:
        arguments = [
            "master", "--rules", "rules.yaml", "--engine", "engine:Noting", "--interval", "500 ms",
            "--port", str(port), "--folder", "state", "--standby", "--lease", "3 s", "--json",
        ]  # fmt: skip
        self.process = start(folder, *arguments)
        self.lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def told(self, text: str) -> int:
        return sum(text in line for line in self.lines)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(elastream.__file__).parents[1])},
    )


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "rules.yaml").write_text(RULES)
    write_metrics(tmp_path / "map.json", {"queue_length": 1})
    return tmp_path


def test_masters_that_are_killed_or_hang_are_replaced_and_no_action_is_done_twice(folder: Path) -> None:
    ports = free_ports(3)
    with ExitStack() as stack:
        masters: list[MasterProcess] = []

        def master(port: int) -> MasterProcess:
            masters.append(MasterProcess(folder, port))
            stack.callback(masters[-1].process.kill)
            return masters[-1]

        def wait_until(true: Callable[[], object], what: str) -> None:
            patience.wait_until(true, lambda: f"{what}; the masters said:\n{said()}")

        def said() -> str:
            return "\n".join("".join(one.lines[-10:]) for one in masters)

        first = master(ports[0])
        wait_until(lambda: first.told('"listening"'), "the first master does not lead")
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        agent = start(
            folder, "agent", "--operator", "map", "--master", addresses, "--engine-metrics", "map.json", "--json"
        )
        stack.callback(agent.kill)
        wait_until(lambda: first.told("is here, reading for map:0"), "the agent does not come")
        second = master(ports[1])
        wait_until(lambda: second.told("stands by"), "the second master does not stand by")

        first.process.kill()
        wait_until(lambda: second.told("leads (term 2)"), "nobody takes over from a master that was killed")
        wait_until(lambda: second.told("is here, reading for map:0"), "the agent does not find the new master")

        write_metrics(folder / "map.json", {"queue_length": 500})
        given = folder / "given"
        wait_until(given.exists, "the rule does not act")
        third = master(ports[2])
        wait_until(lambda: third.told("stands by"), "the third master does not stand by")

        second.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: third.told("leads (term 3)"), "nobody takes over from a master that hangs")
        wait_until(lambda: third.told("is here, reading for map:0"), "the agent does not find the third master")
        second.process.send_signal(signal.SIGCONT)
        wait_until(lambda: second.told("leads no longer (term 2)"), "the one that hung believes that it leads")
        wait_until(lambda: second.told("stands by") == 2, "and does not stand by")
        assert given.read_text().split() == [f"{second.process.pid}:2"], "one action, by the one that led then"
