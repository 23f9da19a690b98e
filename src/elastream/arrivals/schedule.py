"""When the records of a load are due: how many by a time, and at what time each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastream.arrivals.load import Load

_STEP_S = 0.05
_MOST_STEPS = 1 << 21
"""More than a day: a load that has ended by then brings no more."""


class Schedule:
    """A load added up in small steps, in each of which it is even. What was answered before stays true."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._due = np.zeros(1)

    def due(self, t_s: float) -> int:
        """How many records are due by a time."""
        while (len(self._due) - 1) * _STEP_S < t_s:
            self._lengthen()
        return int(np.interp(t_s, self._times_s(), self._due) + 1e-6)

    def due_s(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
        """When each is due, the first of all at 0."""
        most = int(numbers.max(initial=0))
        while self._due[-1] <= most and len(self._due) < _MOST_STEPS:
            self._lengthen()
        found: npt.NDArray[np.floating] = np.interp(numbers, self._due, self._times_s())
        return found

    def _lengthen(self) -> None:
        begin = len(self._due) - 1
        steps = max(1024, begin)
        rates = [self._load.rate_at((begin + step + 0.5) * _STEP_S) for step in range(steps)]
        self._due = np.concatenate((self._due, self._due[-1] + np.cumsum(rates) * _STEP_S))

    def _times_s(self) -> npt.NDArray[np.floating]:
        return np.arange(len(self._due)) * _STEP_S
