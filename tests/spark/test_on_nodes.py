"""Nodes on Spark: workers are started and stopped by the delays, and executors and tasks follow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nodes_story
from running import kept, records

from elastream.engines.spark.channels.files import FileChannel

_PATIENCE_S = 600.0  # for a machine that does other things too


def test_nodes_join_and_leave_by_the_delays_and_every_record_comes_out_once(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, nodes_story.__file__, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    seen = json.loads(told.stdout.splitlines()[-1])

    assert seen["placement at first"] == ["right"], "in the middle; `broken` was to be first"
    assert "the worker broken has ended with status 1" in seen["told at first"]
    assert seen["placement after growing"] == ["right", "left", "far"]
    assert "marked on right (executor 0)" in seen["grown"]
    assert seen["delay after growing"] == 0.2
    succeeded, why, plan = seen["refused"]
    assert (succeeded, plan) == (False, 3)
    assert "no node is left" in why
    assert seen["shrunk"].endswith("far to leave")
    assert seen["placement after shrinking"] == ["right", "left"]
    assert seen["runs changed"] == [], "nodes that join or leave restart no query"

    marked = list(records(FileChannel(kept(tmp_path, "marked"))))
    assert sorted(number for number, _ in marked) == list(range(seen["numbers"]))
    assert {node for _, node in marked} == {"left", "right", "far"}
    later = {node for number, node in marked if number >= seen["last number when far had gone"]}
    assert later == {"left", "right"}
