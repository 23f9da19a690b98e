"""That something goes on while people wait for it: a spinner with seconds in a terminal, elsewhere a line now and
then. Spark alone takes from seconds to minutes to start, by what else the machine does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console, RenderResult
from rich.live import Live
from rich.text import Text

from elastream.durations import text as duration_text

_EVERY_S = 10.0
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_S = 8


class Waiting:
    """What is waited for and for how long; as something to draw where there is a terminal, else as lines."""

    def __init__(
        self, console: Console, *, every_s: float = _EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._every_s = every_s
        self._clock = clock
        self._what: str | None = None
        self._began_s = 0.0
        self._number = 0
        """Of what is waited for: another one begins with another number."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def under_way(self) -> bool:
        return self._what is not None

    def begin(self, what: str) -> None:
        """From now on, in place of what was waited for before."""
        with self._changed:
            self._what, self._began_s, self._number = what, self._clock(), self._number + 1
            self._changed.notify_all()
        if not self._console.is_terminal and self._thread is None:
            self._thread = threading.Thread(target=self._say_now_and_then, name="waiting", daemon=True)
            self._thread.start()

    def say(self, what: str) -> None:
        """The same in other words: the seconds go on."""
        self._what = what

    def end(self) -> None:
        with self._changed:
            self._what, self._number = None, self._number + 1
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __rich_console__(self, *_: object) -> RenderResult:
        if self._what is not None:
            now_s = self._clock()
            frame = _FRAMES[int(now_s * _FRAMES_PER_S) % len(_FRAMES)]
            yield Text.assemble((frame, "cyan"), f" {self._what}, ", (self._elapsed(now_s), "bold"))

    def _elapsed(self, now_s: float) -> str:
        return duration_text(int(now_s - self._began_s))

    def _say_now_and_then(self) -> None:
        with self._changed:
            while self._what is not None:
                number = self._number
                if not self._changed.wait_for(lambda: self._number != number, self._every_s):  # noqa: B023
                    self._console.print(f"still {self._what}: {self._elapsed(self._clock())}", soft_wrap=True)


@contextmanager
def waiting(console: Console, what: str, *, quiet: bool = False) -> Iterator[Waiting]:
    """Say on this console what is waited for within it."""
    found = Waiting(console)
    if quiet:
        yield found
        return
    found.begin(what)
    drawn = Live(found, console=console, transient=True, refresh_per_second=_FRAMES_PER_S)
    try:
        with drawn if console.is_terminal else nullcontext():
            yield found
    finally:
        found.end()
