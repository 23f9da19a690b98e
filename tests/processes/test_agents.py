"""`elastream master` and `elastream agent` as processes: a foreign engine is scaled, killed masters go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import elastream
from elastream.agents.engine_metrics import write_metrics
from elastream.measurement.recording import read_recording
from elastream.web.address import TOKEN_VARIABLE
from tests.patience import PATIENCE_S, wait_until

_PAGE_TOKEN = "of-the-page"
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
            env={
                **os.environ,
                "PYTHONPATH": str(Path(elastream.__file__).parents[1]),
                TOKEN_VARIABLE: _PAGE_TOKEN,
            },
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def master(self, port: int = 0, *more: str) -> tuple[subprocess.Popen[str], int]:
        process = self.starts(
            "master", "--rules", "rules.yaml", "--engine", "engine:Sizes", "--interval", "300 ms",
            "--port", str(port), "--folder", "state", "--record", *more,
        )  # fmt: skip
        return process, int(says(process, lambda line: line["event"] == "listening")["port"])

    @property
    def page(self) -> httpx.Client:
        """Of the master, with the token for actions."""
        (url,) = re.findall(r"page: (http://\S+)", (self.folder / "stderr").read_text())
        return self._stack.enter_context(
            httpx.Client(base_url=f"{url}api/v1/", headers={"Authorization": f"Bearer {_PAGE_TOKEN}"}, timeout=60)
        )

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
    impatience = threading.Timer(PATIENCE_S, process.kill)
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


def test_the_page_of_a_master_is_that_of_a_run(scene: Scene) -> None:
    """What agents read, what nobody brings, scaling by hand, and rules that are edited and taken back."""
    (scene.folder / "rules.yaml").write_text(OTHER_RULES.replace("memory_utilization", "heap_utilization"))
    master, port = scene.master(0, "--page-port", "0", "--view", "queue_length")
    scene.agent(port)
    says(master, tells("waits for heap_utilization, which nobody brings so far"))
    page = scene.page

    def read() -> object:
        return page.get("operators").json().get("map", {}).get("queue_length")

    wait_until(lambda: read() == 500, lambda: page.get("operators").text)
    assert [one["name"] for one in page.get("graph").json()["operators"]] == ["(input)", "map"]
    reasons = [one["text"] for one in page.get("run").json()["proposal"]["reasons"]]
    assert any("heap_utilization, which nobody brings" in text for text in reasons), reasons
    assert "elastream_operator_parallelism" in page.get("../../metrics").text

    by_hand = {"parallelism": {"map": 5}}
    refused = page.post("actions/scale", json=by_hand, headers={"Authorization": "no"})
    assert refused.status_code == 401
    assert page.post("actions/scale", json=by_hand).json()["done"]
    assert scene.size == 5
    assert page.get("decisions").json()[-1]["after"] == {"map": 5}

    without_guard = RULES.replace("    unless_scaled_out_within: 1 h\n", "")
    assert page.put("rules", json={"text": without_guard, "who": "Ada"}).status_code == 200
    says(master, lambda line: line["event"] == "acted" and line["outcome"]["plan"] == {"map": 6})
    assert page.post("rules/take-back", json={"who": "Bob"}).status_code == 200
    assert [one["who"] for one in page.get("rules/versions").json()] == ["the file", "Ada", "Bob"]
    assert "heap_utilization" in (scene.folder / "rules.yaml").read_text()
