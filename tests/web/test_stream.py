"""The stream of updates over a real server: what a page is sent, and what becomes of one that reads no more."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from serving import PATIENCE_S, Served, eventually, in_order, show, word_count

from elastream.manager.events import Trouble
from elastream.web import feed as feed_module
from elastream.web.feed import MOST_VIEWERS

HAPPENED = in_order(word_count(3))


class Page:
    """Reads a stream of events as a browser does."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last_id = ""

    def next(self) -> tuple[str, dict[str, Any]]:
        kind, data = "message", ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            match name:
                case "id":
                    self.last_id = value
                case "event":
                    kind = value
                case "data":
                    data = value
                case "" if data:
                    return kind, json.loads(data)
        raise AssertionError("the stream has ended")

    def updates(self, count: int) -> list[dict[str, Any]]:
        found = [self.next() for _ in range(count)]
        assert {kind for kind, _ in found} <= {"update"}
        return [update for _, update in found]


@contextmanager
def watching(run: Served, last_id: str | None = None) -> Iterator[Page]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with (
        httpx.Client(base_url=run.server.url, timeout=PATIENCE_S) as client,
        client.stream("GET", "api/v1/stream", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Page(answer)


def test_it_begins_with_what_there_is_and_goes_on_with_what_comes(run: Served) -> None:
    show(run.feed, HAPPENED[:10])
    with watching(run) as page:
        kind, first = page.next()
        assert kind == "run"
        assert first["history"]["at_s"] == [one.at_s for one in HAPPENED[:10] if hasattr(one, "readings")]
        show(run.feed, HAPPENED[10:])
        updates = page.updates(len(HAPPENED) - 10)
    windows = [update["window"]["at_s"] for update in updates if "window" in update]
    assert windows == [one.at_s for one in HAPPENED[10:] if hasattr(one, "readings")]
    whole = run.client.get("api/v1/run").json()
    assert updates[-1]["id"] == whole["id"]
    decided = {update["decision"]["id"]: update["decision"] for update in updates if "decision" in update}
    assert list(decided.values()) == whole["decisions"][-len(decided) :]


def test_who_comes_back_misses_nothing_and_sees_nothing_twice(run: Served) -> None:
    show(run.feed, HAPPENED[:5])
    with watching(run) as page:
        page.next()
        show(run.feed, HAPPENED[5:10])
        seen = [update["id"] for update in page.updates(3)]
        last = page.last_id
    show(run.feed, HAPPENED[10:20])
    with watching(run, last) as page:
        seen += [update["id"] for update in page.updates(2 + 10)]
    numbers = [int(identity.rpartition("-")[2]) for identity in seen]
    assert numbers == list(range(6, 21))


def test_who_is_up_to_date_is_sent_only_what_is_new(run: Served) -> None:
    show(run.feed, HAPPENED[:5])
    eventually("it is shown", lambda: run.feed.history.window is not None)
    latest = run.client.get("api/v1/run").json()["id"]
    with watching(run, latest) as page:
        eventually("it is watched", lambda: run.feed.viewers == 1)
        show(run.feed, HAPPENED[5:6])
        [update] = page.updates(1)
        assert update["id"] != latest


@pytest.mark.parametrize("last_id", ["elsewhere-3", "", "nonsense"])
def test_who_comes_from_another_run_begins_anew(run: Served, last_id: str) -> None:
    show(run.feed, HAPPENED[:5])
    with watching(run, last_id) as page:
        assert page.next()[0] == "run"


def test_who_was_away_for_too_long_begins_anew(run: Served) -> None:
    show(run.feed, HAPPENED[:2])
    latest = run.client.get("api/v1/run").json()["id"]
    for number in range(feed_module._MOST_KEPT + 1):
        run.feed.event(Trouble(at_s=float(number), what="again"))
    with watching(run, latest) as page:
        kind, whole = page.next()
        assert (kind, whole["events"][-1]["at_s"]) == ("run", float(feed_module._MOST_KEPT))


def test_a_viewer_that_stops_reading_is_dropped_and_the_others_are_not(run: Served) -> None:
    host, port = "127.0.0.1", run.server.port
    with socket.create_connection((host, port), timeout=PATIENCE_S) as silent, watching(run) as page:
        request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        silent.sendall(request.encode())
        eventually("both look", lambda: run.feed.viewers == 2)
        page.next()
        text = "x" * 100_000
        for number in range(600):  # more than any buffer between the two holds
            run.feed.event(Trouble(at_s=float(number), what=text))
            page.updates(1)
            if run.feed.viewers == 1:
                break
        eventually("the silent one is dropped", lambda: run.feed.viewers == 1)
        with suppress(ConnectionResetError):
            while silent.recv(1 << 20):  # what was on its way, and then the end
                pass
        run.feed.event(Trouble(at_s=0.0, what="last"))
        assert page.updates(1)[0]["event"]["text"] == "last"


def test_a_page_that_is_closed_is_no_viewer_any_more(run: Served) -> None:
    with watching(run) as page:
        page.next()
        assert run.feed.viewers == 1
    run.feed.event(Trouble(at_s=0.0, what="someone writes to it"))
    eventually("it is gone", lambda: run.feed.viewers == 0)


def test_too_many_viewers_are_refused(run: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_VIEWERS >= 10
    monkeypatch.setattr(feed_module, "MOST_VIEWERS", 1)
    with watching(run) as page:
        page.next()
        assert run.client.get("api/v1/stream").status_code == 503


def test_the_end_is_told_and_what_was_shown_stays(run: Served) -> None:
    show(run.feed, HAPPENED[:5])
    with watching(run) as page:
        assert page.next()[1]["live"]
        run.feed.end()
        assert page.updates(1)[0]["live"] is False
    assert run.client.get("api/v1/run").json()["live"] is False
    assert run.client.get("api/v1/snapshot").status_code == 200
