"""2-FGME line by line as the thesis prints it (Algorithms 12 to 15), for the record: it fails.

Only the tests and the report of the explorer use it. Line numbers are the thesis's. Each `Mend` repairs one line,
so that it can be seen what is left after it. Both together still let two groups in: an acknowledgement on
its way for a request that was withdrawn is taken for one of the request after it. `locks/two_fgme.py` mends that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from elastream.decentralized.locks.port import LockPosition, LockSite, LockStep, require, require_known, to_all


class Mend(StrEnum):
    SUBTRACT_FIRST = "lines 65 and 85 before 64 and 84"
    ONLY_ASKING = "line 72 lets in only who asks"


@dataclass(frozen=True, slots=True)
class Req:
    clock: int


@dataclass(frozen=True, slots=True)
class Ack:
    renew: bool = False
    end: bool = False


@dataclass(frozen=True, slots=True)
class End:
    clock: int


INFINITE = 1_000_000

Message = Req | Ack | End
Sends = tuple[tuple[str, Message], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    position: LockPosition = LockPosition.IDLE
    clock: int = 0
    req_id: int | None = None
    waiting_reqs: frozenset[str] = frozenset()
    reqs_to_send: frozenset[str] = frozenset()
    acks_to_ign: frozenset[str] = frozenset()
    acks_rcvd: frozenset[str] = frozenset()
    competitors_authorized: bool = False


Step = LockStep[State, Message]


@dataclass(frozen=True)
class TwoFgmeAsPublished:
    site: LockSite
    mends: frozenset[Mend] = frozenset()
    messages: ClassVar[tuple[type, ...]] = (Req, Ack, End)

    def initial(self) -> State:
        return State()

    def request(self, state: State, /) -> Step:
        require(state.position, LockPosition.IDLE, "a request")
        clock = state.clock + 1
        asking = replace(state, position=LockPosition.ASKING, clock=clock, req_id=clock, acks_rcvd=frozenset())
        if not state.competitors_authorized:  # 11
            return LockStep(state=asking, sends=to_all(self.site.competitors, Req(clock)))
        return LockStep(state=replace(asking, reqs_to_send=self.site.competitors))  # 14

    def receive(self, state: State, sender: str, message: Message, /) -> Step:
        require_known(sender, self.site.competitors)
        match message:
            case Req(clock=clock):
                return self._req(replace(state, clock=max(state.clock, clock)), sender, clock)
            case Ack():
                return self._ack(state, sender, message)
            case End(clock=clock):
                state = replace(state, clock=max(state.clock, clock), competitors_authorized=False)  # 78, 79
                state = replace(state, waiting_reqs=state.waiting_reqs - {sender})  # 81
                state, sends = self._resume(state)
                return LockStep(state=state, sends=sends)

    def exit(self, state: State, /) -> Step:
        require(state.position, LockPosition.INSIDE, "an exit")
        others = self.site.competitors - state.waiting_reqs  # 94
        sends: Sends = (*to_all(state.waiting_reqs, Ack(end=True)), *to_all(others, End(state.clock)))
        idle = replace(
            state,
            position=LockPosition.IDLE,
            req_id=None,
            competitors_authorized=state.competitors_authorized or bool(state.waiting_reqs),  # 91
            waiting_reqs=frozenset(),
            acks_to_ign=frozenset(),  # 97
        )
        return LockStep(state=idle, sends=sends)

    def _req(self, state: State, sender: str, clock: int) -> Step:
        lower = state.req_id is None or (clock, sender) < (state.req_id, self.site.me)
        if lower and state.position is not LockPosition.INSIDE:  # 20
            return self._authorize(state, sender)
        if state.competitors_authorized and state.position is not LockPosition.INSIDE:  # 42
            sends: Sends = ()
            if sender not in state.reqs_to_send:  # 43
                sends = ((sender, End(state.clock)),)
                state = self._withdraw(state, sender)
            return LockStep(state=state, sends=(*sends, (sender, Ack(renew=True))))  # 52
        return LockStep(state=replace(state, waiting_reqs=state.waiting_reqs | {sender}))  # 54

    def _authorize(self, state: State, sender: str) -> Step:
        sends: list[tuple[str, Message]] = [(sender, Ack())]  # 21
        if not state.competitors_authorized:
            state = replace(state, competitors_authorized=True)  # 23
            if state.req_id is not None:
                for other in sorted(self.site.competitors - {sender}):  # 25
                    waits = other in state.waiting_reqs
                    sends.append((other, Ack(renew=True) if waits else End(state.clock)))  # 28, 30
                    state = replace(state, waiting_reqs=state.waiting_reqs - {other})
                    state = self._withdraw(state, other)
        return LockStep(state=state, sends=tuple(sends))

    def _withdraw(self, state: State, other: str) -> State:
        """Lines 32 to 37 and 45 to 50."""
        state = replace(state, reqs_to_send=state.reqs_to_send | {other})
        if other in state.acks_rcvd:
            return replace(state, acks_rcvd=state.acks_rcvd - {other})
        return replace(state, acks_to_ign=state.acks_to_ign | {other})

    def _ack(self, state: State, sender: str, ack: Ack) -> Step:
        sends: Sends = ()
        if ack.end or ack.renew:
            state = replace(state, competitors_authorized=False)  # 60
        if ack.end:
            state = replace(state, acks_to_ign=state.acks_to_ign - {sender})  # 62
            state, sends = self._resume(state)
        if sender in state.acks_to_ign:  # 68
            return LockStep(state=replace(state, acks_to_ign=state.acks_to_ign - {sender}), sends=sends)
        state = replace(state, acks_rcvd=state.acks_rcvd | {sender})  # 71
        asking = state.position is LockPosition.ASKING
        if state.acks_rcvd == self.site.competitors and (asking or Mend.ONLY_ASKING not in self.mends):  # 72
            state = replace(state, position=LockPosition.INSIDE)
        return LockStep(state=state, sends=sends)

    def _resume(self, state: State) -> tuple[State, Sends]:
        """Lines 63 to 65 and 83 to 85. Without a request of its own, a member sends an infinite clock."""
        to_send = state.reqs_to_send
        sends = to_all(to_send, Req(state.req_id if state.req_id is not None else INFINITE))
        if Mend.SUBTRACT_FIRST in self.mends:
            state = replace(state, acks_to_ign=state.acks_to_ign - to_send)
        return replace(state, reqs_to_send=frozenset()), sends
