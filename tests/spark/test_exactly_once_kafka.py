"""A short run of `make exactly-once` over topics, and the crash that is another one there."""

from __future__ import annotations

from pathlib import Path

from exactly_once import Story, assert_each_once, crash_in, tell

from elastream.engines.spark.channels.kinds import Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.kafka.broker import Broker


def test_kills_and_rescales_lose_and_repeat_nothing_in_kafka(tmp_path: Path, broker: Broker) -> None:
    ending = tell(tmp_path, Story(kills=1, rescales=3, batches=3), Kafka(servers=broker.servers))
    assert_each_once(ending)
    assert min(ending.batches.values()) >= 6, "three in each of two lives"


def test_messages_of_a_batch_that_was_not_published_stay_out_of_the_stream(tmp_path: Path, broker: Broker) -> None:
    """They lie in the topic, and cannot be cleared away like files."""
    assert_each_once(crash_in(tmp_path, CrashPoint.AFTER_THE_TASKS, "counts", Kafka(servers=broker.servers)))
