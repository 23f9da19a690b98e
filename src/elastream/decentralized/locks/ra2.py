"""RA2: RA1 with captains that capture members of their own group (Joung; sketched in the thesis, 2.4.3).

The thesis only sketches it. Our reading:

- Everybody is asked, as in RA1, and answers as in RA1. Requests of a member are numbered.
- Who enters with everybody's acknowledgement is a *captain*. It sends `Start` to those of its group that it knows
  to be asking, when it enters and, while it is inside, in the place of an acknowledgement. They enter at once.
- Who is captured may have acknowledged competitors before. Those acknowledgements are out of date; it gives them
  again when it leaves.
- A competitor has to know that. Every acknowledgement says how many entries its sender has behind it, and which
  entries of others it knows to have begun (the thesis's VF). A member enters when everybody has acknowledged its
  request and, of all entries that any acknowledgement told of, each was over when its owner acknowledged.

The thesis's VSN, the requests of everybody that a member knows of, is `seen` here: it tells a captain which
request it captures, and a member whether a `Start` is still meant for it.

Why it is safe. A captain holds an acknowledgement of every competitor that asks, so the competitor's request has a
lower priority or came later, and waits for the captain's answer. That answer tells of everyone that the captain
captured, and so the competitor waits for each of them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks.port import LockPosition, LockSite, LockStep, require, require_known, to_all

Counts = tuple[tuple[str, int], ...]
"""A number for every member that has one above 0, in the order of the names."""


@dataclass(frozen=True, slots=True)
class Ra2Req:
    clock: int
    number: int


@dataclass(frozen=True, slots=True)
class Ra2Ack:
    number: int
    """Of the request that is acknowledged."""
    done: int
    """How many entries of the sender are over."""
    begun: Counts
    """Entries that the sender knows to have begun."""


@dataclass(frozen=True, slots=True)
class Ra2Start:
    number: int
    """Of the request that is captured."""


Message = Ra2Req | Ra2Ack | Ra2Start
Sends = tuple[tuple[str, Message], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ra2State:
    position: LockPosition = LockPosition.IDLE
    clock: int = 0
    asks_since: int = 0
    number: int = 0
    """Of the own request; how many there were."""
    captain: bool = False
    seen: Counts = ()
    """The last request of everyone that is known."""
    begun: Counts = ()
    """The last entry of everyone that is known to have begun."""
    granted: Counts = ()
    """For the own request: how many entries were behind each of those that acknowledged it, plus one."""
    deferred: frozenset[str] = frozenset()

    def still_asks(self, name: str) -> bool:
        """As far as is known here; it may have entered in the meantime."""
        return dict(self.seen).get(name, 0) > dict(self.begun).get(name, 0)


Step = LockStep[Ra2State, Message]


@dataclass(frozen=True)
class Ra2:
    site: LockSite
    messages: ClassVar[tuple[type, ...]] = (Ra2Req, Ra2Ack, Ra2Start)

    def initial(self) -> Ra2State:
        return Ra2State()

    def request(self, state: Ra2State, /) -> Step:
        require(state.position, LockPosition.IDLE, "a request")
        clock, number = state.clock + 1, state.number + 1
        asking = replace(state, position=LockPosition.ASKING, clock=clock, asks_since=clock, number=number)
        return self._enter_if_granted(asking, to_all(self.site.others, Ra2Req(clock, number)))

    def receive(self, state: Ra2State, sender: str, message: Message, /) -> Step:
        require_known(sender, self.site.others)
        match message:
            case Ra2Req():
                return self._requested(state, sender, message)
            case Ra2Ack():
                return self._acknowledged(state, sender, message)
            case Ra2Start(number=number):
                return self._captured(state, sender, number)

    def exit(self, state: Ra2State, /) -> Step:
        require(state.position, LockPosition.INSIDE, "an exit")
        again = frozenset(name for name in self.site.competitors if not state.captain and state.still_asks(name))
        idle = replace(
            state,
            position=LockPosition.IDLE,
            captain=False,
            granted=(),
            deferred=frozenset(),
            begun=_with(state.begun, self.site.me, state.number),
        )
        sends = tuple((to, self._ack(idle, to)) for to in sorted(state.deferred | again))
        return LockStep(state=idle, sends=sends)

    # The three messages

    def _requested(self, state: Ra2State, sender: str, request: Ra2Req) -> Step:
        known = dict(state.seen).get(sender, 0)
        if request.number != known + 1:
            raise IllegalEvent(f"request {request.number} of {sender!r} after its request {known}")
        state = replace(
            state, clock=max(state.clock, request.clock), seen=_with(state.seen, sender, request.number)
        )
        if sender in self.site.siblings and state.captain:
            return self._capture(state)
        if sender in self.site.competitors and self._comes_first(state, sender, request.clock):
            return LockStep(state=replace(state, deferred=state.deferred | {sender}))
        return LockStep(state=state, sends=((sender, self._ack(state, sender)),))

    def _acknowledged(self, state: Ra2State, sender: str, ack: Ra2Ack) -> Step:
        if ack.number > state.number:
            raise IllegalEvent(f"{sender!r} acknowledges request {ack.number}, and there were only {state.number}")
        begun = _with(state.begun, sender, ack.done)
        for name, number in ack.begun:
            begun = _with(begun, name, number)
        state = replace(state, begun=begun)
        if state.position is LockPosition.ASKING and ack.number == state.number:
            state = replace(state, granted=_with(state.granted, sender, ack.done + 1))
        return self._enter_if_granted(state, ())

    def _captured(self, state: Ra2State, sender: str, number: int) -> Step:
        if sender not in self.site.siblings or number > state.number:
            raise IllegalEvent(f"{sender!r} captures request {number}, which it cannot")
        if state.position is not LockPosition.ASKING or number != state.number:
            return LockStep(state=state)  # entered on its own in the meantime
        return LockStep(state=replace(state, position=LockPosition.INSIDE))

    # Their parts

    def _comes_first(self, state: Ra2State, sender: str, clock: int) -> bool:
        if state.position is LockPosition.ASKING:
            return (state.asks_since, self.site.me) < (clock, sender)
        return state.position is LockPosition.INSIDE

    def _ack(self, state: Ra2State, to: str) -> Ra2Ack:
        done = state.number - (state.position is not LockPosition.IDLE)
        return Ra2Ack(number=dict(state.seen)[to], done=done, begun=state.begun)

    def _enter_if_granted(self, state: Ra2State, sends: Sends) -> Step:
        if state.position is not LockPosition.ASKING or not self._all_granted(state):
            return LockStep(state=state, sends=sends)
        step = self._capture(replace(state, position=LockPosition.INSIDE, captain=True))
        return replace(step, sends=(*sends, *step.sends))

    def _capture(self, state: Ra2State) -> Step:
        """Start every sibling that asks."""
        found = sorted(name for name in self.site.siblings if state.still_asks(name))
        seen, begun = dict(state.seen), state.begun
        for name in found:
            begun = _with(begun, name, seen[name])
        sends = tuple((name, Ra2Start(seen[name])) for name in found)
        return LockStep(state=replace(state, begun=begun), sends=sends)

    def _all_granted(self, state: Ra2State) -> bool:
        granted, begun = dict(state.granted), dict(state.begun)
        return all(granted.get(name, 0) > begun.get(name, 0) for name in self.site.competitors) and all(
            name in granted for name in self.site.siblings
        )


def _with(counts: Counts, name: str, number: int) -> Counts:
    """The higher of the two numbers."""
    changed: Mapping[str, int] = {**dict(counts), name: max(number, dict(counts).get(name, 0))}
    return tuple(sorted(changed.items()))
