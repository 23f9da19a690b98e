"""Scaling under locks, as a living instance runs it: whose turn it is, what is dropped, what is on disk.

The protocol under locks is explored in `test_instance.py`; here are the turns themselves, the bound that they
keep, and the control side as a whole: its text, its links, kills.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks import LOCKS, LockSite, TwoFgme, ra1, two_fgme
from elastream.decentralized.protocol.control import Controller, ControlState, control_from_json, control_to_json
from elastream.decentralized.protocol.instance import InstancePhase, InstanceState, Place, Turns, first_instance
from elastream.decentralized.protocol.messages import Create
from elastream.decentralized.protocol.neighbour_locks import (
    AskToScale,
    DoneScaling,
    LockedInstance,
    LockedMessage,
    LockMessage,
    MakeLock,
    MayNotScale,
    MayScale,
    NeighbourLocks,
)
from elastream.decentralized.protocol.wire import message_from_json, message_to_json
from elastream.errors import InvalidInput
from elastream.testing import chain
from experiments.checking.control_model import ControlModel
from experiments.checking.explorer import explore
from experiments.checking.protocol_model import LockedModel, May
from experiments.checking.random_runs import random_run

D, L, NOTHING = May(duplicate=1), May(leave=True), May()
TWICE, BOTH = May(duplicate=2), May(duplicate=1, leave=True)
EVERY_LOCK = pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS)


def flow(*operators: str, least: int = 1, most: int | None = None) -> Dataflow:
    """The bounds are those of the last one."""

    def one(name: str) -> Operator:
        last = name == operators[-1]
        return Operator(
            name=name,
            source=name == operators[0],
            min_parallelism=least if last else 1,
            max_parallelism=most if last else None,
        )

    return Dataflow.of(map(one, operators), chain(*operators))


def assert_never_wrong(model: ControlModel) -> None:
    """In any interleaving of what may happen."""
    exploration = explore(model, most_worlds=100_000)
    assert exploration.violation is None
    assert exploration.complete


# The control side as a whole, in every interleaving


@EVERY_LOCK
@pytest.mark.parametrize(
    ("plan", "newcomers", "kills"),
    [
        ({"a": [D], "b": [D]}, L, {}),
        ({"a": [D], "b": [NOTHING, L]}, L, {}),
        ({"a": [D], "b": [NOTHING, L]}, NOTHING, {"a/1": 1}),
    ],
    ids=["both duplicate, the new leave", "one leaves as the other duplicates", "and is killed"],
)
def test_neighbours_take_turns_and_everybody_gets_one(
    make: MakeLock, plan: Mapping[str, Sequence[May]], newcomers: May, kills: Mapping[str, int]
) -> None:
    model = ControlModel(make, flow("a", "b"), plan, newcomers=newcomers, kills=kills, acknowledges=False)
    assert_never_wrong(model)


@EVERY_LOCK
def test_three_operators_that_are_killed_while_they_scale(make: MakeLock) -> None:
    plan = {"a": [BOTH, D], "b": [TWICE, BOTH], "c": [D, L]}
    kills = dict.fromkeys(("a/1", "b/1", "b/2", "b/1.1", "c/1"), 2)
    model = ControlModel(make, flow("a", "b", "c"), plan, newcomers=L, kills=kills)
    runs = [random_run(model, seed=seed) for seed in range(2)]
    assert [run.violation for run in runs] == [None] * 2
    assert all(run.nodes > 8 for run in runs), "there were copies"


def test_the_explorer_would_see_it_if_the_locks_let_both_in() -> None:
    class Open(TwoFgme):
        """Lets everybody in at once."""

        def request(self, state: two_fgme.TwoFgmeState, /) -> two_fgme.Step:
            step = super().request(state)
            return replace(step, state=replace(step.state, position=two_fgme.LockPosition.INSIDE), sends=())

    violation = explore(LockedModel(Open, flow("a", "b"), {"a": [D], "b": [D]}, newcomers=NOTHING)).violation
    assert violation is not None
    assert violation.what == "a and b scale at the same time"


# The bounds on the instances


@EVERY_LOCK
def test_there_are_never_more_instances_than_there_may_be_and_the_keeper_knows_how_many(make: MakeLock) -> None:
    """Three of an operator want a copy at any time, one may leave, and there may be four."""
    plan = {"a": [NOTHING], "b": [D, BOTH, D]}
    model = ControlModel(make, flow("a", "b", most=4), plan, newcomers=NOTHING, acknowledges=False)
    assert_never_wrong(model)


@EVERY_LOCK
def test_there_are_never_fewer_instances_than_there_should_be(make: MakeLock) -> None:
    """All but the keeper may leave at any time, and two should stay."""
    plan = {"a": [NOTHING], "b": [D, L, L]}
    model = ControlModel(make, flow("a", "b", least=2), plan, newcomers=L, acknowledges=False)
    assert_never_wrong(model)


@pytest.mark.parametrize("bound", [{"most": 4}, {"least": 2}])
def test_a_bound_needs_one_who_counts(bound: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="'b/1': a bound on the instances needs a core of one, found 2"):
        explore(LockedModel(TwoFgme, flow("a", "b", **bound), {"a": [D], "b": [D, D]}, newcomers=D, core=2))


# One keeper


FLOW = flow("a", "b", most=4)
LOCKS_OF_FLOW = NeighbourLocks(
    make_lock=TwoFgme, dataflow=FLOW, cores={name: frozenset({f"{name}/0"}) for name in FLOW.order}
)
KEEPER = LockedInstance(Place.of("b/0", FLOW, keeper=True), LOCKS_OF_FLOW)
COPY = LockedInstance(Place.of("b/0.1", FLOW), LOCKS_OF_FLOW)
AT_FIRST = KEEPER.initial(first_instance((), {"a/0"}), instances=2)
ENTERS = LockMessage(("a", "b"), two_fgme.TwoFgmeAck())
RUNS = COPY.initial(first_instance((), {"a/0"}))


def after(state: InstanceState, *events: tuple[str, LockedMessage]) -> InstanceState:
    for sender, message in events:
        state = KEEPER.receive(state, sender, message).state
    return state


def test_who_has_asked_by_the_time_that_the_locks_are_held_may_scale_and_who_comes_later_is_next() -> None:
    asked = after(AT_FIRST, ("b/0.1", AskToScale(1)), ("b/0.2", AskToScale(0)))
    held = KEEPER.receive(asked, "a/0", ENTERS)
    assert held.sends == (("b/0.1", MayScale(1)), ("b/0.2", MayScale(0)))
    late = KEEPER.receive(held.state, "b/0.3", AskToScale(1))
    assert late.sends == ()
    nearly = KEEPER.receive(late.state, "b/0.1", DoneScaling())
    assert nearly.sends == (), "the locks are held for both"
    done = KEEPER.receive(nearly.state, "b/0.2", DoneScaling())
    assert done.sends == (
        ("a/0", LockMessage(("a", "b"), two_fgme.TwoFgmeEnd(1))),
        ("a/0", LockMessage(("a", "b"), two_fgme.TwoFgmeReq(2))),
    )
    assert done.state.turns.instances == 2, "one came and one went"


def test_the_room_goes_to_who_asked_first_and_the_rest_is_told_why() -> None:
    asked = after(AT_FIRST, ("b/0.1", AskToScale(1)), ("b/0.2", AskToScale(3)), ("b/0.3", AskToScale(1)))
    held = KEEPER.receive(asked, "a/0", ENTERS)
    assert held.sends == (("b/0.1", MayScale(1)), ("b/0.2", MayScale(1)), ("b/0.3", MayNotScale()))

    fewer = COPY.receive(COPY.duplicate(RUNS, 3).state, "b/0", MayScale(1))
    assert fewer.effects == (Create("b/0.1.1"),)
    assert fewer.dropped == "'b' may have 4 instances, and there was no room for 2 more"
    none = COPY.receive(COPY.duplicate(RUNS, 1).state, "b/0", MayNotScale())
    assert none.dropped == "'b' may have 4 instances, and there was no room for 1 more"
    assert none.state == RUNS, "it is free to decide again"
    assert none.sends == ()


def test_who_asked_first_may_leave_as_long_as_enough_are_left() -> None:
    few = flow("a", "b", least=2)
    locks = replace(LOCKS_OF_FLOW, dataflow=few)
    keeper = LockedInstance(Place.of("b/0", few, keeper=True), locks)
    state = keeper.initial(first_instance((), {"a/0"}), instances=3)
    for sender, message in (("b/0.1", AskToScale(0)), ("b/0.2", AskToScale(0)), ("b/0.3", AskToScale(1))):
        state = keeper.receive(state, sender, message).state
    held = keeper.receive(state, "a/0", ENTERS)
    assert held.sends == (("b/0.1", MayScale(0)), ("b/0.2", MayNotScale()), ("b/0.3", MayScale(1)))

    copy = LockedInstance(Place.of("b/0.2", few), locks)
    told = copy.receive(copy.leave(RUNS).state, "b/0", MayNotScale())
    assert told.dropped == "'b' should have 2 instances, and has no more"
    assert (told.state, told.sends) == (RUNS, ())


def test_with_no_room_for_anybody_the_locks_are_left_at_once() -> None:
    full = replace(AT_FIRST, turns=replace(AT_FIRST.turns, instances=4))
    held = KEEPER.receive(KEEPER.duplicate(full, 1).state, "a/0", ENTERS)
    assert held.dropped == "'b' may have 4 instances, and there was no room for 1 more"
    assert held.sends == (("a/0", LockMessage(("a", "b"), two_fgme.TwoFgmeEnd(1))),)
    assert held.state.turns == replace(full.turns, locks=held.state.turns.locks)


def test_what_is_no_longer_possible_is_dropped_and_does_not_hold_the_locks() -> None:
    """As where the run was started again without a capacity for the operator."""
    waits = COPY.leave(RUNS).state
    fixed = LockedInstance(replace(COPY.place, fixed="'b' is kept at one"), LOCKS_OF_FLOW)
    step = fixed.receive(waits, "b/0", MayScale(0))
    assert step.dropped == "'b' is kept at one"
    assert step.sends == (("b/0", DoneScaling(dropped=True)),)
    serving = KEEPER.receive(after(AT_FIRST, ("b/0.1", AskToScale(0))), "a/0", ENTERS).state
    done = KEEPER.receive(serving, "b/0.1", DoneScaling(dropped=True)).state
    assert done.turns.instances == AT_FIRST.turns.instances
    assert not done.turns.serving


@pytest.mark.parametrize(
    ("machine", "state", "sender", "message", "why"),
    [
        (KEEPER, AT_FIRST, "a/0", AskToScale(1), "'b/0' does not answer for 'a/0'"),
        (COPY, RUNS, "b/0.2", AskToScale(1), r"'b/0.1' does not answer for 'b/0.2'"),
        (KEEPER, AT_FIRST, "b/0.1", AskToScale(-1), "asks for -1 copies"),
        (KEEPER, AT_FIRST, "b/0.1", DoneScaling(), "is done scaling, and it was not its turn"),
        (COPY, RUNS, "b/0", MayScale(1), "which did not ask it"),
        (COPY, COPY.leave(RUNS).state, "b/0.2", MayScale(0), "which did not ask it"),
        (
            KEEPER,
            AT_FIRST,
            "a/0",
            LockMessage(("b", "c"), two_fgme.TwoFgmeReq(1)),
            "has no part in the lock of b → c",
        ),
        (KEEPER, AT_FIRST, "a/0", LockMessage(("a", "b"), ra1.Ra1Req(1)), "is no message of the lock of a → b"),
    ],
    ids=[
        *("a stranger", "no keeper", "less than none", "not its turn", "nobody asked", "not its delegate"),
        *("no edge", "another lock"),
    ],
)
def test_what_cannot_be_is_refused(
    machine: LockedInstance, state: InstanceState, sender: str, message: LockedMessage, why: str
) -> None:
    with pytest.raises(IllegalEvent, match=why):
        machine.receive(state, sender, message)


def test_one_wish_at_a_time() -> None:
    with pytest.raises(IllegalEvent, match="waits for its turn already"):
        COPY.duplicate(COPY.leave(RUNS).state, 1)
    asked = after(AT_FIRST, ("b/0.1", AskToScale(1)))
    with pytest.raises(IllegalEvent, match="asks a second time before its turn is over"):
        KEEPER.receive(asked, "b/0.1", AskToScale(0))


# What is on disk


ADDRESSES = st.sampled_from(["a/0", "b/0", "b/0.1", "c/0.2.1"])
ASKED = st.lists(st.tuples(ADDRESSES, st.integers(0, 9)), max_size=3).map(tuple)


def of_type(kind: type) -> st.SearchStrategy[object]:
    return st.from_type(kind)


LOCK_STATES = st.sampled_from(list(LOCKS.values())).flatmap(
    lambda make: st.lists(of_type(type(make(LockSite(me="")).initial())), max_size=3).map(tuple)
)
TURNS = st.builds(
    Turns,
    wish=st.none() | st.integers(0, 9),
    locks=LOCK_STATES,
    waiting=ASKED,
    serving=ASKED,
    instances=st.integers(0, 99),
)
CONTROL = st.builds(
    ControlState,
    instance=st.builds(
        InstanceState,
        **{name: st.from_type(hint) for name, hint in get_type_hints(InstanceState).items() if name != "turns"},
        turns=st.none() | TURNS,
    ),
    incarnation=st.integers(0, 9),
)
LOCK_MESSAGES = st.builds(
    LockMessage,
    edge=st.tuples(st.text(), st.text()),
    inner=st.one_of(of_type(kind) for lock in LOCKS.values() for kind in lock.messages),
)


@given(CONTROL)
def test_the_control_side_survives_the_disk(state: ControlState) -> None:
    assert control_from_json(json.loads(json.dumps(control_to_json(state)))) == state


@given(LOCK_MESSAGES | st.one_of(of_type(kind) for kind in (AskToScale, MayScale, MayNotScale, DoneScaling)))
def test_messages_survive_the_wire(message: LockedMessage) -> None:
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"kind": "LockMessage", "edge": ["a", "b"], "inner": 3}, "is a JSON object, found int"),
        ({"kind": "LockMessage", "edge": ["a", "b"], "inner": {"kind": "ra1 Rec"}}, "did you mean 'ra1 Req'"),
        ({"kind": "LockMessage", "edge": ["a"], "inner": {}}, "of the kind LockMessage cannot be read"),
        ({"kind": "AskToScale", "wish": "many"}, "of the kind AskToScale cannot be read"),
    ],
)
def test_what_is_no_message_is_refused_by_name(body: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        message_from_json(body)


def test_a_keeper_that_comes_back_goes_on_with_the_turn_that_it_was_in() -> None:
    controller = Controller(Place.of("b/0", FLOW, keeper=True), LOCKS_OF_FLOW)
    state = controller.greeted(controller.initial(first=True), "a/0", "b/0", 1)
    asks = controller.duplicate(state, 1).state
    assert asks.waits_for_locks
    assert asks.instance.phase is InstancePhase.RUNNING, "nothing happens before the locks are held"
    back = controller.begin(control_from_json(json.loads(json.dumps(control_to_json(asks))))).state
    turn = controller.received(back, "a/0", 1, message_to_json(ENTERS))
    assert turn.effects == (Create("b/0.1"),)
    assert not turn.state.waits_for_locks
    assert [message_from_json(one.body) for one in turn.state.outgoing["a/0"].waiting[:1]] == [
        LockMessage(("a", "b"), two_fgme.TwoFgmeReq(1))
    ], "the request is still to be acknowledged, and is sent again"


def test_without_locks_nobody_is_asked() -> None:
    plain = Controller(Place.of("b/0", FLOW, keeper=True))
    turn = plain.duplicate(plain.initial(first=True), 1)
    assert turn.effects == (Create("b/0.1"),)
    assert control_to_json(turn.state)["turns"] is None
    assert not turn.state.waits_for_locks


def test_without_locks_a_message_about_them_is_refused_and_taken_in() -> None:
    plain = Controller(Place.of("b/0", FLOW))
    state = plain.greeted(plain.initial(first=True), "a/0", "b/0", 1)
    turn = plain.received(state, "a/0", 1, message_to_json(AskToScale(1)))
    assert turn.refused == "AskToScale(wish=1) from 'a/0' is about locks, and 'b/0' has none"
    assert turn.state.instance == state.instance
    assert turn.state.incoming["a/0"].taken == 1
