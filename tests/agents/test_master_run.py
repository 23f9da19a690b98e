"""A whole master in this process: what people ask for on its page is done, and what nobody brings is said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastream.agents.master_server import Endpoint
from elastream.agents.run import MasterOptions, MasterRun, Watcher
from elastream.errors import ElastreamError
from elastream.manager.events import Event, Proposed
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.requests import Pause, Request, Scale
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import info
from elastream.policies.rules import query, rule, rules, seconds
from tests.patience import PATIENCE_S, wait_until

KNOBS = build(Knobs, {**info("rules").knobs, "interval_s": 0.1}, place="test")
RULES = rules(
    rule("lag").scale_out("map").by(1).never_above(9).when(query("sum(lag)")).above(1).for_at_least(seconds(1))
)


class Sizes:
    def __init__(self) -> None:
        self.sizes = {"map": 1}

    def operators(self) -> list[str]:
        return list(self.sizes)

    def current_size(self, operator: str) -> int:
        return self.sizes[operator]

    def original_size(self, operator: str) -> int:
        return 1

    def set_size(self, operator: str, size: int) -> None:
        self.sizes[operator] = size


@contextmanager
def running(run: MasterRun) -> Iterator[None]:
    thread = threading.Thread(target=run.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        run.clock.stop()
        thread.join(PATIENCE_S)


def test_what_people_ask_for_is_done_between_rounds(tmp_path: Path) -> None:
    engine, inbox, proposals = Sizes(), Inbox(lambda: None), []

    def on_event(event: Event) -> None:
        if isinstance(event, Proposed):
            proposals.append(event)

    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint())
    run = MasterRun(Rules(rules=RULES), KNOBS, engine, options, Watcher(on_event=on_event), inbox)
    with running(run):
        assert inbox.ask(Scale(parallelism={"map": 4})).result(PATIENCE_S).controls.paused is False
        assert inbox.ask(Pause()).result(PATIENCE_S).controls.paused is True
    assert engine.sizes == {"map": 4}


def test_a_query_without_a_server_is_said_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint(), duration_s=0.3)
    with caplog.at_level(logging.WARNING):
        MasterRun(Rules(rules=RULES), KNOBS, Sizes(), options).run()
    asked = [message for message in caplog.messages if "promql:sum(lag)" in message]
    assert asked[0] == "nobody is asked for promql:sum(lag): a Prometheus server was not given"


def test_what_nobody_brings_is_said_once_however_many_rounds_there_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proposals: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Proposed):
            proposals.extend(reason.text for reason in event.proposal.reasons)

    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint())
    run = MasterRun(Rules(rules=RULES), KNOBS, Sizes(), options, Watcher(on_event=on_event))
    told = "the rule 'lag' waits for promql:sum(lag), which nobody brings so far"
    with caplog.at_level(logging.WARNING), running(run):
        wait_until(lambda: proposals.count(told) >= 3, lambda: f"it with every proposal: {proposals}")
    assert caplog.messages.count(told) == 1


def test_while_the_lease_cannot_be_reached_nobody_leads_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leads = threading.Event()
    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint(), standby=True, lease_s=1.0)
    engine, inbox = Sizes(), Inbox(lambda: None)
    run = MasterRun(Rules(rules=RULES), KNOBS, engine, options, inbox=inbox)
    thread = threading.Thread(target=lambda: run.run(lambda _: leads.set()), daemon=True)
    with caplog.at_level(logging.WARNING):
        thread.start()
        assert leads.wait(PATIENCE_S)
        (tmp_path / "state" / "master.db").rename(tmp_path / "elsewhere.db")
        asked = inbox.ask(Scale(parallelism={"map": 4}))
        wait_until(lambda: any("nobody can lead" in message for message in caplog.messages))
        run.clock.stop()
        thread.join(PATIENCE_S)
    told = [message for message in caplog.messages if "lead" in message]
    assert told[0].startswith("leads no longer (term 1)")
    assert "nobody can lead" in told[1]
    assert "the lease is gone" in told[1]
    assert engine.sizes == {"map": 1}, "nobody acts, not even while the lease would still have lasted"
    assert not asked.done() or asked.exception() is not None


def test_what_is_asked_of_a_master_that_stands_by_is_refused_and_not_done_later(tmp_path: Path) -> None:
    """It waited, and was done when that master led, however much later that was."""
    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint(), standby=True)
    engine, inbox, leads = Sizes(), Inbox(lambda: None), threading.Event()
    first = MasterRun(Rules(rules=RULES), KNOBS, engine, options)
    second = MasterRun(Rules(rules=RULES), KNOBS, engine, options, inbox=inbox)
    thread = threading.Thread(target=lambda: first.run(lambda _: leads.set()), daemon=True)
    thread.start()
    assert leads.wait(PATIENCE_S)
    with running(second):
        with pytest.raises(ElastreamError, match="leads, this one stands by"):
            inbox.ask(Scale(parallelism={"map": 4})).result(PATIENCE_S)
        first.clock.stop()
        thread.join(PATIENCE_S)
        wait_until(lambda: _is_done(inbox, Pause()))
    assert engine.sizes == {"map": 1}


def _is_done(inbox: Inbox, request: Request) -> bool:
    try:
        return inbox.ask(request).result(PATIENCE_S) is not None
    except ElastreamError:  # it does not lead yet
        return False


class Away(Sizes):
    """An engine that does not answer for a while."""

    asked = 0

    def operators(self) -> list[str]:
        self.asked += 1
        if self.asked < 5:
            raise ConnectionError("no route")
        return super().operators()


def test_a_master_that_takes_over_waits_for_an_engine_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint(), standby=True)
    inbox = Inbox(lambda: None)
    run = MasterRun(Rules(rules=RULES), KNOBS, Away(), options, inbox=inbox)
    with caplog.at_level(logging.WARNING), running(run):
        assert inbox.ask(Pause()).result(PATIENCE_S).controls.paused is True
    told = [message for message in caplog.messages if "cannot begin yet" in message]
    why = "the adaptor does not say its operators: ConnectionError: no route"
    assert told == [f"leads, but cannot begin yet: {why}"]


def _led_no_more(caplog: pytest.LogCaptureFixture, times: int) -> None:
    wait_until(lambda: sum("nobody can lead" in message for message in caplog.messages) == times)


def test_a_folder_that_goes_away_and_comes_back_is_led_from_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leads = threading.Semaphore(0)
    options = MasterOptions(folder=tmp_path / "state", endpoint=Endpoint(), standby=True, lease_s=0.5)
    inbox, engine = Inbox(lambda: None), Sizes()
    run = MasterRun(Rules(rules=RULES), KNOBS, engine, options, inbox=inbox)
    thread = threading.Thread(target=lambda: run.run(lambda _: leads.release()), daemon=True)
    thread.start()
    for times, size in enumerate((2, 3), start=1):
        assert leads.acquire(timeout=PATIENCE_S)
        assert inbox.ask(Scale(parallelism={"map": size})).result(PATIENCE_S).controls.paused is False
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        _led_no_more(caplog, times)
        (tmp_path / "elsewhere").rename(tmp_path / "state")
    assert leads.acquire(timeout=PATIENCE_S)
    run.clock.stop()
    thread.join(PATIENCE_S)
    assert engine.sizes == {"map": 3}
