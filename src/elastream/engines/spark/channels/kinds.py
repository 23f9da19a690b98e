"""The kinds of channels that a pipeline can have between its operators: files, the default, Kafka, and others.

    channel.json    in the folder of a channel: its `kind`, and what that needs to open it, such as the servers and
                    the topic of Kafka; a channel of files has none

So a process that writes a feed needs to know the folder only. A kind of another package is an entry point of the
group `elastream.channels`: a frozen dataclass with the methods of `ChannelKind`, whose fields are its options.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.options import ChannelOptions
from elastream.errors import ElastreamError, InvalidInput
from elastream.options import build
from elastream.plugins import Registry, check_class
from elastream.whole_files import make_folder, remove_lasting, sync_files, write_json

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

    @classmethod
    def opened(cls, folder: Path, described: Mapping[str, Any]) -> DurableChannel:
        """The channel that lies in this folder, as its `channel.json` describes it."""
        ...

    @classmethod
    def delete(cls, described: Mapping[str, Any]) -> None:
        """Delete what a channel keeps outside of its folder."""
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

    @classmethod
    def opened(cls, folder: Path, described: Mapping[str, Any]) -> DurableChannel:
        return FileChannel(folder)

    @classmethod
    def delete(cls, described: Mapping[str, Any]) -> None:
        pass

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
            found = described_once(
                folder, {"kind": "kafka", "servers": self.servers, "topic": topic, "partitions": self.partitions}
            )
        if found["servers"] != self.servers:  # the broker has moved
            found = found | {"servers": self.servers}
            write_json(folder / _FILE, found)
        return self.opened(folder, found)

    @classmethod
    def opened(cls, folder: Path, described: Mapping[str, Any]) -> DurableChannel:
        from elastream.engines.spark.channels.kafka import KafkaChannel

        return KafkaChannel(folder, _topic(described))

    @classmethod
    def delete(cls, described: Mapping[str, Any]) -> None:
        _topic(described).delete()

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


_METHODS = ("channel", "opened", "delete", "jars", "check", "trouble")


def _checked(name: str, found: Any, origin: str) -> type[Any]:
    kind = check_class(found, _METHODS)
    if not is_dataclass(kind):
        raise InvalidInput(f"{kind.__name__} is not a dataclass, whose fields would be its options")
    return kind


_KINDS: Registry[type[Any]] = Registry(
    group="elastream.channels",
    what="a kind of channels",
    own=lambda: {"files": Files, "kafka": Kafka},
    check=_checked,
)


def kind_of(options: ChannelOptions) -> ChannelKind:
    found = _KINDS.named(options.kind)
    if found is Kafka and not options.settings:
        return Kafka(servers=options.kafka_servers)
    kind: ChannelKind = build(found, options.settings, place=f"--channels {options.kind}")
    return kind


def check_reachable(kind: ChannelKind) -> None:
    """Refuse, before Spark is started, what cannot be reached."""
    if (trouble := kind.trouble()) is not None:
        hint = ": `elastream kafka start` runs a broker on this machine" if isinstance(kind, Kafka) else ""
        raise ElastreamError(f"{trouble}{hint}")


def open_channel(folder: Path) -> DurableChannel:
    """The channel that lies in this folder, of whatever kind it is."""
    found = _read(folder)
    if found is None:
        return FileChannel(folder)
    channel: DurableChannel = _KINDS.named(found["kind"]).opened(folder, found)
    return channel


def check_kind(folder: Path, wanted: ChannelKind) -> None:
    """Refuse to go on with channels of another kind than those that lie in this folder."""
    for channel in sorted(folder.iterdir()):
        found = (_read(channel) or {"kind": "files"})["kind"]
        if found != wanted.name:
            raise InvalidInput(
                f"{channel}: the pipeline began with channels of the kind {found!r}, and cannot go on with "
                f"{wanted.name!r}; choose another folder, or begin anew"
            )


def delete_topics(folder: Path) -> list[str]:
    """Delete what the channels in this folder keep elsewhere, before it is deleted; what is left, as text."""
    left = []
    for path in sorted(folder.glob(f"*/{_FILE}")):
        found = _read(path.parent)
        assert found is not None
        try:
            _KINDS.named(found["kind"]).delete(found)
        except ElastreamError as error:
            left.append(f"the topic {found.get('topic', path.parent.name)} is left behind: {error}")
    return left


def _topic(described: Mapping[str, Any]) -> Any:
    from elastream.engines.spark.kafka.topic import Topic

    return Topic(servers=described["servers"], name=described["topic"], partitions=described["partitions"])


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
    if not isinstance(found, dict) or found.get("kind") not in _KINDS.names:
        raise InvalidInput(f"{path}: not a file of elastream's")
    return found


def described_once(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What is there in the end: the engine and the writer of a feed may both be the first."""
    make_folder(folder)
    beside = folder / f"{_FILE}.{uuid.uuid4().hex}"
    beside.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sync_files([beside])
    try:
        os.link(beside, folder / _FILE)
    except FileExistsError:
        pass
    finally:
        remove_lasting([beside])
    written = _read(folder)
    assert written is not None
    return written
