"""A recording as it is, and what is added to it while someone looks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from elastream.errors import InvalidInput
from elastream.manager.events import Event, event_of_line
from elastream.measurement import Snapshot
from elastream.measurement.recording import RunHeader, read_line
from elastream.web.feed import Feed

_STILL_WRITTEN_S = 60.0  # a file that was changed within this time is taken for one that is being written
_STILL_WRITTEN = 5.0  # or within so many of its windows, if they are long
_COMPARED = 8_192  # bytes at either end of what was read: a recording only grows, so they stay as they are


@dataclass(frozen=True, kw_only=True)
class _ReadSoFar:
    """How far a file was read, and enough of what was there to notice that something else is there now."""

    offset: int = 0
    lines: int = 0
    head: bytes = b""
    tail: bytes = b""

    def then(self, line: bytes) -> _ReadSoFar:
        return _ReadSoFar(
            offset=self.offset + len(line),
            lines=self.lines + 1,
            head=self.head + line[: _COMPARED - len(self.head)],
            tail=(self.tail + line)[-_COMPARED:],
        )

    def is_still_in(self, file: BinaryIO) -> bool:
        head = file.read(len(self.head))
        file.seek(self.offset - len(self.tail))
        return (head, file.read(len(self.tail))) == (self.head, self.tail)


class Followed:
    """Reads on where it stopped. A line without its end is left for later: someone may still be writing it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = _ReadSoFar()
        self.cut_off = False
        """Whether something stands after the last whole line."""
        self.trouble: str | None = None
        """Why the file itself could not be read at the last look."""

    def was_rewritten(self) -> bool:
        """Whether what was read no longer stands there: then it is read from its beginning."""
        with self._opened() as file:
            rewritten = not self._read.is_still_in(file)
        if rewritten:
            self._read = _ReadSoFar()
        return rewritten

    def was_changed_within(self, seconds: float) -> bool:
        with self._opened() as file:
            return time.time() - os.fstat(file.fileno()).st_mtime < seconds

    def lines(self) -> Iterator[tuple[bytes, str]]:
        """Every whole line that was not read before, each with its place for an error."""
        with self._opened() as file:
            file.seek(self._read.offset)
            for line in file:
                self.cut_off = not line.endswith(b"\n")
                if self.cut_off:
                    return
                self._read = self._read.then(line)
                if line.strip():
                    yield line, f"{self.path}: line {self._read.lines}"

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as file:
                yield file
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
    for line, place in followed.lines():
        _show(line, place, feed)
    _end_if_over(followed, feed)


def go_on(followed: Followed, feed: Feed) -> None:
    """What was added since. A file that cannot be read is told once, and not with every look."""
    try:
        _read_on(followed, feed)
    except InvalidInput as error:
        if str(error) != followed.trouble:
            feed.trouble(str(error))
        followed.trouble = str(error)
    else:
        followed.trouble = None


def _read_on(followed: Followed, feed: Feed) -> None:
    """A line that cannot be read is told, and passed over."""
    if followed.was_rewritten():
        feed.begin_anew()
    for line, place in followed.lines():
        try:
            _show(line, place, feed)
        except InvalidInput as error:
            feed.trouble(str(error))
    _end_if_over(followed, feed)


def _end_if_over(followed: Followed, feed: Feed) -> None:
    """What comes all the same makes it live again."""
    window = feed.history.window
    still_s = max(_STILL_WRITTEN_S, _STILL_WRITTEN * window.window_s if window else 0.0)
    if feed.history.live and not followed.was_changed_within(still_s):
        feed.end()


def _show(line: bytes, place: str, feed: Feed) -> None:
    found = recorded(_text(line, place), place)
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
