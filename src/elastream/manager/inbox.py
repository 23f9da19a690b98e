"""What other threads ask of the manager: a queue that wakes it, and an answer for each who asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from elastream.errors import ElastreamError
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
        self._letters: list[Letter] = []
        self._lock = threading.Lock()
        self._closed = False
        self.wake = wake
        """Has the manager look around before its interval is over."""

    def ask(self, request: Request) -> Future[Steered]:
        """From any thread; the answer comes when the request was checked and saved, before an action begins."""
        letter = Letter(request=request)
        with self._lock:
            if len(self._letters) >= _MOST_WAITING:
                raise InboxFull
            if not self._closed:
                self._letters.append(letter)
        if self._closed:
            _return_to_sender(letter)
        self.wake()
        return letter.answer

    def letters(self) -> Iterator[Letter]:
        """What was asked, the oldest first, until there is no more."""
        while True:
            with self._lock:
                if not self._letters:
                    return
                letter = self._letters.pop(0)
            if letter.answer.set_running_or_notify_cancel():
                yield letter

    def refuse(self, why: str) -> None:
        """Do nothing of what was asked: who asks now does not want it at some later time."""
        for letter in self.letters():
            letter.answer.set_exception(ElastreamError(why))

    def close(self) -> None:
        """Nobody will look any more."""
        with self._lock:
            self._closed = True
            left, self._letters = self._letters, []
        for letter in left:
            _return_to_sender(letter)


def _return_to_sender(letter: Letter) -> None:
    if not letter.answer.done():
        letter.answer.set_exception(ElastreamError("the run has ended"))
