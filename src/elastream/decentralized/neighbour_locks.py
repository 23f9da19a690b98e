"""Scaling under locks (the thesis, 5.1): neighbouring operators never scale at the same time.

Every edge of the graph has a group lock. Its groups are the *core* of either operator: some instances that never
leave and answer for all. Whoever wants to scale asks a core member of its operator, its delegate. The delegate
takes the locks of all edges of its operator, one after the other and in one order for the whole graph, so that
nobody waits in a circle: in a pipeline first the edge to the predecessors, then the one to the successors. Then it
lets everybody scale that had asked by then, waits until they are done, and leaves the locks. Who asks later is
next: the neighbours come in between.

This wraps the protocol of `instance.py` and offers the same interface. The acknowledgements remain, since a change
is only complete when the neighbours know of it; what the locks take away is that two changes cross.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elastream.dataflow import Dataflow
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.instance import Instance, InstanceState, Phase, Place
from elastream.decentralized.instance import Step as InstanceStep
from elastream.decentralized.locks.port import GroupLock, LockStep, Position, Site
from elastream.decentralized.messages import Address, Effect, Message, operator_of

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LockMessage:
    edge: Edge
    inner: Any


@dataclass(frozen=True, slots=True)
class AskToScale:
    """To the delegate."""


@dataclass(frozen=True, slots=True)
class MayScale:
    """From the delegate: the locks are held."""


@dataclass(frozen=True, slots=True)
class DoneScaling:
    """To the delegate, which holds the locks for the sender."""


LockedMessage = Message | LockMessage | AskToScale | MayScale | DoneScaling


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedState:
    instance: InstanceState
    locks: tuple[Any, ...] = ()
    """Of a core member: its side of the lock of each edge, in the global order."""
    wish: int | None = None
    """What it wants to do once it may: so many copies, or 0 to leave."""
    waiting: frozenset[Address] = frozenset()
    """Of a core member: who asked to scale, for the next turn."""
    serving: frozenset[Address] = frozenset()
    """Whose turn it is, from the first lock that is asked for until they are done."""

    @property
    def phase(self) -> Phase:
        return self.instance.phase

    @property
    def successors(self) -> frozenset[Address]:
        return self.instance.successors

    @property
    def predecessors(self) -> frozenset[Address]:
        return self.instance.predecessors

    @property
    def sends_records(self) -> bool:
        return self.instance.sends_records


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedStep:
    state: LockedState
    effects: tuple[Effect, ...] = ()
    """As in `instance.py`; an End is carried out after the messages have gone out."""
    sends: tuple[tuple[Address, LockedMessage], ...] = ()

    def then(self, step: LockedStep) -> LockedStep:
        return LockedStep(
            state=step.state, effects=(*self.effects, *step.effects), sends=(*self.sends, *step.sends)
        )


def edges_in_order(dataflow: Dataflow, operator: str) -> tuple[Edge, ...]:
    """The edges of an operator in the one order of the graph."""
    position = {name: number for number, name in enumerate(dataflow.order)}
    mine = [(c.producer, c.consumer) for c in dataflow.channels if operator in (c.producer, c.consumer)]
    return tuple(sorted(mine, key=lambda edge: (position[edge[0]], position[edge[1]])))


MakeLock = Callable[[Site], GroupLock[Any, Any]]


class LockedInstance:
    """`cores` names the core of every operator; `delegate` answers for this instance, itself if it is in the
    core."""

    def __init__(
        self,
        place: Place,
        *,
        make_lock: MakeLock,
        dataflow: Dataflow,
        cores: Mapping[str, frozenset[Address]],
        delegate: Address,
    ) -> None:
        operator = operator_of(place.me)
        in_core = place.me in cores[operator]
        if delegate not in cores[operator] or (in_core and delegate != place.me):
            raise IllegalEvent(f"{delegate!r} cannot answer for {place.me!r}: it is not in the core")
        self.place, self.delegate = place, delegate
        self._inner = Instance(replace(place, keeper=place.keeper or in_core))
        self._edges = edges_in_order(dataflow, operator) if in_core else ()
        self._locks = tuple(make_lock(self._site(edge, cores)) for edge in self._edges)

    def initial(self, instance: InstanceState) -> LockedState:
        return LockedState(instance=instance, locks=tuple(lock.initial() for lock in self._locks))

    # What the instance itself decides

    def duplicate(self, state: LockedState, times: int, /) -> LockedStep:
        self._inner.duplicate(state.instance, times)  # refuses what is not possible before anybody is asked
        return self._ask(state, times)

    def leave(self, state: LockedState, /) -> LockedStep:
        self._inner.leave(state.instance)
        return self._ask(state, 0)

    def drained(self, state: LockedState, /) -> LockedStep:
        return self._acted(state, self._inner.drained(state.instance))

    # What others tell it

    def receive(self, state: LockedState, sender: Address, message: LockedMessage, /) -> LockedStep:
        match message:
            case LockMessage(edge=edge, inner=inner):
                return self._lock_message(state, sender, edge, inner)
            case AskToScale():
                return self._asked(state, sender)
            case MayScale():
                return self._allowed(state, sender)
            case DoneScaling():
                return self._done(state, sender)
            case _:
                return self._acted(state, self._inner.receive(state.instance, sender, message))

    # An instance and its delegate

    def _ask(self, state: LockedState, wish: int) -> LockedStep:
        if state.wish is not None:
            raise IllegalEvent(f"{self.place.me!r} waits for its turn already")
        state = replace(state, wish=wish)
        if self.delegate == self.place.me:
            return self._asked(state, self.place.me)
        return LockedStep(state=state, sends=((self.delegate, AskToScale()),))

    def _allowed(self, state: LockedState, sender: Address) -> LockedStep:
        if sender != self.delegate or state.wish is None:
            raise IllegalEvent(f"{sender!r} lets {self.place.me!r} scale, which did not ask it")
        wish, state = state.wish, replace(state, wish=None)
        inner, now = self._inner, state.instance
        return self._acted(state, inner.duplicate(now, wish) if wish else inner.leave(now), began=True)

    def _acted(self, state: LockedState, step: InstanceStep, *, began: bool = False) -> LockedStep:
        was_busy = began or _busy(state.instance)
        taken = LockedStep(state=replace(state, instance=step.state), effects=step.effects, sends=step.sends)
        if not was_busy or _busy(step.state):
            return taken
        if self.delegate == self.place.me:
            return taken.then(self._done(taken.state, self.place.me))
        return replace(taken, sends=(*taken.sends, (self.delegate, DoneScaling())))

    # A core member and the locks

    def _asked(self, state: LockedState, sender: Address) -> LockedStep:
        if not self._is_core or operator_of(sender) != operator_of(self.place.me):
            raise IllegalEvent(f"{self.place.me!r} does not answer for {sender!r}")
        if sender in state.waiting | state.serving:
            raise IllegalEvent(f"{sender!r} asks a second time before its turn is over")
        return self._next_turn(replace(state, waiting=state.waiting | {sender}))

    def _next_turn(self, state: LockedState) -> LockedStep:
        if state.serving or not state.waiting:
            return LockedStep(state=state)
        state = replace(state, serving=state.waiting, waiting=frozenset())
        return self._next_lock(state)

    def _next_lock(self, state: LockedState) -> LockedStep:
        """Ask for the first lock that is not held; with all of them, let everybody begin whose turn it is."""
        for index, (lock, held) in enumerate(zip(self._locks, state.locks, strict=True)):
            if held.position is Position.ASKING:
                return LockedStep(state=state)
            if held.position is Position.IDLE:
                step = self._taken(state, index, lock.request(held))
                return (
                    step
                    if step.state.locks[index].position is Position.ASKING
                    else step.then(self._next_lock(step.state))
                )
        others = sorted(state.serving - {self.place.me})
        begun = LockedStep(state=state, sends=tuple((other, MayScale()) for other in others))
        return begun.then(self._allowed(state, self.place.me)) if self.place.me in state.serving else begun

    def _lock_message(self, state: LockedState, sender: Address, edge: Edge, inner: Any) -> LockedStep:
        if edge not in self._edges:
            raise IllegalEvent(f"{self.place.me!r} has no part in the lock of {edge[0]} → {edge[1]}")
        index = self._edges.index(edge)
        before = state.locks[index].position
        step = self._taken(state, index, self._locks[index].receive(state.locks[index], sender, inner))
        if before is Position.ASKING and step.state.locks[index].position is Position.INSIDE:
            return step.then(self._next_lock(step.state))
        return step

    def _done(self, state: LockedState, sender: Address) -> LockedStep:
        if sender not in state.serving or not self._holds_all(state):
            raise IllegalEvent(f"{sender!r} is done scaling, and it was not its turn")
        state = replace(state, serving=state.serving - {sender})
        step = LockedStep(state=state)
        if state.serving:
            return step
        for index, lock in enumerate(self._locks):
            step = step.then(self._taken(step.state, index, lock.exit(step.state.locks[index])))
        return step.then(self._next_turn(step.state))

    # Their parts

    @property
    def _is_core(self) -> bool:
        return self.delegate == self.place.me

    def _holds_all(self, state: LockedState) -> bool:
        return all(held.position is Position.INSIDE for held in state.locks)

    def _taken(self, state: LockedState, index: int, step: LockStep[Any, Any]) -> LockedStep:
        locks = (*state.locks[:index], step.state, *state.locks[index + 1 :])
        sends = tuple((to, LockMessage(self._edges[index], message)) for to, message in step.sends)
        return LockedStep(state=replace(state, locks=locks), sends=sends)

    def _site(self, edge: Edge, cores: Mapping[str, frozenset[Address]]) -> Site:
        mine = operator_of(self.place.me)
        other = edge[1] if edge[0] == mine else edge[0]
        return Site(me=self.place.me, siblings=cores[mine] - {self.place.me}, competitors=cores[other])


def _busy(state: InstanceState) -> bool:
    return state.phase in (Phase.DUPLICATING, Phase.LEAVING, Phase.DRAINING, Phase.PARTING)
