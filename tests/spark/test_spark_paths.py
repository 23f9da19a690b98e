"""Folders with odd names, and those of runs that gave Spark their paths without a scheme."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from running import Running, kept

from elastream.engines.spark import workspace as workspace_module
from elastream.engines.spark.channels import files as files_module
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.state import look

KEYS = 3
ODD = (
    "a b",
    "100%",
    "%20",
    "a%2Fb",
    "#x",
    "a?b",
    "{a,b}",
    "[a]*",
    "a:b=c;d&e+f",
    "über–日本",
    "'q'\"",
    "back\\",
    "~",
)


def counting(folder: Path) -> Pipeline:
    pipeline = Pipeline("p")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers", state_partitions=2, max_parallelism=4, output_mode="update")
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr(f"id % {KEYS} as key").groupBy("key").count()

    pipeline.keep("kept", reads="counts", folder=kept(folder, "counts"))
    return pipeline


def put_and_drain(running: Running, first: int, last: int) -> None:
    running.put("numbers", [(number,) for number in range(first, last)])
    running.drain()


def counted(running: Running) -> dict[int, int]:
    return dict(sorted(running.kept("counts")))


def expected(numbers: int) -> Counter[int]:
    return Counter(number % KEYS for number in range(numbers))


def test_a_pipeline_lives_in_folders_with_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*ODD)
    before = set(tmp_path.iterdir())
    for first, last in ((0, 20), (20, 50)):
        with Running(spark, counting(folder), folder) as running:
            put_and_drain(running, first, last)
            assert counted(running) == expected(last)
            assert look(running.workspace.checkpoint("counts")).partitions == 2, "Spark's checkpoint is here, too"
            refused = running.rescale(counts=4)
            assert "Spark cannot move state where the path has spaces, or signs such as % and #" in refused.detail
            assert running.engine.plan()["counts"] == 1, "and it goes on as before"
    assert {*tmp_path.iterdir()} - before == {tmp_path / ODD[0]}, "and nothing is beside it, escaped or mangled"
    at = tmp_path
    for name in ODD[:-1]:
        at /= name
        assert len(list(at.iterdir())) == 1, sorted(at.iterdir())


def test_a_run_whose_paths_had_no_scheme_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        for module in (workspace_module, files_module):
            earlier.setattr(module, "for_spark", str)
        with Running(spark, counting(tmp_path), tmp_path) as running:
            put_and_drain(running, 0, 20)
            checkpoints = running.workspace.folder / "checkpoints"
    with Running(spark, counting(tmp_path), tmp_path) as running:
        put_and_drain(running, 20, 50)
        assert counted(running) == expected(50)
        assert running.rescale(counts=4).succeeded, "its state can be moved"
        put_and_drain(running, 50, 60)
        assert counted(running) == expected(60)
    written = [path for path in checkpoints.rglob("*") if path.is_file()]
    naming = [path for path in written if str(tmp_path.name).encode() in path.read_bytes()]
    assert written
    assert naming == [], "no path is in a checkpoint"
