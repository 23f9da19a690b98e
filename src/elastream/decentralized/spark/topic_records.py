"""Records of an instance in topics: what it reads of the topic of its operator, what it puts into those of others.

`SharedRecords` is for instances of a stateless operator, which come and go: the broker shares the partitions out
among them. What a batch reads and what it puts out is one transaction, and the number of the batch means nothing.

`OwnRecords` is for the only instance of an operator: a source, a feed, an operator with state, a sink. A batch
that it runs again has the same records by its plan, and is not published again by its number.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from elastream.decentralized.protocol.load_meter import Arrived
from elastream.decentralized.protocol.messages import Address, operator_of
from elastream.decentralized.spark.folders import InstanceFolder
from elastream.decentralized.spark.inbox import Offset, Received
from elastream.decentralized.spark.living_protocol import Record
from elastream.decentralized.spark.plans import BatchPlans
from elastream.decentralized.spark.topic_names import records_topic
from elastream.decentralized.spark.topic_publisher import Marker, Publisher, Unsettled
from elastream.decentralized.spark.topic_readers import GroupReader, PlannedReader, Taken, TopicRecord
from elastream.engines.spark.channels.json_records import encode
from elastream.engines.spark.kafka.topic import BrokerAway, Topic

_TOPIC = "topic"
_CREATE_S = 10.0
_FORGET_S = 30.0
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Route:
    """Between which topics an instance works."""

    servers: str
    topics: str
    me: Address
    reads: bool
    """Whether it reads a topic: a source and a feed do not."""
    readers: Sequence[str]
    """The operators that read what it puts out."""

    @property
    def operator(self) -> str:
        return operator_of(self.me)

    @property
    def source(self) -> Topic:
        return records_topic(self.servers, self.topics, self.operator)

    @property
    def sinks(self) -> list[Topic]:
        return [records_topic(self.servers, self.topics, reader) for reader in self.readers]

    @property
    def name(self) -> str:
        return f"{self.topics}-{self.me}"


class TopicRecords(Received):
    """The records of one instance."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._publisher = Publisher(route.servers, route.name)
        self._started = False
        self._starting = threading.Lock()
        self._behind: dict[int, int] = {}
        """Before these offsets nobody reads again."""
        self._forgot_s = time.monotonic()

    def start(self) -> None:
        """Does nothing a second time."""
        with self._starting:
            if self._started:
                return
            for topic in (*([self._route.source] if self._route.reads else []), *self._route.sinks):
                topic.create(patience_s=_CREATE_S)
            self._begin()
            self._started = True

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def load(self, batch: int, most: int) -> Sequence[TopicRecord]:
        """What this batch is to read."""

    @abstractmethod
    def send(self, batch: int, records: pa.Table, came_s: float) -> int:
        """What was made of it; how many records were published. It is there once, now or with a later batch."""

    @abstractmethod
    def leave(self) -> None:
        """Read nothing more."""

    def forget(self) -> None:
        if self._behind and time.monotonic() - self._forgot_s > _FORGET_S:
            self._forgot_s = time.monotonic()
            behind, self._behind = self._behind, {}
            self._route.source.forget(behind)


class SharedRecords(TopicRecords):
    def __init__(self, route: Route, record: Record) -> None:
        super().__init__(route)
        self._record = record
        self._reader = GroupReader(route.source, route.source.name)
        self._taken: Taken | None = None
        self._settled = False

    def _begin(self) -> None:
        self._reader.start()

    def load(self, batch: int, most: int) -> Sequence[TopicRecord]:
        if self._taken is not None and self._taken.records:
            self._settled = False  # that batch came to nothing
        self._taken = None
        if not self._settled:
            try:
                self._publisher.settle()
            except BrokerAway:
                return ()  # next time
            self._reader.rewind()
            self._settled = True
        self._taken = self._reader.take(most)
        return self._taken.records

    def send(self, batch: int, records: pa.Table, came_s: float) -> int:
        taken = self._taken
        if taken is None or not taken.records:
            return 0
        try:
            sender = self._route.operator
            where = [taken.positions]
            self._publisher.publish(self._route.sinks, sender, encode(records), where, came_s=came_s)
        except (Unsettled, BrokerAway) as error:
            self._record("read again", why=str(error), records=len(taken.records))
            return 0  # what it has taken and not forgotten, it reads again
        self._taken = None
        self._behind = {**self._behind, **taken.positions.offsets}
        return int(records.num_rows)

    def arrived(self) -> Mapping[str, Arrived]:
        return self._reader.arrived()

    def pending(self) -> int:
        return self._reader.pending()

    def parts(self) -> int | None:
        return self._reader.parts()

    def leave(self) -> None:
        self._reader.close()


class OwnRecords(TopicRecords):
    def __init__(self, route: Route, folder: InstanceFolder) -> None:
        super().__init__(route)
        self._plans = BatchPlans(folder.plans)
        self._reader: PlannedReader | None = None
        self._just_read: tuple[int, list[TopicRecord]] | None = None
        self._marker: Marker | None = None
        self._published: int | None = None
        self._done = 0

    def _begin(self) -> None:
        if self._route.reads:
            self._reader = PlannedReader(self._route.source)
        if self._route.readers:
            self._marker = Marker(self._route.servers, self._route.sinks[0].name, self._route.name)

    def load(self, batch: int, most: int) -> Sequence[TopicRecord]:
        reader = self._reader
        assert reader is not None

        def latest(start: Mapping[str, Offset]) -> dict[str, Offset]:
            records, end = reader.read(_offsets(start.get(_TOPIC, {})), most)
            self._just_read = batch, records
            self._done += len(records)
            return {_TOPIC: {str(partition): {"offset": offset} for partition, offset in end.items()}}

        plan = self._plans.plan(batch, latest)
        start, end = _offsets(plan.start[_TOPIC]), _offsets(plan.end[_TOPIC])
        if self._just_read is None or self._just_read[0] != batch:
            self._just_read = batch, reader.read_again(start, end)
            self._done += len(self._just_read[1])
        self._behind = start
        return self._just_read[1]

    def send(self, batch: int, records: pa.Table, came_s: float) -> int:
        """Raises where it cannot be done now: Spark runs the batch again."""
        assert self._marker is not None
        why = ""
        for _ in range(_MOST_ATTEMPTS):
            self._publisher.settle()
            if self._published is None:
                self._published = self._marker.newest()
            if batch <= self._published or not records.num_rows:
                return 0
            try:
                marker, sender = self._marker.after(batch), self._route.operator
                self._publisher.publish(self._route.sinks, sender, encode(records), [marker], came_s=came_s)
            except Unsettled as error:
                self._published, why = None, str(error)
            else:
                self._published = batch
                return int(records.num_rows)
        raise BrokerAway(f"batch {batch} cannot be published: {why}")

    def arrived(self) -> Mapping[str, Arrived]:
        return {"all": Arrived(records=self._done, came_s=time.time())}

    def pending(self) -> int:
        return 0

    def leave(self) -> None:
        pass


def _offsets(offset: Offset) -> dict[int, int]:
    return {int(partition): at["offset"] for partition, at in offset.items()}
