"""Masters and agents on real sockets, on loopback: what gets through, what does not, and who stays up."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import trustme

from elastream.accepting import server_tls
from elastream.agents.agent import Agent
from elastream.agents.agent_client import AgentClient, AgentThread
from elastream.agents.master import Master
from elastream.agents.master_server import Endpoint, MasterServer
from elastream.agents.messages import VERSION, Claim, Hello, frame
from elastream.agents.rounds import Round
from elastream.agents.security import agent_tls
from elastream.agents.subscription import Subscription
from elastream.errors import ElastreamError
from elastream.measurement.late_reading import LateReading
from elastream.policies.rules.metrics import METRICS
from tests.patience import PATIENCE_S, wait_until

VALUES = {"queue_length": 7.0, "cpu_utilization": 50.0, "latency": 0.1}


class Serving:
    """A master on a socket; what it tells and the rounds that it gives are collected."""

    def __init__(self, views: Sequence[str] = ("queue_length",), **endpoint: object) -> None:
        self.server = MasterServer(
            Master(
                interval_s=0.1,
                now_s=time.monotonic(),
                token="secret",
                subscription=Subscription(views=frozenset(views)),
            ),
            Endpoint(**endpoint),  # type: ignore[arg-type]
        )
        self.told: list[str] = []
        self.late: list[LateReading] = []

    def until(self, true: Callable[[Round], bool]) -> Round:
        """The first round of which it is true; the ones before it are evaluated, too."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = self.server.next_round(1.0)
            self.told += (item.text for item in self.server.news())
            if found is not None:
                self.late += found.late
                self.server.evaluated(found)
                if true(found):
                    return found
        raise AssertionError(f"it did not come so far; told: {self.told}")

    def round_with(self, agents: int) -> Round:
        return self.until(lambda found: len(found.readings) == agents)

    def until_told(self, text: str) -> None:
        self.until(lambda _: any(text in told for told in self.told))


@contextmanager
def serving(**options: object) -> Iterator[Serving]:
    found = Serving(**options)  # type: ignore[arg-type]
    found.server.start()
    try:
        yield found
    finally:
        found.server.stop()


LOGGER = logging.getLogger("elastream.agents.agent_client")
_runs = count()


def an_agent(endpoint: Endpoint, *, name: str = "worker", token: str = "secret") -> tuple[AgentThread, list[str]]:
    """With what it logs."""

    def read(wanted: Sequence[frozenset[str]]) -> Sequence[Mapping[str, float]]:
        return [VALUES for _ in wanted]

    agent = Agent(name=name, run=str(next(_runs)), claims=(Claim("map"),), offers=tuple(VALUES), token=token)
    logged = LogOf(agent)
    LOGGER.addHandler(logged)
    client = AgentClient(agent=agent, endpoint=endpoint, read=read, blocks=False)
    return AgentThread(client), logged.messages


