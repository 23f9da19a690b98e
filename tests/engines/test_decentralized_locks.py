"""Locks between living instances over TCP: neighbours take turns, a bound is kept, a keeper that comes back goes
on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.control import Controller
from elastream.decentralized.instance import Phase, Place
from elastream.decentralized.locks import LOCKS, LockKind
from elastream.decentralized.messages import Create, Effect, operator_of
from elastream.engines.decentralized.folders import RunFolder
from elastream.engines.decentralized.outbox import Outbox
from elastream.engines.decentralized.protocol import Protocol
from elastream.engines.decentralized.settings import RunSettings
from elastream.engines.decentralized.tcp import TcpTransport
from elastream.testing import chain

MOST = 3
FLOW = Dataflow.of(
    (Operator(name=name, source=name == "a", max_parallelism=MOST) for name in "abc"), chain("a", "b", "c")
)
PATIENCE_S = 60.0


class Living(dict[str, Protocol]):
    """The control side of every instance that is up, and of the copies that they create."""

    def __init__(self, folder: Path, locks: LockKind) -> None:
        self._run = RunFolder(folder)
        self._locks = RunSettings(pipeline=Path("p.py"), locks=locks).neighbour_locks(FLOW)
        self._transports: dict[str, TcpTransport] = {}
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        for me in ("a/0", "b/0", "c/0"):
            self.start(me)

    def start(self, me: str) -> None:
        folder = self._run.instance(me)
        self[me] = Protocol(
            Controller(Place.of(me, FLOW, keeper=me.endswith("/0")), self._locks),
            folder,
            Outbox(folder.outbox, lambda successor: self._run.instance(successor).lane(me)),
            carry_out=self._carry_out,
            record=lambda event, **told: self._record(me, event, **told),
        )
        self[me].begin()
        self._transports[me] = TcpTransport(
            self[me],
            self._run,
            record=lambda event, **told: self._record(me, event, **told),
            on_stale=lambda why: self._record(me, "stale", why=why),
        )
        self._transports[me].start()

    def stop(self, *addresses: str) -> None:
        for me in addresses:
            self._transports.pop(me).stop()
            del self[me]

    def told(self, me: str, *events: str) -> list[str]:
        return [event for who, event, _ in self.events if who == me and event in events]

    def wait_for(self, count: int) -> None:
        """Until so many run, and everybody knows everything."""
        wait_until(lambda: len(self) == count and all(map(_at_rest, list(self.values()))), f"{count} run")

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create) and effect.instance not in self:
            self.start(effect.instance)

    def _record(self, me: str, event: str, **told: Any) -> None:
        self.events.append((me, event, told))


def _at_rest(protocol: Protocol) -> bool:
    return protocol.state.phase is Phase.RUNNING and protocol.has_said_all


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, f"not in time: {what}"
        time.sleep(0.01)


@pytest.fixture(params=LOCKS)
def living(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Living]:
    found = Living(tmp_path, request.param)
    yield found
    found.stop(*found)


def test_neighbours_duplicate_in_turns_and_what_is_beyond_the_bound_is_dropped(living: Living) -> None:
    living["b/0"].duplicate(1)
    living["c/0"].duplicate(MOST)
    living.wait_for(1 + 2 + MOST)
    of_b, of_c = ({me for me in living if operator_of(me) == operator} for operator in "bc")
    assert (len(of_b), len(of_c)) == (2, MOST)
    assert {living[me].state.successors for me in of_b} == {frozenset(of_c)}
    assert {living[me].state.predecessors for me in of_c} == {frozenset(of_b)}
    assert living.told("b/0", "waits", "dropped") == ["waits"]
    assert living.told("c/0", "waits", "dropped") == ["waits", "dropped"]
    (why,) = (told["why"] for _, event, told in living.events if event == "dropped")
    assert why == f"'c' may have {MOST} instances, and there was no room for 1 more"
    phases = [(me, told["phase"]) for me, event, told in living.events if event == "phase" and me.endswith("/0")]
    assert [me for me, _ in phases] in (["b/0", "b/0", "c/0", "c/0"], ["c/0", "c/0", "b/0", "b/0"]), phases
    assert not [told for _, event, told in living.events if event in ("refused", "stale")]


def test_a_keeper_that_comes_back_has_its_turn(living: Living) -> None:
    living.stop("a/0")
    living["b/0"].duplicate(1)
    assert not living["b/0"].may_decide
    living.stop("b/0")
    living.start("b/0")
    assert living["b/0"].state.phase is Phase.RUNNING, "who holds the other side of a lock is not there"
    assert not living["b/0"].may_decide
    living.start("a/0")
    living.wait_for(4)
    assert living["a/0"].state.successors == {"b/0", "b/0.1"}
    assert living["b/0"].may_decide
