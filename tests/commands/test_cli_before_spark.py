"""What `elastream run` and `show` refuse before Spark is started, which takes up to minutes on a busy machine."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elastream.cli import app
from elastream.engines.spark import run as spark_run

PIPELINE = """
from elastream import Pipeline

pipeline = Pipeline("counted")
pipeline.feed("numbers", schema="id bigint")


@pipeline.operator(reads="numbers", max_parallelism=4)
def doubled(numbers):
    return numbers.selectExpr("2 * id AS id")


@pipeline.operator(reads="doubled", fixed=True)
def odd(doubled):
    return doubled.where("id % 2 = 1")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline; where Spark is started the test fails."""

    def start_session(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_run, "start_session", start_session)
    monkeypatch.setattr(spark_run, "check_java", lambda: None)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "counted.py"
    path.write_text(PIPELINE, encoding="utf-8")
    return path


def refused(*arguments: str | Path) -> str:
    ended = CliRunner().invoke(app, [*map(str, arguments)])
    assert ended.exit_code == 2, ended.output
    return re.sub(r"\s+", " ", ended.output)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """As another process that runs a pipeline there has it."""
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "kept").write_text("")
        yield


def test_a_plain_job_and_a_folder_are_told_what_to_do(file: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("SCHEMA = 'id bigint'\n", encoding="utf-8")
    said = refused("run", "plain.py")
    assert "plain.py: one Pipeline was expected at the top of the file, found 0; `elastream new NAME`" in said
    assert "`elastream submit`" in said
    assert ".: a Python file with a Pipeline was expected, found a folder" in refused("run", ".")


def test_a_misspelt_file_and_two_pipelines_in_one(file: Path) -> None:
    assert "cuonted.py: there is no such file (did you mean 'counted.py'?)" in refused("run", "cuonted.py")
    file.write_text(f"{PIPELINE}\nother = Pipeline('other')\n", encoding="utf-8")
    assert "found 2: 'counted' and 'other'; a file for each can be run" in refused("run", file)


def test_a_folder_that_is_in_use(file: Path, tmp_path: Path) -> None:
    with in_use(tmp_path / "out" / "counted"):
        said = refused("run", file, "--no-serve")
    assert "out/counted: another process runs this pipeline here" in said


def test_a_folder_that_is_in_use_is_not_deleted(file: Path, tmp_path: Path) -> None:
    with in_use(tmp_path / "out" / "counted"):
        said = refused("run", file, "--no-serve", "--fresh")
        assert (tmp_path / "out" / "counted" / "kept").exists()
    assert "another process runs this pipeline here" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "dubled=2"], "--start: the plan has no operator 'dubled' (did you mean 'doubled'?)"),
        (["--start", "doubled=9"], "--start: plan: 'doubled' may have 1 to 4 instances, found 9"),
        (["--start", "odd=2"], "--start: plan: 'odd' is fixed, its parallelism cannot be changed"),
        (["--start", "doubled"], "--start: OPERATOR=N with a whole number was expected, found 'doubled'"),
        (["--master", "locla[4]"], "--master is local[N], local[*], spark://HOST:PORT, yarn or"),
        (["--master", "local[0]"], "found 'local[0]'"),
        (["--master", "spark://127.0.0.1:1"], "no Spark master answers there"),
        (["--channel-bound", "0"], "channel_bound must be at least 1, found 0"),
        (["--batch-interval", "0 s"], "batch_interval_s must be at least 0.001, found 0"),
        (
            ["--channels", "kafka", "--kafka-servers", "127.0.0.1:1"],
            "does not answer: `elastream kafka start` runs",
        ),
    ],
)
def test_arguments_that_cannot_be_right(file: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    before = tmp_path / "out" / "counted" / "recording.jsonl"
    before.parent.mkdir(parents=True)
    before.write_text("")
    assert message in refused("run", file, "--no-serve", *arguments)
    assert message in refused("run", file, "--no-serve", "--fresh", *arguments)
    assert before.exists(), "nothing is deleted for a run that cannot begin"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("def halved(doubled):\n    doubled.select('id')", "'halved' returns nothing"),
        ("def halved(doubled, by):\n    return doubled", "'halved' takes (doubled, by), and is given"),
        ("def halved(doubled):\n    return doubled.groupBy('id').count()", "declare its state_partitions"),
    ],
)
def test_mistakes_in_functions_are_told_by_show_and_by_run(file: Path, function: str, message: str) -> None:
    file.write_text(f"{PIPELINE}\n\n@pipeline.operator(reads='doubled')\n{function}\n", encoding="utf-8")
    said = refused("show", file)
    assert "counted.py: 'halved' " in said
    assert message in said
    assert message in refused("run", file, "--no-serve")


def test_a_checkpoint_that_cannot_be_taken_over(file: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    said = refused("run", file, "--no-serve", "--from-checkpoint", f"numbers={nowhere}")
    assert "--from-checkpoint: 'numbers' is no @pipeline.source, expected one of none" in said, "it is a feed"
    text = file.read_text(encoding="utf-8").replace('pipeline.feed("numbers", schema="id bigint")', _SOURCE)
    file.write_text(text, encoding="utf-8")
    said = refused("run", file, "--no-serve", "--from-checkpoint", nowhere)
    assert f"{nowhere}: there is no such folder" in said


def test_a_latency_that_the_triggers_do_not_allow(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("max_parallelism=4", 'max_parallelism=4, trigger="10 seconds"')
    file.write_text(text, encoding="utf-8")
    said = refused("run", file, "--no-serve", "--latency", "5 s")
    assert "a latency of 5 s cannot be kept with the triggers of the pipeline: a record may wait for 20 s" in said


_SOURCE = """
@pipeline.source
def numbers(spark):
    return spark.readStream.format("rate").load()
"""
