"""What is shown of the log: warnings by default, more with -v, and in what a command shows of its own accord."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console

from elastream.commands import logs
from elastream.commands.live import LiveRun
from elastream.commands.logs import log_shown_by, show_log

LOGGER = logging.getLogger("elastream.engines.spark.run")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    logger = logging.getLogger("elastream")
    level = logger.level
    yield
    logger.setLevel(level)
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    logging.getLogger().removeHandler(logs._handler)


def log_all() -> None:
    LOGGER.debug("a detail")
    LOGGER.info("starting %s", "Spark")
    LOGGER.warning("it is [bold]odd[/bold]")
    logging.getLogger("someone.else").info("news of others")
    logging.getLogger("someone.else").warning("a warning of others")


@pytest.mark.parametrize(
    ("verbose", "shown"),
    [
        (0, ["warning: it is [bold]odd[/bold]", "warning: a warning of others"]),
        (1, ["info: starting Spark", "warning: it is [bold]odd[/bold]", "warning: a warning of others"]),
        (
            2,
            [
                "debug: elastream.engines.spark.run: a detail",
                "info: elastream.engines.spark.run: starting Spark",
                "warning: elastream.engines.spark.run: it is [bold]odd[/bold]",
                "warning: someone.else: a warning of others",
            ],
        ),
    ],
)
def test_what_is_shown_on_standard_error(
    capsys: pytest.CaptureFixture[str], verbose: int, shown: list[str]
) -> None:
    show_log(verbose)
    show_log(verbose)  # a second time changes nothing
    log_all()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == shown


def test_a_command_with_a_display_of_its_own_shows_it_instead(capsys: pytest.CaptureFixture[str]) -> None:
    show_log()
    seen: list[str] = []
    with log_shown_by(lambda record: seen.append(record.getMessage())):
        log_all()
    assert seen == ["starting Spark", "it is [bold]odd[/bold]", "a warning of others"]
    assert capsys.readouterr().err == ""
    LOGGER.info("no longer shown")
    LOGGER.warning("shown again")
    assert capsys.readouterr().err == "warning: shown again\n"


def test_a_live_run_has_what_is_done_as_its_phase_and_warnings_as_lines() -> None:
    show_log(2)
    console = Console(record=True, width=100, file=io.StringIO())
    with LiveRun(console, "wordcount") as live, log_shown_by(live.log):
        log_all()
        assert live._phase == "starting Spark"
        assert str(live._lines[0]) == "a detail"
    text = console.export_text()
    assert [line.strip() for line in text.splitlines()] == [
        "a detail",
        "starting Spark",
        "it is [bold]odd[/bold]",
        "a warning of others",
    ]


@pytest.mark.parametrize(
    ("flags", "shown"),
    [((), ""), (("-vv",), "debug: elastream.plugins: looking for entry points of the group elastream.policies\n")],
)
def test_the_command_takes_v_before_its_subcommand(flags: tuple[str, ...], shown: str) -> None:
    command = [sys.executable, "-c", "from elastream.cli import main; main()", *flags, "policies", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, shown)
    assert '"name": "ds2"' in ended.stdout


def test_what_the_bridge_to_java_logs_is_raised_as_well_and_shown_only_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verbose in (0, 1):
        show_log(verbose)
        logging.getLogger("py4j.clientserver").error("Error while sending or receiving.")
    assert capsys.readouterr().err.count("Error while sending or receiving.") == 1
