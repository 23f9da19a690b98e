"""Explorations of the control side over a network that loses and repeats, with kills: each thing that keeps it
right, taken out, is missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastream.decentralized.locks import TwoFgme
from elastream.decentralized.protocol.control import Controller, ControlState, Turn
from elastream.decentralized.protocol.instance import Place
from elastream.decentralized.protocol.link import Incoming, Outgoing
from experiments.checking import control_model
from experiments.checking.control_model import Controlled, ControlModel, OnDisk, Posted, Process
from experiments.checking.explorer import Exploration, explore
from experiments.checking.protocol_model import May
from experiments.checking.random_runs import walk
from experiments.decentralized_setup import pipeline

FLOW, D, L, NOTHING = pipeline("a", "b"), May(duplicate=1), May(leave=True), May()


def explored(kind: type[ControlModel] = ControlModel, *killed: str, **options: Any) -> Exploration:
    plan = {"a": [D], "b": [NOTHING, L]}
    kills = dict.fromkeys(killed, 1)
    options = {"acknowledges": False, **options}
    return explore(kind(TwoFgme, FLOW, plan, newcomers=NOTHING, kills=kills, **options), most_worlds=100_000)


def violation(kind: type[ControlModel] = ControlModel, *killed: str, **options: Any) -> str:
    found = explored(kind, *killed, **options).violation
    assert found is not None
    return found.what


def with_controlled(made: type[Controlled]) -> type[ControlModel]:
    class Model(ControlModel):
        def _controlled(self, place: Place) -> Controlled:
            return made(Controller(place, self._locks), self._acknowledges)

    return Model


@pytest.mark.parametrize("killed", ["a/1", "b/2"])
def test_kills_at_any_step_and_a_network_that_loses_and_repeats_break_nothing(killed: str) -> None:
    found = explored(ControlModel, killed)
    assert found.violation is None
    assert found.complete
    assert found.worlds > 10 * explored().worlds, "the kills are explored"


def test_acknowledgements_that_are_lost_or_late_break_nothing() -> None:
    plan = {"a": [D], "b": [NOTHING]}
    found = explore(ControlModel(TwoFgme, FLOW, plan, newcomers=NOTHING, kills={"a/1": 1}), most_worlds=100_000)
    assert found.violation is None
    assert found.complete


def test_a_message_that_is_not_numbered_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives twice is taken in twice."""
    monkeypatch.setattr(Incoming, "repeats", lambda link, number: False)
    monkeypatch.setattr(Incoming, "take", lambda link, number: replace(link, taken=number))
    assert "refuses" in violation()


def test_order_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Incoming, "take", lambda link, number: replace(link, taken=number))
    assert violation()


def test_saying_it_again_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that comes back says nothing of what the one before may have said."""

    class Forgetful(Controlled):
        def comes_back(self, state: Process, /) -> Posted:
            back = super().comes_back(state)
            mind = control_model._mind(back.state)
            said = {to: Outgoing(posted=link.posted) for to, link in mind.outgoing.items()}
            disk = OnDisk.of(replace(mind, outgoing=said))
            return Posted(state=replace(back.state, disk=disk, memory=disk), effects=back.effects)

    assert "wait" in violation(with_controlled(Forgetful), "a/1") or "turn" in violation(
        with_controlled(Forgetful), "a/1"
    )


def test_writing_down_before_speaking_is_missed() -> None:
    """A process that speaks first and is killed does not know what it said."""

    class Hasty(Controlled):
        def _posted(self, before: Process, turn: Turn) -> Posted:
            posted = super()._posted(before, turn)
            if not before.doomed or posted.state.memory is not None:
                return posted
            said = control_model._letters(turn.state)
            return Posted(state=replace(posted.state, disk=before.disk), effects=turn.effects, sends=said)

    assert violation(with_controlled(Hasty), "a/1", "b/2")


def test_carrying_out_what_was_left_undone_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(controller: Controller, state: ControlState) -> Turn:
        return Turn(state=replace(state, incarnation=state.incarnation + 1))

    monkeypatch.setattr(Controller, "begin", begin)
    assert "does not exist" in violation(ControlModel, "a/1")


def test_a_new_number_for_every_start_is_missed_by_nobody_who_shares_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The numbers of the messages are enough as long as all starts go on from one journal: incarnations are for
    a second process that runs at the same time, of which this model has none."""
    monkeypatch.setattr(Incoming, "greeted", lambda link, incarnation: link)
    assert explored(ControlModel, "a/1").violation is None


def test_a_walk_over_a_network_that_loses() -> None:
    def model() -> ControlModel:
        plan = {"a": [D, L], "b": [D, May(duplicate=1, leave=True)]}
        return ControlModel(TwoFgme, FLOW, plan, newcomers=L, kills={"a/1": 1, "b/1": 1, "b/2": 1})

    found = walk(model, events=1_500)
    assert found.violation is None
    assert found.events >= 1_500
    assert found.most_nodes > 4
