"""From the one that knows to all that look: updates of a run, in order, to any number of viewers.

Everything here happens in the server's event loop but what says that other threads may call it. A viewer has a
queue of a bounded length: one that stops reading is dropped, and when it comes back it is told what it missed, or,
where that is too long ago, everything from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from elastream.manager.events import Event
from elastream.measurement import Snapshot
from elastream.measurement.recording import RunHeader
from elastream.showing import views
from elastream.showing.history import RunHistory

MOST_VIEWERS = 100
_MOST_WAITING = 128  # updates for one viewer: minutes of them, at one window and a few events each ten seconds
_MOST_KEPT = 256  # updates for those that come back
_HEARTBEAT_S = 15.0


class TooManyViewersError(Exception):
    pass


@dataclass(eq=False)
class Viewer:
    """One open stream. `on_drop` ends its connection, which may be stuck in a write that nobody reads."""

    on_drop: Callable[[], None]
    missed: list[bytes]
    waiting: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))


class _KeptUpdate:
    """An update, written down when the first viewer needs it, once for all of them."""

    __slots__ = ("_frame", "id", "update")

    def __init__(self, update: views.Update) -> None:
        self.id = update.id
        self.update = update
        self._frame: bytes | None = None

    def frame(self) -> bytes:
        if self._frame is None:
            absent = {name for name in views.Update.model_fields if getattr(self.update, name) is None}
            self._frame = _frame("update", self.id, self.update.model_dump_json(exclude=absent))
        return self._frame


class Feed:
    def __init__(self, pipeline: str, *, live: bool = True) -> None:
        self._pipeline = pipeline
        self._viewers: set[Viewer] = set()
        self._connections = 2 * MOST_VIEWERS
        self._kept: deque[_KeptUpdate] = deque(maxlen=_MOST_KEPT)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._latest_at: float | None = None
        self.latest: Snapshot | None = None
        """The newest window, for those that measure with it; what is shown of it is in the history."""
        self._closed = False
        self.history = self._new_history(live=live)

    # From any thread

    def begin(self, header: RunHeader) -> None:
        """A run begins, and says what it is."""
        self._soon(lambda: self._tell(self.history.begin(header)))

    def snapshot(self, snapshot: Snapshot) -> None:
        self._soon(lambda: self._add_snapshot(snapshot))

    def event(self, event: Event) -> None:
        self._soon(lambda: self._tell(self.history.add_event(event)))

    def trouble(self, what: str) -> None:
        """What is wrong with showing the run, of which the run itself knows nothing."""
        self._soon(lambda: self._tell(self.history.add_trouble(what)))

    def end(self) -> None:
        """Nothing more will come, but what there is can still be looked at."""
        self._soon(lambda: self._tell(self.history.end()))

    def close(self) -> None:
        """Every stream ends, and nobody is told anything any more."""
        self._soon(self._close)

    def begin_anew(self) -> None:
        """What is shown was written from the beginning once more: nothing of it holds any longer."""
        self._soon(self._begin_anew)

    # In the server's loop

    def serve_in(self, loop: asyncio.AbstractEventLoop, *, connections: int) -> None:
        """From now on other threads' calls are carried out there.

        Viewers hold their connections for as long as they like, so that half of them are left for requests.
        """
        self._loop = loop
        self._connections = connections

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def latest_age_s(self) -> float | None:
        """Since the newest window came, by the monotonic clock; None before the first."""
        return None if self._latest_at is None else time.monotonic() - self._latest_at

    def join(self, after: str | None = None, on_drop: Callable[[], None] = lambda: None) -> Viewer:
        """One more viewer, which saw everything up to that update, or nothing."""
        if len(self._viewers) >= max(1, min(MOST_VIEWERS, self._connections // 2)):
            raise TooManyViewersError
        viewer = Viewer(on_drop=on_drop, missed=self._missed(after))
        self._viewers.add(viewer)
        return viewer

    async def frames(self, viewer: Viewer) -> AsyncGenerator[bytes]:
        """What a viewer is sent: all that it has not seen, then what comes, and now and then a sign of life."""
        try:
            yield b"retry: 2000\n\n"
            for frame in viewer.missed:
                yield frame
            while True:
                try:
                    sent = await asyncio.wait_for(viewer.waiting.get(), _HEARTBEAT_S)
                except TimeoutError:
                    sent = b": still here\n\n"
                if sent is None:
                    return
                yield sent
        finally:
            self._viewers.discard(viewer)

    def _close(self) -> None:
        self._closed = True
        for viewer in tuple(self._viewers):
            self._drop(viewer)

    def _missed(self, after: str | None) -> list[bytes]:
        known = [kept.id for kept in self._kept]
        if after is not None and after == self.history.id:
            return []
        if after in known:
            return [kept.frame() for kept in list(self._kept)[known.index(after) + 1 :]]
        return [_frame("run", self.history.id, self.history.view().model_dump_json())]

    def _add_snapshot(self, snapshot: Snapshot) -> None:
        self._latest_at, self.latest = time.monotonic(), snapshot
        self._tell(self.history.add_snapshot(snapshot))

    def _tell(self, update: views.Update) -> None:
        kept = _KeptUpdate(update)
        self._kept.append(kept)
        for viewer in tuple(self._viewers):
            try:
                viewer.waiting.put_nowait(kept.frame())
            except asyncio.QueueFull:
                self._drop(viewer)

    def _drop(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        while not viewer.waiting.empty():
            viewer.waiting.get_nowait()
        viewer.waiting.put_nowait(None)
        viewer.on_drop()

    def _begin_anew(self) -> None:
        self.history = self._new_history(live=True)
        self._kept.clear()
        self._latest_at = None
        for viewer in tuple(self._viewers):
            self._drop(viewer)

    def _new_history(self, *, live: bool) -> RunHistory:
        return RunHistory(self._pipeline, live=live, epoch=secrets.token_hex(4))

    def _soon(self, what: Callable[[], None]) -> None:
        if self._loop is None:
            what()
        elif not self._closed:
            with contextlib.suppress(RuntimeError):  # the loop was closed since: nobody looks any more
                self._loop.call_soon_threadsafe(what)


def _frame(event: str, identity: str, data: str) -> bytes:
    return f"id: {identity}\nevent: {event}\ndata: {data}\n\n".encode()
