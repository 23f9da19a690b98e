"""How many records per second an instance has to process, from what arrives.

Records arrive in bursts, a batch of a sender at a time. A count over a fixed window would have one burst too many
or too few in it, so what each sender brings is measured from burst to burst.

And it is measured by the clock of the source, not by ours: with every burst comes the time by which its records
had come into the pipeline. A sender that was away and comes back delivers in seconds what came in minutes. By our
clock that is a load many times as high, for which instances would be made that nobody needs; by the source's it
is the load that there is. What waits is worked off with what the policy leaves unused.

A sender that has nothing to bring says by when nothing had come; one that is away does not. So no load is told
from no news.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

_KEPT_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrived:
    """What a sender has brought so far."""

    records: int
    came_s: float
    """By when the newest of them had come into the pipeline."""


_NOTHING = Arrived(records=0, came_s=0.0)


class LoadMeter:
    def __init__(self) -> None:
        self._senders: dict[str, deque[tuple[float, Arrived]]] = {}
        """The bursts of those that are there, and when they arrived."""
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def observe(self, at_s: float, arrived: Mapping[str, Arrived]) -> None:
        """Senders come and go."""
        self._senders = {sender: self._senders.get(sender, deque()) for sender in arrived}
        for sender, now in arrived.items():
            bursts = self._senders[sender]
            last = bursts[-1][1] if bursts else _NOTHING
            if now.records <= last.records and now.came_s <= last.came_s:
                continue
            self._total += now.records - last.records
            bursts.append((at_s, now))
            while len(bursts) > 2 and bursts[1][0] < at_s - _KEPT_S:
                bursts.popleft()

    def per_s(self, since_s: float) -> float | None:
        """From what arrived since then; None where that is too little to know."""
        paces = [_pace_per_s(bursts, since_s) for bursts in self._senders.values()]
        known = [pace_per_s for pace_per_s in paces if pace_per_s is not None]
        return sum(known) if known else None


def _pace_per_s(bursts: deque[tuple[float, Arrived]], since_s: float) -> float | None:
    """Of what came after the first burst, up to the last; a single burst is measured from the one before it."""
    recent = sum(at_s >= since_s for at_s, _ in bursts)
    if recent == 0 or len(bursts) < 2:
        return None
    first, last = bursts[-max(2, recent)][1], bursts[-1][1]
    passed_s = last.came_s - first.came_s
    return (last.records - first.records) / passed_s if passed_s > 0 else None
