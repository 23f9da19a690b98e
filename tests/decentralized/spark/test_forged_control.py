"""Control messages of who does not belong to the run: nothing is believed, little is kept, the run goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from control_sites import OVER_TCP, Sites, TcpStranger, living_sites, wait_until

from elastream.decentralized.spark import tcp
from elastream.decentralized.spark.run_key import RunKey
from elastream.errors import ElastreamError
from tests.patience import PATIENCE_S


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with living_sites(tmp_path, OVER_TCP) as found:
        yield found


def test_who_does_not_know_the_key_is_refused(sites: Sites, tmp_path: Path) -> None:
    stranger = TcpStranger(sites["b/0"])
    stranger.run = tmp_path / "a run of its own"
    answer = stranger.say(sender="a/0", to="b/0", incarnation=1, number=1)
    assert "the key of this run was expected" in answer["refused"]
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)


def test_a_proof_for_another_listener_is_none(sites: Sites) -> None:
    stranger = TcpStranger(sites["b/0"])
    stranger._place = {**stranger._place, "nonce": "of the one before"}
    assert (
        "the key of this run was expected"
        in stranger.say(sender="a/0", to="b/0", incarnation=1, number=1)["refused"]
    )


def test_idle_connections_are_few_and_short(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TcpStranger(sites["b/0"])._place
    with monkeypatch.context() as few_and_short, ExitStack() as idle:
        few_and_short.setattr(tcp, "_HELLO_WITHIN_S", 0.5)
        few_and_short.setattr(tcp, "_MOST_CONNECTIONS", 20)
        found = [
            idle.enter_context(socket.create_connection((place["host"], place["port"]), timeout=PATIENCE_S))
            for _ in range(60)
        ]
        for connection in found:
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)


def test_refusals_fill_no_disk(sites: Sites, tmp_path: Path) -> None:
    stranger = TcpStranger(sites["b/0"])
    for _ in range(70):
        stranger.say_raw('{"hello": "' + "x" * 10_000)
    assert 0 < len(sites["b/0"].refusals) <= 50
    assert all(len(why) <= 500 for why in sites["b/0"].refusals)


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    one, other = RunKey(tmp_path), RunKey(tmp_path)
    assert one.proof("x", 1) == other.proof("x", 1) != RunKey(tmp_path / "other").proof("x", 1)
    path = tmp_path / "key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["key"]
    path.chmod(0o644)
    with pytest.raises(ElastreamError, match="only its owner may read the key of a run: chmod 600, found 644"):
        RunKey(tmp_path)
