"""The control side of instances as a system to be explored: what a living process runs, without the process.

A node is a process: what it has on disk, what it knows beyond that, and whether it is alive. The network loses,
repeats, delays and reorders (`Lossy`), as connections that break and brokers that are away do. A process is
killed between two turns, or in the middle of one: what it decided is on disk then, nobody has heard of it, and no
effect was carried out. It comes back with what its disk says; what it was told and had not written down is
forgotten. Letters of its former starts are still on the way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from elastream.dataflow import Dataflow
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.control import (
    Controller,
    ControlState,
    Turn,
    control_from_json,
    control_to_json,
)
from elastream.decentralized.protocol.instance import InstancePhase, InstanceState, Place, Turns
from elastream.decentralized.protocol.link import LinkBroken, Stale
from elastream.decentralized.protocol.messages import Address, Create, Effect
from elastream.decentralized.protocol.neighbour_locks import MakeLock
from experiments.checking.explorer import Fault, Reaction, Received
from experiments.checking.protocol_model import LockedModel, May, Node


class Lot(StrEnum):
    """What becomes of a process."""

    KILLED = "is killed"
    DOOMED = "will be killed in its next turn, with that written down and nothing else done"
    COMES_BACK = "comes back"


@dataclass(frozen=True)
class OnDisk:
    text: str

    @classmethod
    def of(cls, state: ControlState) -> OnDisk:
        return cls(json.dumps(control_to_json(state), sort_keys=True))

    @cached_property
    def control(self) -> ControlState:
        return control_from_json(json.loads(self.text))


@dataclass(frozen=True, kw_only=True)
class Process:
    disk: OnDisk
    memory: OnDisk | None
    """The same, with the acknowledgements that came since; none while it is dead."""
    doomed: bool = False
    kills_left: int = 0

    @property
    def told(self) -> InstanceState:
        return self.disk.control.instance

    @property
    def phase(self) -> InstancePhase:
        return self.told.phase

    @property
    def turns(self) -> Turns:
        assert self.told.turns is not None
        return self.told.turns

    @property
    def wish(self) -> int | None:
        return self.turns.wish

    @property
    def successors(self) -> frozenset[Address]:
        return self.told.successors

    @property
    def predecessors(self) -> frozenset[Address]:
        return self.told.predecessors

    @property
    def sends_records(self) -> bool:
        return self.told.sends_records


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    incarnation: int
    number: int
    body: str

    def __str__(self) -> str:
        return f"{self.body} (number {self.number}, start {self.incarnation})"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """To a start of the sender that is over."""

    incarnation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """A turn, with all that is still to be said; of a process that was killed in it nothing was heard."""

    state: Process
    effects: tuple[Effect, ...] = ()
    sends: tuple[tuple[Address, Any], ...] = ()


@dataclass(frozen=True)
class Controlled:
    controller: Controller
    acknowledges: bool = True

    def duplicate(self, state: Process, times: int, /) -> Posted:
        return self._posted(state, self.controller.duplicate(_mind(state), times))

    def leave(self, state: Process, /) -> Posted:
        return self._posted(state, self.controller.leave(_mind(state)))

    def drained(self, state: Process, /) -> Posted:
        return self._posted(state, self.controller.drained(_mind(state)))

    def comes_back(self, state: Process, /) -> Posted:
        try:
            return self._posted(state, self.controller.begin(state.disk.control))
        except IllegalEvent:  # it has ended, and all was heard: there is no process any more
            return Posted(state=state)

    def receive(self, state: Process, sender: Address, message: Any, /) -> Posted:
        if state.memory is None:
            return Posted(state=state)
        mind = _mind(state)
        match message:
            case Letter():
                return self._opened(state, sender, message)
            case Acknowledged(number=number):
                known = self.controller.acknowledged(mind, sender, number)
                return Posted(state=replace(state, memory=OnDisk.of(known)))
            case Refused(incarnation=incarnation):
                if incarnation == mind.incarnation:
                    raise IllegalEvent("the process that lives is taken for one that is over")
                return Posted(state=state)
        raise AssertionError(f"no message: {message}")

    def _opened(self, state: Process, sender: Address, letter: Letter) -> Posted:
        me = self.controller.place.me
        try:
            greeted = self.controller.greeted(_mind(state), sender, me, letter.incarnation)
            turn = self.controller.received(greeted, sender, letter.number, json.loads(letter.body))
        except Stale:
            return Posted(state=state, sends=((sender, Refused(letter.incarnation)),))
        except LinkBroken:  # those before are still to come
            return Posted(state=state)
        if turn.refused:
            raise IllegalEvent(turn.refused)
        posted = self._posted(state, turn)
        if posted.state.memory is None or not self.acknowledges:
            return posted
        taken = turn.state.incoming[sender].taken
        return replace(posted, sends=(*posted.sends, (sender, Acknowledged(taken))))

    def _posted(self, before: Process, turn: Turn) -> Posted:
        written = OnDisk.of(turn.state)
        if before.doomed and written != before.disk:
            return Posted(state=replace(before, disk=written, memory=None, doomed=False))
        return Posted(
            state=replace(before, disk=written, memory=written), effects=turn.effects, sends=_letters(turn.state)
        )


class ControlModel(LockedModel):
    """`kills` says how often which instance is killed, at any time. Without `acknowledges` they are all lost,
    so that everything is said for ever: many fewer worlds, as it does not matter then who has heard which."""

    def __init__(
        self,
        make_lock: MakeLock,
        dataflow: Dataflow,
        plan: Mapping[str, Sequence[May]],
        *,
        newcomers: May,
        kills: Mapping[Address, int] | None = None,
        core: int = 1,
        acknowledges: bool = True,
    ) -> None:
        super().__init__(make_lock, dataflow, plan, newcomers=newcomers, core=core)
        self._acknowledges = acknowledges
        self._make = self._controlled
        self._kills = kills or {}

    def says(self, name: str, node: Node, /) -> Collection[tuple[Address, Hashable]]:
        """Letters until they are acknowledged, and an acknowledgement for every such letter."""
        process: Process = node.state
        if process.memory is None:
            return ()
        mind = process.memory.control
        taken = ((sender, Acknowledged(link.taken)) for sender, link in mind.incoming.items() if link.taken)
        return (*_letters(mind), *(taken if self._acknowledges else ()))

    def moves(self, name: str, node: Node, /) -> Sequence[Hashable]:
        process: Process = node.state
        if process.memory is None:
            return (Lot.COMES_BACK,)
        found = [*super().moves(name, node)]
        if process.kills_left and not process.doomed and process.phase is not InstancePhase.ENDED:
            found += [Fault(Lot.KILLED), Fault(Lot.DOOMED)]
        return found

    def react(self, name: str, node: Node, event: Any, /) -> Reaction:
        match event:
            case Fault(what=Lot.KILLED):
                return self._struck(node, memory=None)
            case Fault(what=Lot.DOOMED):
                return self._struck(node, doomed=True)
            case Lot.COMES_BACK:
                step = self._machine(name).comes_back(node.state)  # type: ignore[attr-defined]
                created = tuple(
                    (effect.instance, self._newcomer(effect.instance))
                    for effect in step.effects
                    if isinstance(effect, Create)
                )
                return Reaction(state=replace(node, state=step.state), sends=step.sends, created=created)
            case Received() if node.state.memory is None:
                return Reaction(state=node)
        return super().react(name, node, event)

    @staticmethod
    def _struck(node: Node, **how: Any) -> Reaction:
        struck = replace(node.state, kills_left=node.state.kills_left - 1, **how)
        return Reaction(state=replace(node, state=struck))

    def _controlled(self, place: Place) -> Controlled:
        return Controlled(Controller(place, self._locks), self._acknowledges)

    def _begun(self, me: Address, instance: InstanceState) -> Process:
        disk = OnDisk.of(ControlState(instance=instance, incarnation=1))
        return Process(disk=disk, memory=disk, kills_left=self._kills.get(me, 0))

    def _waiting(self, name: Address) -> Process:
        return self._begun(name, super()._waiting(name))

    def _first_state(self, me: Address) -> Process:
        return self._begun(me, super()._first_state(me))


def _mind(state: Process) -> ControlState:
    assert state.memory is not None, "it is alive"
    return state.memory.control


def _letters(state: ControlState) -> tuple[tuple[Address, Letter], ...]:
    return tuple(
        (
            receiver,
            Letter(incarnation=state.incarnation, number=one.number, body=json.dumps(one.body, sort_keys=True)),
        )
        for receiver, link in state.outgoing.items()
        for one in link.waiting
    )
