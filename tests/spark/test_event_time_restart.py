"""Windows that closed with the last batch of a run are put out by the next one, without more input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from event_time_hosts import settle_all
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept

from elastream.engines.spark.checkpoint import newest_committed
from elastream.engines.spark.pipeline import Pipeline

_BEGAN = datetime(2026, 11, 15, tzinfo=UTC)
_HOUR_S = 3_600.0  # between two triggers: in a run of seconds, only the batch with which it begins is run


def declare(folder: Path) -> Pipeline:
    pipeline = Pipeline("restarted")
    pipeline.feed("events", schema="at timestamp, key string")

    @pipeline.operator(reads="events", state_partitions=2)
    def counts(events: DataFrame) -> DataFrame:
        by_window = events.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds"), "key")
        return by_window.count().select(F.unix_seconds("window.start").alias("start"), "key", "count")

    pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
    return pipeline


def test_windows_that_closed_before_a_restart_are_put_out_after_it(spark: SparkSession, tmp_path: Path) -> None:
    running = Running(spark, declare(tmp_path), tmp_path, batch_interval_s=_HOUR_S)
    running.workspace.channel("events").create()
    running.put("events", [(_BEGAN + timedelta(seconds=second), "a") for second in range(60)])
    with running:
        done = running.workspace.checkpoint("counts")
        running.wait_until(lambda: newest_committed(done) == 0, "all records are counted")
        assert running.kept("all") == [], "the batch that puts windows out is the next one"
    with Running(spark, declare(tmp_path), tmp_path) as again:
        settle_all(again)
        starts = [int(_BEGAN.timestamp()) + 10 * window for window in range(5)]
        assert sorted(again.kept("all")) == [(start, "a", 10) for start in starts]
