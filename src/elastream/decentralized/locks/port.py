"""What every lock offers: request, receive, exit.

A lock is the fixed part of one member (who it is, who the others are); what changes is a state that is handed in
and given back. Nothing is sent here: a step names the messages, and whoever holds the lock carries them over
channels that keep their order. The member has entered when the position of the new state is INSIDE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, Protocol, TypeVar

from elastream.decentralized.errors import IllegalEvent
from elastream.errors import InvalidInput


class LockPosition(StrEnum):
    IDLE = "idle"
    ASKING = "asking"
    INSIDE = "inside"


class HasPosition(Protocol):
    @property
    def position(self) -> LockPosition: ...


State = TypeVar("State", bound=HasPosition)
Message = TypeVar("Message")


@dataclass(frozen=True, kw_only=True, slots=True)
class LockStep(Generic[State, Message]):
    state: State
    sends: tuple[tuple[str, Message], ...] = ()
    """Receivers and messages, in the order in which they are to be sent."""


class GroupLock(Protocol[State, Message]):
    """One member's side of a lock."""

    messages: ClassVar[tuple[type, ...]]
    """What its members say to each other."""

    def initial(self) -> State: ...

    def request(self, state: State, /) -> LockStep[State, Message]: ...

    def receive(self, state: State, sender: str, message: Message, /) -> LockStep[State, Message]: ...

    def exit(self, state: State, /) -> LockStep[State, Message]: ...


@dataclass(frozen=True, kw_only=True)
class LockSite:
    """Where a member stands: its own name, the others of its group, and the members of the other group."""

    me: str
    siblings: frozenset[str] = frozenset()
    competitors: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        both = (self.siblings & self.competitors) | ({self.me} & (self.siblings | self.competitors))
        if both:
            raise InvalidInput(f"{self.me!r}: {min(both)!r} is named twice; groups must not overlap")

    @property
    def others(self) -> frozenset[str]:
        return self.siblings | self.competitors


def require(position: LockPosition, wanted: LockPosition, event: str) -> None:
    if position is not wanted:
        raise IllegalEvent(f"{event} is for a member that is {wanted}, and this one is {position}")


def require_known(sender: str, known: frozenset[str]) -> None:
    if sender not in known:
        raise IllegalEvent(f"a message from {sender!r}, who is no member of this lock")


def to_all(receivers: frozenset[str], message: Message) -> tuple[tuple[str, Message], ...]:
    """In one fixed order, so that a run can be repeated."""
    return tuple((receiver, message) for receiver in sorted(receivers))
