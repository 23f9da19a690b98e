"""A policy and an engine of a second package, installed beside elastream, as the how-to pages show them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastream.measurement.recording import read_recording
from installing import install

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "plugins"
_COMMAND = "from elastream.cli import main; main()"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site")
    install(PACKAGE, found)
    return found


def elastream(site: Path, folder: Path, *arguments: str) -> Any:
    """What a command prints as JSON, in an environment that has the package."""
    paths = [str(site), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_policy_is_listed_with_where_it_comes_from(site: Path, tmp_path: Path) -> None:
    listed = {entry["name"]: entry for entry in elastream(site, tmp_path, "policies")}
    assert listed["headroom"]["origin"] == "elastream-example 1.0"
    assert [option["name"] for option in listed["headroom"]["options"]] == ["free"]
    assert listed["ds2"]["origin"] == ""


@pytest.mark.slow
def test_the_engine_runs_with_the_policy(site: Path, tmp_path: Path) -> None:
    """60 pieces of work a second at 0.05 s each keep 3 threads busy, so 4 leave a quarter of their time free."""
    settings = ["interval=0.5", "warm_up_intervals=0", "scale_down_delay=1 min", "most=6"]
    target = str(PACKAGE / "thumbnails.json")
    options = ["--engine", "threads", "--policy", "headroom", "--duration", "5 s", "--no-serve"]
    for setting in settings:
        options += ["--set", setting]
    told = elastream(site, tmp_path, "run", target, *options)
    assert told["pipeline"] == "thumbnails"
    assert 4 <= told["final_parallelism"]["work"] <= 6, "the most that was set"
    recorded = read_recording(tmp_path / "out" / "thumbnails" / "recording.jsonl")
    assert {window.plan["work"] for window in recorded.snapshots} >= {1, told["final_parallelism"]["work"]}
    assert [(header.engine, header.policy) for header in recorded.headers] == [("threads", "headroom")]


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("write-a-policy.md", "src/elastream_example/headroom.py"),
        ("write-a-policy.md", "pyproject.toml"),
        ("write-an-engine.md", "src/elastream_example/threads.py"),
    ],
)
def test_the_pages_show_the_package_as_it_is(page: str, path: str) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    language = "toml" if path.endswith(".toml") else "python"
    assert f'```{language} title="examples/plugins/{path}"\n{(PACKAGE / path).read_text()}```\n' in text
