"""What the master gives: what to do about its connections, rounds of readings, and counts of what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from elastream.agents.messages import FromMaster
from elastream.agents.numbers import Ranges
from elastream.measurement.late_reading import LateReading


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


Effect = Send | Close | Tell


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    number: int
    at_s: float
    window_s: float
    """Since the round before."""
    readings: tuple[InstanceReading, ...]
    received: Mapping[int, Ranges]
    """By connection, the readings that came over it: what is to be acknowledged."""
    late: tuple[LateReading, ...] = ()
    """What was read earlier and came since the round before, the oldest first."""

    def with_values(self, values: Mapping[str, Mapping[str, float]]) -> Round:
        """With what was brought for whole operators: each of their instances has it, or one that is made up."""
        known = {reading.operator for reading in self.readings}
        told = (
            replace(reading, values={**reading.values, **values.get(reading.operator, {})})
            for reading in self.readings
        )
        new = (
            InstanceReading(operator=name, instance=0, agent="", taken_at_s=self.at_s, values=own)
            for name, own in values.items()
            if own and name not in known
        )
        return replace(self, readings=(*told, *new))

    def followed_by(self, after: Round) -> Round:
        """Both as one, where nobody evaluated this one before the next was over."""
        aged = (replace(late, age_s=late.age_s + after.window_s) for late in self.late)
        late = (*aged, *_as_late(self.readings, after.window_s), *after.late)
        oldest_first = sorted(late, key=lambda one: -one.age_s)
        return replace(after, window_s=self.window_s + after.window_s, late=tuple(oldest_first))


def _as_late(readings: Iterable[InstanceReading], age_s: float) -> Iterator[LateReading]:
    found: dict[str, dict[str, dict[int, float]]] = {}
    for reading in readings:
        own = found.setdefault(reading.operator, {})
        for metric, value in reading.values.items():
            own.setdefault(metric, {})[reading.instance] = value
    return (LateReading(operator=name, age_s=age_s, values=values) for name, values in found.items())


@dataclass(kw_only=True, slots=True)
class Counts:
    readings: int = 0
    late: int = 0
    duplicates: int = 0
    wrong_tokens: int = 0
    refused: int = 0
    received_bytes: int = 0
    thinned: int = 0
    """Given up by agents, as an outage was longer than their memory."""
    broken: int = 0
    """Connections closed for what they sent, or did not send."""
