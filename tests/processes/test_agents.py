"""`elastream master` and `elastream agent` as processes: a foreign engine is scaled, killed masters go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import elastream
from elastream.agents.engine_metrics import write_metrics
from elastream.measurement.recording import read_recording

_PATIENCE_S = 90.0
_COMMAND = "from elastream.cli import main; main()"

ENGINE = '''\
"""An engine of someone else's: it keeps the sizes of its operators in a file."""
import json
from pathlib import Path

class Sizes:
    def __init__(self):
        self.file = Path("sizes.json")

    def _read(self):
        return json.loads(self.file.read_text())

    def operators(self):
        return list(self._read())

    def current_size(self, operator):
        return self._read()[operator]

    def original_size(self, operator):
        return 1

    def set_size(self, operator, size):
        self.file.write_text(json.dumps({**self._read(), operator: size}))
'''

RULES = """\
rules:
  - name: long queue
    scale_out: map
    by: 1
    never_above: 8
    when: [{metric: queue_length, above: 100, for_at_least: 1 s}]
    unless_scaled_out_within: 1 h
"""

OTHER_RULES = """\
rules:
  - name: hot
    scale_out: map
    by: 1
    never_above: 8
    when: [{metric: memory_utilization, above: 99 %, for_at_least: 1 h}]
    unless_scaled_out_within: 1 h
"""


class Scene:
    """A folder with an engine, rules and a token, and the processes that work there; all end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        (folder / "engine.py").write_text(ENGINE)
        (folder / "rules.yaml").write_text(RULES)
        (folder / "sizes.json").write_text('{"map": 1}')
        (folder / "token").write_text("secret\n")
        write_metrics(folder / "map.json", {"queue_length": 500})

    def starts(self, *arguments: str) -> subprocess.Popen[str]:
        log = self._stack.enter_context((self.folder / "stderr").open("a"))
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments, "--token-file", "token", "--json"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(elastream.__file__).parents[1])},
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def master(self, port: int = 0) -> tuple[subprocess.Popen[str], int]:
        process = self.starts(
            "master", "--rules", "rules.yaml", "--engine", "engine:Sizes", "--interval", "300 ms",
            "--port", str(port), "--folder", "state", "--record",
        )  # fmt: skip
        return process, int(says(process, lambda line: line["event"] == "listening")["port"])

    def agent(self, port: int) -> subprocess.Popen[str]:
        return self.starts(
            "agent", "--operator", "map", "--master", f"127.0.0.1:{port}", "--engine-metrics", "map.json"
        )

    @property
    def size(self) -> int:
        return int(json.loads((self.folder / "sizes.json").read_text())["map"])

    def metrics_recorded(self) -> list[set[str]]:
        """What was read in each round in which something was."""
        recording = self.folder / "state" / "recording.jsonl"
        snapshots = read_recording(recording, ignore_cut_off=True).snapshots
        return [set(snapshot.readings[0].metrics or ()) for snapshot in snapshots if snapshot.readings]


def says(process: subprocess.Popen[str], true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first line of which it is true; a process that ends, or is silent for ever, fails the test."""
    assert process.stdout is not None
    impatience = threading.Timer(_PATIENCE_S, process.kill)
    impatience.start()
    try:
        for line in process.stdout:
            found: dict[str, Any] = json.loads(line)
            if true(found):
                return found
    finally:
        impatience.cancel()
    raise AssertionError(f"the process ended with {process.wait()} before it said so")


def tells(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: text in line.get("text", "")


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, "it does not come so far"
        time.sleep(0.05)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


def test_a_foreign_engine_is_scaled_and_a_killed_master_knows_its_guard_times(scene: Scene) -> None:
    master, port = scene.master()
    agent = scene.agent(port)
    says(agent, tells("connected"))
    acted = says(master, lambda line: line["event"] == "acted")
    assert acted["outcome"]["succeeded"]
    assert scene.size == 2

    master.kill()
    assert master.wait() == -signal.SIGKILL
    before = len(scene.metrics_recorded())
    master, _ = scene.master(port)
    says(master, tells("is here, reading for map:0"))
    # without its guard time the rule would act after 1 s, which is four rounds
    wait_until(lambda: len(scene.metrics_recorded()) >= before + 10)
    assert scene.size == 2

    agent.kill()
    says(master, tells("is gone"))
    scene.agent(port)
    says(master, tells("is here, reading for map:0"))

    (scene.folder / "rules.yaml").write_text(OTHER_RULES)
    says(master, lambda line: line["event"] == "renewed")
    wait_until(lambda: scene.metrics_recorded()[-1] == {"memory_utilization"})

    master.send_signal(signal.SIGTERM)
    ended = says(master, lambda line: line["event"] == "ended")
    assert ended["readings"] > 10
    assert (ended["wrong_tokens"], ended["broken"], ended["refused"]) == (0, 0, 0)
    assert master.wait() == 0
