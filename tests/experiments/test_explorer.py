"""The explorer itself: that it visits every interleaving and can find each kind of failure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from elastream.decentralized.errors import IllegalEvent
from experiments import decentralized_explorer
from experiments.checking.explorer import Exploration, Reaction, Received, explore


class Pings:
    """Two nodes; each sends the other a few messages, at any time. `rule` says what a receipt does."""

    def __init__(self, count: int, rule: str = "") -> None:
        self.count, self.rule = count, rule

    def nodes(self) -> Mapping[str, Hashable]:
        return {"a": (self.count, 0), "b": (self.count, 0)}

    def moves(self, name: str, state: Any, /) -> Sequence[Hashable]:
        return ("sends",) if state[0] else ()

    def react(self, name: str, state: Any, event: Any, /) -> Reaction:
        other = "b" if name == "a" else "a"
        if event == "sends":
            return Reaction(state=(state[0] - 1, state[1]), sends=((other, state[0]),))
        assert isinstance(event, Received)
        if self.rule == "refuses" and event.message == 1:
            raise IllegalEvent("no ones")
        if self.rule == "echoes":
            return Reaction(state=state, sends=((other, event.message),))
        if self.rule == "sends astray":
            return Reaction(state=state, sends=(("nobody", 0),))
        return Reaction(state=(state[0], state[1] * 10 + event.message))

    def wrong(self, nodes: Mapping[str, Any], /) -> str:
        received = [state[1] for state in nodes.values()]
        return "both have two" if self.rule == "wrong" and received == [21, 21] else ""

    def unfinished(self, nodes: Mapping[str, Any], /) -> str:
        received = [state[1] for state in nodes.values()]
        return "" if received == [21, 21] or self.count != 2 or self.rule == "strict" else f"received {received}"


def found(rule: str) -> str:
    exploration = explore(Pings(2, rule))
    assert exploration.violation is not None
    return exploration.violation.what


def test_every_interleaving_is_visited_and_channels_keep_their_order() -> None:
    # each direction: 2 sent at most, received at most as many: 6 worlds; the two directions do not touch
    assert explore(Pings(2)) == Exploration(worlds=36, ends=1, complete=True, most_on_the_way=4, longest_run=8)


def test_each_kind_of_failure_is_found() -> None:
    assert found("wrong") == "both have two"
    assert found("refuses") == "b refuses: no ones"
    assert found("echoes") == "a run that never ends"
    assert found("sends astray") == "0 for nobody, which does not exist"


def test_a_bad_end_is_found() -> None:
    class Silent(Pings):
        def unfinished(self, nodes: Mapping[str, Any], /) -> str:
            return "an end"

    exploration = explore(Silent(1))
    assert exploration.violation is not None
    assert exploration.violation.what == "an end"


def test_the_run_to_a_violation_is_a_shortest_one_and_can_be_read() -> None:
    violation = explore(Pings(2, "refuses")).violation
    assert violation is not None
    assert violation.run == ("a: sends", "a: sends", "b: gets 2 from a", "b: gets 1 from a")
    assert "  4. b: gets 1 from a" in str(violation)


def test_the_limit_is_respected_and_told() -> None:
    exploration = explore(Pings(3), most_worlds=10)
    assert not exploration.complete
    assert exploration.violation is None
    assert exploration.worlds < 20


def test_what_was_not_explored_to_its_end_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in decentralized_explorer.CASES if not case.fails)
    monkeypatch.setattr(decentralized_explorer, "CASES", (case,))
    assert decentralized_explorer.run(lambda what, share: None).holds
    monkeypatch.setattr(decentralized_explorer, "_MOST_WORLDS", 10)
    (check,) = decentralized_explorer.run(lambda what, share: None).checks
    assert not check.holds
    assert "not to the end" in check.ours