class LogOf(logging.Handler):
    """What one of the agents in this process logs."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "agent", None) is self.agent:
            self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def logged_from_info_on() -> Iterator[None]:
    before = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    yield
    LOGGER.setLevel(before)
    for handler in [handler for handler in LOGGER.handlers if isinstance(handler, LogOf)]:
        LOGGER.removeHandler(handler)


def answer(endpoint: Endpoint, data: bytes) -> bytes:
    """All that a master says to whoever sends this, until it closes the connection."""
    with socket.create_connection((endpoint.host, endpoint.port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        found = b""
        try:
            while piece := connection.recv(4096):
                found += piece
        except ConnectionResetError:
            pass
        return found


def test_what_is_wanted_arrives_and_is_acknowledged() -> None:
    with serving() as master:
        agent, told = an_agent(master.server.endpoint)
        with agent:
            (reading,) = master.round_with(1).readings
            assert (reading.operator, reading.instance, reading.agent) == ("map", 0, "worker")
            assert reading.values == {"queue_length": 7.0}
            assert 0 <= time.time() - reading.taken_at_s < PATIENCE_S
            agent.client.agent.pause()
            master.until(lambda _: agent.client.agent.kept == 0)
    assert told[0] == f"{master.server.endpoint}: connected"


def test_a_changed_subscription_reaches_agents_that_are_connected() -> None:
    with serving() as master:
        agent, _ = an_agent(master.server.endpoint)
        with agent:
            master.round_with(1)
            master.server.subscribe(Subscription(views=frozenset({"latency"})), None)
            found = master.until(lambda found: any("latency" in reading.values for reading in found.readings))
            assert [dict(reading.values) for reading in found.readings] == [{"latency": 0.1}]
            assert agent.client.agent.wanted == (frozenset({"latency"}),)


def hello(token: str) -> bytes:
    claims = (Claim("map"),)
    return frame(Hello(version=VERSION, token=token, agent="x", run="r", claims=claims, offers=(), at_s=0.0))


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        pytest.param(hello("guess"), "wrong_tokens", id="a wrong token"),
        pytest.param(struct.pack(">I", 2**31), "broken", id="a frame too long"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "broken", id="another protocol"),
        pytest.param(struct.pack(">I", 3) + b"\xc1\xc1\xc1", "broken", id="no msgpack"),
        pytest.param(frame(Hello(VERSION, "secret", "x", "r", (), (), 0.0)), "broken", id="no message"),
    ],
)
def test_who_does_not_belong_here_is_closed_without_a_word_and_the_others_go_on(data: bytes, counted: str) -> None:
    with serving() as master:
        agent, _ = an_agent(master.server.endpoint)
        with agent:
            master.round_with(1)
            assert answer(master.server.endpoint, data) == b""
            assert getattr(master.server.master.counts, counted) == 1
            master.round_with(1)


def test_an_agent_with_a_wrong_token_is_told_what_may_be_wrong() -> None:
    with serving() as master:
        agent, told = an_agent(master.server.endpoint, token="guess")
        with agent:
            wait_until(lambda: told)
    why = "the master closed the connection without an answer (a wrong token?)"
    assert told == [f"{master.server.endpoint}: {why}; trying again"]


def test_a_second_agent_with_the_same_name_hears_why_it_is_not_taken() -> None:
    with serving() as master:
        first, _ = an_agent(master.server.endpoint)
        second, told = an_agent(master.server.endpoint)
        with first:
            master.round_with(1)
            with second:
                master.until_told("was refused")
                wait_until(lambda: told)
                master.round_with(1)
    assert "the master refused this agent: another agent at 127.0.0.1:" in told[0]
    assert "has the name 'worker'" in told[0]


def test_an_agent_comes_back_to_a_master_that_was_started_again_and_brings_what_it_kept() -> None:
    with serving() as master:
        endpoint = master.server.endpoint
        agent, told = an_agent(endpoint)
        with agent:
            master.round_with(1)
            master.server.stop()
            taken = agent.client.agent.taken
            wait_until(lambda: agent.client.agent.taken > taken + 4)  # at 0.1 s each: late when they arrive
            with serving(port=endpoint.port) as again:
                again.until(lambda found: len(found.readings) == 1 and len(again.late) > 0)
                assert again.late[0].values == {"queue_length": {0: 7.0}}
                assert again.server.master.counts.duplicates == 0
    assert told.count(f"{endpoint}: connected") == 2


@pytest.mark.slow
def test_an_agent_of_many_operators_recovers_from_an_outage_and_nothing_is_lost() -> None:
    """Of 16 operators with 12 metrics: 64 samples of them are more than a frame may have."""
    metrics = tuple(METRICS)[:12]
    operators = tuple(f"operator{number}" for number in range(16))

    def read(wanted: Sequence[frozenset[str]]) -> Sequence[Mapping[str, float]]:
        return [dict.fromkeys(names, 7.5) for names in wanted]

    agent = Agent(
        name="worker", run="one", claims=tuple(map(Claim, operators)), offers=tuple(METRICS), token="secret"
    )
    with serving(views=metrics) as master:
        endpoint = master.server.endpoint
        client = AgentClient(agent=agent, endpoint=endpoint, read=read, blocks=False)
        with AgentThread(client):
            master.round_with(16)
            master.server.stop()
            wait_until(lambda: agent.kept > 70)
            with serving(views=metrics, port=endpoint.port) as again:
                again.until(lambda found: len(found.readings) == 16 and bool(found.late))
                agent.pause()
                again.until(lambda _: agent.kept == 0)
                counts = again.server.master.counts
    assert (counts.duplicates, counts.broken, counts.thinned, agent.thinned) == (0, 0, 0, 0)
    assert counts.late >= 68
    assert {late.operator for late in again.late} == set(operators)
    assert all(set(late.values) == set(metrics) for late in again.late)


def test_a_port_that_is_taken_is_an_error_with_its_number() -> None:
    with serving() as master:
        other = Serving(port=master.server.endpoint.port)
        with pytest.raises(ElastreamError, match=f"cannot listen on 127.0.0.1:{master.server.endpoint.port}: "):
            other.server.start()


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """server.pem and its authority ca.pem, and other.pem, an authority that has not signed it."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    return folder


def with_tls(master: Serving, tls: ssl.SSLContext | None) -> Endpoint:
    return Endpoint(port=master.server.endpoint.port, tls=tls)


def test_tls_with_a_certificate_that_is_trusted(certificates: Path) -> None:
    with serving(tls=server_tls(certificates / "server.pem", None)) as master:
        agent, _ = an_agent(with_tls(master, agent_tls(certificates / "ca.pem")))
        with agent:
            (reading,) = master.round_with(1).readings
            assert reading.values == {"queue_length": 7.0}


def test_tls_with_a_certificate_of_someone_else(certificates: Path) -> None:
    with serving(tls=server_tls(certificates / "server.pem", None)) as master:
        agent, told = an_agent(with_tls(master, agent_tls(certificates / "other.pem")))
        with agent:
            wait_until(lambda: told)
    assert "its certificate is not to be trusted" in told[0]


def test_a_master_with_tls_stays_up_when_someone_speaks_without(certificates: Path) -> None:
    with serving(tls=server_tls(certificates / "server.pem", None)) as master:
        assert b"secret" not in answer(master.server.endpoint, hello("secret"))
        agent, _ = an_agent(with_tls(master, agent_tls(certificates / "ca.pem")))
        with agent:
            master.round_with(1)
