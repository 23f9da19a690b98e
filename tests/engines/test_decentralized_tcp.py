"""Control messages between living instances over TCP: a round of the protocol, broken connections, who is
refused."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.control import Controller
from elastream.decentralized.instance import Phase, Place
from elastream.decentralized.messages import Create, Effect
from elastream.engines.decentralized.folders import RunFolder, read_whole
from elastream.engines.decentralized.outbox import Outbox
from elastream.engines.decentralized.protocol import Protocol
from elastream.engines.decentralized.tcp import TcpTransport
from elastream.testing import chain

FLOW = Dataflow.of((Operator(name=name, source=name == "a") for name in "abc"), chain("a", "b", "c"))
PATIENCE_S = 60.0


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, f"not in time: {what}"
        time.sleep(0.01)


class Site:
    """The control side of one instance; a copy that it creates is started beside it."""

    def __init__(self, sites: dict[str, Site], run: RunFolder, me: str) -> None:
        self.sites, self.run = sites, run
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stale: list[str] = []
        folder = run.instance(me)
        self.protocol = Protocol(
            Controller(Place.of(me, FLOW, keeper=me.endswith("/0"))),
            folder,
            Outbox(folder.outbox, lambda successor: run.instance(successor).lane(me)),
            carry_out=self._carry_out,
            record=lambda event, **told: self.events.append((event, told)),
        )
        self.protocol.begin()
        self.transport = TcpTransport(
            self.protocol,
            run,
            record=lambda event, **told: self.events.append((event, told)),
            on_stale=self.stale.append,
        )
        self.transport.start()
        sites[me] = self

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create) and effect.instance not in self.sites:
            Site(self.sites, self.run, effect.instance)

    @property
    def phase(self) -> Phase:
        return self.protocol.state.phase

    @property
    def refusals(self) -> list[str]:
        return [told["why"] for event, told in self.events if event == "refused"]

    def say(self, *lines: Any) -> list[dict[str, Any]]:
        """Speak to it as somebody outside: its answers, until it closes the connection or has answered all."""
        endpoint = self.run.instance(self.protocol.me).endpoint
        wait_until(endpoint.exists, "it listens")
        place = read_whole(endpoint)
        with socket.create_connection((place["host"], place["port"]), timeout=PATIENCE_S) as connection:
            file = connection.makefile("rw")
            answers = []
            for line in lines:
                file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
                file.flush()
                answers.append(json.loads(file.readline() or "{}"))
        return answers


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[dict[str, Site]]:
    found: dict[str, Site] = {}
    for me in ("a/0", "b/0", "c/0"):
        Site(found, RunFolder(tmp_path), me)
    yield found
    for site in found.values():
        site.transport.stop()


def at_rest(sites: dict[str, Site]) -> bool:
    return all(site.phase is Phase.RUNNING and site.protocol.has_said_all for site in sites.values())


def test_a_duplication_reaches_everybody(sites: dict[str, Site]) -> None:
    sites["b/0"].protocol.duplicate(2)
    wait_until(lambda: len(sites) == 5 and at_rest(sites), "all copies run")
    everybody = {"b/0", "b/0.1", "b/0.2"}
    assert sites["a/0"].protocol.state.successors == everybody
    assert sites["c/0"].protocol.state.predecessors == everybody
    assert sites["b/0.2"].protocol.state.successors == {"c/0"}


def test_who_comes_back_on_its_folder_gets_what_was_said_meanwhile_once(sites: dict[str, Site]) -> None:
    run = sites["c/0"].run
    sites.pop("c/0").transport.stop()
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: "a/0" not in sites["b/0"].protocol.state.awaited, "the other neighbour acknowledges")
    assert sites["b/0"].phase is Phase.DUPLICATING, "one acknowledgement is missing"
    Site(sites, run, "c/0")
    wait_until(lambda: at_rest(sites), "the copy runs")
    assert sites["c/0"].protocol.incarnation == 2
    assert sites["c/0"].protocol.state.predecessors == {"b/0", "b/0.1"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([{"hello": "z/0", "to": "b/0", "incarnation": 1}], "'b/0' does not know 'z/0'"),
        ([{"hello": "a/0", "to": "b/7", "incarnation": 1}], "looks for 'b/7', and this is 'b/0'"),
        ([{"hello": "nobody", "to": "b/0", "incarnation": 1}], "an address is 'operator/number'"),
        (["GET / HTTP/1.1"], "not understood"),
        ([[1, 2]], "a line is a JSON object, found list"),
        ([{"hello": "a/9", "to": "b/0", "incarnation": 1}, {"number": 3, "body": {}}], "message 1 was expected"),
    ],
    ids=["a stranger", "for somebody else", "no address", "another protocol", "no object", "a gap"],
)
def test_what_cannot_be_is_refused_with_a_reason_and_changes_nothing(
    sites: dict[str, Site], lines: list[Any], why: str
) -> None:
    before = sites["b/0"].protocol.state
    answer = sites["b/0"].say(*lines)[-1]
    assert why in answer["refused"]
    assert any(why in refusal for refusal in sites["b/0"].refusals), "and it is on record"
    assert sites["b/0"].protocol.state == before


def test_a_stale_process_is_told_so(sites: dict[str, Site]) -> None:
    old = sites["a/0"]
    old.transport.stop()
    Site(sites, old.run, "a/0")
    assert sites["b/0"].say({"hello": "a/0", "to": "b/0", "incarnation": 2})[0]["taken"] == 0
    answer = sites["b/0"].say({"hello": "a/0", "to": "b/0", "incarnation": 1})[0]
    assert answer == {"refused": "start 1 of it is over, start 2 has taken its place", "stale": True}
