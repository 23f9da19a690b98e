"""The pictures of the documentation, from the recording of a run: `make screenshots`.

    terminal.svg            what `elastream run` shows in a terminal, drawn by rich
    NAME-on-spark.png       the plot that a run ends with
    dashboard-light.png     the page in a headless Chromium; also dark, and as narrow as a phone
    report.png              the beginning of the report

All are made of a real recording, so that they show what the code of today shows of it. The terminal and the page
are those of a moment, the plot and the report those of the whole run.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType

from benchmarks.browser import Browser, missing_browser
from elastream.commands.live import LiveRun
from elastream.commands.plots import plot_run
from elastream.commands.recordings import name_of, recording_at
from elastream.commands.report import report
from elastream.commands.run_summary import RunSummary
from elastream.errors import ElastreamError
from elastream.manager.events import Event
from elastream.measurement import Snapshot
from elastream.measurement.recording import RunHeader
from elastream.showing.views import ConfigurationView
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.following import recorded
from elastream.web.server import Server

_COLUMNS = 110
_PAGES = {"light": ("light", 1400), "dark": ("dark", 1400), "narrow": ("light", 390)}
_MOST_HEIGHT = 2100
_REPORT_SIZE = (1000, 1470)


def happened(recording: Path) -> Iterator[RunHeader | Snapshot | Event]:
    """All that the recording has, in its order."""
    for number, line in enumerate(recording.read_text(encoding="utf-8").splitlines(), start=1):
        found = recorded(line, f"{recording}: line {number}")
        if found is not None:
            yield found


def first_windows(recording: Path, windows: int | None) -> Iterator[RunHeader | Snapshot | Event]:
    """Up to the end of what so many windows led to; all, where it is not said how many."""
    count = 0
    for one in happened(recording):
        if isinstance(one, Snapshot):
            if count == windows:
                return
            count += 1
        yield one


class _Newest:
    """What was drawn last."""

    seen: RenderableType = ""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def update(self, renderable: RenderableType) -> None:
        self.seen = renderable


def terminal_svg(recording: Path, *, windows: int | None = None, command: str = "elastream run") -> str:
    """The live table after so many windows, or at the end."""
    newest = _Newest()
    quiet = Console(file=io.StringIO(), force_terminal=True, width=_COLUMNS)
    with LiveRun(quiet, recording.parent.name, live=newest) as live:
        live.phase("running")
        for one in first_windows(recording, windows):
            if isinstance(one, Snapshot):
                live.snapshot(one)
            elif not isinstance(one, RunHeader):
                live.event(one)
    paper = Console(record=True, file=io.StringIO(), width=_COLUMNS, force_terminal=True, color_system="truecolor")
    paper.print(newest.seen)
    return paper.export_svg(title=command, unique_id="terminal")  # the same for the same recording


@contextmanager
def served(recording: Path, windows: int | None) -> Iterator[str]:
    """The address of a page that shows it."""
    feed = Feed(recording.parent.name)
    for one in first_windows(recording, windows):
        if isinstance(one, RunHeader):
            feed.begin(one)
        elif isinstance(one, Snapshot):
            feed.snapshot(one)
        else:
            feed.event(one)
    shown = ConfigurationView(
        pipeline=recording.parent.name, shown="recording", policy=None, options=(), knobs=(), acts=False
    )
    with Server(feed, shown, Address(port=0)) as server:
        yield server.url


def take_pages(browser: Browser, recording: Path, into: Path, *, windows: int | None = None) -> None:
    """The page as a whole, but for what is far below on a phone."""
    with served(recording, windows) as url:
        for name, (scheme, width) in _PAGES.items():
            browser.prefer(scheme)
            browser.resize(width)
            browser.open(url)
            browser.wait_until_drawn()
            height = browser.run("return document.documentElement.scrollHeight")
            _save(browser, into / f"dashboard-{name}.png", width, min(height, _MOST_HEIGHT))


def take_report(browser: Browser, recording: Path, into: Path) -> None:
    """Its beginning; it is long."""
    with tempfile.TemporaryDirectory() as written:
        report(recording, Path(written))
        browser.prefer("light")
        browser.resize(*_REPORT_SIZE)
        browser.open((Path(written) / f"{name_of(recording)}-report.html").as_uri())
        _save(browser, into / "report.png", *_REPORT_SIZE)


def _save(browser: Browser, path: Path, width: int, height: int) -> None:
    """From the top of the page, so large, however large the window is."""
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = browser.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True, "format": "png"}
    )
    path.write_bytes(base64.b64decode(shot["data"]))


def take_plot(recording: Path, into: Path) -> None:
    """What the run ended with; its engine is that of the pictures."""
    summary = RunSummary()
    for one in happened(recording):
        if isinstance(one, Snapshot):
            summary.snapshot(one)
    name = name_of(recording)
    plot_run(summary.history, into / f"{name}-on-spark.png", title=f"{name} on Spark")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.hooks.screenshots", description=__doc__)
    parser.add_argument("recording", type=Path, help="a recording, or the folder of a run")
    parser.add_argument("into", type=Path, help="the folder for the pictures")
    parser.add_argument("--windows", type=int, help="after so many windows; else at the end")
    parser.add_argument("--command", default="elastream run examples/wordcount.py", help="above the terminal")
    parser.add_argument("--only", choices=("terminal", "plot", "browser"))
    given = parser.parse_args(arguments)
    recording = recording_at(given.recording)
    given.into.mkdir(parents=True, exist_ok=True)
    wanted = {given.only} if given.only else {"terminal", "plot", "browser"}
    if "terminal" in wanted:
        svg = terminal_svg(recording, windows=given.windows, command=given.command)
        (given.into / "terminal.svg").write_text(svg, encoding="utf-8")
    if "plot" in wanted:
        take_plot(recording, given.into)
    if "browser" in wanted:
        if missing := missing_browser():
            raise ElastreamError(missing)
        with tempfile.TemporaryDirectory() as kept, Browser(Path(kept)) as browser:
            take_pages(browser, recording, given.into, windows=given.windows)
            take_report(browser, recording, given.into)


if __name__ == "__main__":
    main()
