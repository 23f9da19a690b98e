"""RA1: Ricart and Agrawala's algorithm for groups (Joung; the thesis, 2.4.3).

A member asks everybody. Whoever asks for the other group with a higher priority, or is inside, answers later.
Every entry costs a request and an acknowledgement for each of the others: 2·x·n·(n−1) messages for x entries of n
members (the thesis prints n² − 1, but its own 2,640 for 12 members and 10 entries follows from this).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks.port import LockPosition, LockSite, LockStep, require, require_known, to_all


@dataclass(frozen=True, slots=True)
class Ra1Req:
    clock: int


@dataclass(frozen=True, slots=True)
class Ra1Ack:
    pass


Message = Ra1Req | Ra1Ack


@dataclass(frozen=True, kw_only=True, slots=True)
class Ra1State:
    position: LockPosition = LockPosition.IDLE
    clock: int = 0
    asks_since: int = 0
    granted: frozenset[str] = frozenset()
    deferred: frozenset[str] = frozenset()


Step = LockStep[Ra1State, Message]


@dataclass(frozen=True)
class Ra1:
    site: LockSite
    messages: ClassVar[tuple[type, ...]] = (Ra1Req, Ra1Ack)

    def initial(self) -> Ra1State:
        return Ra1State()

    def request(self, state: Ra1State, /) -> Step:
        require(state.position, LockPosition.IDLE, "a request")
        clock = state.clock + 1
        position = LockPosition.ASKING if self.site.others else LockPosition.INSIDE
        asking = replace(state, position=position, clock=clock, asks_since=clock, granted=frozenset())
        return LockStep(state=asking, sends=to_all(self.site.others, Ra1Req(clock)))

    def receive(self, state: Ra1State, sender: str, message: Message, /) -> Step:
        require_known(sender, self.site.others)
        match message:
            case Ra1Req(clock=clock):
                return self._requested(state, sender, clock)
            case Ra1Ack():
                return self._acknowledged(state, sender)

    def exit(self, state: Ra1State, /) -> Step:
        require(state.position, LockPosition.INSIDE, "an exit")
        return LockStep(state=Ra1State(clock=state.clock), sends=to_all(state.deferred, Ra1Ack()))

    def _requested(self, state: Ra1State, sender: str, clock: int) -> Step:
        if sender in state.deferred:
            raise IllegalEvent(f"{sender!r} asks a second time before it was answered")
        state = replace(state, clock=max(state.clock, clock))
        if sender in self.site.competitors and self._comes_first(state, sender, clock):
            return LockStep(state=replace(state, deferred=state.deferred | {sender}))
        return LockStep(state=state, sends=((sender, Ra1Ack()),))

    def _comes_first(self, state: Ra1State, sender: str, clock: int) -> bool:
        if state.position is LockPosition.ASKING:
            return (state.asks_since, self.site.me) < (clock, sender)
        return state.position is LockPosition.INSIDE

    def _acknowledged(self, state: Ra1State, sender: str) -> Step:
        if state.position is not LockPosition.ASKING or sender in state.granted:
            raise IllegalEvent(f"an acknowledgement of {sender!r} that nobody waits for")
        granted = state.granted | {sender}
        position = LockPosition.INSIDE if granted == self.site.others else LockPosition.ASKING
        return LockStep(state=replace(state, position=position, granted=granted))
