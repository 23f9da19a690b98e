"""That people see that something goes on: seconds in a terminal, elsewhere a line now and then."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable

from rich.console import Console

from elastream.commands.live import LiveRun
from elastream.commands.waiting import Waiting, waiting
from elastream.manager.engine import TAKES_TIME
from tests.patience import PATIENCE_S


class Told(io.StringIO):
    """Lines that come from another thread, waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def write(self, text: str) -> int:
        with self._written:
            count = super().write(text)
            self._written.notify_all()
        return count

    def wait_for(self, holds: Callable[[str], bool]) -> str:
        with self._written:
            assert self._written.wait_for(lambda: holds(self.getvalue()), PATIENCE_S), self.getvalue()
        return self.getvalue()


def console_of(told: io.StringIO, *, terminal: bool = False) -> Console:
    return Console(file=told, width=100, force_terminal=terminal, color_system=None, legacy_windows=False)


def test_plain_lines_come_now_and_then_with_how_long_it_takes() -> None:
    told, now_s = Told(), [100.0]
    threads = threading.enumerate()
    waited = Waiting(console_of(told), every_s=0.01, clock=lambda: now_s[0])
    waited.begin("starting Spark")
    now_s[0] = 112.4
    assert "still starting Spark: 12 s\n" in told.wait_for(lambda text: "12 s" in text)
    waited.begin("starting the pipeline")
    told.wait_for(lambda text: "still starting the pipeline: 0 s\n" in text)
    waited.say("starting the pipeline: words (1 of 2)")
    now_s[0] = 115.4
    told.wait_for(lambda text: "still starting the pipeline: words (1 of 2): 3 s\n" in text)
    waited.end()
    assert threading.enumerate() == threads, "nobody is left to say more once it is over"


def test_a_terminal_shows_the_seconds_and_no_lines() -> None:
    told, now_s = io.StringIO(), [100.0]
    console = console_of(told, terminal=True)
    waited = Waiting(console, every_s=0.01, clock=lambda: now_s[0])
    waited.begin("starting Spark")
    now_s[0] = 112.4
    assert told.getvalue() == ""
    console.print(waited)
    assert told.getvalue().strip().endswith("starting Spark, 12 s")
    waited.end()
    assert not waited.under_way


def test_it_is_over_when_what_was_waited_for_fails() -> None:
    told = io.StringIO()
    threads = threading.active_count()
    try:
        with waiting(console_of(told), "starting"):
            raise ValueError
    except ValueError:
        pass
    assert threading.active_count() == threads
    with waiting(console_of(told), "starting", quiet=True) as quiet:
        assert not quiet.under_way


def record(message: str, extra: dict[str, bool] | None = None) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord("test", logging.INFO, "", 0, message, (), None, extra=extra)


def test_a_run_says_that_spark_is_being_started_until_it_runs() -> None:
    told = Told()
    with LiveRun(console_of(told), "counted") as live:
        live._waiting._every_s = 0.01
        live.log(record("starting Spark", TAKES_TIME))
        told.wait_for(lambda text: "still starting Spark: 0 s" in text)
        live.log(record("running"))
        assert not live._waiting.under_way


def test_a_run_in_a_terminal_counts_the_seconds() -> None:
    told = Told()
    with LiveRun(console_of(told, terminal=True), "counted") as live:
        live.log(record("starting Spark", TAKES_TIME))
        told.wait_for(lambda text: "starting Spark, 1 s" in text)
        live.log(record("running"))
    assert "counted: running" in told.getvalue()
    assert "operator" not in told.getvalue(), "no empty table"
