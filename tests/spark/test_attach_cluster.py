"""A plain streaming job on a standalone cluster: executors follow what its batches need, and are given back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attach_faults
import attach_story
import give_back_story
import pytest

from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster

_PATIENCE_S = 1800.0  # for a machine that does other things too


def told_by(*command: str) -> Any:
    ended = subprocess.run(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout
    return json.loads(next(line for line in reversed(ended.stdout.splitlines()) if line.startswith("{")))


@pytest.mark.long
def test_an_unmodified_job_is_sized_and_given_back(tmp_path: Path) -> None:
    options = ClusterOptions(folder=tmp_path / "cluster", memory="600m", port=0, web_port=0, workers=4, cores=1)
    with StandaloneCluster(options) as cluster:
        seen = told_by(attach_story.__file__, cluster.master_url, str(tmp_path))
    assert 1 <= seen["sized"] < 4, seen
    assert seen["is active"]
    assert any("values: a batch of" in reason for reason in seen["reasons"])
    assert seen["rows"] == seen["distinct"] == seen["highest"] + 1, "nothing lost, nothing twice"


@pytest.mark.long
def test_dynamic_allocation_is_taken_over_and_works_again_afterwards() -> None:
    seen = told_by(give_back_story.__file__)
    assert seen == {"most": 2, "taken": 1, "grown": 2, "shrunk": 1, "grown by dynamic allocation": 2}


@pytest.mark.long
def test_whatever_happens_to_elastream_the_job_has_its_results_and_its_executors(tmp_path: Path) -> None:
    """Each kind once; `make attach-faults` has 50."""
    seen = told_by(attach_faults.__file__, str(tmp_path), *map(str, range(len(attach_faults.KINDS))))
    assert seen["faults"] == dict.fromkeys(attach_faults.KINDS, 1)
    assert seen["raised"] == 0
    assert seen["rows"] == seen["distinct"] == seen["highest"] + 1, "nothing lost, nothing twice"
