"""`from elastream import ...`: what is there, that it is quick, and that it does what the command does."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import elastream
from docs.hooks.python_names import SECTIONS
from elastream.manager.events import Decided
from elastream.measurement.recording import read_recording
from tests.patience import PATIENCE_S
from tests.word_count import WORD_COUNT

ROOT = Path(__file__).parents[1]

SCENARIO = """\
name: steady
duration: 5 min
operators:
  source: {source: true, load: 500}
  map: {reads: source, capacity: 100}
"""


def test_the_names_for_type_checkers_are_those_for_python() -> None:
    tree = ast.parse((ROOT / "src/elastream/__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == elastream._HOMES
    assert set(elastream.__all__) == {*imported, "__version__"}
    assert set(elastream.__all__) <= set(dir(elastream))


def test_every_name_is_there_and_others_are_not() -> None:
    assert all(getattr(elastream, name) is not None for name in elastream.__all__)
    with pytest.raises(AttributeError, match="module 'elastream' has no attribute 'Pipelin'"):
        elastream.Pipelin  # noqa: B018
    with pytest.raises(ImportError):
        exec("from elastream import nothing_of_that_name")


def test_the_reference_shows_exactly_these() -> None:
    shown = [name for names in SECTIONS.values() for name in names]
    assert sorted(shown) == sorted(set(elastream.__all__) - {"__version__"})


def test_importing_it_imports_no_spark_and_none_of_its_own_parts() -> None:
    code = (
        "import sys, elastream\n"
        "parts = {name for name in sys.modules if name.startswith('elastream.')}\n"
        "assert parts == {'elastream._version'}, parts\n"
        "from elastream import *\n"
        "from elastream import Pipeline, evaluate, run, Policy, Engine\n"
        "print(sorted({'pyspark', 'pandas', 'fastapi', 'matplotlib', 'typer'} & set(sys.modules)))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_snapshot_is_evaluated() -> None:
    snapshot = elastream.read_snapshot(ROOT / "examples" / "snapshot.json")
    assert elastream.evaluate(snapshot).parallelism == {"flatmap": 10, "count": 20}
    roomy = elastream.evaluate(snapshot, "ds2", {"target_utilization": 0.5})
    assert roomy.parallelism == {"flatmap": 20, "count": 40}
    with pytest.raises(elastream.InvalidInput, match="unknown policy 'ds3'"):
        elastream.evaluate(snapshot, "ds3")
    assert WORD_COUNT["source_rates"] == dict(snapshot.source_rates)


def test_a_job_is_run_recorded_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "steady.yaml").write_text(SCENARIO)
    caplog.set_level(logging.INFO, "elastream")
    windows: list[elastream.Snapshot] = []
    decided: list[object] = []
    elastream.run(
        str(tmp_path / "steady.yaml"),
        engine="simulated",
        policy="ds2-paper",
        policy_options={"target_utilization": 0.5},
        knobs={"interval": "30 s"},
        folder=tmp_path / "run",
        duration="5 min",
        on_snapshot=windows.append,
        on_event=lambda event: decided.append(event) if isinstance(event, Decided) else None,
    )
    assert len(windows) == 10
    assert windows[-1].plan["map"] == 10, "500 records a second at half of 100 each"
    assert len(decided) == 1
    recorded = read_recording(tmp_path / "run" / "recording.jsonl")
    assert len(recorded.snapshots) == 10
    assert recorded.headers[0].options["target_utilization"] == 0.5
    assert "rescale: map 1 → 10" in caplog.messages


def test_what_run_is_given_is_checked(tmp_path: Path) -> None:
    (tmp_path / "steady.yaml").write_text(SCENARIO)
    target = tmp_path / "steady.yaml"
    with pytest.raises(elastream.InvalidInput, match=r"unknown engine 'spork' \(did you mean 'spark'\?\)"):
        elastream.run(target, engine="spork")
    with pytest.raises(elastream.InvalidInput, match="engine simulated: unknown option 'master'"):
        elastream.run(target, engine="simulated", engine_options={"master": "local"})
    with pytest.raises(elastream.InvalidInput, match="duration: a duration is a number of seconds"):
        elastream.run(target, engine="simulated", duration="soon")
    with pytest.raises(elastream.InvalidInput, match="the policy rules needs a file"):
        elastream.run(target, engine="simulated", policy="rules")


def test_who_imports_elastream_routes_its_log() -> None:
    handlers = logging.getLogger("elastream").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
