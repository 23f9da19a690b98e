"""The file of a pipeline: it finds the modules beside it, and so do the processes that write to its feeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.run import PipelineFile, read_pipeline
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"

PIPELINE = """
from elastream.engines.spark.pipeline import Pipeline
from beside_the_pipeline import SCHEMA

pipeline = Pipeline("numbers")
pipeline.feed("numbers", schema=SCHEMA)


@pipeline.sink(reads="numbers")
def forget(batch, batch_id): ...


load = {"constant": 400}
records = "beside_the_pipeline:squares"
"""
BESIDE = """
import pyarrow as pa

SCHEMA = "square bigint"


def squares(first, count, *, created_ms):
    return pa.table({"square": pa.array([n * n for n in range(first, first + count)], pa.int64())})
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineFile:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.delitem(sys.modules, "beside_the_pipeline", raising=False)
    (tmp_path / "numbers.py").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "beside_the_pipeline.py").write_text(BESIDE, encoding="utf-8")
    return read_pipeline(tmp_path / "numbers.py")


def test_modules_beside_the_file_are_found(file: PipelineFile) -> None:
    assert file.pipeline["numbers"].schema == "square bigint"


def test_one_that_has_the_name_of_another_does_not_take_its_place(file: PipelineFile, tmp_path: Path) -> None:
    import numbers

    assert not Path(str(numbers.__file__)).is_relative_to(tmp_path)
    assert sys.path[-1] == str(tmp_path)


def test_the_generator_writes_what_a_function_beside_the_file_makes(file: PipelineFile, tmp_path: Path) -> None:
    assert file.generator is not None
    module, *arguments = file.generator
    feed = FileChannel(tmp_path / "feed")
    ended = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path / "feed"), *arguments, "--tick", "0.05", "--duration", "0.3"],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert feed.log.head().records == 120


def test_what_is_imported_from_beside_is_sent_to_processes_that_do_not_have_it(file: PipelineFile) -> None:
    squares = sys.modules["beside_the_pipeline"].squares
    sent = cloudpickle.dumps(squares)  # type: ignore[no-untyped-call]
    asked = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(3, 2, created_ms=0).to_pydict())"
    ended = subprocess.run(
        [sys.executable, "-c", asked], input=sent, capture_output=True, timeout=PATIENCE_S, check=True
    )
    assert ended.stdout.decode() == "{'square': [9, 16]}\n"


@pytest.mark.slow
@pytest.mark.parametrize("example", ["google_trace", "taxi_hotspots", "taxi_zones", "wordcount"])
def test_an_example_is_read_from_anywhere(example: str, tmp_path: Path) -> None:
    """In a process that has neither the repository nor its folder on its path."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    file = str(EXAMPLES / f"{example}.py")
    asked = f"from elastream.cli import main; import sys; sys.argv = ['', 'show', {file!r}]"
    ended = subprocess.run(
        [sys.executable, "-c", f"{asked}; main()"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
