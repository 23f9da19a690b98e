"""What is particular to channels in Kafka: others' messages in the topic, a broker that is killed, its disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from running import Running, kept, wait_until

from elastream.engines.spark.channels import kafka
from elastream.engines.spark.channels.kafka import KafkaChannel
from elastream.engines.spark.channels.kafka_source import read_messages
from elastream.engines.spark.channels.kinds import Kafka, delete_topics, open_channel
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.channels.splits import Slice
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import Topic
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import ElastreamError


@pytest.fixture
def channel(broker: Broker, tmp_path: Path) -> KafkaChannel:
    made = Kafka(servers=broker.servers).channel(tmp_path / "channels" / "numbers", "tests")
    assert isinstance(made, KafkaChannel)
    made.create()
    return made


def numbers(*found: int) -> pa.Table:
    return pa.table({"id": pa.array(found, pa.int64())})


def ids(channel: KafkaChannel) -> list[int]:
    return [number for table in channel.tables() for number in table["id"].to_pylist()]


def test_what_is_appended_is_there_in_order(channel: KafkaChannel) -> None:
    channel.append(numbers(*range(5_000)))  # in several partitions
    channel.append(numbers())
    channel.append(numbers(5_000))
    assert ids(channel) == list(range(5_001))
    assert channel.log.head().commits == 2
    assert (
        len({s.path for commit in channel.log.all_commits() for s in commit.segments}) == channel.topic.partitions
    )
    assert open_channel(channel.log.folder).log.head() == channel.log.head()


class Disturbed(KafkaChannel):
    """A task of an attempt that was given up still writes while a batch is written: so many times."""

    def __init__(self, channel: KafkaChannel, *, times: int) -> None:
        super().__init__(channel.log.folder, channel.topic)
        self.times = times

    def _send_frame(self, frame: DataFrame) -> int:
        count = super()._send_frame(frame)
        if self.times > 0:
            self.times -= 1
            self._send([b'{"id":-1}'])
        return count


def test_a_late_task_of_an_attempt_that_was_given_up_adds_nothing(
    spark: SparkSession, channel: KafkaChannel
) -> None:
    disturbed = Disturbed(channel, times=2)
    disturbed._send([b'{"id":-1}'])
    assert disturbed.write(spark.range(20, numPartitions=3), 0) == 20
    assert disturbed.times == 0, "the attempts in which it wrote were given up"
    disturbed._send([b'{"id":-1}'])
    assert disturbed.write(spark.range(20, 25), 1) == 5
    assert sorted(ids(channel)) == list(range(25))


def test_a_topic_that_others_write_all_the_time_is_named(
    spark: SparkSession, channel: KafkaChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_MOST_ATTEMPTS", 2)
    with pytest.raises(ElastreamError, match="does something else write to this topic"):
        Disturbed(channel, times=1_000).write(spark.range(3), 0)
    assert channel.log.head().records == 0


def test_what_was_read_is_deleted_and_what_is_missing_is_an_error(channel: KafkaChannel) -> None:
    channel.append(numbers(1, 2))
    channel.append(numbers(3))
    channel.log.acknowledge("reader", StreamPosition(record=2, commit=1))
    assert channel.forget(["reader"]) == 1
    assert list(read_messages(channel.topic.servers, channel.topic.name, Slice(path="0", first=2, last=3)))
    with pytest.raises(
        ElastreamError, match="partition 0 the records 0 to 1 are missing, though a reader has still"
    ):
        list(read_messages(channel.topic.servers, channel.topic.name, Slice(path="0", first=0, last=2)))


def test_the_topics_of_a_folder_can_be_deleted(channel: KafkaChannel) -> None:
    folder = channel.log.folder.parent
    assert delete_topics(folder) == []
    wait_until(lambda: not channel.topic.exists(), "the topic is gone")
    assert delete_topics(folder) == [], "which does no harm a second time"


def test_a_killed_broker_is_waited_for_and_nothing_is_lost(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    pipeline = Pipeline("waiting")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers", parallelism=2)
    def marked(numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr("id", "id % 3 as key")

    @pipeline.operator(reads="marked", state_partitions=2, output_mode="update")
    def counts(marked: DataFrame) -> DataFrame:
        return marked.groupBy("key").count()

    for name in ("marked", "counts"):
        pipeline.keep(f"kept_{name}", reads=name, folder=kept(tmp_path, name))
    with Running(spark, pipeline, tmp_path, channels=Kafka(servers=broker.servers)) as running:
        running.put("numbers", [(number,) for number in range(50)])
        running.drain()
        running.put("numbers", [(number,) for number in range(50, 300)])
        broker.kill()
        try:
            gaps = running.engine.measure().gaps
            assert f"Kafka at {broker.servers} does not answer: the pipeline waits" in gaps
        finally:
            broker.start()
        wait_until(lambda: not any("Kafka" in gap for gap in running.engine.measure().gaps), "it answers again")
        running.put("numbers", [(number,) for number in range(300, 330)])
        running.drain()
        assert sorted(running.kept("marked")) == [(number, number % 3) for number in range(330)]
        assert dict(running.kept("counts")) == dict.fromkeys(range(3), 110)


def test_a_source_may_be_any_topic_through_sparks_own_connector(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = Topic(servers=broker.servers, name="of_others", partitions=2)
    topic.create()
    others = KafkaChannel(tmp_path / "others", topic)
    others._send([b"one", b"two"])
    pipeline = Pipeline("reading")

    @pipeline.source
    def lines(spark: SparkSession) -> DataFrame:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
        return (
            read.option("subscribe", topic.name)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("cast(value as string) as line")
        )

    pipeline.keep("kept", reads="lines", folder=kept(tmp_path, "kept"))
    with Running(spark, pipeline, tmp_path) as running:
        running.wait_until(lambda: len(running.kept("kept")) >= 2, "what was there is read")
        others._send([b"three"])
        running.wait_until(lambda: len(running.kept("kept")) >= 3, "what comes is read")
        assert sorted(running.kept("kept")) == [("one",), ("three",), ("two",)]
