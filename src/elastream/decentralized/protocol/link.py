"""A link between two instances that neither loses, repeats nor reorders a message, as values without I/O.

TCP keeps the order while a connection lasts; connections break and processes are killed. So messages are
numbered. The sender keeps each one until the receiver has acknowledged it, the receiver remembers the last
number that it has taken in. Both are part of what an instance writes down before it says anything
(`control.py`), so a process that comes back goes on exactly where its disk says. After a connection was made the
receiver tells its number first: everything after it is sent again, in order, and what arrives twice is dropped.

    sender                                  receiver
    hello(from, to, incarnation)  ──▶       refuses strangers and stale processes
                                  ◀──       welcome(number of the last message taken in)
    message(number, body)         ──▶       written down
                                  ◀──       acknowledged(number)

So messages are delivered at least once, and processed once. Every start of an instance is a new incarnation, with
a higher number, which fences off the processes before it: one that speaks up again is stale, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from elastream.errors import ElastreamError

Body = dict[str, Any]
"""A message as JSON; the link does not look into it."""


class LinkBroken(ElastreamError):  # noqa: N818 - reads better where it is raised
    """What came over a connection cannot be; it is closed, and a new one begins with what both have on disk."""


class Stale(ElastreamError):  # noqa: N818
    """Fenced off: the place of this process was taken by a newer start of the same instance."""


class Envelope(NamedTuple):
    number: int
    body: Body


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """The sender's side of a link."""

    posted: int = 0
    """The number of the last message, which is how many there were."""
    waiting: tuple[Envelope, ...] = ()
    """Not acknowledged, the oldest first."""

    def post(self, body: Body) -> Outgoing:
        envelope = Envelope(number=self.posted + 1, body=body)
        return Outgoing(posted=envelope.number, waiting=(*self.waiting, envelope))

    def acknowledged(self, number: int) -> Outgoing:
        """The receiver has everything up to this one; an older number than before says nothing new."""
        if number > self.posted:
            raise LinkBroken(f"message {number} was acknowledged, and only {self.posted} were sent")
        return replace(self, waiting=tuple(envelope for envelope in self.waiting if envelope.number > number))


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """The receiver's side of a link."""

    incarnation: int = 0
    """The newest that the sender was met in."""
    taken: int = 0
    """The number of the last message that was taken in."""

    def greeted(self, incarnation: int) -> Incoming:
        if incarnation < self.incarnation:
            raise Stale(f"start {incarnation} of it is over, start {self.incarnation} has taken its place")
        return replace(self, incarnation=incarnation)

    def repeats(self, number: int) -> bool:
        """Whether it was taken in before: then it is acknowledged once more, and dropped."""
        return number <= self.taken

    def take(self, number: int) -> Incoming:
        if number != self.taken + 1:
            raise LinkBroken(f"message {self.taken + 1} was expected, found {number}")
        return replace(self, taken=number)
