"""Instances that die for good as a system to be explored, with the records that they held.

Who is mortal may die at any moment, with all that it had said and nobody had heard, from any message on. Whoever
watches it suspects it once, at any time, whether it lives or not: so every declaration is also explored as a false
one. Records are written into the inbox of their receiver, as in the living engine, and stay there when it dies.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from elastream.dataflow import Dataflow
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.decentralized.protocol.messages import Address, Create, TakeOver
from elastream.decentralized.protocol.survivors import Survivor
from experiments.checking.explorer import Fault, Reaction, Received
from experiments.checking.protocol_model import MakeMachine, May, Node, Pass, ProtocolModel, Record

_FIRST = "1"
DIES = Fault("dies")


@dataclass(frozen=True, slots=True)
class Suspects:
    whom: Address

    def __str__(self) -> str:
        return f"cannot reach {self.whom}"


@dataclass(frozen=True, slots=True)
class Seize:
    """Whoever takes over closes the place of the dead: if it lives after all, it is stopped."""


@dataclass(frozen=True, slots=True)
class Inherited:
    dead: Address
    records: int


@dataclass(frozen=True, slots=True)
class MortalNode(Node):
    dead: bool = False
    closed: bool = False
    suspected: frozenset[Address] = frozenset()


SURVIVOR: MakeMachine = partial(Survivor, first=_FIRST)


class SurvivorModel(ProtocolModel):
    """`mortal` names instances; their copies are mortal, too."""

    def __init__(
        self,
        dataflow: Dataflow,
        plan: Mapping[str, Sequence[May]],
        *,
        newcomers: May,
        mortal: Collection[Address],
        make: MakeMachine = SURVIVOR,
    ) -> None:
        super().__init__(make, dataflow, plan, newcomers=newcomers)
        self._mortal = tuple(mortal)

    def has_died(self, node: MortalNode, /) -> bool:
        return node.dead

    def nodes(self) -> Mapping[str, Hashable]:
        return {me: MortalNode(self._first_state(me), may) for me, may in self._first.items()}

    def moves(self, name: str, node: Any, /) -> Sequence[Hashable]:
        if node.dead or name in node.state.dead:
            return ()
        found = [*super().moves(name, node)]
        if node.state.phase is InstancePhase.ENDED:
            return found
        watched = self._survivor(name).watched(node.state) - node.suspected
        found += [Suspects(one) for one in sorted(watched) if self._may_die(one)]
        return [*found, DIES] if self._may_die(name) else found

    def react(self, name: str, node: Any, event: Any, /) -> Reaction:
        match event:
            case Fault():
                return Reaction(state=replace(node, dead=True))
            case Suspects(whom=whom):
                node = replace(node, suspected=node.suspected | {whom})
                return self._stepped(node, self._survivor(name).suspect(node.state, whom))
            case Received(message=Record()):
                gone = "has ended" if node.state.phase is InstancePhase.ENDED else "was taken over"
                lost = node.closed or node.state.phase is InstancePhase.ENDED
                wrong = f"a record for {name}, which {gone}" if lost else ""
                return Reaction(state=replace(node, inbox=node.inbox + 1), wrong=wrong)
            case Received(sender=heir, message=Seize()):
                closed = replace(node, dead=True, closed=True, inbox=0)
                return Reaction(state=closed, puts=((heir, Inherited(name, node.inbox)),))
            case Received(message=Inherited(dead=dead, records=records)):
                node = replace(node, inbox=node.inbox + records)
                return self._stepped(node, self._survivor(name).taken_over(node.state, dead))
            case Received() if node.dead:
                return Reaction(state=node)
            case Received(sender=sender, message=message):
                return self._stepped(node, self._survivor(name).receive(node.state, sender, message))
            case Pass():
                passed = super().react(name, node, event)
                return Reaction(state=passed.state, puts=passed.sends)
        return super().react(name, node, event)

    def wrong(self, nodes: Mapping[str, Any], /) -> str:
        closed = {name for name, node in nodes.items() if node.closed}
        for name, node in nodes.items():
            if not node.dead and node.state.sends_records and (lost := node.state.successors & closed):
                return f"{name} may send records to {min(lost)}, which was taken over"
        return super().wrong({name: node for name, node in nodes.items() if not node.dead})

    def unfinished(self, nodes: Mapping[str, Any], /) -> str:
        for name, node in nodes.items():
            if not node.dead and node.state.estates:
                return f"{name} has not come to the end of what {node.state.estates[0].dead} left"
            if node.dead and not node.closed and node.inbox:
                return f"nobody has taken over the {node.inbox} records of {name}"
        return super().unfinished(nodes)

    def _counts(self, node: Any) -> bool:
        return not node.dead and super()._counts(node)

    def _newcomer(self, name: Address) -> MortalNode:
        return MortalNode(self._waiting(name), self._newcomers)

    def _stepped(self, node: MortalNode, step: Any) -> Reaction:
        created = [(one.instance, self._newcomer(one.instance)) for one in step.effects if isinstance(one, Create)]
        puts = [(one.instance, Seize()) for one in step.effects if isinstance(one, TakeOver)]
        return Reaction(
            state=replace(node, state=step.state), sends=step.sends, created=tuple(created), puts=tuple(puts)
        )

    def _survivor(self, name: str) -> Survivor:
        machine = self._machine(name)
        assert isinstance(machine, Survivor)
        return machine

    def _may_die(self, name: Address) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._mortal)
