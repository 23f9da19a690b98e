"""What the topics of a run are called: readable, shared by no two runs, and such that Kafka takes them."""

from __future__ import annotations

import hashlib
import re
import uuid

_MOST_READABLE = 80  # letters of each part; Kafka allows 249 in all


def new_topics(pipeline: str) -> str:
    """What the names of a run's topics begin with: a fresh folder must not meet the messages of an old one."""
    return f"elastream-{_readable(pipeline)}-{uuid.uuid4().hex[:12]}"


def topic_name(topics: str, what: str) -> str:
    """`what` may be long, and hold any letters."""
    return f"{topics}-{_readable(what)}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name)[:_MOST_READABLE]
