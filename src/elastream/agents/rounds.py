"""What the master gives: what to do about its connections, rounds of readings, and counts of what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastream.agents.messages import FromMaster


@dataclass(frozen=True, kw_only=True, slots=True)
class Send:
    connection: int
    message: FromMaster


@dataclass(frozen=True, kw_only=True, slots=True)
class Close:
    connection: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tell:
    """Something that the people who run the master should know."""

    text: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceReading:
    operator: str
    instance: int
    agent: str
    taken_at_s: float
    """By the time of day: the agent's where its clock can be believed, else the master's."""
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """It was read while there was no connection, and is only of use to whoever looks at it later."""

    reading: InstanceReading


Effect = Send | Close | Tell | Late


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    number: int
    at_s: float
    window_s: float
    """Since the round before."""
    readings: tuple[InstanceReading, ...]
    up_to: Mapping[int, int]
    """By connection, the last reading that came over it: what is to be acknowledged."""


@dataclass(kw_only=True, slots=True)
class Counts:
    readings: int = 0
    late: int = 0
    superseded: int = 0
    """Replaced by a newer one before a round began that could hold it."""
    duplicates: int = 0
    wrong_tokens: int = 0
    refused: int = 0
    received_bytes: int = 0
    broken: int = 0
    """Connections closed for what they sent, or did not send."""
