"""The scaling protocol as a system to be explored: a small graph whose instances duplicate and leave at any time.

Whoever has an instance among its successors may send to it at any moment, so the check is that nobody ever counts
an ended instance among its successors while it can still send. Sources may be given records as well: these go
through the same channels as the messages, to any successor, and at the end each has to be at a sink exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any, Protocol

from elastream.dataflow import Dataflow
from elastream.decentralized.locks.port import LockPosition
from elastream.decentralized.protocol.instance import InstancePhase, InstanceState, Place, first_instance
from elastream.decentralized.protocol.messages import Address, Create, address, operator_of
from elastream.decentralized.protocol.neighbour_locks import BUSY, LockedInstance, MakeLock, NeighbourLocks
from experiments.checking.explorer import Reaction, Received


class Move(StrEnum):
    DUPLICATE = "duplicates"
    LEAVE = "leaves"
    DRAINED = "has drained"


@dataclass(frozen=True, kw_only=True, slots=True)
class May:
    """What an instance may still do on its own."""

    duplicate: int = 0
    leave: bool = False
    records: int = 0
    """Of a source: how many records it still brings in."""


@dataclass(frozen=True, slots=True)
class Record:
    pass


@dataclass(frozen=True, slots=True)
class Pass:
    """Take a record from the inbox and send it to one successor of every downstream operator."""

    to: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Node:
    state: Any
    may: May
    inbox: int = 0
    delivered: int = 0
    """Of a sink."""


class Machine(Protocol):
    """Any form of the protocol: mended, as published, under locks."""

    def duplicate(self, state: Any, times: int, /) -> Any: ...

    def leave(self, state: Any, /) -> Any: ...

    def drained(self, state: Any, /) -> Any: ...

    def receive(self, state: Any, sender: Address, message: Any, /) -> Any: ...


MakeMachine = Callable[[Place], Machine]


class ProtocolModel:
    """`plan` says how many instances each operator has at first and what each of them may do."""

    def __init__(
        self, make: MakeMachine, dataflow: Dataflow, plan: Mapping[str, Sequence[May]], *, newcomers: May
    ) -> None:
        self._make, self._dataflow, self._newcomers = make, dataflow, newcomers
        self._first = {
            address(operator, str(n)): may
            for operator in dataflow.order
            for n, may in enumerate(plan[operator], 1)
        }
        self._machines: dict[Address, Machine] = {}
        self._places: dict[Address, Place] = {}

    def nodes(self) -> Mapping[str, Hashable]:
        return {me: Node(self._first_state(me), may) for me, may in self._first.items()}

    def moves(self, name: str, node: Node, /) -> Sequence[Hashable]:
        found: list[Hashable] = []
        if node.state.phase is InstancePhase.RUNNING and getattr(node.state, "wish", None) is None:
            found += [Move.DUPLICATE] if node.may.duplicate else []
            found += [Move.LEAVE] if node.may.leave and not self._place(name).keeper else []
        elif node.state.phase is InstancePhase.DRAINING and not node.inbox and not node.may.records:
            found.append(Move.DRAINED)
        if node.state.sends_records and (node.inbox or node.may.records):
            found += self._passes(name, node)
        return found

    def react(self, name: str, node: Node, event: Any, /) -> Reaction:
        machine, may = self._machine(name), node.may
        match event:
            case Move.DUPLICATE:
                may = replace(may, duplicate=may.duplicate - 1)
                step = machine.duplicate(node.state, 1)
            case Move.LEAVE:
                may = replace(may, leave=False)
                step = machine.leave(node.state)
            case Move.DRAINED:
                step = machine.drained(node.state)
            case Pass(to=to):
                return self._passed(node, to)
            case Received(message=Record()):
                lost = f"a record for {name}, which has ended" if node.state.phase is InstancePhase.ENDED else ""
                return Reaction(state=replace(node, inbox=node.inbox + 1), wrong=lost)
            case Received(sender=sender, message=message):
                step = machine.receive(node.state, sender, message)
        created = tuple(
            (effect.instance, self._newcomer(effect.instance))
            for effect in step.effects
            if isinstance(effect, Create)
        )
        return Reaction(state=replace(node, state=step.state, may=may), sends=step.sends, created=created)

    def wrong(self, nodes: Mapping[str, Node], /) -> str:
        ended = {name for name, node in nodes.items() if node.state.phase is InstancePhase.ENDED}
        if not ended:
            return ""
        if keepers := sorted(name for name in ended if self._place(name).keeper):
            return f"the keeper {keepers[0]} has ended"
        for name, node in nodes.items():
            if node.state.sends_records and (lost := node.state.successors & ended):
                return f"{name} may send records to {min(lost)}, which has ended"
        return ""

    def unfinished(self, nodes: Mapping[str, Node], /) -> str:
        alive = {name: node.state for name, node in nodes.items() if self._counts(node)}
        for name, state in alive.items():
            if state.phase is not InstancePhase.RUNNING or getattr(state, "wish", None) is not None:
                return f"{name} is {state.phase} and waits for ever"
        produced = sum(may.records for may in self._first.values()) * self._sinks_reached
        if produced != (delivered := sum(node.delivered for node in nodes.values())):
            return f"{produced} records should be at the sinks, and {delivered} are"
        for name, state in alive.items():
            place = self._place(name)
            for side, seen, operators in (
                ("successors", state.successors, place.downstream),
                ("predecessors", state.predecessors, place.upstream),
            ):
                right = {other for other in alive if operator_of(other) in operators}
                if seen != right:
                    return f"{name} has the {side} {sorted(seen)}, and there are {sorted(right)}"
        return ""

    def _passes(self, name: str, node: Node) -> list[Hashable]:
        operators = self._dataflow.downstream(operator_of(name))
        choices = [[to for to in sorted(node.state.successors) if operator_of(to) == op] for op in operators]
        return [Pass(to) for to in product(*choices)]

    def _passed(self, node: Node, to: tuple[Address, ...]) -> Reaction:
        delivered = node.delivered + (not to)
        if node.inbox:
            node = replace(node, inbox=node.inbox - 1, delivered=delivered)
        else:
            node = replace(node, may=replace(node.may, records=node.may.records - 1), delivered=delivered)
        return Reaction(state=node, sends=tuple((receiver, Record()) for receiver in to))

    @property
    def _sinks_reached(self) -> int:
        """How many sinks a record of the source reaches, over every path; one source is enough here."""
        paths = {self._dataflow.order[0]: 1}
        for operator in self._dataflow.order[1:]:
            paths[operator] = sum(paths[before] for before in self._dataflow.upstream(operator))
        return sum(paths[sink] for sink in self._dataflow.sinks)

    def _counts(self, node: Any) -> bool:
        """Whether it is one of those that the others should know."""
        return node.state.phase is not InstancePhase.ENDED

    def _newcomer(self, name: Address) -> Node:
        return Node(self._waiting(name), self._newcomers)

    def _waiting(self, name: Address) -> Any:
        return InstanceState()

    def _first_state(self, me: Address) -> Any:
        place = self._place(me)
        return first_instance(
            (other for other in self._first if operator_of(other) in place.downstream),
            (other for other in self._first if operator_of(other) in place.upstream),
        )

    def _place(self, name: Address) -> Place:
        if name not in self._places:
            self._places[name] = Place.of(name, self._dataflow, keeper=self._stays(name))
        return self._places[name]

    def _stays(self, name: Address) -> bool:
        return name.endswith("/1")

    def _machine(self, name: Address) -> Machine:
        if name not in self._machines:
            self._machines[name] = self._make(self._place(name))
        return self._machines[name]


class LockedModel(ProtocolModel):
    """The same under locks: neighbouring operators must never be busy at the same time."""

    def __init__(
        self,
        make_lock: MakeLock,
        dataflow: Dataflow,
        plan: Mapping[str, Sequence[May]],
        *,
        newcomers: May,
        core: int = 1,
    ) -> None:
        cores = {
            operator: frozenset(address(operator, str(n)) for n in range(1, min(core, len(plan[operator])) + 1))
            for operator in dataflow.order
        }
        self._locks = NeighbourLocks(make_lock=make_lock, dataflow=dataflow, cores=cores)
        self._at_first = {operator: len(plan[operator]) for operator in dataflow.order}
        super().__init__(self._locked, dataflow, plan, newcomers=newcomers)

    def wrong(self, nodes: Mapping[str, Node], /) -> str:
        busy = {operator_of(name) for name, node in nodes.items() if node.state.phase in BUSY}
        for channel in self._dataflow.channels:
            if {channel.producer, channel.consumer} <= busy:
                return f"{channel.producer} and {channel.consumer} scale at the same time"
        for operator, count in _living(nodes).items():
            least, most = self._dataflow[operator].min_parallelism, self._dataflow[operator].max_parallelism
            if most is not None and count > most:
                return f"{operator} has {count} instances, and may have {most}"
            if count < min(least, self._at_first[operator]):
                return f"{operator} has {count} instances, and should have {least}"
        return super().wrong(nodes)

    def unfinished(self, nodes: Mapping[str, Node], /) -> str:
        for name, node in nodes.items():
            turns = node.state.turns
            if (
                turns.waiting
                or turns.serving
                or any(lock.position is not LockPosition.IDLE for lock in turns.locks)
            ):
                return f"{name} has not come to the end of a turn"
            core, count = self._locks.cores[operator_of(name)], _living(nodes)[operator_of(name)]
            if core == {name} and turns.instances != count:
                return f"{name} counts {turns.instances} instances, and there are {count}"
        return super().unfinished(nodes)

    def _stays(self, name: Address) -> bool:
        return name in self._locks.cores[operator_of(name)]

    def _locked(self, place: Place) -> LockedInstance:
        return LockedInstance(place, self._locks)

    def _waiting(self, name: Address) -> Any:
        return self._locked(self._place(name)).initial(InstanceState())

    def _first_state(self, me: Address) -> Any:
        at_first = self._at_first[operator_of(me)]
        return self._locked(self._place(me)).initial(super()._first_state(me), instances=at_first)


def _living(nodes: Mapping[str, Node]) -> Counter[str]:
    """How many instances of each operator have not ended."""
    return Counter(
        operator_of(name) for name, node in nodes.items() if node.state.phase is not InstancePhase.ENDED
    )
