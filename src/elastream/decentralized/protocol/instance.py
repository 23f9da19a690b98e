"""The scaling protocol of one instance, as a state machine without I/O (the thesis, Algorithms 4 to 10), mended.

docs/decentralized/protocol.md has the diagram of its phases, which is drawn from the table below.

An instance that duplicates creates new ones, tells its neighbours, and starts the new ones when all neighbours
have acknowledged. One that leaves tells its predecessors, which stop sending to it; drains; tells its successors;
ends. Events come in as method calls, and every step names what is to be done: first the effects, in their order,
then the messages. An event that the state has no place for raises, and the state is still the right one.

What differs from the pseudo-code (docs/decentralized/protocol.md has the run that each of these mends):

- A message tells its sender's operator, so that an instance that has not started knows which side it is on.
- One action at a time, and acknowledgements are expected from names, not counted.
- A neighbour that leaves during a duplication tells the new instances itself, perhaps after they were started
  without it. Start names it, so that its message is no stranger's, and so that a new instance does not end before
  it.
- Leaving has two stages. Successors are told last, when no record can follow; until then they count the leaving
  instance among their predecessors, and will not end while it may still send to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from elastream.dataflow import Dataflow
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.decision import why_not_scalable
from elastream.decentralized.protocol.messages import (
    Activate,
    Address,
    Create,
    Deletion,
    DeletionAck,
    Drain,
    Duplication,
    DuplicationAck,
    Effect,
    End,
    Flush,
    Message,
    Start,
    operator_of,
)


class InstancePhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DUPLICATING = "duplicating"
    LEAVING = "leaving"
    DRAINING = "draining"
    PARTING = "parting"
    ENDED = "ended"


class InstanceTrigger(StrEnum):
    STARTED = "a start"
    DUPLICATE = "a duplication of its own"
    LEAVE = "leaving"
    ACKNOWLEDGED = "the last acknowledgement"
    DRAINED = "an empty inbox"


_P, _T = InstancePhase, InstanceTrigger

TRANSITIONS: Mapping[tuple[InstancePhase, InstanceTrigger], InstancePhase] = {
    (_P.WAITING, _T.STARTED): _P.RUNNING,
    (_P.RUNNING, _T.DUPLICATE): _P.DUPLICATING,
    (_P.DUPLICATING, _T.ACKNOWLEDGED): _P.RUNNING,
    (_P.RUNNING, _T.LEAVE): _P.LEAVING,
    (_P.LEAVING, _T.ACKNOWLEDGED): _P.DRAINING,
    (_P.DRAINING, _T.DRAINED): _P.PARTING,
    (_P.PARTING, _T.ACKNOWLEDGED): _P.ENDED,
}


def following(phase: InstancePhase, trigger: InstanceTrigger) -> InstancePhase:
    try:
        return TRANSITIONS[phase, trigger]
    except KeyError:
        raise IllegalEvent(f"{trigger} is not possible for an instance that is {phase}") from None


@dataclass(frozen=True, kw_only=True)
class Place:
    """The fixed part of an instance: who it is, and which operators are before and behind its own."""

    me: Address
    upstream: frozenset[str]
    downstream: frozenset[str]
    keeper: bool = False
    """It never leaves, so that its operator never disappears."""
    fixed: str = ""
    """Why its operator stays at one instance; empty where it scales."""
    least: int = 1
    most: int | None = None
    """How many instances its operator should and may have. One alone cannot know how many there are: `decision.py`
    goes by what it was told, and under locks its delegate counts."""

    @classmethod
    def of(cls, me: Address, dataflow: Dataflow, *, keeper: bool = False) -> Place:
        operator = operator_of(me)
        return cls(
            me=me,
            upstream=frozenset(dataflow.upstream(operator)),
            downstream=frozenset(dataflow.downstream(operator)),
            keeper=keeper,
            fixed=why_not_scalable(dataflow[operator]),
            least=dataflow[operator].min_parallelism,
            most=dataflow[operator].max_parallelism,
        )


Wish = int
"""What an instance wants to do once it may: so many copies, or 0 to leave."""
Asked = tuple[tuple[Address, Wish], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """Whose turn it is to scale, as far as one instance has to know."""

    wish: Wish | None = None
    """Its own, while it waits."""
    locks: tuple[Any, ...] = ()
    """Of a core member, as all that follows: its side of the lock of each edge, in the global order."""
    waiting: Asked = ()
    """Who asked to scale, for the next turn."""
    serving: Asked = ()
    """Whose turn it is, and what each may do; all locks are held until they are done."""
    instances: int = 0
    """How many its operator has, without the changes of this turn."""


class Bereavement(StrEnum):
    """How far a keeper is with somebody of its operator who may have died (`survivors.py`)."""

    SUSPECTED = "suspected"
    STOPPING = "its predecessors stop"
    TAKING_OVER = "taking over"
    PARTING = "its successors are told"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estate:
    dead: Address
    stage: Bereavement = Bereavement.SUSPECTED
    suspected_by: frozenset[Address] = frozenset()
    awaited: frozenset[Address] = frozenset()
    """Who has not said yet that it heard of the death."""
    also_tell: frozenset[Address] = frozenset()
    """Who asked and is no neighbour of the keeper; it is told with the successors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceState:
    phase: InstancePhase = InstancePhase.WAITING
    successors: frozenset[Address] = frozenset()
    predecessors: frozenset[Address] = frozenset()
    successors_to_add: frozenset[Address] = frozenset()
    """The four sets collect what a waiting instance hears before its start."""
    successors_to_delete: frozenset[Address] = frozenset()
    predecessors_to_add: frozenset[Address] = frozenset()
    predecessors_to_delete: frozenset[Address] = frozenset()
    awaited: frozenset[Address] = frozenset()
    """Whose acknowledgement is still to come."""
    newcomers: tuple[Address, ...] = ()
    """The new instances of the duplication that is under way."""
    told_newcomers: frozenset[Address] = frozenset()
    """Who leaves and knew of that duplication when it did: it says so to the new instances itself."""
    leaving: frozenset[Address] = frozenset()
    """Not among the neighbours any more, but their Deletion is still to come."""
    created: int = 0
    """How many copies it has ever made; numbers the next."""
    dead: frozenset[Address] = frozenset()
    """Declared dead: not believed any more."""
    asked_about: frozenset[Address] = frozenset()
    """Whom a keeper wants to know about."""
    estates: tuple[Estate, ...] = ()
    """Of a keeper."""
    turns: Turns | None = None
    """Where neighbours never scale at the same time (`neighbour_locks.py`)."""

    @property
    def wish(self) -> Wish | None:
        """What it asked to do, while it waits for its turn."""
        return None if self.turns is None else self.turns.wish

    @property
    def sends_records(self) -> bool:
        return self.phase not in (InstancePhase.WAITING, InstancePhase.PARTING, InstancePhase.ENDED)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceStep:
    """The new state, and what is to be done about it."""

    state: InstanceState
    effects: tuple[Effect, ...] = ()
    """To be carried out before anything is sent; under locks an End after that."""
    sends: tuple[tuple[Address, Any], ...] = ()
    dropped: str = ""
    """Why what was decided is not done, or not all of it."""

    def then(self, step: InstanceStep) -> InstanceStep:
        return InstanceStep(
            state=step.state,
            effects=(*self.effects, *step.effects),
            sends=(*self.sends, *step.sends),
            dropped=self.dropped or step.dropped,
        )


