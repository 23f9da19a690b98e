"""`pipeline.run(...)`: a run from Python that is seen.

In a notebook the live table of `elastream run` stands below the cell and changes while it runs; elsewhere it is
what the command shows, in a terminal or as plain lines.
"""

from __future__ import annotations

import importlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType

from elastream.commands.console import new_console
from elastream.commands.live import LiveRun
from elastream.engines.spark.pipeline import Pipeline
from elastream.manager.events import Event
from elastream.measurement import Snapshot
from elastream.running import run

_WIDTH = 110
_EVERY_S = 1.0  # while Spark starts, the seconds of waiting are to be seen
_PRE = '<pre style="line-height:normal;font-family:monospace;white-space:pre">{code}</pre>'

Display = Callable[[str], None]
"""Shows HTML below the cell, in place of what it showed before."""


def run_shown(pipeline: Pipeline, **options: Any) -> None:
    """As `elastream.run`, with the same options."""
    on_snapshot: Callable[[Snapshot], None] = options.pop("on_snapshot", lambda _: None)
    on_event: Callable[[Event], None] = options.pop("on_event", lambda _: None)
    with _live(pipeline.name) as live, _log_told_to(live):

        def snapshot(found: Snapshot) -> None:
            live.snapshot(found)
            on_snapshot(found)

        def event(found: Event) -> None:
            live.event(found)
            on_event(found)

        run(pipeline, on_snapshot=snapshot, on_event=event, **options)


def _live(title: str) -> LiveRun:
    display = display_of_notebook()
    if display is None:
        return LiveRun(new_console(), title)
    drawn_on = Console(file=io.StringIO(), width=_WIDTH, force_terminal=True, markup=False, highlight=False)
    return LiveRun(drawn_on, title, live=InlineView(display))


class InlineView:
    """Stands in for a `rich.live.Live`: what is to be seen becomes HTML."""

    def __init__(self, display: Display, *, every_s: float = _EVERY_S) -> None:
        self._display = display
        self._every_s = every_s
        self._seen: RenderableType = ""
        self._shown = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="inline view", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._draw()

    def update(self, renderable: RenderableType) -> None:
        self._seen = renderable
        self._draw()

    def _refresh(self) -> None:
        while not self._ended.wait(self._every_s):
            self._draw()

    def _draw(self) -> None:
        with self._lock:  # of two threads the one that has the newer is to be the last
            found = as_html(self._seen)
            if found != self._shown:
                self._shown = found
                self._display(found)


def as_html(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True, color_system="truecolor")
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_PRE)


def display_of_notebook() -> Display | None:
    """None where this is no cell of a notebook: also in IPython in a terminal, which shows no HTML."""
    ipython: Any = sys.modules.get("IPython")  # who runs in it has imported it
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shown: Any = importlib.import_module("IPython.display")
    handle = shown.display(shown.HTML("<pre>starting</pre>"), display_id=True)
    return lambda text: handle.update(shown.HTML(text))


@contextmanager
def _log_told_to(live: LiveRun) -> Iterator[None]:
    """What is being done, and warnings, are part of what is seen."""

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            live.log(record)

    logger, handler = logging.getLogger("elastream"), Told(logging.INFO)
    before, passed_on = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # it would be seen a second time
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = passed_on
