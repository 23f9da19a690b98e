"""The topics of a run, with names that are readable, shared by no two runs, and such that Kafka takes them."""

from __future__ import annotations

import hashlib
import re
import uuid

from elastream.decentralized.protocol.messages import Address
from elastream.engines.spark.kafka.topic import Topic

PARTITIONS = 16
"""Of a topic with records, as in the thesis. More instances than that would have nothing to do."""
_CONTROL_SETTINGS = {
    # who has not read it by then is sent it again
    "retention.ms": "3600000",
    "segment.ms": "3600000",
}
_MOST_READABLE = 80  # letters of each part; Kafka allows 249 in all


def new_topics(pipeline: str) -> str:
    """What the names of a run's topics begin with: a fresh folder must not meet the messages of an old one."""
    return f"elastream-{_readable(pipeline)}-{uuid.uuid4().hex[:12]}"


def control_topic(servers: str, topics: str, instance: Address) -> Topic:
    """What is said to this instance. `topics` is what the names of a run's topics begin with."""
    name = _topic_name(topics, f"control-{instance}")
    return Topic(servers=servers, name=name, partitions=1, settings=_CONTROL_SETTINGS)


def records_topic(servers: str, topics: str, operator: str) -> Topic:
    """What this operator reads."""
    return Topic(servers=servers, name=_topic_name(topics, f"records-{operator}"), partitions=PARTITIONS)


def _topic_name(topics: str, what: str) -> str:
    """`what` may be long, and hold any letters."""
    return f"{topics}-{_readable(what)}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name)[:_MOST_READABLE]
