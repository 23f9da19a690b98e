"""The rates of a source on a regular grid of time, made of what comes at any interval.

A slot holds the mean of the rates that were seen in it. One in which none was seen is filled in, and marked as
such: it may be looked back at, but nothing is learned from it and no forecast is judged by it. The width of a slot
follows from the first intervals; it doubles when the memory is full, until that holds a week twice over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_SLOTS = 8192
LONGEST_S = 14 * 86_400.0
"""What the memory is to hold before its oldest slots go: two of the longest seasons that are looked for."""
_MOST_S = 1e12  # thirty thousand years
_MOST_RATE = 1e18
_INTERVALS = 4  # from which the width of a slot is taken
_SPARSE = 0.6  # of the slots
_SMALLEST = 0.01  # of the mean rate: what is added before the logarithm, so that zeros have one
_WIDTHS_S = tuple(
    width * scale for scale in (1.0, 60.0, 3600.0) for width in (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0)
)
"""Those that divide a day, or nearly all do, so that a season is a whole number of slots."""
_NO_FLOATS: Floats = np.empty(0)
_NO_FLAGS: Flags = np.empty(0, dtype=np.bool_)


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    step_s: float | None = None
    """The width of a slot; None until enough intervals were seen to tell."""
    first: int = 0
    """The number of the oldest slot, counted from time 0."""
    rates: Floats = field(default_factory=_NO_FLOATS.copy)
    seen: Flags = field(default_factory=_NO_FLAGS.copy)
    in_last: int = 0
    """How many rates the newest slot is the mean of."""
    at_s: float = -math.inf
    """When the newest rate was seen."""
    last: float = 0.0
    """The newest rate, as it came."""
    early: tuple[tuple[float, float], ...] = ()
    """Times and rates from before the width of a slot was known."""

    def __len__(self) -> int:
        return len(self.rates)

    @property
    def newest(self) -> int:
        """The number of the newest slot."""
        return self.first + len(self) - 1

    @cached_property
    def offset(self) -> float:
        return _SMALLEST * float(self.rates[self.seen].mean() if self.seen.any() else self.last) or 1e-9

    @cached_property
    def logs(self) -> Floats:
        return np.asarray(np.log(self.rates + self.offset))

    def observed(self, at_s: float, rate: float, like: int = 0) -> History:
        """With one more rate; what is no rate is passed over. `like` is the season by which a gap is filled in."""
        if not (abs(at_s) < _MOST_S and 0 <= rate < _MOST_RATE):
            return self
        if self.step_s is None:
            return self._begun(at_s, rate)
        slot = math.floor(at_s / self.step_s)
        if slot < self.newest:
            return self._set_back(slot).observed(at_s, rate, like)
        if slot == self.newest:
            return replace(self._averaged(rate), at_s=at_s, last=rate)
        grown = self._grown(slot - self.newest, rate, like)
        return replace(grown, at_s=at_s, last=rate)

    def widened(self) -> History:
        """Every two slots made one."""
        skip = self.first % 2
        pairs = len(self) - skip - (len(self) - skip) % 2
        rates = self.rates[skip : skip + pairs].reshape(-1, 2)
        seen = self.seen[skip : skip + pairs].reshape(-1, 2)
        weights = np.where(seen.any(axis=1, keepdims=True), seen, True).astype(float)
        return replace(
            self,
            step_s=2 * (self.step_s or 1.0),
            first=(self.first + skip) // 2,
            rates=(rates * weights).sum(axis=1) / weights.sum(axis=1),
            seen=np.asarray(seen.any(axis=1)),
            in_last=2,
        )

    @property
    def is_to_be_widened(self) -> bool:
        """Full, with less in it than it should hold; or too many slots see no rate."""
        full = len(self) >= MOST_SLOTS and (self.step_s or 0.0) * MOST_SLOTS < LONGEST_S
        return full or (len(self) >= 64 and max(self.seen[-64:].mean(), self.seen.mean()) < _SPARSE)

    def _begun(self, at_s: float, rate: float) -> History:
        early = (*(one for one in self.early if one[0] < at_s), (at_s, rate))
        if len(early) <= _INTERVALS:
            return replace(self, early=early, at_s=at_s, last=rate)
        typical_s = float(np.median(np.diff([one[0] for one in early])))
        step_s = max((w for w in _WIDTHS_S if w <= 1.1 * typical_s), default=typical_s)
        slot = math.floor(early[0][0] / step_s)
        history = History(
            step_s=step_s, first=slot, rates=np.array([early[0][1]]), seen=np.ones(1, dtype=np.bool_), in_last=1
        )
        for one in early[1:]:
            history = history.observed(*one)
        return history

    def _averaged(self, rate: float) -> History:
        rates = self.rates.copy()
        rates[-1] += (rate - rates[-1]) / (self.in_last + 1)
        return replace(self, rates=rates, in_last=self.in_last + 1)

    def _set_back(self, slot: int) -> History:
        """The clock was set back: what lies in its future now is forgotten."""
        kept = max(0, slot - self.first)
        return replace(self, rates=self.rates[:kept], seen=self.seen[:kept], first=min(self.first, slot))

    def _grown(self, slots: int, rate: float, like: int) -> History:
        if not len(self) or slots >= MOST_SLOTS:
            rates, seen = np.array([rate]), np.ones(1, dtype=np.bool_)
            return replace(self, first=self.newest + slots, rates=rates, seen=seen, in_last=1)
        rates = np.concatenate((self.rates, self._filled(slots - 1, rate, like), [rate]))
        seen = np.concatenate((self.seen, np.zeros(slots - 1, dtype=np.bool_), [True]))
        first = self.newest + slots + 1 - min(len(rates), MOST_SLOTS)
        return replace(self, first=first, rates=rates[-MOST_SLOTS:], seen=seen[-MOST_SLOTS:], in_last=1)

    def _filled(self, missing: int, rate: float, like: int) -> Floats:
        """On a straight line; where a season is known and the gap is a good part of it, as one season before."""
        line = np.linspace(self.rates[-1], rate, missing + 2)[1:-1]
        if not 0 < like <= len(self) or missing < like / 8:
            return line
        return np.resize(self.rates[-like:], missing)
