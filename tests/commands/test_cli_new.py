"""`elastream new`: what it writes can be drawn as it is, and nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from elastream.cli import app
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.run import read_pipeline


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def elastream(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_it_is_written_and_drawn_and_told_how_to_run(here: Path) -> None:
    ended = elastream("new", "page-visits")
    assert ended.exit_code == 0, ended.output
    written = sorted(path.name for path in (here / "page-visits").iterdir())
    assert written == ["page_visits_records.py", "pipeline.py"]
    assert "run it:     elastream run page-visits/pipeline.py --interval '10 s'\n" in ended.output
    shown = elastream("show", "page-visits/pipeline.py", "--json")
    assert shown.exit_code == 0, shown.output
    assert [one["name"] for one in json.loads(shown.output)["operators"]] == [
        "visits",
        "checked",
        "per_page",
        "results",
    ]


def test_as_json() -> None:
    told = json.loads(elastream("new", "visits", "--folder", "a b", "--json").output)
    assert told == {
        "pipeline": "visits",
        "files": ["a b/pipeline.py", "a b/visits_records.py"],
        "run": "elastream run 'a b/pipeline.py' --interval '10 s'",
    }


def test_its_load_is_written_to_its_feed(here: Path) -> None:
    assert elastream("new", "visits").exit_code == 0
    file = read_pipeline(Path("visits/pipeline.py"))
    assert file.generator is not None
    module, *arguments = file.generator
    command = [sys.executable, "-m", module, str(here / "feed"), *arguments, "--tick", "0.05", "--duration", "0.3"]
    subprocess.run(command, check=True, timeout=60, cwd="/")
    feed = FileChannel(here / "feed")
    assert feed.log.head().records == 105, "350 a second"


@pytest.mark.parametrize("left", ["pipeline.py", "visits_records.py"])
def test_nothing_is_overwritten(here: Path, left: str) -> None:
    (here / "visits").mkdir()
    (here / "visits" / left).write_text("mine")
    ended = elastream("new", "visits")
    assert ended.exit_code == 2
    assert f"visits/{left} is there already" in ended.output
    assert [path.name for path in (here / "visits").iterdir()] == [left]
    assert (here / "visits" / left).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "2nd", "a/b", "../a", "a b", "{name}"])
def test_a_name_that_is_none(here: Path, name: str) -> None:
    ended = elastream("new", name)
    assert ended.exit_code == 2
    assert "NAME is made of letters" in ended.output
    assert not list(here.iterdir())


def test_a_folder_that_cannot_be_written(here: Path) -> None:
    (here / "visits").write_text("a file")
    ended = elastream("new", "visits")
    assert ended.exit_code == 2
    assert "error: visits: cannot be written: File exists" in ended.output
