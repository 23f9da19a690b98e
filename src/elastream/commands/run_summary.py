"""What `elastream run` tells at its end, gathered while it runs: bounded, whatever the run's length.

Windows become points, of which old ones are merged, and of the events the newest are kept. The recording has all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from elastream.manager.events import TELLING, Accounted, Event
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts
from elastream.showing.as_views import window_view
from elastream.showing.points import Point, columns, extended, point_of, thinned
from elastream.showing.views import HistoryView

_MOST_POINTS = 1000
_MOST_EVENTS = 1000


class RunSummary:
    """Fed with snapshots and events."""

    def __init__(self) -> None:
        self.first: Snapshot | None = None
        self.last: Snapshot | None = None
        self._points: Sequence[Point] = ()
        self.accounts: Accounts | None = None
        """Where every record went, which is told at the end."""
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        """The newest of those that tell of something."""
        self.earlier_events = 0
        """How many came before those that are kept."""

    def snapshot(self, snapshot: Snapshot) -> None:
        self.first = self.first or snapshot
        self.last = snapshot
        self._points = thinned(extended(self._points, point_of(window_view(snapshot))), _MOST_POINTS)

    @property
    def history(self) -> HistoryView:
        """All of the run, in less detail the longer it is ago."""
        flow = None if self.last is None else self.last.dataflow
        return columns(self._points, flow.sources if flow else (), flow.scalable if flow else ())

    def event(self, event: Event) -> None:
        if isinstance(event, Accounted):
            self.accounts = event.accounts
        if event.event in TELLING:
            self.earlier_events += len(self.events) == self.events.maxlen
            self.events.append(event)
