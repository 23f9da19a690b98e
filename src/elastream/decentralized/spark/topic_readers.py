"""Records out of topics: by a member of a consumer group, and by the only instance of an operator.

Instances of a stateless operator are members of one group, and the broker says who reads which partitions. How far
a partition was read is committed with what was made of the records, in one transaction, under the generation of
the group in which they were read. When members come, go or die there is a new generation: what was read in an
older one can no longer be committed, so whoever has the partition now reads it again. So every record counts once.

The only instance of an operator with state, or of a sink, keeps its positions itself (`plans.py`): a batch that it
runs again must have the same records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException

from elastream.decentralized.protocol.load_meter import Arrived
from elastream.decentralized.spark.topic_publisher import Positions
from elastream.engines.spark.kafka.topic import BrokerAway, Topic, away_text, client_settings

_LOOK_S = 0.1
_ANSWER_S = 2.0
_CHUNK = 500
_MOST_BUFFERED = 20_000
_PATIENCE_S = 30.0
_STOP_S = 5.0
_CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
}
_MEMBER: dict[str, Any] = {
    # one that keeps its partitions over a new generation would have read ahead in an older one
    "partition.assignment.strategy": "roundrobin",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRecord:
    sender: str
    """The operator that it comes from."""
    value: bytes
    came_s: float
    """By when it, or what it was made of, had come into the pipeline: the time that its message bears."""
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    records: tuple[TopicRecord, ...]
    positions: Positions


class GroupReader:
    """A member of the group. It prefetches, which shows how much arrives."""

    def __init__(self, topic: Topic, group: str) -> None:
        self._topic = topic
        self._group = group
        self._lock = threading.Lock()
        self._buffer: deque[TopicRecord] = deque()
        self._membership: bytes | None = None
        """The group's metadata in the generation that gave us our partitions; none between two of them."""
        self._mine: list[int] = []
        self._next: dict[int, int] = {}
        """By partition: what was read before this is never to come again."""
        self._seen: dict[int, int] = {}
        self._arrived: dict[str, Arrived] = {}
        self._rewinding = False
        self._consumer: Any = None
        self._nobody = b""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        settings = client_settings(self._topic.servers) | _CONSUMER | _MEMBER | {"group.id": self._group}
        self._consumer = Consumer(settings)
        self._nobody = self._consumer.consumer_group_metadata()
        self._thread.start()

    def close(self) -> None:
        """Leave the group: what was taken and is not committed by then, others read."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def take(self, most: int) -> Taken:
        with self._lock:
            count = min(most, len(self._buffer)) if self._membership is not None else 0
            records = tuple(self._buffer.popleft() for _ in range(count))
            offsets = {one.partition: one.offset + 1 for one in records}
            positions = Positions(topic=self._topic.name, offsets=offsets, group=self._membership)
            return Taken(records=records, positions=positions)

    def rewind(self) -> None:
        """Read again from what is committed."""
        with self._lock:
            self._buffer.clear()
            self._rewinding = True

    def parts(self) -> int | None:
        """How many partitions it has; None between two generations."""
        with self._lock:
            return None if self._membership is None else len(self._mine)

    def arrived(self) -> Mapping[str, Arrived]:
        """By partition: records that this instance has met, each counted once."""
        with self._lock:
            return dict(self._arrived)

    def pending(self) -> int:
        with self._lock:
            return len(self._buffer)

    # In a thread of its own

    def _run(self) -> None:
        self._consumer.subscribe(
            [self._topic.name], on_assign=self._join, on_revoke=self._part, on_lost=self._part
        )
        paused = False
        while not self._stopping.is_set():
            self._place_where_asked()
            full = self.pending() >= _MOST_BUFFERED
            if full or paused:  # it goes on polling, or the group would take it for dead
                mine = self._consumer.assignment()
                (self._consumer.pause if full else self._consumer.resume)(mine)
            paused = full
            # one at a time: among several it would not show which were read before a new generation
            message = self._consumer.poll(_LOOK_S)
            if message is not None and message.error() is None:
                self._keep(_record(message))
        self._part()
        self._consumer.close()

    def _join(self, _: Any, partitions: Iterable[Any]) -> None:
        found = self._consumer.consumer_group_metadata()
        with self._lock:
            self._buffer.clear()
            # who is not in the group any more may commit what it likes: that must not be us
            self._membership = None if found == self._nobody else found
            self._mine = [one.partition for one in partitions]
            self._rewinding = True
        self._consumer.assign([])  # not before it is known where to begin

    def _part(self, *_: Any) -> None:
        with self._lock:
            self._buffer.clear()
            self._membership = None
            self._mine = []

    def _place_where_asked(self) -> None:
        """Begin at what is committed.

        The client would look that up itself. But where it is asked to do so again while somebody's transaction is
        still open, it takes the broker's "not yet" for "nothing", and begins at the beginning.
        """
        with self._lock:
            if not self._rewinding:
                return
            self._rewinding = False
            self._buffer.clear()
        begin = self._committed()
        if begin is None:
            with self._lock:
                self._rewinding = True
            return
        self._next = begin
        self._consumer.assign(self._topic.places(begin))

    def _committed(self) -> dict[int, int] | None:
        """None where nobody can say now."""
        if not self._mine:
            return {}
        try:
            found = self._consumer.committed(self._topic.places(dict.fromkeys(self._mine, 0)), timeout=_ANSWER_S)
        except KafkaException:
            return None
        if any(one.error is not None for one in found):
            return None
        return {one.partition: max(0, one.offset) for one in found}

    def _keep(self, record: TopicRecord) -> None:
        with self._lock:
            if self._rewinding or record.offset < self._next.get(record.partition, 0):
                return  # it is read again, or was read
            self._next[record.partition] = record.offset + 1
            self._buffer.append(record)
            if record.offset >= self._seen.get(record.partition, 0):
                self._seen[record.partition] = record.offset + 1
                key = str(record.partition)
                before = self._arrived.get(key)
                if before is None:
                    self._arrived[key] = Arrived(records=1, came_s=record.came_s)
                else:  # senders may lag differently, and time does not go back
                    came_s = max(before.came_s, record.came_s)
                    self._arrived[key] = Arrived(records=before.records + 1, came_s=came_s)


class PlannedReader:
    """Reads all partitions of a topic between positions that somebody else keeps."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._at: dict[int, int] | None = None
        self._consumer = Consumer(client_settings(topic.servers) | _CONSUMER | {"group.id": "elastream"})

    def read(self, start: Mapping[int, int], most: int) -> tuple[list[TopicRecord], dict[int, int]]:
        """What comes next, and where it ends; nothing may be there yet."""
        self._seek(start)
        assert self._at is not None
        messages = self._consumer.consume(most, _LOOK_S)
        found = [_record(message) for message in messages if message.error() is None]
        at = self._at  # a client that is set back by its broker does not set us back
        records = _ordered(one for one in found if one.offset >= at[one.partition])
        self._at |= {one.partition: one.offset + 1 for one in records}
        return records, dict(self._at)

    def read_again(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[TopicRecord]:
        """The records between two positions, the same ones each time."""
        self._seek(start)
        assert self._at is not None
        left = {partition for partition, offset in end.items() if offset > self._at.get(partition, 0)}
        found: list[TopicRecord] = []
        deadline_s = time.monotonic() + _PATIENCE_S
        while left:
            if time.monotonic() > deadline_s:
                self._at = None
                raise BrokerAway(away_text(self._topic.servers))
            for message in self._consumer.consume(_CHUNK, _LOOK_S):
                if message.error() is None:
                    record = _record(message)
                    if self._at[record.partition] <= record.offset < end.get(record.partition, 0):
                        found.append(record)
                        self._at[record.partition] = record.offset + 1
                    if record.offset + 1 >= end.get(record.partition, 0):
                        left.discard(record.partition)
        self._at = None  # it may have read beyond the end
        return _ordered(found)

    def _seek(self, start: Mapping[int, int]) -> None:
        wanted = {partition: start.get(partition, 0) for partition in range(self._topic.partitions)}
        if self._at != wanted:
            self._consumer.assign(self._topic.places(wanted))
            self._at = wanted


def _ordered(records: Iterable[TopicRecord]) -> list[TopicRecord]:
    """Partitions come in any order: the same each time is better for who has state."""
    return sorted(records, key=lambda one: (one.partition, one.offset))


def _record(message: Any) -> TopicRecord:
    return TopicRecord(
        sender=(message.key() or b"").decode(errors="replace"),
        value=message.value() or b"null",
        came_s=message.timestamp()[1] / 1000,
        partition=message.partition(),
        offset=message.offset(),
    )
