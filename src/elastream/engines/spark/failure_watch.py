"""Looks at the queries between two measurements, so that one that fails is told of at once.

A thread that only looks: queries are started again when the manager measures. Whoever tells takes the failure
away, so that each is told of once, whoever finds it first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)
_EVERY_S = 0.5


class FailureWatch:
    """`look` says whether there is something new to tell; `wake` is then called."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._wake: Callable[[], None] = lambda: None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, wake: Callable[[], None]) -> None:
        """Whom to wake, from now on."""
        self._wake = wake

    def start(self) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="elastream-failure-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """It does no harm a second time, nor to one that was not started."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            try:
                if self._look():
                    self._wake()
            except Exception:  # such as a session that is being stopped: the next measurement says so
                _log.debug("could not look at the queries", exc_info=True)
