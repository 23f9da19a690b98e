"""What stands after `--` is for the pipeline file; `--conf` and `--packages` are for its session."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from elastream import run as run_from_python
from elastream.cli import app
from elastream.engines.spark import run as spark_run

PIPELINE = """
import argparse

from elastream import Pipeline

parser = argparse.ArgumentParser()
parser.add_argument("--most", type=int, default=3)
parser.add_argument("--serve", action="store_true")
given = parser.parse_args()

pipeline = Pipeline("served" if given.serve else "counted", conf={"spark.a": "1"})
pipeline.feed("numbers", schema="id bigint")


@pipeline.operator(reads="numbers", parallelism=given.most)
def doubled(numbers):
    return numbers.selectExpr("2 * id AS id")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counted.py").write_text(PIPELINE, encoding="utf-8")
    return tmp_path / "counted.py"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the session is asked for; nothing is started."""
    found: dict[str, Any] = {}

    def start_session(name: str, **given: Any) -> None:
        found.update(given, name=name, argv=list(sys.argv))
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_run, "start_session", start_session)
    monkeypatch.setattr(spark_run, "check_java", lambda: None)
    return found


def elastream(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_arguments_after_two_dashes_are_for_the_file(file: Path) -> None:
    before = list(sys.argv)
    assert '"parallelism": 3' in elastream("show", file, "--json").output
    assert '"parallelism": 7' in elastream("show", file, "--json", "--", "--most", "7").output
    assert sys.argv == before


def test_a_mistake_in_them_is_told_by_the_file(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = elastream("show", file, "--", "--most", "many")
    assert ended.exit_code == 2
    assert "counted.py: error: argument --most: invalid int value: 'many'" in ended.output + capfd.readouterr().err


def test_without_the_dashes_they_are_refused(file: Path) -> None:
    ended = elastream("show", file, "7")
    assert ended.exit_code == 2
    assert "unexpected extra argument" in ended.output


def test_help_says_so() -> None:
    for command in (["run"], ["show"], ["capacity"], ["decentralized", "run"]):
        assert "[-- ARGUMENTS...]" in re.sub(r"\s+", " ", elastream(*command, "--help").output), command


def test_a_run_hands_them_on_with_settings_and_packages(file: Path, asked: dict[str, Any]) -> None:
    command = ["run", file, "--no-serve", "--conf", "spark.b=2", "--conf", "spark.a=3", "--packages", "g:x:1"]
    elastream(*command, "--", "--serve")
    assert asked["name"] == "served"
    assert asked["conf"] == {"spark.a": "3", "spark.b": "2"}
    assert asked["packages"] == ("g:x:1",)


def test_functions_find_them_too_while_the_pipeline_runs(file: Path, asked: dict[str, Any]) -> None:
    before = list(sys.argv)
    elastream("run", file, "--no-serve", "--", "--most", "7")
    assert asked["argv"] == [str(file), "--most", "7"]
    assert sys.argv == before


def test_bad_settings_are_refused(file: Path, asked: dict[str, Any]) -> None:
    for option, wrong, message in (
        ("--conf", "timeZone=UTC", "--conf: a setting of Spark has a name such as"),
        ("--packages", "avro", "--packages: GROUP:ARTIFACT:VERSION was expected"),
    ):
        ended = elastream("run", file, "--no-serve", option, wrong)
        assert ended.exit_code == 2
        assert message in re.sub(r"\s+", " ", ended.output)
    assert not asked


def test_they_are_for_spark(file: Path) -> None:
    ended = elastream("run", file, "--engine", "simulated", "--", "--serve")
    assert ended.exit_code == 2
    assert "-- ARGUMENTS: for the engine spark, found --engine simulated" in re.sub(r"\s+", " ", ended.output)


def test_from_python(file: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_from_python(file, arguments=["--serve"], conf={"spark.b": True})
    assert (asked["name"], asked["conf"]) == ("served", {"spark.a": "1", "spark.b": "true"})


@pytest.mark.parametrize("arguments", [("--most", "2"), ("incoming",)])
def test_what_is_meant_for_the_file_and_not_behind_the_mark(file: Path, arguments: tuple[str, ...]) -> None:
    ended = elastream("run", file, *arguments)
    assert ended.exit_code == 2
    assert "what is for the pipeline file stands after --" in re.sub(r"[\s│]+", " ", ended.output)
    assert "stands after --" not in elastream("run", file, *arguments, "--", "--most", "2").output
