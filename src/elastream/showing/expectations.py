"""What had been expected of a window, once it is there: beside what came it shows how good forecasts are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count

from elastream.policies.outlook import Outlook

_MOST = 1000  # forecasts of a source that have not come due


class Expectations:
    """Forecasts as they were made, until they come due."""

    def __init__(self) -> None:
        self._made: dict[str, deque[tuple[float, Outlook]]] = {}

    def add(self, at_s: float, outlook: Iterable[Outlook]) -> None:
        for one in outlook:
            made = self._made.setdefault(one.source, deque(maxlen=_MOST))
            while made and made[-1][0] >= at_s:  # the clock was set back
                made.pop()
            made.append((at_s, one))

    def of(self, source: str, at_s: float) -> Outlook | None:
        """The newest forecast for a time that has come since the last one was asked for."""
        made = self._made.get(source, deque())
        due = next((i for i in count() if i == len(made) or made[i][0] + made[i][1].ahead_s > at_s), 0)
        found = [made.popleft() for _ in range(due)]
        return found[-1][1] if found else None
