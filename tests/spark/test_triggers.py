"""Steps that take batches at times of their own, in a pipeline where the others do so more often."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from running import BATCH_INTERVAL_S, LONGEST_BATCH_S, Numbers, Running, kept

from elastream.engines.spark.pipeline import Pipeline

TRIGGER_S = 2.0


def pipeline_in(folder: Path) -> Pipeline:
    pipeline = Pipeline("triggers")
    pipeline.feed("numbers", schema="n int")

    @pipeline.operator(reads="numbers")
    def often(numbers: DataFrame) -> DataFrame:
        return numbers

    @pipeline.operator(reads="often", trigger="2 seconds")
    def seldom(often: DataFrame) -> DataFrame:
        return often

    pipeline.keep("all", reads="seldom", folder=kept(folder, "all"))
    return pipeline


def begun_s(running: Running, name: str) -> list[float]:
    """When its batches began."""
    told = [entry for entry in running.engine.progress_of(name) if entry["numInputRows"]]
    return [datetime.fromisoformat(entry["timestamp"]).timestamp() for entry in told]


def test_a_step_takes_batches_at_its_own_trigger_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with Running(spark, pipeline_in(tmp_path), tmp_path) as running:
        with Numbers(running, "numbers", per_tick=5) as numbers:

            def is_more_often() -> bool:
                return len(begun_s(running, "often")) > len(begun_s(running, "seldom")) >= 4

            running.wait_until(is_more_often, "four batches at its trigger, and more of what has none")
        running.drain()
        seldom = begun_s(running, "seldom")
        # Spark's triggers lie at multiples of their length; on a slow machine some are passed over
        assert len({int(at_s / TRIGGER_S) for at_s in seldom}) == len(seldom)
        assert sorted(n for (n,) in running.kept("all")) == list(range(numbers.count))
        costs = running.measured()[-1].batch_costs
        assert costs["seldom"].longest_batch_s == TRIGGER_S
        assert costs["often"].longest_batch_s == max(BATCH_INTERVAL_S, LONGEST_BATCH_S)
