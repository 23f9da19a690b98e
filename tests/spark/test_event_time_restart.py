"""A query that is started again goes on as one that was never stopped: windows that closed with its last batch are
put out without more input, and a join still knows how far each of its inputs was."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from event_time_hosts import failing_at, settle_all
from plain import PlainQuery, composed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept

from elastream.engines.spark.checkpoint import newest_committed
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.pipeline import Pipeline

_BEGAN = datetime(2026, 11, 15, tzinfo=UTC)
_SCHEMA = "at timestamp, id long"
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


# A join, of which an input has fallen silent


def declare_join(folder: Path) -> Pipeline:
    pipeline = Pipeline("rejoined")
    pipeline.feed("left", schema=_SCHEMA)
    pipeline.feed("right", schema=_SCHEMA)

    @pipeline.operator(reads=("left", "right"), state_partitions=2, max_parallelism=4)
    def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
        left, right = (side.withWatermark("at", "1 second") for side in (left, right))
        near = F.expr("l.id = r.id AND r.at >= l.at AND r.at <= l.at + INTERVAL 2 SECONDS")
        joined = left.alias("l").join(right.alias("r"), near, "left_outer")
        return joined.select(F.col("l.id"), F.col("r.id").alias("right"))

    pipeline.keep("all", reads="pairs", folder=kept(folder, "all"))
    return pipeline


# What is out once the left has passed where the right ended: left rows up to there, those without a match as well
UP_TO_WHERE_THE_RIGHT_ENDED = [(second, second if second % 3 == 0 else None) for second in range(20)]


def stop_and_start(running: Running) -> None:
    running.engine.stop()
    running.engine = Running(running.engine._spark, declare_join(running.folder), running.folder).engine
    running.engine.start()


def move_state(running: Running) -> None:
    outcome = running.rescale(pairs=3)
    assert outcome.succeeded, outcome.detail
    assert running.engine._queries["pairs"].state_partitions == 3


@pytest.mark.parametrize(
    ("began", "disturb"),
    [
        (_BEGAN, move_state),
        (datetime(1970, 1, 2, tzinfo=UTC), stop_and_start),  # its milliseconds fit into an int of the JVM
    ],
    ids=["its state moved", "stopped"],
)
def test_a_join_that_starts_again_knows_how_far_an_input_was_that_is_silent_since(
    spark: SparkSession, tmp_path: Path, began: datetime, disturb: Any
) -> None:
    with Joined(spark, tmp_path, began) as joined:
        joined.put_first()
        disturb(joined.running)
        joined.put_of_the_left()
        assert joined.rows() == joined.plain_rows() == UP_TO_WHERE_THE_RIGHT_ENDED


def test_a_batch_that_is_run_again_knows_it_too(spark: SparkSession, tmp_path: Path) -> None:
    with Joined(spark, tmp_path, _BEGAN) as joined:
        joined.put_first()
        with failing_at(CrashPoint.AFTER_THE_PUBLICATION, "pairs") as happened:
            joined.put_of_the_left()
        assert happened
        assert joined.rows() == joined.plain_rows() == UP_TO_WHERE_THE_RIGHT_ENDED


class Joined:
    """The join here, and in a plain query that is never stopped; both are given the same."""

    def __init__(self, spark: SparkSession, folder: Path, began: datetime) -> None:
        self._began = began
        self._folder = folder
        self.running = Running(spark, declare_join(folder), folder)
        feeds = {name: self._plain_feed(spark, name) for name in ("left", "right")}
        self._plain = PlainQuery(spark, composed(spark, declare_join(folder), "pairs", feeds=feeds))

    def _plain_feed(self, spark: SparkSession, name: str) -> DataFrame:
        (self._folder / name).mkdir()
        return spark.readStream.schema(_SCHEMA).json(str(self._folder / name))

    def __enter__(self) -> Joined:
        self.running.__enter__()
        self._plain.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._plain.__exit__()
        self.running.__exit__()

    def put_first(self) -> None:
        """The right is ahead of the left, and ends."""
        self._put(left=range(0, 20), right=range(0, 60, 3))

    def put_of_the_left(self) -> None:
        self._put(left=range(90, 100))

    def _put(self, **seconds: range) -> None:
        for name, each in seconds.items():
            rows = [(self._began + timedelta(seconds=second), second) for second in each]
            lines = [json.dumps({"at": at.isoformat(), "id": second}) for at, second in rows]
            whole = self._folder / f"{name}-{each.start}.json"
            whole.write_text("\n".join(lines), encoding="utf-8")
            whole.rename(self._folder / name / whole.name)
            self.running.put(name, rows)
        self._plain.settle()
        settle_all(self.running)

    def rows(self) -> list[Any]:
        return sorted(self.running.kept("all"))

    def plain_rows(self) -> list[Any]:
        return sorted(self._plain.rows())
