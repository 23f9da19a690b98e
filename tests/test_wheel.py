"""The wheel alone: in an environment that has it and what it requires, and no repository beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PathDistribution, distribution
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from elastream import __version__
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
STEPS = "{steps: [[0, 1000], [15 min, 2000], [30 min, 600]]}"
"""The load of the example, in place of which a trace is put that is in the wheel."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make dist` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    (found,) = folder.iterdir()
    return found


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An environment with the wheel, and a folder to work in."""

    python: Path
    cwd: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return subprocess.run(
            [str(self.python.with_name("elastream")), *arguments],
            cwd=self.cwd,
            env=clean,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder, cwd = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("work")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=PATIENCE_S)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    _link_requirements(wheel, site_packages)
    for name in ("snapshot.json", "wordcount.yaml", "wordcount.py"):
        shutil.copy(ROOT / "examples" / name, cwd)
    scenario = (cwd / "wordcount.yaml").read_text(encoding="utf-8")
    assert STEPS in scenario
    (cwd / "traced.yaml").write_text(scenario.replace(STEPS, "{trace: worldcup98}"), encoding="utf-8")
    return Installed(python=python, cwd=cwd)


@pytest.fixture(scope="module")
def simulated(installed: Installed) -> subprocess.CompletedProcess[str]:
    """It leaves a recording for the others."""
    return installed.run("simulate", "wordcount.yaml", "--record", "recording.jsonl")


def _link_requirements(wheel: Path, site_packages: Path) -> None:
    """What the wheel requires without any extra, from the environment of the tests: nothing is fetched anew."""
    for name in _required(_metadata(wheel)):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            target = site_packages / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))


def _metadata(wheel: Path) -> Sequence[str]:
    with zipfile.ZipFile(wheel) as packed:
        (folder,) = {PurePosixPath(name).parts[0] for name in packed.namelist() if ".dist-info/" in name}
        return PathDistribution(zipfile.Path(packed, f"{folder}/")).requires or ()


def _required(requirements: Iterable[str]) -> Iterator[str]:
    """With what those require in turn."""
    waiting, seen = list(requirements), set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        waiting += distribution(requirement.name).requires or []
        yield requirement.name


# --- what is in it ----------------------------------------------------------------------------------------------


def test_all_of_the_package_is_in_it_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (parts,) = [name for name in packed.namelist() if ".dist-info/sboms/" in name]
        assert json.loads(packed.read(parts))["bomFormat"] == "CycloneDX"
        found = {name for name in packed.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = (file for file in (source / "elastream").rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert found == {file.relative_to(source).as_posix() for file in files}


def test_it_is_small(wheel: Path) -> None:
    """The papers' recorded data, of 2 MB, are not in it."""
    assert wheel.stat().st_size < 1_000_000


# --- what it does -----------------------------------------------------------------------------------------------


def test_it_is_this_one_and_not_the_repository(installed: Installed) -> None:
    assert installed.run("--version").stdout == f"elastream {__version__}\n"
    asked = [str(installed.python), "-c", "import elastream; print(elastream.__file__)"]
    said = subprocess.run(
        asked, cwd=installed.cwd, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert Path(said.stdout.strip()).is_relative_to(installed.python.parents[1])


def test_evaluate(installed: Installed) -> None:
    ended = installed.run("evaluate", "snapshot.json", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["parallelism"] == {"flatmap": 10, "count": 20}


def test_simulate_without_matplotlib_leaves_the_plot_out_and_says_so(
    simulated: subprocess.CompletedProcess[str],
) -> None:
    assert (simulated.returncode, simulated.stderr) == (0, "")
    said = "no plot: matplotlib is not installed: pip install 'elastream[plot]', recording: recording.jsonl"
    assert said in simulated.stdout


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    "arguments",
    [
        "policies",
        "replay recording.jsonl --json",
        "plan recording.jsonl --rate sentences=100",
        "compare traced.yaml --policies ds2,lag --json",
        "rules metrics",
        "new visits",
    ],
)
def test_the_other_commands_of_the_core(installed: Installed, arguments: str) -> None:
    ended = installed.run(*arguments.split())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


def test_the_doctor_says_what_is_missing(installed: Installed) -> None:
    ended = installed.run("doctor", "--json")
    assert (ended.returncode, ended.stderr) == (1, "")
    found = {one["check"]: one for one in json.loads(ended.stdout)["findings"]}
    assert (found["PySpark"]["found"], found["PySpark"]["advice"]) == (
        "not installed",
        "pip install 'elastream[spark]'",
    )


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("run wordcount.py", "spark"),
        ("serve recording.jsonl", "web"),
        ("simulate wordcount.yaml --serve", "web"),
        ("report recording.jsonl", "report"),
        ("agent --master localhost:7474 --operator count", "agents"),
    ],
)
def test_a_command_that_needs_more_names_it(installed: Installed, arguments: str, extra: str) -> None:
    ended = installed.run(*arguments.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"error: \w+ is not installed: pip install 'elastream\[{extra}\]'\n", ended.stderr)
