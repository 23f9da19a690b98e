"""A short run of `make exactly-once`, and the crashes whose recovery is the most delicate."""

from __future__ import annotations

from pathlib import Path

from exactly_once import Story, crash_in, kill_in_a_repartition, tell

from elastream.engines.spark.channels.kinds import Files, Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.kafka.broker import Broker


def test_kills_and_rescales_lose_and_repeat_nothing(tmp_path: Path) -> None:
    tell(tmp_path, Story(kills=1, rescales=5, batches=4), Files())


def test_a_crash_after_a_publication_loses_and_repeats_nothing(tmp_path: Path) -> None:
    crash_in(tmp_path, CrashPoint.AFTER_THE_PUBLICATION, "counts", Files())


def test_kills_and_rescales_lose_and_repeat_nothing_in_kafka(tmp_path: Path, broker: Broker) -> None:
    tell(tmp_path, Story(kills=1, rescales=3, batches=3), Kafka(servers=broker.servers))


def test_messages_of_a_batch_that_was_not_published_stay_out_of_the_stream(tmp_path: Path, broker: Broker) -> None:
    """They lie in the topic, and cannot be cleared away like files."""
    crash_in(tmp_path, CrashPoint.AFTER_THE_TASKS, "counts", Kafka(servers=broker.servers))


def test_a_kill_while_state_is_moved_loses_and_repeats_nothing(tmp_path: Path) -> None:
    kill_in_a_repartition(tmp_path, "counts", Files())
