"""The kinds of channels that a pipeline can have between its operators: files, the default, and Kafka.

    channel.json    in the folder of a channel in Kafka: the servers and the topic; a channel of files has none

So a process that writes a feed needs to know the folder only.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.errors import ElastreamError, InvalidInput, nearest
from elastream.whole_files import write_json

_FILE = "channel.json"
_PARTITIONS = 4
_MOST_NAME = 200  # of the 249 letters that Kafka allows


class ChannelKind(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def records_in_folder(self) -> bool:
        """Whether tasks read and write in the folder of the pipeline, or elsewhere."""
        ...

    def channel(self, folder: Path, pipeline: str) -> DurableChannel:
        """The channel of this folder, which may be new."""
        ...

    def jars(self) -> list[Path]:
        """What a session of Spark needs in order to write it."""
        ...

    def check(self, spark: SparkSession) -> None:
        """Refuse to start where it cannot work."""
        ...

    def trouble(self) -> str | None:
        """Why channels of this kind can be neither read nor written now; none where they can."""
        ...


@dataclass(frozen=True, kw_only=True)
class Files:
    name: str = "files"
    records_in_folder: bool = True

    def channel(self, folder: Path, pipeline: str) -> DurableChannel:
        return FileChannel(folder)

    def jars(self) -> list[Path]:
        return []

    def check(self, spark: SparkSession) -> None:
        pass

    def trouble(self) -> str | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Kafka:
    servers: str
    """As Kafka's clients want them: `host:port`, with commas between several."""
    partitions: int = _PARTITIONS
    """Of a new topic. The parallelism of its readers does not depend on it."""
    name: str = "kafka"
    records_in_folder: bool = False

    def channel(self, folder: Path, pipeline: str) -> DurableChannel:
        found = _read(folder)
        if found is None:
            topic = _topic_name(pipeline, folder.name)
            found = _write_once(
                folder, {"kind": "kafka", "servers": self.servers, "topic": topic, "partitions": self.partitions}
            )
        if found["servers"] != self.servers:  # the broker has moved
            found = found | {"servers": self.servers}
            _write(folder, found)
        return _kafka_channel(folder, found)

    def jars(self) -> list[Path]:
        from elastream.engines.spark.kafka.jars import JarUse, kafka_jars

        return kafka_jars().paths(JarUse.CONNECTOR)

    def check(self, spark: SparkSession) -> None:
        from elastream.engines.spark.kafka.topic import answers, away_text

        if "spark-sql-kafka" not in (spark.conf.get("spark.jars", None) or ""):
            raise ElastreamError("the session lacks Spark's connector for Kafka: start it with Kafka(...).jars()")
        if "kafka" in (spark.conf.get("spark.sql.sources.useV1SourceList") or ""):
            raise ElastreamError("spark.sql.sources.useV1SourceList must not name kafka, see session.py")
        if not answers(self.servers, timeout_s=20.0):
            raise ElastreamError(
                f"{away_text(self.servers)}: `elastream kafka start` runs a broker on this machine"
            )

    def trouble(self) -> str | None:
        from elastream.engines.spark.kafka.topic import answers, away_text

        return None if answers(self.servers) else away_text(self.servers)


def kind_of(name: str, *, kafka_servers: str) -> ChannelKind:
    kinds: dict[str, ChannelKind] = {"files": Files(), "kafka": Kafka(servers=kafka_servers)}
    if name not in kinds:
        raise InvalidInput(f"channels are files or kafka, found {name!r}{nearest(name, kinds)}")
    return kinds[name]


def open_channel(folder: Path) -> DurableChannel:
    """The channel that lies in this folder, of whatever kind it is."""
    found = _read(folder)
    return FileChannel(folder) if found is None else _kafka_channel(folder, found)


def check_kind(folder: Path, wanted: ChannelKind) -> None:
    """Refuse to go on with channels of another kind than those that lie in this folder."""
    for channel in sorted(folder.iterdir()):
        found = "files" if _read(channel) is None else "kafka"
        if found != wanted.name:
            raise InvalidInput(
                f"{channel}: the pipeline began with channels of the kind {found!r}, and cannot go on with "
                f"{wanted.name!r}; choose another folder, or begin anew"
            )


def delete_topics(folder: Path) -> list[str]:
    """Delete the topics of the channels in this folder, before it is deleted itself; what is left, in words."""
    left = []
    for path in sorted(folder.glob(f"*/{_FILE}")):
        found = _read(path.parent)
        assert found is not None
        try:
            _topic(found).delete()
        except ElastreamError as error:
            left.append(f"the topic {found['topic']} is left behind: {error}")
    return left


def _kafka_channel(folder: Path, found: dict[str, Any]) -> DurableChannel:
    from elastream.engines.spark.channels.kafka import KafkaChannel

    return KafkaChannel(folder, _topic(found))


def _topic(found: dict[str, Any]) -> Any:
    from elastream.engines.spark.kafka.topic import Topic

    return Topic(servers=found["servers"], name=found["topic"], partitions=found["partitions"])


def _topic_name(pipeline: str, channel: str) -> str:
    """With something that no other folder has: a fresh folder must not meet the records of an old one."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", f"elastream-{pipeline}-{channel}")
    return f"{readable[:_MOST_NAME]}-{uuid.uuid4().hex[:12]}"


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != "kafka":
        raise InvalidInput(f"{path}: not a file of elastream's")
    return found


def _write(folder: Path, found: dict[str, Any]) -> None:
    write_json(folder / _FILE, found)


def _write_once(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What is there in the end: the engine and the writer of a feed may both be the first."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{_FILE}.{uuid.uuid4().hex}"
    beside.write_text(json.dumps(found, indent=1), encoding="utf-8")
    try:
        os.link(beside, folder / _FILE)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
    written = _read(folder)
    assert written is not None
    return written
