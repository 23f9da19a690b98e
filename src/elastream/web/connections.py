"""The connections of the page's server, with a limit to their number and to the time that they may take.

Whoever connects has so long to send a whole request, its body with it, and as long again for each that follows;
an answer that is not read any further is given up after a while. Nobody needs a token to connect, so that no
connection may cost more than its place among the few that there are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from elastream.accepting import Release

MOST_CONNECTIONS = 256
REQUEST_WITHIN_S = 20.0
READ_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.5

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # each request that is none would be a warning: whoever sends noise would fill a disk


class PageConnection(H11Protocol):
    """Knows since when it waits for the rest of a request, or for its answer to be read."""

    def __init__(self, *arguments: Any, on_lost: Release, among: set[PageConnection], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _log
        self._on_lost = on_lost
        self._among = among
        self.asks_since: float | None = None
        """It has not yet sent a whole request; None while one is answered."""
        self._unread: tuple[int, float] | None = None
        """Bytes that are to be sent, and since when there are no fewer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.asks_since = time.monotonic()
        self._among.add(self)
        # lets a stream end its own connection at once, though the other side reads nothing any more
        self.app_state = {**self.app_state, "abort": transport.abort}

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.discard(self)
        self._on_lost()
        super().connection_lost(exc)

    def is_late(self, now_s: float) -> bool:
        if self.asks_since is not None and now_s - self.asks_since > REQUEST_WITHIN_S:
            return True
        size = self.transport.get_write_buffer_size()
        if size == 0 or self._unread is None or size < self._unread[0]:
            self._unread = (size, now_s) if size else None
        return self._unread is not None and now_s - self._unread[1] > READ_WITHIN_S

    def _note_request(self) -> None:
        whole = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if whole:
            self.asks_since = None
        elif self.asks_since is None:
            self.asks_since = time.monotonic()


class PageConnections:
    """All that are open; used in the server's loop only."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._server = server
        self._open: set[PageConnection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self, release: Release) -> PageConnection:
        """One more."""
        return PageConnection(
            config=self._server.config,
            server_state=self._server.server_state,
            app_state={},
            on_lost=release,
            among=self._open,
        )

    def make_room(self) -> bool:
        """The one goes that has waited longest without a whole request; False where all are being answered."""
        waiting = [found for found in self._open if found.asks_since is not None]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda found: found.asks_since or 0.0)
        self._open.discard(oldest)  # it is closed soon, and is not to be chosen twice
        oldest.transport.abort()
        return True

    async def end_late(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now_s = time.monotonic()
            for late in [found for found in self._open if found.is_late(now_s)]:
                late.transport.abort()