def first_instance(successors: Iterable[Address], predecessors: Iterable[Address]) -> InstanceState:
    """The state of an instance that runs from the beginning, when everybody is known."""
    return InstanceState(
        phase=InstancePhase.RUNNING, successors=frozenset(successors), predecessors=frozenset(predecessors)
    )


@dataclass(frozen=True)
class Instance:
    place: Place

    # What the instance itself decides

    def duplicate(self, state: InstanceState, times: int, /) -> InstanceStep:
        if self.place.fixed:
            raise IllegalEvent(self.place.fixed)
        if times < 1:
            raise IllegalEvent(f"a duplication makes at least one copy, not {times}")
        phase = following(state.phase, InstanceTrigger.DUPLICATE)
        added = tuple(f"{self.place.me}.{state.created + n}" for n in range(1, times + 1))
        told = state.successors | state.predecessors
        state = replace(state, phase=phase, newcomers=added, created=state.created + times, awaited=told)
        effects = tuple(Create(instance) for instance in added)
        return self._settle(InstanceStep(state=state, effects=effects, sends=_to_all(told, Duplication(added))))

    def leave(self, state: InstanceState, /) -> InstanceStep:
        if self.place.keeper:
            raise IllegalEvent(f"{self.place.me!r} is the keeper of its operator and does not leave")
        if self.place.fixed:
            raise IllegalEvent(self.place.fixed)
        phase = following(state.phase, InstanceTrigger.LEAVE)
        state = replace(state, phase=phase, awaited=state.predecessors)
        return self._settle(InstanceStep(state=state, sends=_to_all(state.predecessors, Deletion())))

    def drained(self, state: InstanceState, /) -> InstanceStep:
        """The inbox is empty, and what was made of it is on its way."""
        phase = following(state.phase, InstanceTrigger.DRAINED)
        state = replace(state, phase=phase, awaited=state.successors)
        effects = (Flush(tuple(sorted(state.successors))),) if state.successors else ()
        return self._settle(
            InstanceStep(state=state, effects=effects, sends=_to_all(state.successors, Deletion()))
        )

    # What others tell it

    def receive(self, state: InstanceState, sender: Address, message: object, /) -> InstanceStep:
        if state.phase is InstancePhase.ENDED:
            raise IllegalEvent(f"{message} from {sender!r} for {self.place.me!r}, which has ended")
        match message:
            case Start():
                return self._started(state, sender, message)
            case Duplication(added=added):
                return self._neighbour_duplicates(state, sender, added)
            case Deletion():
                return self._neighbour_leaves(state, sender)
            case DuplicationAck(told=told):
                if told:
                    state = replace(state, told_newcomers=state.told_newcomers | {sender})
                return self._acknowledged(state, sender, message, frozenset({InstancePhase.DUPLICATING}))
            case DeletionAck():
                return self._acknowledged(
                    state, sender, message, frozenset({InstancePhase.LEAVING, InstancePhase.PARTING})
                )
            case _:
                raise IllegalEvent(f"{message} from {sender!r} is about locks, and {self.place.me!r} has none")

    def _started(self, state: InstanceState, sender: Address, start: Start) -> InstanceStep:
        phase = following(state.phase, InstanceTrigger.STARTED)
        if operator_of(sender) != operator_of(self.place.me):
            raise IllegalEvent(f"{sender!r} starts {self.place.me!r}, which is no copy of it")
        running = InstanceState(
            phase=phase,
            successors=(start.successors | state.successors_to_add) - state.successors_to_delete,
            predecessors=(start.predecessors | state.predecessors_to_add) - state.predecessors_to_delete,
            leaving=start.leaving - state.successors_to_delete - state.predecessors_to_delete,
            dead=state.dead,
            asked_about=state.asked_about,
            turns=state.turns,
        )
        return InstanceStep(state=running, effects=(Activate(),))

    def _neighbour_duplicates(
        self, state: InstanceState, sender: Address, added: tuple[Address, ...]
    ) -> InstanceStep:
        side = self._side_of(state, sender)
        if any(operator_of(new) != operator_of(sender) for new in added):
            raise IllegalEvent(f"{sender!r} duplicates to {', '.join(added)}, which are no copies of it")
        if self._is_parting_with(state, side):  # they will be started without this instance
            told = not getattr(state, side).isdisjoint(added)
            return InstanceStep(state=state, sends=((sender, DuplicationAck(told=told)),))
        return InstanceStep(state=_with_added(state, side, frozenset(added)), sends=((sender, DuplicationAck()),))

    def _neighbour_leaves(self, state: InstanceState, sender: Address) -> InstanceStep:
        side = self._side_of(state, sender)
        effects = (Flush((sender,)),) if side == "successors" and state.sends_records else ()
        if state.phase is InstancePhase.DUPLICATING and sender not in state.awaited | state.leaving:
            state = replace(state, told_newcomers=state.told_newcomers | {sender})
        state = replace(_with_deleted(state, side, sender), leaving=state.leaving - {sender})
        step = InstanceStep(state=state, effects=effects, sends=((sender, DeletionAck()),))
        return self._settle(step) if state.phase is InstancePhase.PARTING else step

    def _acknowledged(
        self, state: InstanceState, sender: Address, message: Message, phases: frozenset[InstancePhase]
    ) -> InstanceStep:
        if state.phase not in phases or sender not in state.awaited:
            raise IllegalEvent(f"{message} from {sender!r}, which {self.place.me!r} does not wait for")
        return self._settle(InstanceStep(state=replace(state, awaited=state.awaited - {sender})))

    # Their parts

    def _settle(self, step: InstanceStep) -> InstanceStep:
        """Go on where nothing is awaited any more."""
        state = step.state
        if state.awaited or (state.leaving and state.phase is InstancePhase.PARTING):
            return step
        phase = following(state.phase, InstanceTrigger.ACKNOWLEDGED)
        match state.phase:
            case InstancePhase.DUPLICATING:
                start = Start(state.successors, state.predecessors, state.told_newcomers)
                sends = (*step.sends, *_to_all(state.newcomers, start))
                state = replace(state, phase=phase, newcomers=(), told_newcomers=frozenset())
                return replace(step, state=state, sends=sends)
            case InstancePhase.LEAVING:
                return replace(step, state=replace(state, phase=phase), effects=(*step.effects, Drain()))
        return replace(step, state=replace(state, phase=phase), effects=(*step.effects, End()))

    def _side_of(self, state: InstanceState, sender: Address) -> str:
        """Which side a neighbour is on. One that has not started knows nobody, and goes by the operator."""
        operator = operator_of(sender)
        waits = state.phase is InstancePhase.WAITING or sender in state.leaving
        if operator in self.place.downstream and (waits or sender in state.successors):
            return "successors"
        if operator in self.place.upstream and (waits or sender in state.predecessors):
            return "predecessors"
        raise IllegalEvent(f"{self.place.me!r} has no neighbour {sender!r}")

    @staticmethod
    def _is_parting_with(state: InstanceState, side: str) -> bool:
        if side == "successors":
            return state.phase is InstancePhase.PARTING
        return state.phase in (InstancePhase.LEAVING, InstancePhase.DRAINING, InstancePhase.PARTING)


def _with_added(state: InstanceState, side: str, added: frozenset[Address]) -> InstanceState:
    field = f"{side}_to_add" if state.phase is InstancePhase.WAITING else side
    return _changed(state, field, getattr(state, field) | added)


def _with_deleted(state: InstanceState, side: str, deleted: Address) -> InstanceState:
    if state.phase is InstancePhase.WAITING:
        field = f"{side}_to_delete"
        return _changed(state, field, getattr(state, field) | {deleted})
    return _changed(state, side, getattr(state, side) - {deleted})


def _changed(state: InstanceState, field: str, value: frozenset[Address]) -> InstanceState:
    changes: Any = {field: value}
    return replace(state, **changes)


def _to_all(receivers: Iterable[Address], message: Message) -> tuple[tuple[Address, Message], ...]:
    return tuple((receiver, message) for receiver in sorted(receivers))
