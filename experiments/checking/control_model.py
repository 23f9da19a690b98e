"""The control side of instances under locks as a system to be explored: what a living process runs, without the
process.

The state of a node is the text that it would have on disk, and everything begins with reading it: what is not
written down is forgotten at every event, so that a kill between two events only shows in the number of the start.
Messages are what goes over a connection, in the order of the link.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from elastream.decentralized.protocol.instance import InstancePhase, Place, Turns
from elastream.decentralized.protocol.messages import Address, Effect
from elastream.decentralized.protocol.neighbour_locks import MakeLock
from experiments.checking.explorer import Reaction
from experiments.checking.protocol_model import LockedModel, May, Node

COMES_BACK = "is killed and comes back"


@dataclass(frozen=True)
class OnDisk:
    text: str

    @classmethod
    def of(cls, state: ControlState) -> OnDisk:
        return cls(json.dumps(control_to_json(state), sort_keys=True))

    @cached_property
    def control(self) -> ControlState:
        return control_from_json(json.loads(self.text))

    @property
    def phase(self) -> InstancePhase:
        return self.control.instance.phase

    @property
    def turns(self) -> Turns:
        assert self.control.instance.turns is not None
        return self.control.instance.turns

    @property
    def wish(self) -> int | None:
        return self.turns.wish

    @property
    def successors(self) -> frozenset[Address]:
        return self.control.instance.successors

    @property
    def predecessors(self) -> frozenset[Address]:
        return self.control.instance.predecessors

    @property
    def sends_records(self) -> bool:
        return self.control.instance.sends_records


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    incarnation: int
    number: int
    body: str

    def __str__(self) -> str:
        return self.body


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """A turn, with what waits on the links handed over to them."""

    state: OnDisk
    effects: tuple[Effect, ...]
    sends: tuple[tuple[Address, Letter], ...]


@dataclass(frozen=True)
class Controlled:
    controller: Controller

    def duplicate(self, state: OnDisk, times: int, /) -> Posted:
        return self._posted(self.controller.duplicate(state.control, times))

    def leave(self, state: OnDisk, /) -> Posted:
        return self._posted(self.controller.leave(state.control))

    def drained(self, state: OnDisk, /) -> Posted:
        return self._posted(self.controller.drained(state.control))

    def comes_back(self, state: OnDisk, /) -> OnDisk:
        return OnDisk.of(self.controller.begin(state.control).state)

    def receive(self, state: OnDisk, sender: Address, letter: Letter, /) -> Posted:
        me = self.controller.place.me
        greeted = self.controller.greeted(state.control, sender, me, letter.incarnation)
        turn = self.controller.received(greeted, sender, letter.number, json.loads(letter.body))
        if turn.refused:
            raise IllegalEvent(turn.refused)
        return self._posted(turn)

    def _posted(self, turn: Turn) -> Posted:
        state, sends = turn.state, []
        for receiver, link in turn.state.outgoing.items():
            for envelope in link.waiting:
                body = json.dumps(envelope.body)
                letter = Letter(incarnation=state.incarnation, number=envelope.number, body=body)
                sends.append((receiver, letter))
            state = self.controller.acknowledged(state, receiver, link.posted)
        return Posted(state=OnDisk.of(state), effects=turn.effects, sends=tuple(sends))


class ControlModel(LockedModel):
    """`kills` says how often which instance is killed and comes back, at any time."""

    def __init__(
        self,
        make_lock: MakeLock,
        dataflow: Dataflow,
        plan: Mapping[str, Sequence[May]],
        *,
        newcomers: May,
        kills: Mapping[Address, int] | None = None,
    ) -> None:
        super().__init__(make_lock, dataflow, plan, newcomers=newcomers)
        self._make = self._controlled
        self._kills = kills or {}

    def moves(self, name: str, node: Node, /) -> Sequence[Hashable]:
        found = super().moves(name, node)
        kills_left = self._kills.get(name, 0) - (node.state.control.incarnation - 1)
        return [*found, COMES_BACK] if kills_left > 0 and node.state.phase is not InstancePhase.ENDED else found

    def react(self, name: str, node: Node, event: Any, /) -> Reaction:
        if event == COMES_BACK:
            return Reaction(state=replace(node, state=self._controlled(self._place(name)).comes_back(node.state)))
        return super().react(name, node, event)

    def _controlled(self, place: Place) -> Controlled:
        return Controlled(Controller(place, self._locks))

    def _waiting(self, name: Address) -> OnDisk:
        return OnDisk.of(ControlState(instance=super()._waiting(name), incarnation=1))

    def _first_state(self, me: Address) -> OnDisk:
        return OnDisk.of(ControlState(instance=super()._first_state(me), incarnation=1))
