"""Instances that die for good: explored with the records that they held, and each rule, taken out, is missed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.control import Controller, ControlState
from elastream.decentralized.protocol.instance import (
    Bereavement,
    InstancePhase,
    InstanceState,
    InstanceStep,
    Place,
    first_instance,
)
from elastream.decentralized.protocol.messages import (
    CanYouReach,
    Death,
    DeathHeard,
    Deletion,
    Duplication,
    DuplicationAck,
    Flush,
    Halt,
    Start,
    Suspicion,
    TakeOver,
)
from elastream.decentralized.protocol.survivors import Survivor
from experiments.checking.explorer import Exploration, explore
from experiments.checking.protocol_model import May
from experiments.checking.survivor_model import SurvivorModel
from experiments.decentralized_setup import pipeline

FLOW, SHORT = pipeline("a", "b", "c"), pipeline("a", "b")
D, L, N, R = May(duplicate=1), May(leave=True), May(), May(records=1)


def explored(*plan: list[May], newcomers: May = N, mortal: str = "b/2", make: Any = None) -> Exploration:
    options = {} if make is None else {"make": partial(make, first="1")}
    flow = FLOW if len(plan) == 3 else SHORT
    model = SurvivorModel(
        flow, dict(zip(flow.order, plan, strict=True)), newcomers=newcomers, mortal=(mortal,), **options
    )
    return explore(model, most_worlds=200_000)


@pytest.mark.parametrize(
    "plan",
    [
        ([R], [N, N], [N]),
        ([N], [N, L], [N]),
        ([N], [N, D]),
        ([D], [N, N], [N]),
        ([N, L], [N, N], [N]),
        ([N], [N, N], [N, L]),
    ],
    ids=[
        "with a record",
        "while it leaves",
        "while it duplicates",
        "while a predecessor duplicates",
        "while a predecessor leaves",
        "while a successor leaves",
    ],
)
def test_one_that_dies_for_good_strands_nobody_and_no_record(plan: tuple[list[May], ...]) -> None:
    found = explored(*plan)
    assert found.violation is None
    assert found.complete


# What is right without a model

K = Survivor(Place.of("b/0", FLOW, keeper=True))
RUNS = first_instance({"c/0", "c/0.1"}, {"a/0"})


def after(machine: Survivor, state: InstanceState, *events: tuple[str, object]) -> InstanceStep:
    step = InstanceStep(state=state)
    for sender, message in events:
        step = machine.receive(step.state, sender, message)
    return step


def test_the_keeper_asks_the_others_and_goes_by_more_than_half_of_its_neighbours() -> None:
    step = after(K, RUNS, ("a/0", Suspicion("b/0.1")))
    assert step.sends == (("c/0", CanYouReach("b/0.1")), ("c/0.1", CanYouReach("b/0.1")))
    assert step.state.dead == frozenset(), "one of three is not enough: it may be the one that is cut off"
    declared = after(K, step.state, ("c/0", Suspicion("b/0.1")))
    assert declared.state.dead == {"b/0.1"}
    assert declared.sends == (("a/0", Death("b/0.1")), ("b/0.1", Death("b/0.1")))
    assert declared.effects == ()
    heard = after(K, declared.state, ("a/0", DeathHeard("b/0.1")))
    assert heard.effects == (TakeOver("b/0.1"),)
    told = K.taken_over(heard.state, "b/0.1")
    assert told.sends == (("c/0", Death("b/0.1")), ("c/0.1", Death("b/0.1")))
    assert after(K, told.state, ("c/0", DeathHeard("b/0.1")), ("c/0.1", DeathHeard("b/0.1"))).state.estates == ()


def test_who_is_cut_off_from_the_others_declares_nobody_dead() -> None:
    state = after(K, RUNS, ("a/0", Suspicion("b/0.1")), ("a/0", Suspicion("b/0.1"))).state
    assert [one.stage for one in state.estates] == [Bereavement.SUSPECTED]
    state = K.suspect(state, "b/0.1").state
    assert state.dead == frozenset(), "its own suspicion is none of a neighbour"


def test_a_predecessor_puts_what_is_fixed_into_the_inbox_before_it_says_that_it_has_heard() -> None:
    a = Survivor(Place.of("a/0", FLOW, keeper=True))
    step = a.receive(first_instance({"b/0", "b/0.1"}, ()), "b/0", Death("b/0.1"))
    assert step.effects == (Flush(("b/0.1",)),)
    assert step.sends == (("b/0", DeathHeard("b/0.1")),)
    assert step.state.successors == {"b/0"}


def test_a_duplication_that_waited_for_the_dead_goes_on() -> None:
    a = Survivor(Place.of("a/0", FLOW, keeper=True))
    state = a.duplicate(first_instance({"b/0", "b/0.1"}, ()), 1).state
    state = after(a, state, ("b/0", DuplicationAck())).state
    assert state.phase is InstancePhase.DUPLICATING
    step = a.receive(state, "b/0", Death("b/0.1"))
    assert step.state.phase is InstancePhase.RUNNING
    assert ("a/0.1", Start(frozenset({"b/0"}), frozenset())) in step.sends


def test_the_dead_are_not_believed_and_the_living_that_hear_of_their_own_death_stop() -> None:
    state = after(K, RUNS, *((by, Suspicion("b/0.1")) for by in ("a/0", "c/0"))).state
    a = Survivor(Place.of("a/0", FLOW, keeper=True))
    fenced = a.receive(first_instance({"b/0", "b/0.1"}, ()), "b/0", Death("b/0.1")).state
    assert a.receive(fenced, "b/0.1", Duplication(("b/0.1.1",))) == InstanceStep(state=fenced)
    copy = Survivor(Place.of("b/0.1", FLOW))
    step = copy.receive(first_instance({"c/0"}, {"a/0"}), "b/0", Death("b/0.1"))
    assert step.effects == (Halt(),)
    assert copy.receive(step.state, "a/0", Deletion()) == InstanceStep(state=step.state)
    assert after(K, state, ("b/0.1", Deletion())).state == state


def test_a_copy_whose_maker_died_before_it_was_started_gives_itself_up() -> None:
    copy = Survivor(Place.of("b/0.1.1", FLOW))
    assert copy.watched(InstanceState()) == {"b/0.1"}
    step = copy.receive(InstanceState(), "b/0", Death("b/0.1"))
    assert ("b/0", Suspicion("b/0.1.1")) in step.sends
    state = after(K, RUNS, ("b/0.1.1", Suspicion("b/0.1.1"))).state
    assert state.dead == {"b/0.1.1"}


@pytest.mark.parametrize(
    ("sender", "message", "why"),
    [
        ("a/0", Death("b/0.1"), "'a/0' declares 'b/0.1' dead, and is not its keeper"),
        ("a/0", Suspicion("c/0.1"), "which is not its keeper"),
        ("a/0", Suspicion("b/0"), "which is not its keeper"),
    ],
)
def test_what_cannot_be_is_refused(sender: str, message: object, why: str) -> None:
    with pytest.raises(IllegalEvent, match=why):
        K.receive(RUNS, sender, message)


def test_a_keeper_is_never_given_up() -> None:
    assert K.watched(RUNS) == {"c/0.1"}
    with pytest.raises(IllegalEvent, match="'c/0' is not given up"):
        K.suspect(RUNS, "c/0")
    with pytest.raises(IllegalEvent, match="nothing to take over"):
        K.taken_over(RUNS, "b/0.1")


def test_who_was_only_suspected_and_left_is_forgotten() -> None:
    """Else whoever it was asked about would be asked for as long as the run lasts."""
    controller = Controller(Place.of("b/0", FLOW, keeper=True))
    asked = replace(after(K, RUNS, ("a/0", Suspicion("b/0.1"))).state, asked_about=frozenset({"c/0.7"}))
    state = controller.forgotten(ControlState(instance=asked), {"b/0.1", "c/0.7"})
    assert state.instance == RUNS
    assert controller.forgotten(ControlState(instance=asked), ()).instance == asked


# Each rule, taken out


class TellsSuccessorsAtOnce(Survivor):
    def _declared(self, state: InstanceState, estate: Any) -> InstanceStep:
        step = super()._declared(state, estate)
        return replace(step, sends=(*step.sends, *((one, Death(estate.dead)) for one in sorted(state.successors))))


class DoesNotWaitForPredecessors(Survivor):
    def _declared(self, state: InstanceState, estate: Any) -> InstanceStep:
        step = super()._declared(state, estate)
        found = next(one for one in step.state.estates if one.dead == estate.dead)
        others = tuple(one for one in step.state.estates if one.dead != estate.dead)
        state = replace(step.state, estates=(*others, replace(found, awaited=frozenset())))
        return self._advance(replace(step, state=state), estate.dead) if found.awaited else step


class BelievesTheDead(Survivor):
    def receive(self, state: InstanceState, sender: str, message: object, /) -> InstanceStep:
        if sender in state.dead and self.place.me not in state.dead:
            return self._declare_who_is_missed(super(Survivor, self).receive(state, sender, message))
        return super().receive(state, sender, message)


class WaitsOn(Survivor):
    """For the acknowledgement of the dead."""

    def _without(self, state: InstanceState, dead: str) -> InstanceState:
        return replace(super()._without(state, dead), awaited=state.awaited)


class KeepsTheUnstarted(Survivor):
    def _to_keeper_of(self, missing: str, state: InstanceState, said: Suspicion) -> InstanceStep:
        if said.missing == self.place.me:
            return InstanceStep(state=state)
        return super()._to_keeper_of(missing, state, said)


class AsksNobody(Survivor):
    def _suspected(self, state: InstanceState, by: str, missing: str) -> InstanceStep:
        return replace(super()._suspected(state, by, missing), sends=())


@pytest.mark.parametrize(
    ("made", "plan"),
    [
        (TellsSuccessorsAtOnce, ([R], [N, N], [N, L])),
        (DoesNotWaitForPredecessors, ([R], [N, N], [N])),
        (BelievesTheDead, ([N], [N, D])),
        (WaitsOn, ([D], [N, N], [N])),
        (KeepsTheUnstarted, ([N], [N, D])),
        (AsksNobody, ([N], [N, L], [N])),
    ],
)
def test_each_rule_taken_out_is_missed(made: type[Survivor], plan: tuple[list[May], ...]) -> None:
    assert explored(*plan, make=made).violation is not None
