"""Queries of Nexmark beside their definitions, rescaled and broken off; `make nexmark-check` has all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from event_time_hosts import InThisProcess
from event_time_inputs import BEGIN_MS
from nexmark_by_definition import DEFINITIONS
from nexmark_check import NEXMARK, Story, faults, pipeline_of, run_story
from pyspark.sql import SparkSession
from running import Running

from elastream.engines.spark.channels.kinds import ChannelKind, Files
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import Topic
from elastream.errors import InvalidInput
from elastream.workloads.nexmark import BIDS, evenly
from elastream.workloads.nexmark_targets import Topics
from experiments.workloads.nexmark_queries import NOT_EXPRESSED, QUERIES, path_of

_SHORT = Story(events=20_000, rescales=2, kills=1)


@pytest.mark.parametrize("query", ["q5", "q8"])
def test_a_query_is_as_by_definition(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Hot items in sliding windows, and a join of tumbling ones: both of two operators with state."""
    channels: ChannelKind = Files()
    with InThisProcess(spark, partial(pipeline_of, query, tmp_path), tmp_path, channels) as host:
        run_story(host, query, tmp_path, channels, _SHORT, how="interrupt")
    wrong, rows = faults(query, tmp_path, _SHORT)
    assert wrong == []
    assert rows > 30, "there is something to find"


def test_events_behind_the_watermark_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    with Running(spark, pipeline_of("q11", tmp_path), tmp_path) as running:
        bids = running.workspace.channel(BIDS)
        for begin_ms in (BEGIN_MS + 60_000, BEGIN_MS):  # the second is a minute too late
            bids.append(NEXMARK.table(BIDS, 0, 500, evenly(events_per_s=1_000, begin_ms=begin_ms)))
            running.drain()
        late = [snapshot.measurements["sessions"].totals.records_late for snapshot in running.measured()]
    assert sum(count or 0 for count in late) > 0


def test_a_topic_with_other_records_is_refused(broker: Broker) -> None:
    from confluent_kafka import Producer

    mine = Topics("nexmark_own", broker.servers, [BIDS])
    events = NEXMARK.table(BIDS, 0, 500, evenly(events_per_s=1_000, begin_ms=BEGIN_MS))
    mine.write(BIDS, events)
    assert Topics("nexmark_own", broker.servers, [BIDS]).written(BIDS) == len(events)
    Topic(servers=broker.servers, name="nexmark_other-bids", partitions=4).create()
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce("nexmark_other-bids", b'{"id": 1, "word": "one"}')
    assert producer.flush(60) == 0
    with pytest.raises(InvalidInput, match=r"nexmark_other-bids has records of another schema.*found id, word"):
        Topics("nexmark_other", broker.servers, [BIDS])


def test_every_query_has_a_definition() -> None:
    assert set(DEFINITIONS) == set(QUERIES)
    assert {f"q{number}" for number in range(24)} == set(QUERIES) | set(NOT_EXPRESSED)


def test_an_unknown_query_is_told_with_the_nearest_and_one_that_is_left_out_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'q1"):
        path_of("q111")
    with pytest.raises(InvalidInput, match="no distinct aggregates"):
        path_of("q15")
