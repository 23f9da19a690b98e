"""The process of an instance: what it leaves tidy, what it does not come back from, and what it dies of."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elastream.decentralized.protocol.control import Controller, control_to_json
from elastream.decentralized.protocol.instance import InstancePhase, InstanceState
from elastream.decentralized.spark.folders import RunFolder, write_whole
from elastream.decentralized.spark.settings import RunSettings
from elastream.decentralized.spark.supervisor import DIED, NOT_AGAIN, pause_s
from elastream.engines.spark.run import read_pipeline
from tests.patience import PATIENCE_S

_PIPELINE = """
from elastream.engines.spark.pipeline import Pipeline

pipeline = Pipeline("numbers")
pipeline.feed("numbers", schema="id bigint")

@pipeline.operator(reads="numbers")
def same(numbers):
    return numbers
"""


def run_folder(folder: Path, pipeline: str = _PIPELINE) -> RunFolder:
    file, run = folder / "numbers.py", RunFolder(folder / "run")
    file.write_text(pipeline)
    RunSettings(pipeline=file, capacities={"same": 60.0}).write(run)
    return run


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=PATIENCE_S)


def instance(run: RunFolder, me: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "elastream.decentralized.spark.process", str(run.path), me)


def test_one_that_was_killed_when_all_was_said_is_tidied_up_and_does_not_come_back(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    folder = run.instance("same/0.1")
    graph = read_pipeline(tmp_path / "numbers.py").pipeline.graph()
    controller = Controller(RunSettings(pipeline=tmp_path / "numbers.py").place("same/0.1", graph))
    ended = replace(controller.initial(first=False), instance=InstanceState(phase=InstancePhase.ENDED))
    write_whole(folder.journal, control_to_json(ended))
    for left in (folder.inbox, folder.checkpoint):
        left.mkdir(parents=True)
    done = instance(run, "same/0.1")
    assert (done.returncode, "has ended: its place was given up" in done.stderr) == (NOT_AGAIN, True), done.stderr
    assert folder.has_ended, "its successors look for that"
    assert not folder.inbox.exists()
    assert not folder.checkpoint.exists()


def test_a_pipeline_that_cannot_be_read_now_may_be_read_later(tmp_path: Path) -> None:
    done = instance(run_folder(tmp_path, _PIPELINE[:-20]), "same/0")
    assert (done.returncode, "numbers.py" in done.stderr) == (DIED, True), done.stderr


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            "process.threading.excepthook = process._die_of; "
            "thread = process.threading.Thread(target=int, args=['x']); thread.start(); thread.join()",
            "ValueError: invalid literal for int()",
        ),
        (
            "process.start_supervisor = lambda *_: open('/nowhere/at/all'); "
            "process.InstanceProcess._carry_out(Mock(), Create('b/0.1'))",
            "FileNotFoundError",
        ),
    ],
    ids=["a thread that fails", "a copy that cannot be made"],
)
def test_who_misses_something_for_good_dies_to_begin_anew(program: str, why: str) -> None:
    before = "from unittest.mock import Mock; from elastream.decentralized.protocol.messages import Create; "
    before += "from elastream.decentralized.spark import process; "
    done = python("-c", f"{before}{program}; print('it lives on')")
    assert (done.returncode, why in done.stderr, done.stdout) == (DIED, True, ""), done.stderr


def test_a_supervisor_never_gives_up_and_waits_longer_each_time() -> None:
    pauses = [pause_s(failures) for failures in range(2_000)]
    assert pauses[:4] == [0, 1, 3, 7]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
