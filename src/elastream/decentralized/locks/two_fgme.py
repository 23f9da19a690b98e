"""2-FGME: mutual exclusion of two fixed groups, with messages between the groups only (the thesis, 5.2), mended.

A member asks every competitor and is inside once all have acknowledged. Requests are ordered by Lamport clocks. A
member that has acknowledged one competitor *yields*: it acknowledges the others of that group as well, whatever
their priority, so that they are inside together. It stops when it hears that one of them has left.

What differs from Algorithms 12 to 15 (docs/decentralized/locks.md tells which failure each of these mends):

- To acknowledge a competitor is to take back the own request to it, where it was or might be granted. There are no
  `renew` acknowledgements and no early `End` messages to everybody: both cross with requests and are then misread.
- What was taken back is asked for again when the yielding ends, and always all of it.
- Acknowledgements of requests that were taken back are counted for each competitor, not remembered as a set.
- Only a member that asks can enter, and one that enters stops yielding.

Why it is right. Of a pair (a, b), a counts b's acknowledgement only while it has not acknowledged b itself since,
and b acknowledges only after forgetting a's: never do both hold the other's. The asking member of highest priority
does not yield once the news of earlier exits has reached it, since whoever it yields to has a higher one; so it
has asked everybody, nobody defers it, and it enters. Clocks grow with every request, so that only finitely many
requests come before any given one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks.port import LockPosition, LockSite, LockStep, require, require_known, to_all


@dataclass(frozen=True, slots=True)
class TwoFgmeReq:
    clock: int


@dataclass(frozen=True, slots=True)
class TwoFgmeAck:
    left: bool = False
    """The sender acknowledges because it leaves."""


@dataclass(frozen=True, slots=True)
class TwoFgmeEnd:
    """The sender has left; nothing was asked of it."""

    clock: int


Message = TwoFgmeReq | TwoFgmeAck | TwoFgmeEnd
Sends = tuple[tuple[str, Message], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoFgmeState:
    position: LockPosition = LockPosition.IDLE
    clock: int = 0
    asks_since: int = 0
    """The clock of the own request: its priority, with the name where two are equal."""
    yields: bool = False
    asked: frozenset[str] = frozenset()
    """Competitors that have the own request, or will; the rest is asked when the yielding ends."""
    granted: frozenset[str] = frozenset()
    outdated: tuple[str, ...] = ()
    """Competitors whose next acknowledgement answers a request that was taken back, once for each."""
    deferred: frozenset[str] = frozenset()
    """Competitors to be acknowledged later."""


Step = LockStep[TwoFgmeState, Message]


@dataclass(frozen=True)
class TwoFgme:
    site: LockSite
    messages: ClassVar[tuple[type, ...]] = (TwoFgmeReq, TwoFgmeAck, TwoFgmeEnd)

    def initial(self) -> TwoFgmeState:
        return TwoFgmeState()

    def request(self, state: TwoFgmeState, /) -> Step:
        require(state.position, LockPosition.IDLE, "a request")
        clock = state.clock + 1
        asking = replace(state, position=LockPosition.ASKING, clock=clock, asks_since=clock)
        return self._enter_if_granted(*self._ask_the_rest(asking))

    def receive(self, state: TwoFgmeState, sender: str, message: Message, /) -> Step:
        require_known(sender, self.site.competitors)
        match message:
            case TwoFgmeReq(clock=clock):
                return self._requested(state, sender, clock)
            case TwoFgmeAck(left=left):
                return self._acknowledged(state, sender, left)
            case TwoFgmeEnd(clock=clock):
                return self._ended(state, clock)

    def exit(self, state: TwoFgmeState, /) -> Step:
        require(state.position, LockPosition.INSIDE, "an exit")
        rest = self.site.competitors - state.deferred
        sends: Sends = (*to_all(state.deferred, TwoFgmeAck(left=True)), *to_all(rest, TwoFgmeEnd(state.clock)))
        idle = TwoFgmeState(clock=state.clock, yields=bool(state.deferred), outdated=state.outdated)
        return LockStep(state=idle, sends=sends)

    # The three messages

    def _requested(self, state: TwoFgmeState, sender: str, clock: int) -> Step:
        if sender in state.deferred:
            raise IllegalEvent(f"{sender!r} asks a second time before it was answered")
        state = replace(state, clock=max(state.clock, clock))
        if self._defers(state, sender, clock):
            return LockStep(state=replace(state, deferred=state.deferred | {sender}))
        keeps = state.asked if (clock, sender) < (state.asks_since, self.site.me) else frozenset()
        state, sends = self._grant(state, sender, request_stands=sender in keeps)
        for waiting in sorted(state.deferred):
            state, more = self._grant(state, waiting, request_stands=False)
            sends += more
        return LockStep(state=replace(state, yields=True, deferred=frozenset()), sends=sends)

    def _acknowledged(self, state: TwoFgmeState, sender: str, left: bool) -> Step:
        if sender in state.outdated:
            outdated = list(state.outdated)
            outdated.remove(sender)
            state = replace(state, outdated=tuple(outdated))
        elif sender in state.asked - state.granted:
            state = replace(state, granted=state.granted | {sender})
        else:
            raise IllegalEvent(f"an acknowledgement of {sender!r} that nobody waits for")
        sends: Sends = ()
        if left:
            state, sends = self._ask_the_rest(replace(state, yields=False))
        return self._enter_if_granted(state, sends)

    def _ended(self, state: TwoFgmeState, clock: int) -> Step:
        now = replace(state, clock=max(state.clock, clock), yields=False)
        now, sends = self._ask_the_rest(now)
        return LockStep(state=now, sends=sends)

    # Their parts

    def _defers(self, state: TwoFgmeState, sender: str, clock: int) -> bool:
        if state.position is LockPosition.ASKING and not state.yields:
            return (state.asks_since, self.site.me) < (clock, sender)
        return state.position is LockPosition.INSIDE

    def _grant(self, state: TwoFgmeState, sender: str, *, request_stands: bool) -> tuple[TwoFgmeState, Sends]:
        """Acknowledge, and take the own request back, unless it waits there for the sender's exit."""
        if sender in state.granted:
            state = replace(state, granted=state.granted - {sender}, asked=state.asked - {sender})
        elif sender in state.asked and not request_stands:
            outdated = tuple(sorted((*state.outdated, sender)))
            state = replace(state, asked=state.asked - {sender}, outdated=outdated)
        return state, ((sender, TwoFgmeAck()),)

    def _ask_the_rest(self, state: TwoFgmeState) -> tuple[TwoFgmeState, Sends]:
        if state.position is not LockPosition.ASKING or state.yields:
            return state, ()
        rest = self.site.competitors - state.asked
        return replace(state, asked=self.site.competitors), to_all(rest, TwoFgmeReq(state.asks_since))

    def _enter_if_granted(self, state: TwoFgmeState, sends: Sends) -> Step:
        if state.position is LockPosition.ASKING and state.granted == self.site.competitors:
            state = replace(state, position=LockPosition.INSIDE, yields=False)
        return LockStep(state=state, sends=sends)
