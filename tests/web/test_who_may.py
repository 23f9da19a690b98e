"""TLS for the page, and tokens with a role and an end: to look, and to act."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import trustme
from serving import PATIENCE_S, TOKEN, Served, eventually, served

from elastream.accepting import server_tls
from elastream.errors import InvalidInput
from elastream.web import feed
from elastream.web.address import Address
from elastream.web.connections import MOST_CONNECTIONS
from elastream.web.tokens import Role, Tokens, read_tokens

LOOKS, ACTS = "looks-and-no-more-1", "may-act-as-well-22"
LISTED = f"""
- {{token: {LOOKS}, role: look, name: the wall}}
- {{token: {ACTS}, role: act, expires: 2027-01-31T12:00:00Z}}
"""
NOON_S = 1_801_396_800.0  # of the day on which the second one ends


def listed(folder: Path, text: str = LISTED) -> Path:
    file = folder / "tokens.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Tokens


def test_a_token_has_a_role_until_it_ends(tmp_path: Path) -> None:
    now_s = NOON_S - 1.0
    tokens = Tokens(file=listed(tmp_path), clock=lambda: now_s)
    assert (tokens.role_of(LOOKS), tokens.role_of(ACTS)) == (Role.LOOK, Role.ACT)
    assert tokens.role_of("") is None
    assert tokens.role_of(LOOKS[:-1]) is None
    now_s = NOON_S
    assert (tokens.role_of(LOOKS), tokens.role_of(ACTS)) == (Role.LOOK, None)


def test_a_date_without_a_time_is_its_beginning(tmp_path: Path) -> None:
    file = listed(tmp_path, LISTED.replace("T12:00:00Z", ""))
    assert read_tokens(file)[1].expires_s == NOON_S - 12 * 3_600


def test_a_token_is_given_and_taken_back_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = listed(tmp_path)
    tokens = Tokens(TOKEN, file=file, clock=lambda: 0.0)
    file.write_text(LISTED.replace(LOOKS, "another-one-that-looks"))
    assert tokens.role_of(LOOKS) is None
    assert tokens.role_of("another-one-that-looks") is Role.LOOK
    file.write_text("- half an edit of another-one")
    assert [tokens.role_of("another-one-that-looks") for _ in range(3)] == [Role.LOOK] * 3
    (told,) = caplog.messages
    assert "tokens stay as they were" in told
    assert "another-one" not in told
    file.unlink()
    assert [tokens.role_of(one) for one in ("another-one-that-looks", ACTS, TOKEN)] == [None, None, Role.ACT]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("token: secret-of-someone-1", "a list of entries"),
        ("- secret-of-someone-1", "entry 1: a list of entries"),
        ("- {token: short-secret, role: act}", "entry 1: token: 16 to 500 letters"),
        ("- {token: 1234567890123456789, role: act}", "entry 1: token: 16 to 500"),
        ("- {token: secret-of-someone-1}", "entry 1: role: Field required"),
        ("- {token: secret-of-someone-1, role: write}", "entry 1: role: Input should be 'look' or 'act'"),
        ("- {token: secret-of-someone-1, role: act, expires: soon}", "entry 1: expires: a date was expected"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_without_what_was_found(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as error:
        read_tokens(listed(tmp_path, text))
    assert "secret" not in str(error.value)
    assert "123" not in str(error.value)


def test_a_file_that_everyone_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = listed(tmp_path)
    file.chmod(0o644)
    read_tokens(file)
    (told,) = caplog.messages
    assert "everyone on this machine may read the tokens" in told


# Over HTTP

READING = ("api/v1/run", "api/v1/events", "api/v1/configuration", "api/v1/stream", "metrics")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    with served(tokens=Tokens(file=listed(tmp_path), clock=lambda: NOON_S - 1.0)) as run:
        yield run


@pytest.mark.parametrize("path", READING)
def test_with_a_file_of_tokens_looking_needs_one(guarded: Served, path: str) -> None:
    for headers in ({}, bearer("open sesame, please")):
        answer = guarded.client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for token in (LOOKS, ACTS):
        with guarded.client.stream("GET", path, headers=bearer(token)) as stream:
            assert stream.status_code == 200


def test_what_says_nothing_of_the_run_needs_none(guarded: Served) -> None:
    found = [guarded.client.get(path).status_code for path in ("", "app.js", "healthz", "readyz")]
    assert found == [200, 200, 200, 503]


def test_who_may_look_may_not_act(guarded: Served) -> None:
    refused = guarded.client.post("api/v1/actions/pause", headers=bearer(LOOKS))
    assert (refused.status_code, refused.json()["detail"]) == (403, "this token may look, and not act")
    assert guarded.client.post("api/v1/actions/pause", headers=bearer(ACTS)).status_code == 200


def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_HEARTBEAT_S", 0.05)
    now_s = NOON_S - 1.0
    tokens = Tokens(file=listed(tmp_path), clock=lambda: now_s)
    with served(tokens=tokens) as run, run.client.stream("GET", "api/v1/stream", headers=bearer(ACTS)) as stream:
        lines = stream.iter_lines()
        assert next(lines)
        assert run.feed.viewers == 1
        now_s = NOON_S
        for _ in lines:  # it comes to an end
            pass
        eventually("it is forgotten", lambda: run.feed.viewers == 0)


# TLS


@contextmanager
def over_tls(folder: Path) -> Iterator[Served]:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    address = Address(port=0, tls=server_tls(folder / "server.pem", None))
    with served(address=address, verify=trust) as run:
        yield run


def test_the_page_is_served_by_https(tmp_path: Path) -> None:
    with over_tls(tmp_path) as run:
        assert run.server.url.startswith("https://127.0.0.1:")
        assert run.client.get("healthz").json() == {"status": "ok"}
        origin = {"Origin": run.server.url.rstrip("/"), **bearer(TOKEN)}
        assert run.client.post("api/v1/actions/pause", headers=origin).status_code == 200
        with run.client.stream("GET", "api/v1/stream") as stream:
            assert next(stream.iter_lines())
        with pytest.raises(httpx.HTTPError):
            httpx.get(run.server.url, timeout=PATIENCE_S)  # nobody vouches for that certificate
        with pytest.raises(httpx.HTTPError):
            httpx.get(run.server.url.replace("https", "http"), timeout=PATIENCE_S)


def test_hands_that_are_never_shaken_keep_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with over_tls(tmp_path) as run, ExitStack() as silent:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(MOST_CONNECTIONS // 2):
            silent.enter_context(socket.create_connection(("127.0.0.1", run.server.port), timeout=PATIENCE_S))
        assert run.client.get("healthz").status_code == 200
        assert len(os.listdir("/proc/self/fd")) - before <= 2 * MOST_CONNECTIONS
    assert len(caplog.records) < 10
