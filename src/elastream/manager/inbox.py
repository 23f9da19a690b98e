"""What other threads ask of the manager: a queue that wakes it, and an answer for each who asks."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from elastream.manager.events import Steered
from elastream.manager.requests import Request

_MOST_WAITING = 100


class InboxFull(Exception):  # noqa: N818 - reads better where it is raised
    """So much was asked that the manager has not come to; more is refused."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Letter:
    request: Request
    answer: Future[Steered] = field(default_factory=Future)


class Inbox:
    def __init__(self, wake: Callable[[], None]) -> None:
        self._letters: queue.Queue[Letter] = queue.Queue(_MOST_WAITING)
        self._wake = wake

    def ask(self, request: Request) -> Future[Steered]:
        """From any thread; the answer comes when the request was checked and saved, before an action begins."""
        letter = Letter(request=request)
        try:
            self._letters.put_nowait(letter)
        except queue.Full:
            raise InboxFull from None
        self._wake()
        return letter.answer

    def wake(self) -> None:
        """Have the manager look around before its interval is over."""
        self._wake()

    def letters(self) -> Iterator[Letter]:
        """What is there now, the oldest first."""
        while True:
            try:
                yield self._letters.get_nowait()
            except queue.Empty:
                return
