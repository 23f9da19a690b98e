"""Records into topics, a transaction for each batch: all of it is there, with how far its input was read, or
nothing.

Every operator has a topic for what it reads, which its instances share (the thesis, Figure 4.2). A process that is
killed in a transaction leaves it open; the next one of the same instance, which has the same transactional id, has
it decided before it does anything else, and nobody reads it before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from elastream.engines.spark.kafka.topic import (
    MOST_MESSAGE_BYTES,
    BrokerAway,
    Topic,
    away_text,
    client_settings,
    within,
)
from elastream.errors import ElastreamError

_ANSWER_S = 5.0
_GRACE_S = 1.0
_PATIENCE_S = 10.0
_PRODUCER: dict[str, Any] = {
    "transaction.timeout.ms": 15_000,
    "message.timeout.ms": 10_000,
    "linger.ms": 5,
    "message.max.bytes": MOST_MESSAGE_BYTES,
    "allow.auto.create.topics": False,
}


class Unsettled(ElastreamError):  # noqa: N818 - reads better where it is raised
    """Whether a batch was published shows when the publisher has settled it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Positions:
    """How far a group has read a topic; `group` is its metadata at the time when it read."""

    topic: str
    offsets: Mapping[int, int]
    group: Any


class Publisher:
    def __init__(self, servers: str, transactional_id: str) -> None:
        self._servers = servers
        self._id = transactional_id
        self._producer: Any = None
        self._turn = 0

    def settle(self) -> None:
        """Return when every earlier transaction of this instance, of whatever process, is decided."""
        if self._producer is None:
            self._producer = self._begun()

    def publish(
        self,
        topics: Iterable[Topic],
        sender: str,
        records: Iterable[bytes],
        positions: Iterable[Positions],
        *,
        came_s: float,
    ) -> None:
        """Raises `Unsettled` or `BrokerAway` where it is not certain that it is done.

        `came_s` is by when the records had come into the pipeline: the time that their messages bear.
        """
        self.settle()
        # until it is done: one that has failed may refuse what comes next, and another settles what became of it
        producer, self._producer = self._producer, None
        try:
            producer.begin_transaction()
            self._put(producer, topics, sender.encode(), list(records), round(1000 * came_s))
            for one in positions:
                _send_positions(producer, one)
            _commit(producer)
        except TimeoutError:
            raise Unsettled("a batch is to be published again: nobody has answered") from None
        except KafkaException as error:
            raise Unsettled(f"a batch is to be published again: {error.args[0].str()}") from None
        self._producer = producer

    def _put(
        self, producer: Any, topics: Iterable[Topic], sender: bytes, records: list[bytes], came_ms: int
    ) -> None:
        for topic in topics:
            for index, record in enumerate(records):
                partition = (self._turn + index) % topic.partitions
                while True:
                    try:
                        producer.produce(topic.name, record, key=sender, partition=partition, timestamp=came_ms)
                        break
                    except BufferError:
                        producer.poll(0.1)
        self._turn += len(records)

    def _begun(self) -> Any:
        producer: Any = Producer(client_settings(self._servers) | _PRODUCER | {"transactional.id": self._id})
        try:
            _insist(lambda: producer.init_transactions(_ANSWER_S))
        except TimeoutError:
            raise BrokerAway(away_text(self._servers)) from None
        except KafkaException as error:
            raise BrokerAway(f"{away_text(self._servers)}: {error.args[0].str()}") from None
        return producer


def _send_positions(producer: Any, positions: Positions) -> None:
    places = [TopicPartition(positions.topic, partition, at) for partition, at in positions.offsets.items()]
    _in_time(lambda: producer.send_offsets_to_transaction(places, positions.group, _ANSWER_S))


def _commit(producer: Any) -> None:
    """Asking again is safe; whoever gives up knows nothing."""
    _insist(lambda: producer.commit_transaction(_ANSWER_S))


def _insist(call: Callable[[], Any]) -> None:
    """Again and again, while that may help."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            _in_time(call)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise


def _in_time(call: Callable[[], Any]) -> Any:
    return within(_ANSWER_S + _GRACE_S, call)


class Marker:
    """The newest batch of an instance that is in the topics: an offset, of a group of its own, that is committed
    in the same transaction."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        self._topic = topic
        self._servers = servers
        self._group = group
        self._consumer: Any = None

    def after(self, batch: int) -> Positions:
        group = self._client().consumer_group_metadata()
        return Positions(topic=self._topic, offsets={0: batch + 1}, group=group)

    def newest(self) -> int:
        """-1 where there is none. For a publisher that has settled."""
        consumer, place = self._client(), TopicPartition(self._topic, 0)
        try:
            found = _in_time(lambda: consumer.committed([place], timeout=_ANSWER_S))[0]
            if found.error is not None:  # not the same as nothing
                raise KafkaException(found.error)
        except (KafkaException, TimeoutError) as error:
            self._consumer = None
            raise BrokerAway(f"{away_text(self._servers)}: {error}") from None
        return int(found.offset) - 1 if found.offset > 0 else -1

    def _client(self) -> Any:
        if self._consumer is None:
            settings = {"group.id": self._group, "enable.auto.commit": False, "isolation.level": "read_committed"}
            self._consumer = Consumer(client_settings(self._servers) | settings)
        return self._consumer
