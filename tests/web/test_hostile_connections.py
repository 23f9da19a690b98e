"""Connections that nobody needs a token for: idle, slow, withheld, unread; the page answers all the while."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from serving import PATIENCE_S, TOKEN, WITH_TOKEN, Served, eventually, served

from elastream.web import connections, server


def connect(run: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", run.server.port), timeout=PATIENCE_S)


def is_closed(connection: socket.socket) -> bool:
    """By the other side; what it said before is not looked at."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


@contextmanager
def few_descriptors(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def healthy(run: Served) -> bool:
    with httpx.Client(base_url=run.server.url, timeout=PATIENCE_S) as client:
        return client.get("healthz").status_code == 200


def test_idle_connections_take_neither_all_descriptors_nor_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with few_descriptors(1_024), served() as run, ExitStack() as idle:
        for _ in range(400):
            idle.enter_context(connect(run))
        assert healthy(run)
        assert len(run.server.connections) <= connections.MOST_CONNECTIONS
    assert len(caplog.records) < 10


def test_the_page_leaves_most_descriptors_to_the_rest_of_the_run() -> None:
    most = len(os.listdir("/proc/self/fd")) + 400  # other tests of this process may keep some open
    with few_descriptors(most), served() as run, ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(connect(run))
        assert healthy(run)
        assert len(run.server.connections) <= most // 4


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /heal",
        b"GET /healthz HTTP/1.1\r\nHost: ",
        b"POST /api/v1/actions/scale HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        b"Content-Length: 1000\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_come_to_its_end_is_given_up(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as run, connect(run) as slow:
        slow.sendall(sent.replace(b"{port}", str(run.server.port).encode()).replace(b"{token}", TOKEN.encode()))
        monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.2)
        assert is_closed(slow)


def test_a_slow_header_after_an_answer_is_given_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as run, connect(run) as slow:
        slow.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{run.server.port}\r\n\r\n".encode())
        assert slow.recv(4_096).startswith(b"HTTP/1.1 200")
        slow.sendall(b"G")
        monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.2)
        assert is_closed(slow)


def test_without_the_token_no_body_is_waited_for(run: Served) -> None:
    with connect(run) as withheld:
        host = f"Host: 127.0.0.1:{run.server.port}"
        withheld.sendall(
            f"POST /api/v1/actions/scale HTTP/1.1\r\n{host}\r\nContent-Length: 900000\r\n\r\n".encode()
        )
        assert withheld.recv(4_096).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01 noise", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade"]
)
def test_noise_is_answered_and_not_logged(sent: bytes, run: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(20):
        with connect(run) as noisy:
            noisy.sendall(sent + b"\r\n\r\n")
            assert noisy.recv(4_096).startswith(b"HTTP/1.1 4")
    assert len(caplog.records) < 5


def test_a_stream_lasts_longer_than_a_request_may(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as run, run.client.stream("GET", "api/v1/stream") as stream:
        lines = stream.iter_lines()
        assert next(lines)
        monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.2)
        began_s = time.monotonic()
        eventually("some looks at the connections", lambda: time.monotonic() - began_s > 2.0)
        run.feed.trouble("still told")
        assert any("still told" in line for line in lines)


def test_a_viewer_that_never_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as run, connect(run) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{run.server.port}\r\n\r\n".encode())
        eventually("it joins", lambda: run.feed.viewers == 1)
        monkeypatch.setattr(connections, "READ_WITHIN_S", 0.5)
        run.feed.trouble("x" * 20_000_000)  # one update, so that it is not dropped because many wait for it
        eventually("it is let go", lambda: run.feed.viewers == 0)
        assert healthy(run)


def test_viewers_leave_connections_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 40)  # as where descriptors are few
    with served() as run, ExitStack() as looking:
        for _ in range(60):
            viewer = looking.enter_context(connect(run))
            viewer.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{run.server.port}\r\n\r\n".encode())
        eventually("nobody else may look", lambda: run.feed.viewers >= 20)
        assert healthy(run)


@pytest.mark.parametrize("name", ["\ud800", "x" * 900_000, "a\x00b"])
def test_a_name_that_cannot_be_shown_is_refused_in_few_words(run: Served, name: str) -> None:
    headers = {**WITH_TOKEN, "Content-Type": "application/json"}
    for action, body in (("scale", {"parallelism": {name: 3}}), ("bounds", {"operator": name})):
        answer = run.client.post(f"api/v1/actions/{action}", content=json.dumps(body), headers=headers)
        assert answer.status_code == 422
        assert len(answer.content) < 2_000
    assert all(len(event.text) < 1_000 for event in run.feed.history.events())
