"""What carries control messages between instances: TCP, which needs nothing, or a broker of Kafka.

A run may go on with another one than it began with: what is still to be said is in the journals.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol as Interface

from elastream.engines.decentralized.folders import RunFolder
from elastream.engines.decentralized.kafka_control import KafkaControl, control_topic
from elastream.engines.decentralized.protocol import Protocol, Record
from elastream.engines.decentralized.settings import RunSettings, read_settings
from elastream.engines.decentralized.tcp import TcpTransport
from elastream.engines.spark.kafka.topic import answers, away_text
from elastream.errors import ElastreamError, InvalidInput, nearest

TCP, KAFKA = "tcp", "kafka"
_ANSWER_S = 20.0
_MOST_READABLE = 60


class Transport(Interface):
    def start(self) -> None:
        """Receive, and send what waits."""
        ...

    def stop(self) -> None: ...


def transport_of(
    settings: RunSettings,
    protocol: Protocol,
    run: RunFolder,
    *,
    record: Record,
    on_stale: Callable[[str], None],
) -> Transport:
    if settings.control == TCP:
        return TcpTransport(protocol, run, record=record, on_stale=on_stale)
    where = {"servers": settings.kafka_servers, "topics": settings.topics}
    return KafkaControl(protocol, run, **where, record=record, on_stale=on_stale)


def check_transport(settings: RunSettings) -> None:
    """Refuse what cannot work before anything starts."""
    known = (TCP, KAFKA)
    if settings.control not in known:
        found = settings.control
        raise InvalidInput(f"--control is tcp or kafka, found {found!r}{nearest(found, known)}")
    if settings.control == KAFKA and not answers(settings.kafka_servers, timeout_s=_ANSWER_S):
        why = away_text(settings.kafka_servers)
        raise ElastreamError(f"{why}: `elastream kafka start` runs a broker on this machine")


def with_topics(settings: RunSettings, pipeline: str) -> RunSettings:
    """With names for its topics: a run in a fresh folder must not meet the messages of an old one."""
    if settings.control != KAFKA or settings.topics:
        return settings
    readable = re.sub(r"[^A-Za-z0-9-]", "-", pipeline)[:_MOST_READABLE]
    return replace(settings, topics=f"elastream-{readable}-{uuid.uuid4().hex[:12]}")


def delete_topics(run: RunFolder) -> list[str]:
    """Those of a run, before its folder is deleted; what is left behind, in words."""
    settings = read_settings(run) if run.settings.exists() else None
    if settings is None or not settings.topics:
        return []
    try:
        for folder in run.instances():
            control_topic(settings.kafka_servers, settings.topics, folder.me).delete()
    except ElastreamError as error:
        return [f"topics {settings.topics}-* are left behind: {error}"]
    return []
