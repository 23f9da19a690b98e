"""What arrives at a source: its level, where it leads, and how much room its usual moves ask for.

A step of the load is followed at once. Within a level what scatters is averaged, and a trend is drawn out to when
a decision is in force, as a plan for what has been is always late. A load that keeps moving gets room for what it
usually does until then; one that does not, however much its counts scatter, gets none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from elastream.measurement.scatter import Estimate, new_level, noise, trend

_MOST = 120  # windows that are kept
_LEAST_STEP = 0.2  # of a load: a plan that was made before was made for another one
_LEAST_AT_THE_END = 0.1  # of the load
_LATE = (0.25, 0.37)  # of the gain of the last third is in the mean: about a third, where all of it came there
_IN_FORCE = 1.5  # windows from the middle of the newest one until a decision is in force
_ENOUGH = 60  # windows that tell how much a load usually moves
_AHEAD = 3  # windows until the next decision is in force: that one, the action, and the warm-up
_FORESEEN = 0.95  # of the rises; rarer ones are followed, and not foreseen
_NOISE = 4.0  # standard deviations: the highest of a few values that only scatter
_TWICE = 2.0  # a usual rise may be followed by another before anything is done about the first
_MOST_ROOM = 0.25
_BEYOND = 0.2  # above the highest of the last windows: that it goes further is rarer


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What came to a source in the last windows, in records per second, newest last."""

    rates: tuple[float, ...] = ()
    level: int = 0
    """So many of the newest are about the same."""
    awaited: bool = False
    """The load stepped at the end of the last window, which was passed over."""

    def with_rate(self, per_s: float, newest_per_s: float | None = None) -> Arrivals:
        """One more window. Of one within which the load stepped the mean is neither of its levels: what it had
        come to at the end is what counts; where it stepped within that end, the next window will tell. To act on
        half of a step is to wait for that action before the other half can be followed."""
        if newest_per_s is not None and not self.awaited and self._steps_at_the_end(per_s, newest_per_s):
            return replace(self, awaited=True)
        rates = (*self.rates, per_s)[-_MOST:]
        alike = rates[-(self.level + 1) :]
        level = len(alike) - new_level(alike, of=rates)
        if level == 1 and newest_per_s is not None and self._leads_on(per_s, newest_per_s):
            rates = (*rates[:-1], newest_per_s)
        return Arrivals(rates=rates, level=level)

    def _steps_at_the_end(self, per_s: float, newest_per_s: float) -> bool:
        """Whether all that the mean of the window has gained came in its last third."""
        if not self.rates or per_s <= self.rate.value:
            return False
        gained, at_the_end = per_s - self.rate.value, newest_per_s - self.rate.value
        least, most = _LATE
        return at_the_end > _LEAST_AT_THE_END * self.rate.value and least < gained / at_the_end < most

    def _leads_on(self, per_s: float, newest_per_s: float) -> bool:
        """Whether the end of the window is on the side of its mean that lies away from the window before."""
        return bool(self.rates) and (newest_per_s - per_s) * (per_s - self.rates[-1]) > 0

    @property
    def stepped_up(self) -> bool:
        """In the newest window, and by so much that the present plan was not made for it."""
        return self.level == 1 and len(self.rates) > 1 and self.rates[-1] > (1 + _LEAST_STEP) * self.rates[-2]

    @cached_property
    def room(self) -> float:
        """The share by which the load will rise until a decision is in force: by its trend and its usual moves."""
        return (1 + self._lead) * (1 + self._usual_rise) - 1

    @property
    def _lead(self) -> float:
        slope, now = self._slope, self.rate.value
        return _IN_FORCE * slope / now if slope > 0 and now > 0 else 0.0

    @property
    def _usual_rise(self) -> float:
        if len(self.rates) < _ENOUGH:
            return 0.0
        smooth = [(before + after) / 2 for before, after in pairwise(self.rates)]
        ahead = (max(two) for two in pairwise(smooth[_AHEAD - 1 :]))
        rises = sorted(_rise(before, after) for before, after in zip(smooth, ahead, strict=False))
        rise = rises[int(_FORESEEN * len(rises))]
        usual = math.sqrt(max(0.0, rise**2 - (_NOISE * noise(self.rates)) ** 2))
        back = _rise(smooth[-1], max(smooth[-_ENOUGH:]))
        return min(_TWICE * usual, max(_BEYOND, back), _MOST_ROOM)

    @cached_property
    def rate(self) -> Estimate:
        """Now: the mean of the present level, or the end of its trend, which is known half as well."""
        alike = self.rates[-self.level :]
        mean, count, slope = math.fsum(alike) / len(alike), len(alike), self._slope
        error = noise(self.rates) / math.sqrt(count)
        if slope == 0:
            return Estimate(value=mean, error=error)
        return Estimate(value=max(0.0, mean + slope * (count - 1) / 2), error=2 * error)

    @cached_property
    def _slope(self) -> float:
        return trend(self.rates[-self.level :], noise(self.rates))


def _rise(before: float, after: float) -> float:
    return max(0.0, after / before - 1) if before > 0 else 0.0
