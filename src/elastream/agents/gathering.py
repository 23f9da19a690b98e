"""What agents read, put into rounds: when a round is over, which reading is of it, and which come late.

The master sets the pace. A round is due every interval; agents are told when and read then, all at the same time,
so that a round holds one coherent picture, and it is over as soon as every agent that is alive was heard, or
after a short grace. What an agent read while it had no connection arrives late: it is no reading of the present
round, but fills the hole that it belongs to. Readings are numbered, so that one which is sent again counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elastream.agents.numbers import contains, with_number
from elastream.agents.roster import KnownAgent, TakenSample
from elastream.agents.rounds import Counts, InstanceReading, Round
from elastream.measurement.late_reading import LateReading

MOST_GRACE_S = 0.15
"""That a round waits for agents which are late."""
_ALIVE = 2.5  # intervals since it was last heard
_LATE = 1.5  # intervals


@dataclass(kw_only=True)
class Gathering:
    interval_s: float
    now_s: float
    """When it begins."""
    counts: Counts
    _late: list[tuple[KnownAgent, TakenSample]] = field(default_factory=list)
    """Since the last round."""
    _rounds: int = 0
    _due_s: float = field(init=False)
    _round_before_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._due_s = self.now_s + self.interval_s
        self._round_before_s = self.now_s

    def take(self, agent: KnownAgent, taken: TakenSample) -> None:
        if contains(agent.received, taken.sample.number):
            self.counts.duplicates += 1
            return
        agent.received = with_number(agent.received, taken.sample.number)
        self.counts.readings += 1
        newest = agent.newest
        if taken.sample.age_s > _LATE * self.interval_s or (
            newest is not None and newest.taken_s >= taken.taken_s
        ):
            self._late.append((agent, taken))
        else:
            if newest is not None:
                self._late.append((agent, newest))
            agent.newest = taken

    def next_in_s(self, now_s: float) -> float:
        return max(0.0, self._due_s - now_s)

    def looks_again_s(self, now_s: float) -> float:
        """When it has to look at the time again, if nothing happens before."""
        return self._due_s if now_s < self._due_s else self._due_s + self._grace_s

    def round(self, agents: Iterable[KnownAgent], now_s: float, wall_s: float) -> Round | None:
        """The round that is over now, if one is."""
        known = tuple(agents)
        if now_s < self._due_s or (now_s < self._due_s + self._grace_s and self._is_awaited(known, now_s)):
            return None
        self._rounds += 1
        found = Round(
            number=self._rounds,
            at_s=wall_s,
            window_s=now_s - self._round_before_s,
            readings=_newest(known),
            received={agent.connection: agent.received for agent in known if agent.connection is not None},
            late=self._late_readings(now_s),
        )
        self._round_before_s = now_s
        behind = max(0.0, now_s - self._due_s)
        self._due_s += self.interval_s * (1 + behind // self.interval_s)
        return found

    @property
    def _grace_s(self) -> float:
        return min(MOST_GRACE_S, self.interval_s / 4)

    def _is_awaited(self, agents: Iterable[KnownAgent], now_s: float) -> bool:
        """Whether someone who is alive was not heard since the last round."""
        return any(
            agent.newest is None
            and agent.connection is not None
            and now_s - agent.heard_s < _ALIVE * self.interval_s
            for agent in agents
        )

    def _late_readings(self, now_s: float) -> tuple[LateReading, ...]:
        """What came late since the last round, by operator and by the round that it would have been of.

        What is a second one of its round, or of the present one, stands for itself, with its own age.
        """
        found: dict[tuple[float, str], dict[str, dict[int, float]]] = {}
        ages_s: set[tuple[str, float]] = set()
        self.counts.late += len(self._late)
        for agent, taken in self._late:
            age_s = max(0.0, now_s - taken.taken_s)
            of_round_s = round(age_s / self.interval_s) * self.interval_s
            if of_round_s > 0 and (agent.name, of_round_s) not in ages_s:
                age_s = of_round_s
                ages_s.add((agent.name, age_s))
            for reading in _read(agent, taken):
                values = found.setdefault((age_s, reading.operator), {})
                for metric, value in reading.values.items():
                    values.setdefault(metric, {})[reading.instance] = value
        self._late.clear()
        return tuple(
            LateReading(operator=operator, age_s=age_s, values=values)
            for (age_s, operator), values in sorted(found.items(), key=lambda one: (-one[0][0], one[0][1]))
        )


def _newest(agents: Iterable[KnownAgent]) -> tuple[InstanceReading, ...]:
    """What came since the last round; whoever is gone gives way to one who reads for the same instance now."""
    found: dict[tuple[str, int], InstanceReading] = {}
    for agent in sorted(agents, key=lambda agent: agent.connection is not None):
        if agent.newest is not None:
            readings = _read(agent, agent.newest)
            found.update({(reading.operator, reading.instance): reading for reading in readings})
            agent.newest = None
    return tuple(found.values())


def _read(agent: KnownAgent, taken: TakenSample) -> Iterator[InstanceReading]:
    claims = zip(agent.hello.claims, agent.instances, agent.wanted, taken.sample.values, strict=True)
    for claim, instance, wanted, values in claims:
        named = zip(taken.names, values, strict=True)
        yield InstanceReading(
            operator=claim.operator,
            instance=instance,
            agent=agent.name,
            taken_at_s=taken.taken_at_s,
            # what was in flight while the subscription changed is not wanted any more
            values={name: value for name, value in named if value is not None and name in wanted},
        )
