"""The agent's mind: what to read and when, what the master has not acknowledged yet, when to try again.

Pure like the master's: no socket, no clock. `now_s` is of a monotonic clock.

Readings wait in a bounded buffer until the master says that it has evaluated them. After a connection broke all
of them are sent again, and the master knows by their numbers which of them it has. What is read now goes first;
what was kept follows a frame at a time, so that a master which comes back is not flooded by all agents at once.

When the buffer is full its older half is thinned, where readings lie closest. So what is left of a long outage
still spans all of it, and its newest part is whole; how many went is counted and told.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from elastream.agents.messages import (
    MOST_SAMPLES,
    VERSION,
    Acknowledged,
    Claim,
    FromMaster,
    Hello,
    Readings,
    Refused,
    Subscribed,
    Welcome,
    message_bytes,
    sample_bytes,
    sample_of,
    wanted_of,
)
from elastream.agents.numbers import contains
from elastream.agents.wire import MOST_BYTES
from elastream.errors import ElastreamError

MOST_KEPT = 600
"""Readings, which is ten minutes at one a second."""
MOST_KEPT_BYTES = 2**21
"""Of readings, as they would be sent."""
MOST_EARLY = 0.5
"""Of an interval, by which reading what takes its time begins before the round is due."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
_LONGEST_WAIT = 2.0  # intervals: a master that is back is found within some rounds
_LEAST_LONGEST_WAIT_S = 2.0


class AgentRefusedError(ElastreamError):
    """The master said why it does not take this agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _KeptReading:
    number: int
    taken_s: float
    values: tuple[dict[str, float], ...]
    bytes: int


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
    most_kept_bytes: int = MOST_KEPT_BYTES
    thinned: int = 0
    """Readings that the buffer had no room for."""
    instances: tuple[int, ...] = ()
    """The numbers that the master gave; none before the first welcome."""
    wanted: tuple[frozenset[str], ...] = ()
    """The metrics that the master asks for, for each claim."""
    _due_s: float | None = None
    _interval_s: float = 1.0
    _kept: deque[_KeptReading] = field(default_factory=deque)
    _kept_bytes: int = 0
    _taken: int = 0
    _sent: set[int] = field(default_factory=set)
    """Over this connection."""
    _taken_before: int = 0
    """How many readings there were when this connection began."""
    _may_send_kept: bool = False
    """One frame of what was kept goes with each word of the master."""
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
            case Subscribed() if self._welcomed:
                self._want(wanted_of(message))
            case Acknowledged(received=received, next_in_s=next_in_s) if self._welcomed:
                self._due_s = now_s + next_in_s
                self._may_send_kept = True
                self._keep(kept for kept in self._kept if not contains(received, kept.number))
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
        self._want(wanted_of(message))
        self._welcomed, self._tries, self._taken_before, self._may_send_kept = True, 0, self._taken, True
        self._sent.clear()

    def _want(self, wanted: tuple[frozenset[str], ...]) -> None:
        if len(wanted) != len(self.claims):
            raise ElastreamError(f"the master subscribed to {len(wanted)} of {len(self.claims)} operators")
        self.wanted = wanted

    def lost(self) -> float:
        """The connection is gone, or there was none: how long to wait before the next try.

        Exponential backoff with jitter, so that a master which comes back is not met by all agents at once.
        """
        self._welcomed = False
        most_s = max(_LEAST_LONGEST_WAIT_S, min(LONGEST_WAIT_S, _LONGEST_WAIT * self._interval_s))
        longest_s = min(most_s, FIRST_WAIT_S * 2.0 ** min(self._tries, 16))
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

    @property
    def interval_s(self) -> float:
        return self._interval_s

    def pause(self) -> None:
        """Read nothing more, but go on sending what is kept."""
        self._paused = True

    def due_s(self, takes_s: float = 0.0) -> float | None:
        """When to read next, connected or not; None before a master said what it wants.

        What takes its time, as over a network, begins earlier, so that it is there when the round is due.
        """
        if self._paused or self._due_s is None:
            return None
        return self._due_s - min(takes_s, MOST_EARLY * self._interval_s)

    def read(self, values: Sequence[Mapping[str, float]], now_s: float) -> None:
        """What was read now, for each claim; what nobody asked for is left out."""
        wanted = tuple(
            {name: value for name, value in found.items() if name in names}
            for found, names in zip(values, self.wanted, strict=True)
        )
        self._taken += 1
        size = sample_bytes(wanted, len(frozenset().union(*wanted)))
        self._kept.append(_KeptReading(number=self._taken, taken_s=now_s, values=wanted, bytes=size))
        self._kept_bytes += size
        while len(self._kept) > max(1, self.most_kept) or (
            self._kept_bytes > self.most_kept_bytes and len(self._kept) > 1
        ):
            self._thin()
        assert self._due_s is not None, "there is nothing to read before a master asked for it"
        behind = max(0.0, now_s - self._due_s)
        self._due_s += self._interval_s * (1 + behind // self._interval_s)

    def _thin(self) -> None:
        goes = _to_give_up([kept.number for kept in self._kept])
        self._keep(kept for place, kept in enumerate(self._kept) if place not in goes)
        self.thinned += len(goes)

    def _keep(self, kept: Iterable[_KeptReading]) -> None:
        self._kept = deque(kept)
        self._kept_bytes = sum(one.bytes for one in self._kept)

    def outgoing(self, now_s: float, at_s: float) -> Readings | None:
        """The next readings to send over this connection; None where there is nothing to send now."""
        if not self._welcomed:
            return None
        unsent = [kept for kept in self._kept if kept.number not in self._sent]
        chosen = [kept for kept in unsent if kept.number > self._taken_before]
        if not chosen and self._may_send_kept:
            chosen, self._may_send_kept = unsent, False
        found, names = _fitting(chosen)
        if not found:
            return None
        self._sent.update(kept.number for kept in found)
        samples = (
            sample_of(kept.number, round(1000 * max(0.0, now_s - kept.taken_s)), kept.values, names)
            for kept in found
        )
        return Readings(at_s=at_s, names=names, samples=tuple(samples), thinned=self.thinned)


def _to_give_up(numbers: Sequence[int]) -> set[int]:
    """Places in the older half, no two of them neighbours: those whose loss leaves the smallest holes.

    The very oldest stays, or an outage would seem shorter each time; of a few the oldest goes.
    """
    older = len(numbers) // 2
    if older < 2:
        return {0}
    goes: set[int] = set()
    for place in sorted(range(1, older), key=lambda place: (numbers[place + 1] - numbers[place - 1], place)):
        if len(goes) < max(1, older // 8) and not goes & {place - 1, place + 1}:
            goes.add(place)
    return goes


def _fitting(kept: Sequence[_KeptReading]) -> tuple[list[_KeptReading], tuple[str, ...]]:
    """The first of them, as many as go into one frame, and the names of all of their metrics."""
    found: list[_KeptReading] = []
    names: frozenset[str] = frozenset()
    bare = 0
    for one in islice(kept, MOST_SAMPLES):
        all_names = names.union(*one.values)
        bare += sample_bytes(one.values, 0)
        named = len(all_names) * len(one.values) * (len(found) + 1)
        if found and message_bytes(all_names) + bare + named > MOST_BYTES:
            break
        found.append(one)
        names = all_names
    return found, tuple(sorted(names))
