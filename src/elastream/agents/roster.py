"""Who reads for which instance: the agents that a master knows, whom it takes, and which numbers it gives them.

Pure, as the master is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from elastream.agents.messages import Hello, Sample
from elastream.agents.numbers import Ranges
from elastream.durations import text as duration_text
from elastream.errors import nearest

_LEAST_SILENCE_S = 5.0  # before an agent is taken for silent, however short the interval
_SILENT = 3.5  # intervals since it was last heard
_DEAD = 4  # times as long
_FORGOTTEN = 60  # intervals after its connection ended


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenSample:
    """A sample, with the metrics of each of its claims, and when it was taken."""

    names: tuple[str, ...]
    sample: Sample
    taken_s: float
    taken_at_s: float
    """By the time of day."""


@dataclass(kw_only=True, slots=True)
class KnownAgent:
    hello: Hello
    connection: int | None
    """None while it has none; it may come back."""
    address: str
    instances: tuple[int, ...]
    heard_s: float
    wanted: tuple[frozenset[str], ...] = ()
    received: Ranges = ()
    thinned: int = 0
    newest: TakenSample | None = None
    """Since the last round."""
    clock_is_off: bool = False
    is_silent: bool = False

    @property
    def name(self) -> str:
        return self.hello.agent

    def __str__(self) -> str:
        return f"the agent {self.name!r} ({self.address})"

    @property
    def claims_text(self) -> str:
        claimed = zip(self.hello.claims, self.instances, strict=True)
        return f"reading for {', '.join(f'{claim.operator}:{number}' for claim, number in claimed)}"


@dataclass(kw_only=True)
class Roster:
    interval_s: float
    operators: frozenset[str] | None = None
    """Those that there are; None takes agents of any operator."""
    _agents: dict[str, KnownAgent] = field(default_factory=dict)

    def __iter__(self) -> Iterator[KnownAgent]:
        return iter(tuple(self._agents.values()))

    def named(self, name: str | None) -> KnownAgent | None:
        return None if name is None else self._agents.get(name)

    def enter(self, hello: Hello, connection: int, address: str, now_s: float) -> KnownAgent:
        """One that nothing speaks against; the same run of an agent that is back goes on where it was."""
        before = self._agents.get(hello.agent)
        agent = KnownAgent(
            hello=hello,
            connection=connection,
            address=address,
            instances=self._instances(hello, now_s),
            heard_s=now_s,
        )
        if before is not None and before.hello.run == hello.run:
            agent.received, agent.newest, agent.thinned = before.received, before.newest, before.thinned
        self._agents[hello.agent] = agent
        return agent

    def objection(self, hello: Hello, now_s: float) -> str | None:
        """Why one who says this is not taken."""
        same = self._agents.get(hello.agent)
        if same is not None and same.hello.run != hello.run and self._holds_its_place(same, now_s):
            heard = duration_text(now_s - same.heard_s)
            return f"another agent at {same.address}, heard {heard} ago, has the name {hello.agent!r}"
        for claim in hello.claims:
            if self.operators is not None and claim.operator not in self.operators:
                return f"there is no operator {claim.operator!r}{nearest(claim.operator, self.operators)}"
        numbered = [(claim.operator, claim.instance) for claim in hello.claims if claim.instance is not None]
        if len(set(numbered)) < len(numbered):
            return "it reads twice for the same instance"
        taken = self._taken(hello.agent, now_s)
        for claim in hello.claims:
            if claim.must and claim.instance is not None and (claim.operator, claim.instance) in taken:
                return f"{claim} is read by the agent {taken[claim.operator, claim.instance]!r}"
        return None

    def _holds_its_place(self, agent: KnownAgent, now_s: float) -> bool:
        """Whether it is to be expected that it is still there: it is connected, and was not silent for long."""
        return agent.connection is not None and now_s - agent.heard_s < self._silent_s

    def _taken(self, but: str, now_s: float) -> Mapping[tuple[str, int], str]:
        return {
            (claim.operator, instance): name
            for name, agent in self._agents.items()
            if name != but and self._holds_its_place(agent, now_s)
            for claim, instance in zip(agent.hello.claims, agent.instances, strict=True)
        }

    def _instances(self, hello: Hello, now_s: float) -> tuple[int, ...]:
        """The number that each claim asks for, if it is free; else the lowest that is."""
        taken = set(self._taken(hello.agent, now_s))
        taken |= {(c.operator, c.instance) for c in hello.claims if c.must and c.instance is not None}
        found = []
        for operator, instance, must in hello.claims:
            if instance is None or (not must and (operator, instance) in taken):
                instance = next(n for n in range(len(taken) + 1) if (operator, n) not in taken)
            taken.add((operator, instance))
            found.append(instance)
        return tuple(found)

    # Those who do not speak

    @property
    def _silent_s(self) -> float:
        return max(_LEAST_SILENCE_S, _SILENT * self.interval_s)

    def has_fallen_silent(self, agent: KnownAgent, now_s: float) -> bool:
        """Since the last look, if it is connected at all."""
        if agent.connection is None or agent.is_silent or now_s - agent.heard_s <= self._silent_s:
            return False
        agent.is_silent = True
        return True

    def is_dead(self, agent: KnownAgent, now_s: float) -> bool:
        """As far as its silence tells."""
        return now_s - agent.heard_s > _DEAD * self._silent_s

    def forget(self, now_s: float) -> None:
        """Those whose connection ended long ago."""
        longest_s = max(_LEAST_SILENCE_S, _FORGOTTEN * self.interval_s)
        self._agents = {
            name: agent
            for name, agent in self._agents.items()
            if agent.connection is not None or now_s - agent.heard_s <= longest_s
        }
