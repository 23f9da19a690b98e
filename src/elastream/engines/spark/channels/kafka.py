"""A channel in Kafka: the records are messages of a topic, and the log says which of them are in the stream.

A segment is a range of offsets of a partition. What else lies in the topic is never read.

**Why every record is in the stream once.** Spark's writer for Kafka puts records there at least once: a task that
is tried again writes a second time what it wrote before, and a task of an attempt that was given up may go on
writing for a while. So it is noted where the partitions end, before an attempt and after it, and the attempt is
published only if the ranges in between hold as many messages as the batch has records. That is enough:

- The attempt has succeeded, so every record of the batch was acknowledged by all replicas (`acks=all`). Its offset
  is not before the first note, as it was sent after that, and it is before the second, as it was acknowledged by
  then.
- So the records of the batch take at least as many offsets in the ranges as there are records. If the ranges have
  no more offsets than that, nothing else is in them: no copy, no message of anybody else. (Offsets have no holes,
  as nothing in the topic is compacted or transactional.)
- The records are counted by the tasks that put them out, with `DataFrame.observe` in the last stage, where Spark
  counts each partition of the batch once, however often it was tried.

Else the batch is written again, behind what is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.counting import counting
from elastream.engines.spark.channels.json_records import as_json, check_schema, decode, encode
from elastream.engines.spark.channels.kafka_source import FORMAT, read_messages
from elastream.engines.spark.channels.segments import Segment, SegmentLog, StreamPosition
from elastream.engines.spark.channels.source import read_stream
from elastream.engines.spark.channels.splits import Slice, splits
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.kafka.topic import (
    MOST_MESSAGE_BYTES,
    BrokerAway,
    Topic,
    away_text,
    client_settings,
    passes,
)
from elastream.errors import ElastreamError

_log = logging.getLogger("elastream")
_MOST_ATTEMPTS = 10
_RETRY_S = 0.5
_SEND_TIMEOUT_S = 60.0
_FEED_CHUNK = 1_000
"""Records of a feed that go to one partition before the next one gets some."""


class KafkaChannel:
    def __init__(self, folder: Path, topic: Topic) -> None:
        self.log = SegmentLog(folder)
        self.topic = topic
        self._producer: Any = None

    def create(self) -> None:
        self.topic.create()
        self.log.create()

    def write(self, frame: DataFrame, batch: int, *, event_time: str | None = None) -> int:
        """A commit has no cuts: several tasks write to a partition, so it is in no order."""
        for _ in range(_MOST_ATTEMPTS):
            before = self.topic.ends()
            count = self._send_frame(frame)
            segments = segments_between(before, self.topic.ends())
            crash_point(CrashPoint.AFTER_THE_TASKS, self.log.folder.name)
            if sum(segment.records for segment in segments) == count:
                self.log.publish(batch, segments)
                return count
        raise ElastreamError(self._disturbed())

    def append(self, records: pa.Table) -> None:
        """Waits for a broker that is away: a feed has nobody who would start it again."""
        batch = self.log.head().batch + 1
        messages = encode(records)
        for _ in range(_MOST_ATTEMPTS):
            segments = self._send_patiently(messages)
            if sum(segment.records for segment in segments) == len(messages):
                self.log.publish(batch, segments)
                return
        raise ElastreamError(self._disturbed())

    def stream(
        self, spark: SparkSession, schema: StructType, *, reader: str, control: Path, at_cuts: bool = False
    ) -> DataFrame:
        check_schema(schema, self.log.folder.name)
        where = {"servers": self.topic.servers, "topic": self.topic.name}
        folder = self.log.folder
        return read_stream(spark, FORMAT, folder, schema, reader=reader, control=control, at_cuts=at_cuts, **where)

    def tables(self) -> Iterator[pa.Table]:
        """As JSON says it: what the types were is known where the channel is read as a stream."""
        for commit in self.log.commits(StreamPosition(), self.log.position(StreamPosition())):
            for segment in commit.segments:
                part = Slice(path=segment.path, first=segment.first, last=segment.first + segment.records)
                for messages in read_messages(self.topic.servers, self.topic.name, part):
                    yield pa.json.read_json(pa.py_buffer(b"\n".join(messages)))

    def between(
        self, first: StreamPosition, last: StreamPosition, expected: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Some of its records in order, without Spark."""
        for part in splits(self.log.commits(first, last), first, last, 1):
            for one in part:
                for messages in read_messages(self.topic.servers, self.topic.name, one):
                    yield decode(messages, expected)

    def forget(self, readers: Sequence[str]) -> int:
        done = self.log.done_with(readers)
        if not done:
            return 0
        ends: dict[int, int] = {}
        for segment in (segment for commit in done for segment in commit.segments):
            partition = int(segment.path)
            ends[partition] = max(ends.get(partition, 0), segment.first + segment.records)
        try:
            self.topic.delete_before(ends)
        except BrokerAway:
            return 0  # next time
        return self.log.forget(readers, lambda commit: None)

    def _send_frame(self, frame: DataFrame) -> int:
        """How many records the tasks have put out, those of each partition of the frame counted once."""
        counted, records = counting(frame)
        messages = counted.select(
            as_json(frame).alias("value"),
            # a task to a partition, so that the records of a task stay in their order
            (F.spark_partition_id() % self.topic.partitions).alias("partition"),
        )
        writer = messages.write.format("kafka").mode("append").option("topic", self.topic.name)
        for name, value in _PRODUCER.items():
            writer = writer.option(f"kafka.{name}", value)
        writer.option("kafka.bootstrap.servers", self.topic.servers).save()
        return records()

    def _send_patiently(self, messages: Sequence[bytes]) -> list[Segment]:
        said = False
        while True:
            try:
                before = self.topic.ends()
                self._send(messages)
                return segments_between(before, self.topic.ends())
            except BrokerAway as error:
                if not said:
                    _log.warning("%s: the feed %s waits", error, self.log.folder.name)
                said = True
                time.sleep(_RETRY_S)

    def _send(self, messages: Sequence[bytes]) -> None:
        """In order: each partition gets a part of them, and partitions are read one after the other."""
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(client_settings(self.topic.servers) | _FEED_PRODUCER)
        producer = self._producer
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        parts = min(self.topic.partitions, -(-len(messages) // _FEED_CHUNK))
        for index, message in enumerate(messages):
            partition = index * parts // len(messages)
            while True:
                try:
                    producer.produce(self.topic.name, message, partition=partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(_SEND_TIMEOUT_S) > 0 or any(passes(error) for error in failed):
            producer.purge()
            self._producer = None
            raise BrokerAway(away_text(self.topic.servers))
        if failed:
            raise ElastreamError(f"{self.topic.name}: {failed[0].str()}")

    def _disturbed(self) -> str:
        return (
            f"{self.topic.name}: {_MOST_ATTEMPTS} times there were other messages among those of a batch: does "
            "something else write to this topic?"
        )


def segments_between(before: Mapping[int, int], after: Mapping[int, int]) -> list[Segment]:
    """What was put into each partition in between."""
    return [
        Segment(path=str(partition), first=before[partition], records=after[partition] - before[partition])
        for partition in sorted(before)
        if after[partition] > before[partition]
    ]


_PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.request.size": str(MOST_MESSAGE_BYTES),
    "max.block.ms": "30000",
    "delivery.timeout.ms": "60000",
    "request.timeout.ms": "20000",
}
_FEED_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "message.max.bytes": MOST_MESSAGE_BYTES,
    "message.timeout.ms": round(_SEND_TIMEOUT_S * 1000),
    "linger.ms": 5,
}
