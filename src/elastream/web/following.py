"""A recording as it is, and what is added to it while someone looks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from elastream.errors import InvalidInput
from elastream.manager.events import Event, Trouble, event_of_line
from elastream.monitor import Snapshot
from elastream.monitor.recording import RunHeader, read_line
from elastream.web.feed import Feed

_STILL_WRITTEN_S = 60.0  # a file that was changed within this time is taken for one that is being written
_STILL_WRITTEN = 5.0  # or within so many of its windows, if they are long


class Followed:
    """Reads on where it stopped. A line without its end is left for later: someone may still be writing it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._lines = 0
        self._file: tuple[int, int] | None = None
        self.cut_off = False
        """Whether something stands after the last whole line."""

    def was_replaced(self) -> bool:
        """Whether the file is another one now, or was cut: then it is read from its beginning."""
        found = self._stat()
        identity = (found.st_dev, found.st_ino)
        replaced = self._file is not None and (identity != self._file or found.st_size < self._offset)
        self._file = identity
        if replaced:
            self._offset = self._lines = 0
        return replaced

    def was_changed_within(self, seconds: float) -> bool:
        return time.time() - self._stat().st_mtime < seconds

    def lines(self) -> Iterator[tuple[str, str]]:
        """Every whole line that was not read before, each with its place for an error."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    self.cut_off = not line.endswith(b"\n")
                    if self.cut_off:
                        return
                    self._offset += len(line)
                    self._lines += 1
                    place = f"{self.path}: line {self._lines}"
                    if line.strip():
                        yield _text(line, place), place
        except OSError as error:
            raise InvalidInput(f"{self.path}: cannot be read: {error.strerror}") from None

    def _stat(self) -> os.stat_result:
        try:
            return self.path.stat()
        except FileNotFoundError:
            raise InvalidInput(f"{self.path}: there is no such file") from None
        except OSError as error:
            raise InvalidInput(f"{self.path}: cannot be read: {error.strerror}") from None


def recorded(line: str, place: str) -> Snapshot | RunHeader | Event | None:
    """None for a line that tells of nothing to be shown."""
    found = read_line(line, place)
    if isinstance(found, Snapshot | RunHeader):
        return found
    try:
        return event_of_line(found)
    except InvalidInput as error:
        raise error.at(place) from None


def load(followed: Followed, feed: Feed) -> None:
    """All that is there; a line that cannot be read is an error."""
    followed.was_replaced()
    for line, place in followed.lines():
        _show(recorded(line, place), feed)
    _end_if_over(followed, feed)


def go_on(followed: Followed, feed: Feed) -> None:
    """What was added since; a line that cannot be read is told, and passed over."""
    try:
        if followed.was_replaced():
            feed.begin_anew()
        lines = list(followed.lines())
        if not lines:
            _end_if_over(followed, feed)
    except InvalidInput as error:
        feed.event(Trouble(at_s=time.time(), what=str(error)))
        return
    for line, place in lines:
        try:
            _show(recorded(line, place), feed)
        except InvalidInput as error:
            feed.event(Trouble(at_s=time.time(), what=str(error)))


def _end_if_over(followed: Followed, feed: Feed) -> None:
    """What comes all the same makes it live again."""
    window = feed.history.window
    still_s = max(_STILL_WRITTEN_S, _STILL_WRITTEN * window.window_s if window else 0.0)
    if feed.history.live and not followed.was_changed_within(still_s):
        feed.end()


def _show(found: Snapshot | RunHeader | Event | None, feed: Feed) -> None:
    if isinstance(found, Snapshot):
        feed.snapshot(found)
    elif isinstance(found, RunHeader):
        feed.begin(found)
    elif found is not None:
        feed.event(found)


def _text(line: bytes, place: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{place}: not a UTF-8 text (byte {error.start})") from None
