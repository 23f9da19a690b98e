"""Pipelines on a standalone cluster of real processes: executors follow the slots, and may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import cluster_story
import psutil
from running import wait_until

from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster

_PATIENCE_S = 600.0  # for a machine that does other things too
_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from elastream.cli import main
main()
"""


def options(folder: Path, **changes: int) -> ClusterOptions:
    return ClusterOptions(folder=folder, memory="1g", port=0, web_port=0, **changes)  # type: ignore[arg-type]


def test_executors_follow_the_slots_and_one_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with StandaloneCluster(options(tmp_path / "cluster", workers=3, cores=4)) as cluster:
        told = subprocess.run(
            [sys.executable, cluster_story.__file__, cluster.master_url, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert cluster.ended() == []
    assert told.returncode == 0, told.stdout
    seen = json.loads(told.stdout.splitlines()[-1])

    assert seen["executors at first"] == 1
    assert (seen["executors after growing"], seen["grown"]) == (3, "")
    assert "the plan has 13 slots and 3 executors with 12 are there" in seen["above all workers"]
    assert "the workers have room for 3" in seen["above all workers"]
    assert len(seen["replacements"]) == 1
    assert (seen["executors after shrinking"], seen["shrunk"]) == (2, "")
    assert seen["cores of those that stay"] == [4, 4], (
        "as they are shown: without the driver, and those that leave"
    )
    assert seen["runs changed"] == [], "neither new, nor killed, nor leaving executors restart a query"

    cluster_story.check_kept(tmp_path, seen["numbers"])


def test_the_command_says_who_died_and_ends_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _COMMAND, "cluster", "start", "--workers", "2", "--cores", "1"]
    command += ["--port", "0", "--web-port", "0", "--folder", str(tmp_path), "--json"]
    said = tmp_path / "said"
    with (
        said.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as run,
    ):
        assert run.stdout is not None
        printed = ""
        while not printed.endswith("\n}\n"):
            line = run.stdout.readline()
            assert line, f"it ended before it was up: {said.read_text()}"
            printed += line
        found = json.loads(printed)
        assert (found["workers"], found["master"][:18]) == (2, "spark://127.0.0.1:")
        os.killpg(found["pids"]["worker 1"], signal.SIGKILL)
        wait_until(lambda: "the worker 1 has ended by SIGKILL" in said.read_text(), said.read_text)
        assert run.poll() is None, "the other worker is still of use"
        run.send_signal(signal.SIGINT)
        assert run.wait(_PATIENCE_S) == 0
    assert not any(psutil.pid_exists(pid) for pid in found["pids"].values())
