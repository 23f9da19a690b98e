"""How many records per second an instance receives, from counts of what has arrived.

Records arrive in lumps, a batch of a predecessor at a time. A count over a fixed window would have one lump too
many or too few in it. So the window is cut where lumps arrived: all that came after the first one, up to and
with the last one, over the time between these two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import dropwhile

_KEPT_S = 600.0


class LoadMeter:
    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._arrivals: deque[tuple[float, int]] = deque()
        """When something arrived, and how much had by then."""
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def observe(self, at_s: float, counts: Mapping[str, int]) -> None:
        """`counts` are those of each sender, from its beginning; senders come and go."""
        arrived = sum(count - self._seen.get(sender, 0) for sender, count in counts.items())
        self._seen = dict(counts)
        if arrived <= 0:
            return
        self._total += arrived
        self._arrivals.append((at_s, self._total))
        while self._arrivals[0][0] < at_s - _KEPT_S:
            self._arrivals.popleft()

    def per_s(self, since_s: float) -> float | None:
        """None where too little arrived to know."""
        found = list(dropwhile(lambda arrival: arrival[0] < since_s, self._arrivals))
        if len(found) < 2:
            return None
        (first_s, before), (last_s, after) = found[0], found[-1]
        return (after - before) / (last_s - first_s)
