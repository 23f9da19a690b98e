"""What the sink of a decentralized run keeps, batch by batch as Spark gives them; without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from elastream.decentralized.spark.data_job import DataJob
from elastream.decentralized.spark.folders import RunFolder
from elastream.decentralized.spark.settings import RunSettings
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.pipeline import Pipeline


class Batch:
    """Of a DataFrame only what a sink asks for."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def toArrow(self) -> pa.Table:  # noqa: N802 - as Spark calls it
        return pa.table({"id": pa.array(self._numbers, pa.int64())})


def keep(run: Path, kept: Path, batches: dict[int, Any]) -> None:
    """As a process of the sink does that starts in this folder."""
    pipeline = Pipeline("numbers")
    pipeline.feed("numbers", schema="id bigint")
    pipeline.keep("all", reads="numbers", folder=kept)
    folder = RunFolder(run).instance("all/0")
    folder.path.mkdir(parents=True, exist_ok=True)
    job = DataJob(pipeline, RunFolder(run), folder, RunSettings(pipeline=Path("p.py")), lambda *_: None)
    for number, batch in batches.items():
        job._write(batch, number)


def test_a_sink_keeps_what_comes_again_once_and_fresh_runs_behind_earlier_ones(tmp_path: Path) -> None:
    run, kept = tmp_path / "run", tmp_path / "kept"
    keep(run, kept, {0: Batch(0, 1), 1: Batch(), 2: Batch(2)})
    keep(run, kept, {2: Batch(2), 3: Batch(3)})  # killed before Spark had noted the last batch
    shutil.rmtree(run)  # as --fresh does
    keep(run, kept, {0: Batch(4), 1: Batch(5)})
    keep(tmp_path / "another", kept, {0: Batch(6)})
    found = [number for table in FileChannel(kept).tables() for number in table["id"].to_pylist()]
    assert found == list(range(7))
