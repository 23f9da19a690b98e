"""The page beside a word count that runs on Spark, as `elastream run` serves it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import PATIENCE_S, wait_until

from benchmarks.browser import Browser

_WORD_COUNT = Path(__file__).parents[2] / "examples" / "wordcount.py"
_WINDOWS = 3
_OPTIONS = ("--port", "0", "--interval", "3 s", "--batch-interval", "500 ms", "--longest-batch", "1500 ms")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of the page, with its token, as the command prints it."""
    said = tmp_path / "said.txt"
    command = ["run", str(_WORD_COUNT), "--folder", str(tmp_path / "run"), *_OPTIONS]
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "from elastream.cli import main; main()", *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200"},
        )
    try:
        wait_until(lambda: process.poll() is not None or "page: " in said.read_text(), said.read_text)
        found = re.search(r"page: (http://127\.0\.0\.1:\d+/#token=\S+)", said.read_text())
        assert found, said.read_text()
        yield found[1]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_word_count_on_spark_is_watched_paused_and_sized(browser: Browser, address: str) -> None:
    page, _, _ = address.partition("#")
    browser.open(f"{page}#token=not-the-token")
    browser.wait(lambda: "Nothing measured yet" in browser.text("#empty"), "Spark starts")
    browser.click("#pause")
    browser.wait(lambda: "The token was refused" in browser.text(".said"), "a wrong token is refused")
    assert all("401" in complaint for complaint in browser.complaints())

    browser.open("about:blank")
    browser.open(address)
    browser.find("#pause")
    browser.wait(lambda: "Pause scaling" in browser.text("#pause"), "the run can be paused")
    browser.click("#pause")
    browser.wait(lambda: "scaling paused" in browser.text("#phase"), "the manager has come to it")
    seen = _windows_seen(browser)
    assert len({rates for _, rates in seen}) > 1, f"the numbers change: {seen}"
    assert "No decision yet" in browser.text("#decisions"), "too small, and yet nothing is decided"
    assert "×1" in browser.text(".graph-cards")

    browser.click("#pause")
    browser.wait(lambda: "Pause scaling" in browser.text("#pause"), "it is resumed")
    browser.wait(lambda: "words" in browser.text("#decisions .change"), "words is scaled")
    browser.click("#decisions summary")
    told = browser.wait(lambda: browser.text(".reasons"), "why")
    assert re.search(r"words processes [\d,.]+/s in", told), told
    assert re.search(r"words must process [\d,.]+/s", told), told
    grown = browser.text("#decisions .change-counts").split()
    assert int(grown[2]) > int(grown[0]), "it grows"
    browser.wait(lambda: f"×{grown[2]}" in browser.text(".graph-cards"), "and the graph shows it")
    assert "planning and committing" in browser.text("#charts"), "where the time of a batch goes"
    assert re.search(r"driver on .+\n.* of 32 slots busy", browser.text("#executors")), "the threads of local[32]"
    assert (browser.text("#pipeline"), browser.text("#policy")) == ("wordcount", "policy ds2")


def _windows_seen(browser: Browser) -> list[tuple[str, str]]:
    """The times of some windows, each with what the cards say then."""
    seen: dict[str, str] = {}

    def look() -> bool:
        at, rates = browser.text("#connection"), browser.text(".graph-cards")
        if at.startswith("Live, ") and rates:
            seen[at] = rates
        return len(seen) > _WINDOWS

    browser.wait(look, f"{_WINDOWS} more windows")
    return list(seen.items())
