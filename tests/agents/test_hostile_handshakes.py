"""A master with TLS, and connections that never shake hands: few are held, little is told, agents get through."""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from test_sockets import an_agent, serving

from elastream.accepting import server_tls
from elastream.agents.master_server import Endpoint
from elastream.agents.security import agent_tls, read_token

SILENT = 400


@pytest.fixture
def enough_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("enough_descriptors")
def test_connections_that_never_shake_hands_do_not_keep_agents_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    caplog.set_level(logging.WARNING)
    with serving(tls=server_tls(tmp_path / "server.pem", None)) as master, ExitStack() as silent:
        port = master.server.endpoint.port
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(SILENT):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30.0))
        agent, _ = an_agent(Endpoint(port=port, tls=agent_tls(tmp_path / "ca.pem")))
        with agent:
            master.round_with(1)
            held = len(os.listdir("/proc/self/fd")) - before - SILENT
        assert held < 150, "of the master's ends, only some are held at a time"
    assert len(caplog.records) + len(master.told) < 30


def test_broken_connections_are_told_in_few_lines() -> None:
    with serving() as master:
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", master.server.endpoint.port), timeout=30.0) as broken:
                broken.sendall(b"\xff\xff\xff\xff")
                assert broken.recv(1) == b""
        agent, _ = an_agent(master.server.endpoint)
        with agent:
            master.round_with(1)
    assert len([text for text in master.told if "a frame says it has" in text]) <= 20


def test_a_token_that_everyone_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o600)
    assert read_token(file) == "secret"
    assert caplog.messages == []
    file.chmod(0o644)
    assert read_token(file) == "secret"
    (told,) = caplog.messages
    assert "everyone on this machine may read the token" in told
