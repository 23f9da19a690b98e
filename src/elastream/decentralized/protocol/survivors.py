"""When an instance dies for good: it is made to leave by the keeper of its operator.

A process that dies is started again where it was, and then nothing of this happens. One that does not come back
would be waited for: for its acknowledgements, for its farewell, for the records in its inbox. So:

    neighbours      report what they cannot reach to the keeper, which asks the others whether they can
    keeper          declares it dead once more than half of its own neighbours cannot. Whoever is cut off from
                    these declares nobody dead, and waits
    predecessors    put what was fixed for it into its inbox, send it nothing more, wait for it no longer
    keeper          takes over: what was fixed in its outbox goes where it was to go, what is left in its inbox
                    is the keeper's now
    successors      are told last, when no record of it can follow

This is `leave` of instance.py, done for somebody else, and it is right for the same reasons: whoever the dead may
have told of a change has it in view, or is told by the one who has. Nobody believes or answers the dead from the
moment they hear of it, so a declaration that was false costs an instance and no record: who learns that it was
declared dead stops, and its place stays closed. A copy that was never started, as its maker died, gives itself up.

A keeper is not declared dead: nobody could take its place without asking more than its neighbours. It is started
again for ever, and until then the dead of its operator wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.instance import (
    Bereavement,
    Estate,
    Instance,
    InstancePhase,
    InstanceState,
    InstanceStep,
)
from elastream.decentralized.protocol.messages import (
    Address,
    CanYouReach,
    Death,
    DeathHeard,
    Duplication,
    Flush,
    Halt,
    Start,
    Suspicion,
    TakeOver,
    operator_of,
)

_AWAITING = (InstancePhase.DUPLICATING, InstancePhase.LEAVING, InstancePhase.PARTING)


@dataclass(frozen=True)
class Survivor(Instance):
    first: str = "0"
    """The number of every operator's keeper."""

    def watched(self, state: InstanceState) -> frozenset[Address]:
        """Whom it would wait for, and whom it was asked about: suspect those that cannot be reached."""
        maker, _, copy = self.place.me.rpartition(".")
        makers = frozenset({maker}) if copy and state.phase is InstancePhase.WAITING else frozenset()
        known = state.successors | state.predecessors | state.awaited | state.leaving | makers | state.asked_about
        return frozenset(one for one in known - state.dead if not self._is_keeper(one))

    def suspect(self, state: InstanceState, missing: Address, /) -> InstanceStep:
        """It cannot be reached, for longer than it takes to be started again."""
        if missing == self.place.me or self._is_keeper(missing):
            raise IllegalEvent(f"{missing!r} is not given up by {self.place.me!r}")
        if missing in state.dead or self.place.me in state.dead:
            return InstanceStep(state=state)
        return self._to_keeper_of(missing, state, Suspicion(missing))

    def taken_over(self, state: InstanceState, dead: Address, /) -> InstanceStep:
        """All that was fixed in its outbox is in the inboxes, and its own inbox is empty."""
        estate = _estate(state, dead)
        if estate is None or estate.stage is not Bereavement.TAKING_OVER:
            raise IllegalEvent(f"{self.place.me!r} has nothing to take over from {dead!r}")
        told = state.successors | estate.also_tell
        estate = replace(estate, stage=Bereavement.PARTING, awaited=state.successors, also_tell=frozenset())
        return self._advance(InstanceStep(state=_with(state, estate), sends=_deaths(dead, told)), dead)

    def receive(self, state: InstanceState, sender: Address, message: object, /) -> InstanceStep:
        if self.place.me in state.dead or sender in state.dead:
            return InstanceStep(state=state)
        match message:
            case Suspicion(missing=missing):
                step = self._suspected(state, sender, missing)
            case CanYouReach(instance=missing):
                return InstanceStep(state=replace(state, asked_about=state.asked_about | {missing}))
            case Death(instance=dead):
                step = self._bereaved(state, sender, dead)
            case DeathHeard(instance=dead):
                step = self._heard(state, sender, dead)
            case Duplication(added=added):
                alive = tuple(one for one in added if one not in state.dead)
                step = super().receive(state, sender, Duplication(alive))
            case Start():
                step = super().receive(state, sender, _without_dead(message, state.dead))
            case _:
                step = super().receive(state, sender, message)
        return self._declare_who_is_missed(step)

    # Everybody

    def _bereaved(self, state: InstanceState, sender: Address, dead: Address) -> InstanceStep:
        if sender != self._keeper_of(dead):
            raise IllegalEvent(f"{sender!r} declares {dead!r} dead, and is not its keeper")
        if dead == self.place.me:
            state = replace(state, dead=state.dead | {dead})
            return InstanceStep(state=state, effects=(Halt(),))
        heard = ((sender, DeathHeard(dead)),)
        if dead in state.dead or state.phase is InstancePhase.ENDED:
            return InstanceStep(state=state, sends=heard)
        flushed = (Flush((dead,)),) if dead in state.successors and state.sends_records else ()
        step = InstanceStep(state=self._without(state, dead), effects=flushed, sends=heard)
        if state.phase in _AWAITING and (dead in state.awaited | state.leaving):
            step = self._settle(step)
        for estate in step.state.estates:  # of somebody else, who was to hear it from the dead
            if dead in estate.awaited | estate.suspected_by:
                step = self._advance(replace(step, state=_with(step.state, _forgets(estate, dead))), estate.dead)
        if state.phase is InstancePhase.WAITING and dead == self.place.me.rpartition(".")[0]:
            step = step.then(self._to_keeper_of(dead, step.state, Suspicion(self.place.me)))
        return step

    def _without(self, state: InstanceState, dead: Address) -> InstanceState:
        waits = state.phase is InstancePhase.WAITING
        state = replace(
            state,
            dead=state.dead | {dead},
            asked_about=state.asked_about - {dead},
            successors=state.successors - {dead},
            predecessors=state.predecessors - {dead},
            awaited=state.awaited - {dead},
            leaving=state.leaving - {dead},
            told_newcomers=state.told_newcomers - {dead},
        )
        if not waits:
            return state
        return replace(
            state,
            successors_to_delete=state.successors_to_delete | {dead},
            predecessors_to_delete=state.predecessors_to_delete | {dead},
        )

    def _to_keeper_of(self, missing: Address, state: InstanceState, said: Suspicion) -> InstanceStep:
        keeper = self._keeper_of(missing)
        if keeper == self.place.me:
            return self._declare_who_is_missed(self._suspected(state, keeper, missing))
        return InstanceStep(state=state, sends=((keeper, said),))

    # A keeper

    def _suspected(self, state: InstanceState, by: Address, missing: Address) -> InstanceStep:
        mine = operator_of(missing) == operator_of(self.place.me)
        if not self._is_keeper(self.place.me) or not mine or missing == self.place.me:
            raise IllegalEvent(f"{by!r} reports {missing!r} to {self.place.me!r}, which is not its keeper")
        estate = _estate(state, missing)
        if missing in state.dead:
            return self._answered(state, by, missing, estate)
        sends: tuple[tuple[Address, Any], ...] = ()
        if estate is None:
            estate = Estate(dead=missing)
            others = (state.successors | state.predecessors) - {by}
            sends = tuple((other, CanYouReach(missing)) for other in sorted(others))
        estate = replace(estate, suspected_by=estate.suspected_by | {by})
        return InstanceStep(state=_with(state, estate), sends=sends)

    def _answered(self, state: InstanceState, by: Address, dead: Address, estate: Estate | None) -> InstanceStep:
        """Somebody who was not in view when the others were told. Who is behind the dead has to wait until all
        that is to come from it has come."""
        if estate is None or estate.stage is Bereavement.PARTING or operator_of(by) not in self.place.downstream:
            return InstanceStep(state=state, sends=_deaths(dead, {by}))
        return InstanceStep(state=_with(state, replace(estate, also_tell=estate.also_tell | {by})))

    def _declare_who_is_missed(self, step: InstanceStep) -> InstanceStep:
        for estate in step.state.estates:
            neighbours = step.state.successors | step.state.predecessors
            missed = len(estate.suspected_by & neighbours) * 2 > len(neighbours)
            gives_itself_up = estate.dead in estate.suspected_by
            if estate.stage is Bereavement.SUSPECTED and (missed or gives_itself_up):
                step = step.then(self._declared(step.state, estate))
        return step

    def _declared(self, state: InstanceState, estate: Estate) -> InstanceStep:
        dead, told = estate.dead, state.predecessors
        # who suspected it has to hear it, even if it is no neighbour of the keeper; so has who leaves meanwhile
        others = {by for by in estate.suspected_by if operator_of(by) not in self.place.downstream} | {dead}
        behind = (estate.suspected_by - others) | state.successors
        estate = replace(estate, stage=Bereavement.STOPPING, awaited=told, also_tell=behind)
        state = _with(replace(state, dead=state.dead | {dead}), estate)
        return self._advance(InstanceStep(state=state, sends=_deaths(dead, told | others)), dead)

    def _heard(self, state: InstanceState, sender: Address, dead: Address) -> InstanceStep:
        estate = _estate(state, dead)
        if estate is None or sender not in estate.awaited:
            return InstanceStep(state=state)  # one that asked later
        state = _with(state, replace(estate, awaited=estate.awaited - {sender}))
        return self._advance(InstanceStep(state=state), dead)

    def _advance(self, step: InstanceStep, dead: Address) -> InstanceStep:
        estate = _estate(step.state, dead)
        if estate is None or estate.awaited:
            return step
        if estate.stage is Bereavement.STOPPING:
            state = _with(step.state, replace(estate, stage=Bereavement.TAKING_OVER))
            return replace(step, state=state, effects=(*step.effects, TakeOver(dead)))
        if estate.stage is Bereavement.PARTING:
            left = tuple(one for one in step.state.estates if one.dead != dead)
            return replace(step, state=replace(step.state, estates=left))
        return step

    def _keeper_of(self, instance: Address) -> Address:
        return f"{operator_of(instance)}/{self.first}"

    def _is_keeper(self, instance: Address) -> bool:
        return instance == self._keeper_of(instance)


def _estate(state: InstanceState, dead: Address) -> Estate | None:
    return next((one for one in state.estates if one.dead == dead), None)


def _with(state: InstanceState, estate: Estate) -> InstanceState:
    others = (one for one in state.estates if one.dead != estate.dead)
    return replace(state, estates=tuple(sorted((*others, estate), key=lambda one: one.dead)))


def _forgets(estate: Estate, gone: Address) -> Estate:
    return replace(estate, awaited=estate.awaited - {gone}, suspected_by=estate.suspected_by - {gone})


def _deaths(dead: Address, told: Iterable[Address]) -> tuple[tuple[Address, Death], ...]:
    return tuple((one, Death(dead)) for one in sorted(told))


def _without_dead(start: Start, dead: frozenset[Address]) -> Start:
    return Start(start.successors - dead, start.predecessors - dead, start.leaving - dead)
