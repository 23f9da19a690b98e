"""Windows like those of Nexmark's Q5 and Q8 over a small backlog; `make event-time` has a large one."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_time_kinds import differences
from nexmark_events import Events, draw_events
from nexmark_windows import (
    SPAN_S,
    hot_item_faults,
    hot_items,
    hottest_by_definition,
    new_users,
    new_users_by_definition,
    run_pipeline,
)
from pyspark.sql import SparkSession

from elastream.engines.spark.channels.kinds import Files


@pytest.fixture(scope="module")
def events() -> Events:
    return draw_events(20_000, span_s=SPAN_S, seed=1)


def test_the_hot_items_of_sliding_windows(spark: SparkSession, events: Events, tmp_path: Path) -> None:
    events.write(tmp_path, files=20)
    found = run_pipeline(spark, hot_items(tmp_path), tmp_path, Files())
    assert hot_item_faults(found, hottest_by_definition(events)) == []


def test_new_users_by_a_windowed_join(spark: SparkSession, events: Events, tmp_path: Path) -> None:
    events.write(tmp_path, files=20)
    expected = new_users_by_definition(events)
    found = run_pipeline(spark, new_users(tmp_path), tmp_path, Files())
    assert len(expected) > 30, "there is something to find"
    assert differences("by definition", found, expected) == []
