"""Locks over time: seeded runs of any size, with what must hold checked after every event.

Every member asks, stays inside for some time, leaves, and asks again after a pause, so many times. Messages take a
random time between two bounds; a channel keeps its order. This measures what the thesis measures in 5.3: how many
are inside together, how many messages are sent, and how long a member waits.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from elastream.decentralized.locks.port import LockPosition, LockStep
from elastream.errors import ElastreamError, InvalidInput
from experiments.checking.lock_model import MakeLock, two_groups


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All in seconds."""

    pause_s: float
    """Between leaving and asking again; the thesis's P."""
    inside_s: float
    delay_s: tuple[float, float] = (0.003, 0.006)
    """The shortest and the longest time that a message takes."""
    first_s: float = 0.01
    """Members ask for the first time within this time."""

    def __post_init__(self) -> None:
        least, most = self.delay_s
        if not 0 <= least <= most or min(self.pause_s, self.inside_s, self.first_s) < 0:
            raise InvalidInput(f"times must not be negative and delays go from least to most, found {self}")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many of each group are inside, and how many are inside or asking, from a time on."""

    at_s: float
    inside: tuple[int, int]
    wanting: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class LockRun:
    messages: Counter[str]
    """By their kind."""
    waits_s: dict[str, list[float]]
    """Of every member, from asking to entering, in the order of its entries."""
    occupancy: list[Occupancy]

    @property
    def total(self) -> int:
        return self.messages.total()

    @property
    def most_inside(self) -> tuple[int, int]:
        return max(o.inside[0] for o in self.occupancy), max(o.inside[1] for o in self.occupancy)


class BrokenLock(ElastreamError):  # noqa: N818
    """What must never happen has happened."""


def run_lock(make: MakeLock, *, sizes: tuple[int, int], entries: int, timing: Timing, seed: int) -> LockRun:
    """Run until everybody has entered so many times. A broken exclusion or a deadlock raises."""
    if min(sizes) < 1 or entries < 1:
        raise InvalidInput(f"a run needs two groups and at least one entry, found {sizes} and {entries}")
    run = _Run(make, sizes, entries, timing, random.Random(seed))
    while run.due:
        run.next_event()
    stuck = sorted(
        name for name, left in run.left.items() if left or run.states[name].position is not LockPosition.IDLE
    )
    if stuck:
        raise BrokenLock(f"deadlock at {run.now_s:.3f} s: {', '.join(stuck)} never got in")
    return LockRun(messages=run.messages, waits_s=run.waits_s, occupancy=run.occupancy)


@dataclass(order=True, slots=True)
class _Due:
    at_s: float
    order: int
    name: str = field(compare=False)
    what: str = field(compare=False)
    message: Any = field(compare=False, default=None)


class _Run:
    def __init__(
        self, make: MakeLock, sizes: tuple[int, int], entries: int, timing: Timing, rng: random.Random
    ) -> None:
        self.timing, self.rng = timing, rng
        self.locks = {site.me: make(site) for site in two_groups(sizes)}
        self.states: dict[str, Any] = {name: lock.initial() for name, lock in self.locks.items()}
        self.left = dict.fromkeys(self.locks, entries)
        self.messages: Counter[str] = Counter()
        self.waits_s: dict[str, list[float]] = {name: [] for name in self.locks}
        self.asked_s: dict[str, float] = {}
        self.occupancy = [Occupancy(0.0, (0, 0), (0, 0))]
        self.now_s = 0.0
        self.due: list[_Due] = []
        self._arrives_s: dict[tuple[str, str], float] = {}
        self._order = count()
        for name in self.locks:
            self._plan(rng.uniform(0, timing.first_s), name, "ask")

    def next_event(self) -> None:
        event = heapq.heappop(self.due)
        self.now_s = event.at_s
        name, lock, state = event.name, self.locks[event.name], self.states[event.name]
        match event.what:
            case "ask":
                self.left[name] -= 1
                self.asked_s[name] = self.now_s
                self._take(name, lock.request(state))
            case "leave":
                self._take(name, lock.exit(state))
                if self.left[name]:
                    self._plan(self.timing.pause_s, name, "ask")
            case sender:
                self._take(name, lock.receive(state, sender, event.message))

    def _take(self, name: str, step: LockStep[Any, Any]) -> None:
        before, self.states[name] = self.states[name].position, step.state
        for to, message in step.sends:
            self._send(name, to, message)
        if before is step.state.position:
            return
        if step.state.position is LockPosition.INSIDE:
            self.waits_s[name].append(self.now_s - self.asked_s[name])
            self._plan(self.timing.inside_s, name, "leave")
        self._look()

    def _send(self, sender: str, to: str, message: Any) -> None:
        self.messages[type(message).__name__] += 1
        at_s = max(self.now_s + self.rng.uniform(*self.timing.delay_s), self._arrives_s.get((sender, to), 0.0))
        self._arrives_s[sender, to] = at_s
        heapq.heappush(self.due, _Due(at_s, next(self._order), to, sender, message))

    def _plan(self, in_s: float, name: str, what: str) -> None:
        heapq.heappush(self.due, _Due(self.now_s + in_s, next(self._order), name, what))

    def _look(self) -> None:
        found = Counter((name[0], state.position) for name, state in self.states.items())
        inside = found["a", LockPosition.INSIDE], found["b", LockPosition.INSIDE]
        if all(inside):
            raise BrokenLock(f"two groups are inside at {self.now_s:.3f} s: {inside[0]} of a, {inside[1]} of b")
        wanting = inside[0] + found["a", LockPosition.ASKING], inside[1] + found["b", LockPosition.ASKING]
        self.occupancy.append(Occupancy(self.now_s, inside, wanting))
