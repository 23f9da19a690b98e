"""Scaling under locks (the thesis, 5.1): neighbouring operators never scale at the same time.

Every edge of the graph has a group lock. Its groups are the *core* of either operator: some instances that never
leave and answer for all. Whoever wants to scale asks a core member of its operator, its delegate. The delegate
takes the locks of all edges of its operator, one after the other and in one order for the whole graph, so that
nobody waits in a circle: in a pipeline first the edge to the predecessors, then the one to the successors. Then it
lets everybody scale that has asked by then, waits until they are done, and leaves the locks. Who asks later is
next: the neighbours come in between.

    asks ──▶ its delegate takes the locks ──▶ may scale ──▶ changes ──▶ done ──▶ the locks are left
                                         └──▶ may not: there would be more instances than there may be,
                                              or fewer than there should be

A core of one hears of every change of its operator. So it knows how many instances there are, and the bounds are
kept.

This wraps the protocol of `instance.py` and offers the same interface. The acknowledgements remain, since a change
is only complete when the neighbours know of it; what the locks take away is that two changes cross.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elastream.dataflow import Dataflow
from elastream.dataflow.graph import MOST_INSTANCES
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks.port import GroupLock, LockPosition, LockSite, LockStep
from elastream.decentralized.protocol.instance import (
    Instance,
    InstancePhase,
    InstanceState,
    InstanceStep,
    Place,
    Turns,
    Wish,
)
from elastream.decentralized.protocol.messages import Address, Message, OfDeath, operator_of
from elastream.errors import InvalidInput

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LockMessage:
    edge: Edge
    inner: Any


@dataclass(frozen=True, slots=True)
class AskToScale:
    """To the delegate."""

    wish: Wish


@dataclass(frozen=True, slots=True)
class MayScale:
    """From the delegate: the locks are held."""

    times: Wish
    """As was asked, or fewer copies."""


@dataclass(frozen=True, slots=True)
class MayNotScale:
    """From the delegate: the operator has as many instances as it may, or as few as it should."""


@dataclass(frozen=True, slots=True)
class DoneScaling:
    """To the delegate, which holds the locks for the sender."""

    dropped: bool = False
    """Nothing was changed after all."""


LockedMessage = Message | OfDeath | LockMessage | AskToScale | MayScale | MayNotScale | DoneScaling


def edges_in_order(dataflow: Dataflow, operator: str) -> tuple[Edge, ...]:
    """The edges of an operator in the one order of the graph."""
    position = {name: number for number, name in enumerate(dataflow.order)}
    mine = [(c.producer, c.consumer) for c in dataflow.channels if operator in (c.producer, c.consumer)]
    return tuple(sorted(mine, key=lambda edge: (position[edge[0]], position[edge[1]])))


MakeLock = Callable[[LockSite], GroupLock[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class NeighbourLocks:
    """What is the same for all instances of a run: the kind of the locks, the graph, the core of each operator."""

    make_lock: MakeLock
    dataflow: Dataflow
    cores: Mapping[str, frozenset[Address]]

    def delegate_of(self, me: Address) -> Address:
        """Who answers for this instance: itself if it is in the core."""
        core = sorted(self.cores[operator_of(me)])
        return me if me in core else core[len(me) % len(core)]

    def of(self, me: Address) -> dict[Edge, GroupLock[Any, Any]]:
        """Its side of the lock of each edge, in the global order; none where it is not in the core."""
        operator = operator_of(me)
        if me not in self.cores[operator]:
            return {}
        return {edge: self.make_lock(self._site(me, edge)) for edge in edges_in_order(self.dataflow, operator)}

    def _site(self, me: Address, edge: Edge) -> LockSite:
        mine = operator_of(me)
        other = edge[1] if edge[0] == mine else edge[0]
        return LockSite(me=me, siblings=self.cores[mine] - {me}, competitors=self.cores[other])


class LockedInstance:
    def __init__(self, place: Place, locks: NeighbourLocks) -> None:
        core = locks.cores[operator_of(place.me)]
        if (place.most is not None or place.least > 1) and len(core) > 1:
            raise InvalidInput(f"{place.me!r}: a bound on the instances needs a core of one, found {len(core)}")
        self.place, self.delegate = place, locks.delegate_of(place.me)
        self._inner = Instance(replace(place, keeper=place.keeper or place.me in core))
        self._locks = locks.of(place.me)

    def initial(self, instance: InstanceState, *, instances: int = 1) -> InstanceState:
        """`instances` is how many its operator has at first."""
        locks = tuple(lock.initial() for lock in self._locks.values())
        return replace(instance, turns=Turns(locks=locks, instances=instances if self._is_core else 0))

    # What the instance itself decides

    def duplicate(self, state: InstanceState, times: int, /) -> InstanceStep:
        self._inner.duplicate(state, times)  # refuses what is not possible before anybody is asked
        return self._ask(state, times)

    def leave(self, state: InstanceState, /) -> InstanceStep:
        self._inner.leave(state)
        return self._ask(state, 0)

    def drained(self, state: InstanceState, /) -> InstanceStep:
        return self._acted(state, self._inner.drained(state))

    # What others tell it

    def receive(self, state: InstanceState, sender: Address, message: LockedMessage, /) -> InstanceStep:
        match message:
            case LockMessage(edge=edge, inner=inner):
                return self._lock_message(state, sender, edge, inner)
            case AskToScale(wish=wish):
                return self._asked(state, sender, wish)
            case MayScale() | MayNotScale():
                return self._answered(state, sender, message)
            case DoneScaling(dropped=dropped):
                return self._done(state, sender, dropped=dropped)
            case _:
                return self._acted(state, self._inner.receive(state, sender, message))

    # An instance and its delegate

    def _ask(self, state: InstanceState, wish: Wish) -> InstanceStep:
        if state.wish is not None:
            raise IllegalEvent(f"{self.place.me!r} waits for its turn already")
        state = _changed(state, wish=wish)
        if self._is_core:
            return self._asked(state, self.place.me, wish)
        return InstanceStep(state=state, sends=((self.delegate, AskToScale(wish)),))

    def _answered(self, state: InstanceState, sender: Address, answer: MayScale | MayNotScale) -> InstanceStep:
        wish = state.wish
        if sender != self.delegate or wish is None:
            raise IllegalEvent(f"{sender!r} lets {self.place.me!r} scale or not, which did not ask it")
        state = _changed(state, wish=None)
        if isinstance(answer, MayNotScale):
            return InstanceStep(state=state, dropped=self._too_many(wish) if wish else self._too_few())
        fewer = self._too_many(wish - answer.times) if answer.times < wish else ""
        step = self._begun(state, answer.times)
        return replace(step, dropped=step.dropped or fewer)

    def _begun(self, state: InstanceState, times: Wish) -> InstanceStep:
        try:
            step = self._inner.duplicate(state, times) if times else self._inner.leave(state)
        except IllegalEvent as error:  # the locks must not be held for what does not happen
            return replace(self._tell_done(state, dropped=True), dropped=str(error))
        return self._acted(state, step, began=True)

    def _acted(self, state: InstanceState, step: InstanceStep, *, began: bool = False) -> InstanceStep:
        ends = (began or state.phase in BUSY) and step.state.phase not in BUSY
        return step.then(self._tell_done(step.state)) if ends else step

    def _tell_done(self, state: InstanceState, *, dropped: bool = False) -> InstanceStep:
        if self._is_core:
            return self._done(state, self.place.me, dropped=dropped)
        return InstanceStep(state=state, sends=((self.delegate, DoneScaling(dropped)),))

    # A core member and the locks

    def _asked(self, state: InstanceState, sender: Address, wish: Wish) -> InstanceStep:
        turns = _turns(state)
        if not self._is_core or operator_of(sender) != operator_of(self.place.me):
            raise IllegalEvent(f"{self.place.me!r} does not answer for {sender!r}")
        if wish < 0:
            raise IllegalEvent(f"{sender!r} asks for {wish} copies")
        if sender in dict(turns.waiting + turns.serving):
            raise IllegalEvent(f"{sender!r} asks a second time before its turn is over")
        return self._go_on(_changed(state, waiting=(*turns.waiting, (sender, wish))))

    def _go_on(self, state: InstanceState) -> InstanceStep:
        """Ask for the first lock that is not held; with all of them, the turn begins."""
        turns = _turns(state)
        if turns.serving or not turns.waiting:
            return InstanceStep(state=state)
        for index, (lock, held) in enumerate(zip(self._locks.values(), turns.locks, strict=True)):
            if held.position is LockPosition.ASKING:
                return InstanceStep(state=state)
            if held.position is LockPosition.IDLE:
                step = self._taken(state, index, lock.request(held))
                entered = _turns(step.state).locks[index].position is LockPosition.INSIDE
                return step.then(self._go_on(step.state)) if entered else step
        return self._let_scale(state)

    def _let_scale(self, state: InstanceState) -> InstanceStep:
        """Everybody that has asked by now gets its answer; who asked first is first where there is little room."""
        room = max(0, (self.place.most or MOST_INSTANCES) - _turns(state).instances)
        # the keeper is one and stays: below that nobody has to count
        spare = _turns(state).instances - self.place.least if self.place.least > 1 else MOST_INSTANCES
        answers: dict[Address, MayScale | MayNotScale] = {}
        for who, wish in _turns(state).waiting:
            times = min(wish, room)
            room -= times
            may = times > 0 if wish else spare > 0
            spare -= not wish
            answers[who] = MayScale(times) if may else MayNotScale()
        serving = tuple((who, said.times) for who, said in answers.items() if isinstance(said, MayScale))
        own = answers.pop(self.place.me, None)
        step = InstanceStep(state=_changed(state, waiting=(), serving=serving), sends=tuple(answers.items()))
        if own is not None:
            step = step.then(self._answered(step.state, self.place.me, own))
        return step if serving else step.then(self._leave_locks(step.state))

    def _lock_message(self, state: InstanceState, sender: Address, edge: Edge, inner: Any) -> InstanceStep:
        if edge not in self._locks:
            raise IllegalEvent(f"{self.place.me!r} has no part in the lock of {edge[0]} → {edge[1]}")
        index, lock = list(self._locks).index(edge), self._locks[edge]
        if not isinstance(inner, lock.messages):
            raise IllegalEvent(f"{inner} is no message of the lock of {edge[0]} → {edge[1]}")
        step = self._taken(state, index, lock.receive(_turns(state).locks[index], sender, inner))
        return step.then(self._go_on(step.state))

    def _done(self, state: InstanceState, sender: Address, *, dropped: bool) -> InstanceStep:
        turns = _turns(state)
        if sender not in dict(turns.serving):
            raise IllegalEvent(f"{sender!r} is done scaling, and it was not its turn")
        grown = 0 if dropped else dict(turns.serving)[sender] or -1
        serving = tuple((who, times) for who, times in turns.serving if who != sender)
        state = _changed(state, serving=serving, instances=turns.instances + grown)
        return InstanceStep(state=state) if serving else self._leave_locks(state)

    def _leave_locks(self, state: InstanceState) -> InstanceStep:
        step = InstanceStep(state=state)
        for index, lock in enumerate(self._locks.values()):
            step = step.then(self._taken(step.state, index, lock.exit(_turns(step.state).locks[index])))
        return step.then(self._go_on(step.state))

    # Their parts

    @property
    def _is_core(self) -> bool:
        return self.delegate == self.place.me

    def _taken(self, state: InstanceState, index: int, step: LockStep[Any, Any]) -> InstanceStep:
        locks, edge = _turns(state).locks, list(self._locks)[index]
        sends = tuple((to, LockMessage(edge, message)) for to, message in step.sends)
        return InstanceStep(
            state=_changed(state, locks=(*locks[:index], step.state, *locks[index + 1 :])), sends=sends
        )

    def _too_many(self, copies: int) -> str:
        operator, most = operator_of(self.place.me), self.place.most
        return f"{operator!r} may have {most} instances, and there was no room for {copies} more"

    def _too_few(self) -> str:
        return f"{operator_of(self.place.me)!r} should have {self.place.least} instances, and has no more"


BUSY = frozenset({InstancePhase.DUPLICATING, InstancePhase.LEAVING, InstancePhase.DRAINING, InstancePhase.PARTING})


def _turns(state: InstanceState) -> Turns:
    assert state.turns is not None, "under locks there are always some"
    return state.turns


def _changed(state: InstanceState, **turns: Any) -> InstanceState:
    return replace(state, turns=replace(_turns(state), **turns))
