"""Where the events of Nexmark are written: the feeds of a pipeline, folders of files, topics of Kafka."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from elastream.engines.spark.channels.json_records import encode
from elastream.engines.spark.channels.kafka_source import read_messages
from elastream.engines.spark.channels.kinds import open_channel
from elastream.engines.spark.channels.splits import Slice
from elastream.engines.spark.kafka.topic import Topic
from elastream.errors import ElastreamError, InvalidInput, nearest
from elastream.workloads.nexmark import SCHEMAS

_PARTITIONS = 4
_SEND_TIMEOUT_S = 60.0


class Target(Protocol):
    def written(self, stream: str) -> int:
        """Its records that are there already."""
        ...

    def write(self, stream: str, events: pa.Table) -> None: ...


class Feeds:
    """Of a pipeline: the channel of the first stream, and those of the others beside it."""

    def __init__(self, first: Path, streams: Sequence[str]) -> None:
        self._channels = {stream: open_channel(first.parent / stream) for stream in streams}
        for channel in self._channels.values():
            channel.create()

    def written(self, stream: str) -> int:
        return self._channels[stream].log.head().records

    def write(self, stream: str, events: pa.Table) -> None:
        self._channels[stream].append(events)


class FilesOf:
    """A folder for each stream, for Spark's readers of Parquet or JSON. A file is there when it is whole."""

    def __init__(self, folder: Path, kind: str, streams: Sequence[str]) -> None:
        if kind not in ("parquet", "json"):
            raise InvalidInput(
                f"--files: expected parquet or json, found {kind!r}{nearest(kind, ('parquet', 'json'))}"
            )
        self._folder, self._kind = folder, kind
        self._written = {stream: self._count(stream) for stream in streams}

    def written(self, stream: str) -> int:
        return self._written[stream]

    def write(self, stream: str, events: pa.Table) -> None:
        """The name of a file is where it begins and how many it has."""
        path = self._folder / stream / f"{self._written[stream]:012d}-{len(events)}.{self._kind}"
        beside = path.with_name(f".{path.name}")  # Spark passes over such a name
        if self._kind == "json":
            beside.write_bytes(b"".join(line + b"\n" for line in encode(events)))
        else:
            pq.write_table(events, beside)
        os.rename(beside, path)
        self._written[stream] += len(events)

    def _count(self, stream: str) -> int:
        folder = self._folder / stream
        folder.mkdir(parents=True, exist_ok=True)
        return sum(int(path.stem.split("-")[1]) for path in folder.glob(f"[0-9]*.{self._kind}"))


class Topics:
    """A topic for each stream, `PREFIX-bids` and so on, of JSON objects. One that has other records is refused."""

    def __init__(self, prefix: str, servers: str, streams: Sequence[str]) -> None:
        from confluent_kafka import Producer

        self._topics = {
            stream: Topic(servers=servers, name=f"{prefix}-{stream}", partitions=_PARTITIONS) for stream in streams
        }
        for stream, topic in self._topics.items():
            topic.create()
            _check_records(topic, stream)
        self._producer: Any = Producer({"bootstrap.servers": servers, "linger.ms": 50, "acks": "all"})

    def written(self, stream: str) -> int:
        return sum(self._topics[stream].ends().values())

    def write(self, stream: str, events: pa.Table) -> None:
        topic, messages = self._topics[stream], encode(events)
        failed: list[str] = []
        for number, message in enumerate(messages):
            while True:
                try:
                    self._producer.produce(
                        topic.name,
                        message,
                        partition=number % topic.partitions,
                        on_delivery=lambda error, _: failed.append(error.str()) if error else None,
                    )
                    break
                except BufferError:  # its queue is full: let it send
                    self._producer.poll(0.1)
        if self._producer.flush(_SEND_TIMEOUT_S) or failed:
            raise ElastreamError(f"the topic {topic.name}: cannot be written: {(failed or ['no answer'])[0]}")


def columns_of(stream: str) -> list[str]:
    return [column.split()[0] for column in SCHEMAS[stream].split(", ")]


def _check_records(topic: Topic, stream: str) -> None:
    """What is there already must be of this stream: the newest record of a partition says it."""
    for partition, end in topic.ends().items():
        newest = Slice(path=str(partition), first=max(end - 1, 0), last=end)
        for message in (
            message for messages in read_messages(topic.servers, topic.name, newest) for message in messages
        ):
            found = _columns(message)
            if found != columns_of(stream):
                raise InvalidInput(
                    f"the topic {topic.name} has records of another schema: "
                    f"expected {', '.join(columns_of(stream))}, found {', '.join(found) or 'no JSON object'}"
                )


def _columns(message: bytes) -> list[str]:
    try:
        record = json.loads(message)
    except ValueError:
        return []
    return list(record) if isinstance(record, dict) else []
