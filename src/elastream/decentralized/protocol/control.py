"""The control side of an instance as one value: its protocol and its links, changed together, written down whole.

An event goes in (a message, an acknowledgement, a decision), a `Turn` comes out: the new state, in which the
messages to send are already numbered and kept, and the effects. Whoever runs it writes the state down, carries
out the effects, and only then lets messages and acknowledgements out. A process that is killed before it wrote
has said nothing; one that is killed after it finds in the state what is still to be said, and what to do again
(`unfinished`), as all effects may be carried out twice.

What is refused leaves the protocol as it was. A message that is refused is still taken in, else it would come
again for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from pydantic import TypeAdapter

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.instance import (
    Bereavement,
    InstancePhase,
    InstanceState,
    InstanceStep,
    Place,
    first_instance,
)
from elastream.decentralized.protocol.link import Body, Incoming, Outgoing, Stale
from elastream.decentralized.protocol.messages import (
    Activate,
    Address,
    Create,
    Death,
    Drain,
    Effect,
    End,
    TakeOver,
    operator_of,
)
from elastream.decentralized.protocol.neighbour_locks import LockedInstance, NeighbourLocks
from elastream.decentralized.protocol.survivors import Survivor
from elastream.decentralized.protocol.wire import (
    message_from_json,
    message_to_json,
    state_from_json,
    state_to_json,
    turns_from_json,
    turns_to_json,
)
from elastream.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlState:
    instance: InstanceState
    incarnation: int = 0
    """How often it was started."""
    outgoing: Mapping[Address, Outgoing] = field(default_factory=dict)
    incoming: Mapping[Address, Incoming] = field(default_factory=dict)

    @property
    def waits_for_locks(self) -> bool:
        """Whether it has decided to scale, and its turn is still to come."""
        return self.instance.wish is not None

    @property
    def all_said(self) -> bool:
        """Whether everybody has acknowledged everything."""
        return not any(link.waiting for link in self.outgoing.values())

    @property
    def former(self) -> frozenset[Address]:
        """Whom it has a link with, or a question about, and who is no neighbour: who left, and the copies that it
        made."""
        neighbours = self.instance.successors | self.instance.predecessors
        asked = self.instance.asked_about | {one.dead for one in self.instance.estates}
        return frozenset(self.outgoing.keys() | self.incoming.keys() | asked) - neighbours


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    state: ControlState
    effects: tuple[Effect, ...] = ()
    refused: str = ""
    """Why a message was not obeyed."""
    dropped: str = ""
    """Why something that was decided is not done after all."""


@dataclass(frozen=True)
class Controller:
    place: Place
    locks: NeighbourLocks | None = None
    """Without them the acknowledgements of the protocol are all that there is."""

    @cached_property
    def _protocol(self) -> Survivor | LockedInstance:
        return Survivor(self.place) if self.locks is None else LockedInstance(self.place, self.locks)

    def initial(self, first: bool) -> ControlState:
        """Before its first start: of the first instance of an operator, which knows the others; of a copy."""
        instance = InstanceState()
        if first:
            instance = first_instance(
                successors=(f"{operator}/0" for operator in self.place.downstream),
                predecessors=(f"{operator}/0" for operator in self.place.upstream),
            )
        if isinstance(self._protocol, LockedInstance):
            instance = self._protocol.initial(instance)
        return ControlState(instance=instance)

    def begin(self, state: ControlState) -> Turn:
        """A new start, with whatever the one before may have left undone."""
        if state.instance.phase is InstancePhase.ENDED and state.all_said:
            raise IllegalEvent(f"{self.place.me!r} has ended: its place was given up, and it does not come back")
        if self.place.me in state.instance.dead:
            raise IllegalEvent(f"{self.place.me!r} was declared dead, and others have taken over what it had")
        return Turn(state=replace(state, incarnation=state.incarnation + 1), effects=unfinished(state.instance))

    # What the instance itself decides

    def duplicate(self, state: ControlState, times: int) -> Turn:
        return _taken(state, self._protocol.duplicate(state.instance, times))

    def leave(self, state: ControlState) -> Turn:
        return _taken(state, self._protocol.leave(state.instance))

    def drained(self, state: ControlState) -> Turn:
        return _taken(state, self._protocol.drained(state.instance))

    # What becomes of others. Under locks nobody is declared dead: whose turn it is goes by who asked.

    def watched(self, state: ControlState) -> frozenset[Address]:
        """Who is to be suspected where it cannot be reached."""
        return self._protocol.watched(state.instance) if isinstance(self._protocol, Survivor) else frozenset()

    def suspect(self, state: ControlState, missing: Address) -> Turn:
        assert isinstance(self._protocol, Survivor), "else nobody is watched"
        return _taken(state, self._protocol.suspect(state.instance, missing))

    def taken_over(self, state: ControlState, dead: Address) -> Turn:
        assert isinstance(self._protocol, Survivor), "else nobody is declared dead"
        return _taken(state, self._protocol.taken_over(state.instance, dead))

    # What comes over a connection

    def greeted(self, state: ControlState, sender: Address, receiver: Address, incarnation: int) -> ControlState:
        """Someone wants to talk: raises where it is a stranger, means someone else, or is stale."""
        if receiver != self.place.me:
            raise IllegalEvent(f"{sender!r} looks for {receiver!r}, and this is {self.place.me!r}")
        known = self.place.upstream | self.place.downstream | {operator_of(self.place.me)}
        if operator_of(sender) not in known:
            raise IllegalEvent(f"{self.place.me!r} does not know {sender!r}: its operator is no neighbour")
        if sender in state.instance.dead:
            raise Stale(f"{sender!r} was declared dead, and its place is closed")
        link = state.incoming.get(sender, Incoming()).greeted(incarnation)
        return replace(state, incoming={**state.incoming, sender: link})

    def received(self, state: ControlState, sender: Address, number: int, body: Body) -> Turn:
        """One that was taken in before changes nothing."""
        link = state.incoming.get(sender)
        if link is None:
            raise IllegalEvent(f"{sender!r} sends before it was greeted")
        if link.repeats(number):
            return Turn(state=state)
        state = replace(state, incoming={**state.incoming, sender: link.take(number)})
        try:
            return _taken(state, self._protocol.receive(state.instance, sender, message_from_json(body)))
        except (IllegalEvent, InvalidInput) as error:
            return Turn(state=state, refused=str(error))

    def acknowledged(self, state: ControlState, receiver: Address, number: int) -> ControlState:
        link = state.outgoing.get(receiver, Outgoing()).acknowledged(number)
        return replace(state, outgoing={**state.outgoing, receiver: link})

    def given_up(self, state: ControlState, receiver: Address) -> ControlState:
        """The receiver has ended. It does so only when it has heard all, so it had heard this, too."""
        link = state.outgoing.get(receiver, Outgoing())
        return replace(state, outgoing={**state.outgoing, receiver: replace(link, waiting=())})

    def forgotten(self, state: ControlState, ended: Iterable[Address]) -> ControlState:
        """Without the links with those that have ended. They do so only when all that they said was acknowledged,
        so nothing comes again whose number would have to be known; and no address is used twice."""
        gone = state.former.intersection(ended)
        suspected = {
            one for one in state.instance.estates if one.stage is Bereavement.SUSPECTED and one.dead in gone
        }
        instance = replace(
            state.instance,
            asked_about=state.instance.asked_about - gone,
            estates=tuple(one for one in state.instance.estates if one not in suspected),
        )
        state = replace(state, instance=instance)
        return replace(state, outgoing=_without(state.outgoing, gone), incoming=_without(state.incoming, gone))


def unfinished(state: InstanceState) -> tuple[Effect, ...]:
    """What is to be done in this state and may not have been: each effect can be carried out twice.

    A Flush is not among them: a process that comes back finishes its outbox before anything else.
    """
    estates = tuple(TakeOver(one.dead) for one in state.estates if one.stage is Bereavement.TAKING_OVER)
    return (*_unfinished_itself(state), *estates)


def _unfinished_itself(state: InstanceState) -> tuple[Effect, ...]:
    match state.phase:
        case InstancePhase.WAITING:
            return ()
        case InstancePhase.DUPLICATING:
            alive = (instance for instance in state.newcomers if instance not in state.dead)
            return (Activate(), *(Create(instance) for instance in alive))
        case InstancePhase.DRAINING:
            return (Activate(), Drain())
        case InstancePhase.RUNNING | InstancePhase.LEAVING:
            return (Activate(),)
        case InstancePhase.PARTING:
            return ()
        case InstancePhase.ENDED:
            return (End(),)


_Link = TypeVar("_Link", Outgoing, Incoming)
_OUTGOING, _INCOMING = TypeAdapter(dict[Address, Outgoing]), TypeAdapter(dict[Address, Incoming])


def control_to_json(state: ControlState) -> dict[str, Any]:
    turns = state.instance.turns
    return {
        "incarnation": state.incarnation,
        "instance": state_to_json(state.instance),
        "turns": None if turns is None else turns_to_json(turns),
        "outgoing": {receiver: asdict(link) for receiver, link in state.outgoing.items()},
        "incoming": {sender: asdict(link) for sender, link in state.incoming.items()},
    }


def control_from_json(found: Mapping[str, Any]) -> ControlState:
    instance, turns = state_from_json(found["instance"]), found.get("turns")
    return ControlState(
        instance=instance if turns is None else replace(instance, turns=turns_from_json(turns)),
        incarnation=found["incarnation"],
        outgoing=_OUTGOING.validate_python(found["outgoing"]),
        incoming=_INCOMING.validate_python(found["incoming"]),
    )


def _without(links: Mapping[Address, _Link], gone: Collection[Address]) -> Mapping[Address, _Link]:
    return {address: link for address, link in links.items() if address not in gone}


def _silent(step: InstanceStep) -> Collection[Address]:
    """To whom nothing is sent any more: the dead, who hear from their keeper that they are."""
    told = {to for to, message in step.sends if isinstance(message, Death)}
    return step.state.dead - told


def _taken(state: ControlState, step: InstanceStep) -> Turn:
    outgoing = dict(state.outgoing)
    for receiver, message in step.sends:
        outgoing[receiver] = outgoing.get(receiver, Outgoing()).post(message_to_json(message))
    state = replace(state, instance=step.state, outgoing=_without(outgoing, _silent(step)))
    return Turn(state=state, effects=step.effects, dropped=step.dropped)
