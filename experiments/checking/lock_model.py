"""A lock as a system to be explored: two groups, everybody enters so many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastream.decentralized.locks.port import GroupLock, LockPosition, LockSite
from experiments.checking.explorer import Reaction, Received


class Move(StrEnum):
    REQUEST = "asks"
    EXIT = "leaves"


@dataclass(frozen=True, slots=True)
class Member:
    lock: Any
    entries_left: int


MakeLock = Callable[[LockSite], GroupLock[Any, Any]]


def two_groups(sizes: tuple[int, int]) -> tuple[LockSite, ...]:
    """Members a1, a2, ... and b1, b2, ..."""
    groups = [
        frozenset(f"{letter}{n}" for n in range(1, size + 1)) for letter, size in zip("ab", sizes, strict=True)
    ]
    return tuple(
        LockSite(me=me, siblings=own - {me}, competitors=other)
        for own, other in (groups, groups[::-1])
        for me in sorted(own)
    )


class LockModel:
    """Every member may ask, be inside and leave, `entries` times, at any moment; some may do so more often."""

    def __init__(
        self, make: MakeLock, *, sizes: tuple[int, int], entries: int, more: Mapping[str, int] | None = None
    ) -> None:
        self._locks = {site.me: make(site) for site in two_groups(sizes)}
        self._entries = {name: (more or {}).get(name, entries) for name in self._locks}

    def nodes(self) -> Mapping[str, Hashable]:
        return {name: Member(lock.initial(), self._entries[name]) for name, lock in self._locks.items()}

    def moves(self, name: str, state: Member, /) -> Sequence[Hashable]:
        match state.lock.position:
            case LockPosition.INSIDE:
                return (Move.EXIT,)
            case LockPosition.IDLE if state.entries_left > 0:
                return (Move.REQUEST,)
        return ()

    def react(self, name: str, state: Member, event: Any, /) -> Reaction:
        lock = self._locks[name]
        match event:
            case Move.REQUEST:
                step = lock.request(state.lock)
                return Reaction(state=Member(step.state, state.entries_left - 1), sends=step.sends)
            case Move.EXIT:
                step = lock.exit(state.lock)
            case Received(sender=sender, message=message):
                step = lock.receive(state.lock, sender, message)
                if step.state.position is LockPosition.INSIDE and state.lock.position is LockPosition.IDLE:
                    return Reaction(state=state, wrong=f"{name} is let in although it does not ask")
        return Reaction(state=Member(step.state, state.entries_left), sends=step.sends)

    def wrong(self, nodes: Mapping[str, Member], /) -> str:
        inside = [name for name, node in nodes.items() if node.lock.position is LockPosition.INSIDE]
        if len({name[0] for name in inside}) > 1:
            return f"two groups are inside: {', '.join(sorted(inside))}"
        return ""

    def unfinished(self, nodes: Mapping[str, Member], /) -> str:
        stuck = [name for name, node in nodes.items() if node.lock.position is not LockPosition.IDLE]
        return f"deadlock: {', '.join(sorted(stuck))} never got in" if stuck else ""
