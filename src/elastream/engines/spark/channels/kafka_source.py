"""The Kafka channel as a Spark data source: tasks read exactly their records of a topic.

Why not Spark's own source for Kafka: the log of the channel says which records of the topic are in the stream, and
that source reads all of a partition, with what attempts left behind that were given up; and its splits follow the
partitions of the topic, not the parallelism of the operator at this moment.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.source import ChannelReader
from elastream.engines.spark.channels.splits import Slice
from elastream.engines.spark.kafka.topic import BrokerAway, away_text, client_settings, passes
from elastream.errors import ElastreamError

FORMAT = "elastream_kafka"
_BATCH_ROWS = 10_000
_POLL_S = 1.0
PATIENCE_S = 60.0
"""So long a task waits for a broker that is away. Then it fails; its query is started again once it is back."""


class KafkaChannelSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return KafkaChannelReader(self.options, schema)


class KafkaChannelReader(ChannelReader):
    """Options beside those of every channel: `servers`, `topic`."""

    def __init__(self, options: Any, schema: StructType) -> None:
        super().__init__(options, schema)
        self._servers = options["servers"]
        self._topic = options["topic"]

    def _read_slice(self, part: Slice, expected: Any) -> Iterator[Any]:
        from elastream.engines.spark.channels.json_records import decode

        for messages in read_messages(self._servers, self._topic, part):
            yield decode(messages, expected)


def read_messages(servers: str, topic: str, part: Slice) -> Iterator[list[bytes]]:
    """What the messages of a slice hold, in order: all of them, or an error."""
    from confluent_kafka import TopicPartition

    consumer = _consumer(servers)
    consumer.assign([TopicPartition(topic, int(part.path), part.first)])
    at, waiting_since = part.first, time.monotonic()
    try:
        while at < part.last:
            found: list[bytes] = []
            for message in consumer.consume(min(_BATCH_ROWS, part.last - at), timeout=_POLL_S):
                if message.error() is not None:
                    _check_error(message.error(), topic, part)
                elif message.offset() == at + len(found):
                    found.append(message.value())
                else:
                    raise _missing(topic, part.path, at + len(found), message.offset())
            if found:
                at, waiting_since = at + len(found), time.monotonic()
                yield found
            elif time.monotonic() - waiting_since > PATIENCE_S:
                _check_there(consumer, servers, topic, part)
                waiting_since = time.monotonic()
    finally:
        consumer.unassign()


def _check_error(error: Any, topic: str, part: Slice) -> None:
    """An error that passes is waited for; one that says that records are gone is not."""
    from confluent_kafka import KafkaError

    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise _missing(topic, part.path, part.first, part.last)
    if not passes(error):
        raise ElastreamError(f"{topic}, partition {part.path}: {error.str()}")


def _check_there(consumer: Any, servers: str, topic: str, part: Slice) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, int(part.path)), timeout=_POLL_S * 10)
    except KafkaException as error:
        if passes(error.args[0]):
            raise BrokerAway(away_text(servers)) from None
        raise ElastreamError(f"{topic}, partition {part.path}: {error.args[0].str()}") from None
    if low > part.first or high < part.last:
        raise _missing(topic, part.path, part.first if low > part.first else high, part.last)


def _missing(topic: str, partition: str, first: int, last: int) -> ElastreamError:
    return ElastreamError(
        f"{topic}: of partition {partition} the records {first} to {last - 1} are missing, though a reader has "
        "still to read them"
    )


@functools.cache
def _consumer(servers: str) -> Any:
    """One for the process, which Spark uses for many tasks, one after the other. It belongs to no group: the
    channel keeps the positions."""
    from confluent_kafka import Consumer

    return Consumer(
        client_settings(servers)
        | {
            "group.id": "elastream",  # asked for, never used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            # tasks take parts of a partition: what is fetched beyond a part is thrown away
            "queued.max.messages.kbytes": 8 * 1024,
        }
    )
