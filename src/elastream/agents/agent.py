"""The agent's mind: what to read and when, what the master has not acknowledged yet, when to try again.

Pure like the master's: no socket, no clock. `now_s` is of a monotonic clock.

Readings wait in a bounded buffer until the master says that it has evaluated them. After a connection broke
all of them are sent again, and the master knows by their numbers which of them it has. When the buffer is full the
oldest go, as it is the newest that matter, and they are counted.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastream.agents.messages import (
    MOST_SAMPLES,
    VERSION,
    Acknowledged,
    Claim,
    FromMaster,
    Hello,
    Readings,
    Refused,
    Sample,
    Subscribed,
    Welcome,
)
from elastream.errors import ElastreamError

MOST_KEPT = 600
"""Readings, which is ten minutes at one a second."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


class AgentRefusedError(ElastreamError):
    """The master said why it does not take this agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _KeptReading:
    number: int
    taken_s: float
    values: tuple[dict[str, float], ...]


@dataclass(kw_only=True)
class Agent:
    name: str
    run: str
    """Tells this run of the agent from any other with the same name."""
    claims: tuple[Claim, ...]
    offers: tuple[str, ...]
    token: str = ""
    rng: random.Random = field(default_factory=random.Random)
    most_kept: int = MOST_KEPT
    dropped: int = 0
    """Readings that the buffer had no room for."""
    instances: tuple[int, ...] = ()
    """The numbers that the master gave; none before the first welcome."""
    wanted: tuple[frozenset[str], ...] = ()
    """The metrics that the master asks for, for each claim."""
    _due_s: float | None = None
    _interval_s: float = 1.0
    _kept: deque[_KeptReading] = field(default_factory=deque)
    _taken: int = 0
    _sent_up_to: int = 0
    _welcomed: bool = False
    _tries: int = 0
    _paused: bool = False

    # The connection

    def connected(self, at_s: float) -> Hello:
        self._welcomed = False
        return Hello(
            version=VERSION,
            token=self.token,
            agent=self.name,
            run=self.run,
            claims=self._claims(),
            offers=self.offers,
            at_s=at_s,
        )

    def _claims(self) -> tuple[Claim, ...]:
        """A number that the master gave is asked for again, but another will do if it is taken by now."""
        if not self.instances:
            return self.claims
        return tuple(
            claim if claim.instance is not None else Claim(claim.operator, instance, must=False)
            for claim, instance in zip(self.claims, self.instances, strict=True)
        )

    def received(self, message: FromMaster, now_s: float) -> None:
        match message:
            case Welcome():
                self._welcome(message, now_s)
            case Subscribed(metrics=metrics) if self._welcomed:
                self._want(metrics)
            case Acknowledged(up_to=up_to, next_in_s=next_in_s) if self._welcomed:
                self._due_s = now_s + next_in_s
                while self._kept and self._kept[0].number <= up_to:
                    self._kept.popleft()
            case Refused(why=why):
                raise AgentRefusedError(f"the master refused this agent: {why}")
            case _:
                raise ElastreamError(f"the master sent {type(message).__name__} before it welcomed this agent")

    def _welcome(self, message: Welcome, now_s: float) -> None:
        if message.version != VERSION:
            raise AgentRefusedError(
                f"the master speaks version {message.version} of the protocol, the agent {VERSION}"
            )
        if len(message.instances) != len(self.claims):
            raise ElastreamError(f"the master numbered {len(message.instances)} of {len(self.claims)} operators")
        self.instances = message.instances
        self._interval_s, self._due_s = message.interval_s, now_s + message.next_in_s
        self._want(message.metrics)
        self._welcomed, self._tries, self._sent_up_to = True, 0, 0

    def _want(self, metrics: Sequence[Sequence[str]]) -> None:
        if len(metrics) != len(self.claims):
            raise ElastreamError(f"the master subscribed to {len(metrics)} of {len(self.claims)} operators")
        self.wanted = tuple(frozenset(names) for names in metrics)

    def lost(self) -> float:
        """The connection is gone, or there was none: how long to wait before the next try.

        Exponential backoff with jitter, so that a master which comes back is not met by all agents at once.
        """
        self._welcomed = False
        longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._tries, 16))
        self._tries += 1
        return longest_s * self.rng.uniform(0.5, 1.0)

    # Readings

    @property
    def taken(self) -> int:
        """How many readings there were."""
        return self._taken

    @property
    def kept(self) -> int:
        """How many of them the master has not acknowledged."""
        return len(self._kept)

    def pause(self) -> None:
        """Read nothing more, but go on sending what is kept."""
        self._paused = True

    def due_s(self) -> float | None:
        """When to read next, connected or not; None before a master said what it wants."""
        return None if self._paused else self._due_s

    def read(self, values: Sequence[Mapping[str, float]], now_s: float) -> None:
        """What was read now, for each claim; what nobody asked for is left out."""
        wanted = (
            {name: value for name, value in found.items() if name in names}
            for found, names in zip(values, self.wanted, strict=True)
        )
        self._taken += 1
        self._kept.append(_KeptReading(number=self._taken, taken_s=now_s, values=tuple(wanted)))
        while len(self._kept) > self.most_kept:
            self._kept.popleft()
            self.dropped += 1
        assert self._due_s is not None, "there is nothing to read before a master asked for it"
        behind = max(0.0, now_s - self._due_s)
        self._due_s += self._interval_s * (1 + behind // self._interval_s)

    def outgoing(self, now_s: float, at_s: float) -> Readings | None:
        """The next readings to send over this connection, oldest first; None where all were sent."""
        if not self._welcomed:
            return None
        samples = [
            Sample(kept.number, round(1000 * max(0.0, now_s - kept.taken_s)), kept.values)
            for kept in self._kept
            if kept.number > self._sent_up_to
        ][:MOST_SAMPLES]
        if not samples:
            return None
        self._sent_up_to = samples[-1].number
        return Readings(at_s=at_s, samples=tuple(samples))
