"""The control side of an instance: what is refused changes nothing, what is on disk is enough to go on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.control import (
    Controller,
    ControlState,
    Turn,
    control_from_json,
    control_to_json,
)
from elastream.decentralized.protocol.instance import InstancePhase, Place
from elastream.decentralized.protocol.link import Stale
from elastream.decentralized.protocol.messages import (
    Activate,
    Create,
    Deletion,
    DeletionAck,
    Drain,
    Duplication,
    DuplicationAck,
    Message,
    Start,
)
from elastream.decentralized.protocol.wire import message_from_json, message_to_json
from elastream.errors import InvalidInput
from elastream.testing import chain

FLOW = Dataflow.of((Operator(name=name, source=name == "a") for name in "abc"), chain("a", "b", "c"))
B = Controller(Place.of("b/0", FLOW, keeper=True))
COPY = Controller(Place.of("b/0.1", FLOW))


def met(controller: Controller, state: ControlState, *senders: str) -> ControlState:
    for sender in senders:
        state = controller.greeted(state, sender, controller.place.me, 1)
    return state


def tell(controller: Controller, state: ControlState, sender: str, message: Message) -> Turn:
    number = state.incoming[sender].taken + 1
    return controller.received(state, sender, number, message_to_json(message))


def waiting(state: ControlState, receiver: str) -> list[Message]:
    return [message_from_json(envelope.body) for envelope in state.outgoing[receiver].waiting]


@pytest.mark.parametrize(
    "message",
    [
        Duplication(("b/0.1", "b/0.2")),
        DuplicationAck(told=True),
        Start(frozenset({"c/0"}), frozenset({"a/0", "a/0.1"}), frozenset({"a/0.2"})),
        Deletion(),
        DeletionAck(),
    ],
)
def test_messages_survive_the_wire(message: Message) -> None:
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"kind": "Deletoin"}, "did you mean 'Deletion'"),
        ({}, "a message has a kind, found None"),
        ({"kind": "Duplication", "added": 3}, "of the kind Duplication cannot be read"),
    ],
)
def test_what_is_no_message_is_refused_by_name(body: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        message_from_json(body)


def test_a_state_in_the_middle_of_everything_survives_the_disk() -> None:
    state = met(B, B.begin(B.initial(first=True)).state, "a/0", "c/0")
    state = tell(B, state, "a/0", Duplication(("a/0.1",))).state
    state = B.duplicate(state, 2).state
    assert control_from_json(json.loads(json.dumps(control_to_json(state)))) == state


def test_a_duplication_is_told_and_the_copies_start_when_all_have_acknowledged() -> None:
    turn = B.duplicate(met(B, B.initial(first=True), "a/0", "c/0"), 1)
    assert turn.effects == (Create("b/0.1"),)
    assert waiting(turn.state, "a/0") == [Duplication(("b/0.1",))]
    state = tell(B, turn.state, "a/0", DuplicationAck()).state
    assert "b/0.1" not in state.outgoing
    state = tell(B, state, "c/0", DuplicationAck()).state
    assert waiting(state, "b/0.1") == [Start(frozenset({"c/0"}), frozenset({"a/0"}))]


@pytest.mark.parametrize(
    ("sender", "message", "why"),
    [
        ("c/7", Deletion(), "has no neighbour 'c/7'"),
        ("b/3", Start(frozenset(), frozenset()), "a start is not possible for an instance that is running"),
        ("c/0", DeletionAck(), "DeletionAck"),
        ("a/0", DuplicationAck(), "DuplicationAck"),
    ],
    ids=["unknown", "a second start", "nobody waits for it", "no duplication"],
)
def test_what_has_no_place_is_refused_with_a_reason_and_changes_nothing(
    sender: str, message: Message, why: str
) -> None:
    state = met(B, B.begin(B.initial(first=True)).state, "a/0", "c/0", sender)
    turn = tell(B, state, sender, message)
    assert why in turn.refused
    assert turn.state.instance == state.instance
    assert turn.state.outgoing == state.outgoing
    assert turn.effects == ()
    assert turn.state.incoming[sender].taken == 1, "taken in: it must not come again for ever"


def test_strangers_and_lost_ones_are_not_greeted() -> None:
    state = B.initial(first=True)
    with pytest.raises(IllegalEvent, match="'b/0' does not know 'z/0'"):
        B.greeted(state, "z/0", "b/0", 1)
    with pytest.raises(IllegalEvent, match="looks for 'b/9', and this is 'b/0'"):
        B.greeted(state, "a/0", "b/9", 1)
    with pytest.raises(IllegalEvent, match="sends before it was greeted"):
        B.received(state, "a/0", 1, {})


def test_a_stale_instance_is_refused_also_after_the_receiver_came_back() -> None:
    state = B.greeted(B.initial(first=True), "a/0", "b/0", 2)
    back = B.begin(control_from_json(control_to_json(state))).state
    with pytest.raises(Stale, match="start 1 of it is over"):
        B.greeted(back, "a/0", "b/0", 1)


def test_a_message_that_comes_twice_is_dropped() -> None:
    state = met(B, B.initial(first=True), "a/0")
    body = message_to_json(Duplication(("a/0.1",)))
    once = B.received(state, "a/0", 1, body).state
    assert B.received(once, "a/0", 1, body) == Turn(state=once)


def test_who_comes_back_does_again_what_may_not_have_been_done() -> None:
    state = met(B, B.initial(first=True), "a/0", "c/0")
    assert B.begin(state).effects == (Activate(),)
    duplicating = B.duplicate(state, 2).state
    assert B.begin(duplicating).effects == (Activate(), Create("b/0.1"), Create("b/0.2"))
    assert COPY.begin(COPY.initial(first=False)).effects == (), "it waits for its start"


def copy_in(phase: InstancePhase) -> ControlState:
    """A copy that was started, left, and so on up to this phase."""
    state = met(COPY, COPY.initial(first=False), "b/0", "a/0", "c/0")
    state = tell(COPY, state, "b/0", Start(frozenset({"c/0"}), frozenset({"a/0"}))).state
    steps = {
        InstancePhase.LEAVING: lambda now: COPY.leave(now),
        InstancePhase.DRAINING: lambda now: tell(COPY, now, "a/0", DeletionAck()),
        InstancePhase.PARTING: lambda now: COPY.drained(now),
        InstancePhase.ENDED: lambda now: tell(COPY, now, "c/0", DeletionAck()),
    }
    for reached, step in steps.items():
        if state.instance.phase is phase:
            break
        state = step(state).state
        assert state.instance.phase is reached
    return state


def test_who_was_killed_while_it_drained_drains_again() -> None:
    assert COPY.begin(copy_in(InstancePhase.DRAINING)).effects == (Activate(), Drain())


def test_who_has_ended_and_said_all_does_not_come_back() -> None:
    ended = copy_in(InstancePhase.ENDED)
    assert not ended.all_said
    assert COPY.begin(ended).state.incarnation == 1, "its last words may not have arrived"
    said = replace(ended, outgoing={})
    with pytest.raises(IllegalEvent, match=r"'b/0\.1' has ended: its place was given up"):
        COPY.begin(said)


def test_what_waits_for_someone_that_has_ended_is_given_up() -> None:
    state = B.duplicate(met(B, B.initial(first=True), "a/0", "c/0"), 1).state
    assert B.given_up(state, "c/0").outgoing["c/0"].waiting == ()


def came_and_went(neighbours: int) -> ControlState:
    """After so many copies of a neighbour, one after the other: each is made, greets, leaves and ends."""
    state = met(B, B.begin(B.initial(first=True)).state, "a/0", "c/0")
    for number in range(1, neighbours + 1):
        copy = f"a/0.{number}"
        state = tell(B, state, "a/0", Duplication((copy,))).state
        state = met(B, state, copy)
        state = tell(B, state, copy, Deletion()).state
        for told in ("a/0", copy):
            state = B.acknowledged(state, told, state.outgoing[told].posted)
        assert state.former == {copy}
        assert B.forgotten(state, ["a/0", "c/0"]) == state, "a neighbour is never forgotten"
        state = B.forgotten(state, [copy])
    return state


def test_who_came_and_went_leaves_nothing_in_the_journal() -> None:
    few, many = (json.dumps(control_to_json(came_and_went(neighbours))) for neighbours in (10, 1_500))
    assert len(many) <= len(few) + 10, "the numbers of the last messages have more digits"
    assert "a/0.7" not in few


def test_an_instance_that_has_ended_and_was_forgotten_is_a_stranger() -> None:
    state = came_and_went(3)
    again = tell(B, met(B, state, "a/0.2"), "a/0.2", Deletion())
    assert "has no neighbour 'a/0.2'" in again.refused
    assert again.state.instance == state.instance
