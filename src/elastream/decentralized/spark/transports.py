"""What lies between instances. Control messages are carried by TCP, which needs nothing, or by a broker of Kafka;
records lie in files, an inbox for each instance, or in topics that the instances of an operator share.

A run may go on with another carrier of messages than it began with: what is still to be said is in the journals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from elastream.decentralized.protocol.decision import Variant
from elastream.decentralized.protocol.messages import operator_of
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder
from elastream.decentralized.spark.living_protocol import LivingProtocol, Record
from elastream.decentralized.spark.settings import RunSettings, read_settings
from elastream.decentralized.spark.tcp import TcpTransport
from elastream.decentralized.spark.topic_names import control_topic, new_topics, records_topic
from elastream.engines.spark.kafka.topic import answers, away_text
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.errors import ElastreamError, InvalidInput, nearest

if TYPE_CHECKING:
    from elastream.decentralized.spark.topic_records import TopicRecords

TCP, FILES, KAFKA = "tcp", "files", "kafka"
_ANSWER_S = 20.0


class Transport(Interface):
    def start(self) -> None:
        """Receive, and send what waits."""
        ...

    def stop(self) -> None: ...


def transport_of(
    settings: RunSettings,
    protocol: LivingProtocol,
    run: RunFolder,
    *,
    record: Record,
    on_stale: Callable[[str], None],
) -> Transport:
    if settings.control == TCP:
        return TcpTransport(protocol, run, dead_after_s=settings.dead_after_s, record=record, on_stale=on_stale)
    from elastream.decentralized.spark.kafka_control import KafkaControl  # with a client of Kafka, an extra

    where = {"servers": settings.kafka_servers, "topics": settings.topics}
    return KafkaControl(protocol, run, **where, record=record, on_stale=on_stale)


def check_transport(settings: RunSettings) -> None:
    """Refuse what cannot work before anything starts."""
    for option, found, known in (
        ("--control", settings.control, (TCP, KAFKA)),
        ("--data", settings.data, (FILES, KAFKA)),
    ):
        if found not in known:
            raise InvalidInput(f"{option} is {' or '.join(known)}, found {found!r}{nearest(found, known)}")
    if settings.data == KAFKA and settings.policy.variant is Variant.COUNTED:
        raise InvalidInput("--data kafka: nobody knows how many instances share a topic: use the variant 'local'")
    if KAFKA in (settings.control, settings.data) and not answers(settings.kafka_servers, timeout_s=_ANSWER_S):
        why = away_text(settings.kafka_servers)
        raise ElastreamError(f"{why}: `elastream kafka start` runs a broker on this machine")


def check_same_data(settings: RunSettings, before: RunSettings, run: RunFolder) -> None:
    if settings.data != before.data:
        found = f"its records lie in {before.data}"
        raise InvalidInput(f"{run.path}: {found}, and it cannot go on with --data {settings.data}; or --fresh")


def records_of(
    settings: RunSettings, pipeline: Pipeline, folder: InstanceFolder, record: Record
) -> TopicRecords | None:
    """None where records lie in files."""
    if settings.data == FILES:
        return None
    from elastream.decentralized.spark.topic_records import OwnRecords, Route, SharedRecords

    step = pipeline[operator_of(folder.me)]
    route = Route(
        servers=settings.kafka_servers,
        topics=settings.topics,
        me=folder.me,
        reads=bool(step.reads),
        readers=pipeline.readers(step.name),
    )
    if step.kind is Kind.OPERATOR and step.state_partitions is None and route.readers:
        return SharedRecords(route, record)
    return OwnRecords(route, folder)


def with_topics(settings: RunSettings, pipeline: str) -> RunSettings:
    """With names for its topics, where it has any."""
    if KAFKA not in (settings.control, settings.data) or settings.topics:
        return settings
    return replace(settings, topics=new_topics(pipeline))


def delete_topics(run: RunFolder) -> list[str]:
    """Those of a run, before its folder is deleted; a message for each thing that is left behind."""
    settings = read_settings(run) if run.settings.exists() else None
    if settings is None or not settings.topics:
        return []
    where = settings.kafka_servers, settings.topics
    found = [control_topic(*where, folder.me) for folder in run.instances()]
    found += [records_topic(*where, operator) for operator in {operator_of(one.me) for one in run.instances()}]
    try:
        for topic in found:
            topic.delete()
    except ElastreamError as error:
        return [f"topics {settings.topics}-* are left behind: {error}"]
    return []
