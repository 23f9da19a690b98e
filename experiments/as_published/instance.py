"""The scaling protocol as the papers print it (Algorithms 4 to 10), for the record: it fails.

Only the tests and the report of the explorer use it. Each `Mend` repairs one thing, in the order in which the
failures show; with both, an instance that drains still sends to a successor that has ended, which takes the two
stages of `decentralized/protocol/instance.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.instance import (
    InstancePhase,
    InstanceState,
    InstanceStep,
    Place,
)
from elastream.decentralized.protocol.messages import (
    Address,
    Create,
    Deletion,
    DeletionAck,
    Duplication,
    DuplicationAck,
    Message,
    Start,
    operator_of,
)


class Mend(StrEnum):
    SENDERS_OPERATOR = "the message tells its sender's operator"
    ONE_ACTION = "one action at a time"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedState(InstanceState):
    acks: int = 0
    acks_expected: int = 0


@dataclass(frozen=True)
class InstanceAsPublished:
    """Takes the state that the mended one begins with; there is one phase for all that an active instance does."""

    place: Place
    mends: frozenset[Mend] = frozenset()

    def duplicate(self, given: InstanceState, times: int, /) -> InstanceStep:
        state = _published(given)
        added = tuple(f"{self.place.me}.{state.created + n}" for n in range(1, times + 1))
        told = state.successors | state.predecessors
        state = replace(state, newcomers=added, created=state.created + times, acks=0, acks_expected=len(told))
        if Mend.ONE_ACTION in self.mends:
            state = replace(state, phase=InstancePhase.DUPLICATING)
        effects = tuple(Create(instance) for instance in added)
        return InstanceStep(state=state, effects=effects, sends=_to_all(told, Duplication(added)))

    def leave(self, given: InstanceState, /) -> InstanceStep:
        state = _published(given)
        told = state.successors | state.predecessors
        state = replace(state, acks=0, acks_expected=len(told))
        if Mend.ONE_ACTION in self.mends:
            state = replace(state, phase=InstancePhase.LEAVING)
        return InstanceStep(state=state, sends=_to_all(told, Deletion()))

    def drained(self, given: InstanceState, /) -> InstanceStep:
        return InstanceStep(state=replace(given, phase=InstancePhase.ENDED))

    def receive(self, given: InstanceState, sender: Address, message: Message, /) -> InstanceStep:
        state = _published(given)
        if state.phase is InstancePhase.ENDED:
            raise IllegalEvent(f"{message} for {self.place.me!r}, which has ended")
        match message:
            case Start():
                return self._started(state, message)
            case Duplication(added=added):
                state = self._noted(state, sender, frozenset(added), frozenset())
                return InstanceStep(state=state, sends=((sender, DuplicationAck()),))
            case Deletion():
                state = self._noted(state, sender, frozenset(), frozenset({sender}))
                return InstanceStep(state=state, sends=((sender, DeletionAck()),))
            case DuplicationAck() | DeletionAck():
                return self._acknowledged(replace(state, acks=state.acks + 1), message)

    def _started(self, state: PublishedState, start: Start) -> InstanceStep:
        running = PublishedState(
            phase=InstancePhase.RUNNING,
            successors=(start.successors | state.successors_to_add) - state.successors_to_delete,
            predecessors=(start.predecessors | state.predecessors_to_add) - state.predecessors_to_delete,
        )
        return InstanceStep(state=running)

    def _noted(
        self, state: PublishedState, sender: Address, added: frozenset[Address], deleted: frozenset[Address]
    ) -> PublishedState:
        """Algorithms 5 and 9, lines 2 to 13."""
        by_operator = Mend.SENDERS_OPERATOR in self.mends
        active = state.phase is not InstancePhase.WAITING
        if operator_of(sender) in self.place.downstream if by_operator else sender in state.successors:
            if active:
                return replace(state, successors=(state.successors | added) - deleted)
            return replace(
                state,
                successors_to_add=state.successors_to_add | added,
                successors_to_delete=state.successors_to_delete | deleted,
            )
        if operator_of(sender) in self.place.upstream if by_operator else sender in state.predecessors:
            if active:
                return replace(state, predecessors=(state.predecessors | added) - deleted)
            return replace(
                state,
                predecessors_to_add=state.predecessors_to_add | added,
                predecessors_to_delete=state.predecessors_to_delete | deleted,
            )
        return state

    def _acknowledged(self, state: PublishedState, message: Message) -> InstanceStep:
        """Algorithms 6 and 10: one counter for both kinds."""
        if state.acks != state.acks_expected:
            return InstanceStep(state=state)
        if isinstance(message, DeletionAck):
            return InstanceStep(state=replace(state, phase=InstancePhase.DRAINING))
        start = Start(state.successors, state.predecessors)
        running = replace(state, phase=InstancePhase.RUNNING, newcomers=())
        return InstanceStep(state=running, sends=_to_all(state.newcomers, start))


def _published(state: InstanceState) -> PublishedState:
    if isinstance(state, PublishedState):
        return state
    return PublishedState(phase=state.phase, successors=state.successors, predecessors=state.predecessors)


def _to_all(receivers: Iterable[Address], message: Message) -> tuple[tuple[Address, Message], ...]:
    return tuple((receiver, message) for receiver in sorted(receivers))
