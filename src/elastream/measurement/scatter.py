"""How much a series of measurements scatters, and whether it has just made a step.

The scatter is estimated from the differences of neighbours, which a slow trend hardly moves, by a quantile of
them, which a single step does not move. Values that go to and fro all the time are scatter; one that leaves and
stays is a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

STANDS_OUT = 4.0
"""Standard deviations: what is further away is not explained by scatter."""
_PRIOR = 0.03  # the relative standard deviation that is assumed before anything was seen
_PRIOR_WEIGHT = 2  # differences that this assumption counts for
_RECENT = 20  # differences that are looked at
_QUANTILE, _NORMAL = 0.7, 1.466  # of absolute differences, and what it is of normal values with a deviation of 1
_LEAST = 0.002  # smaller steps than this are nobody's affair
_LEAST_TREND = 3  # values show one
_FAR = 3  # values apart
_TREND = 4  # values of which the median shows a trend
_ONE_BELOW = 0.159  # of normal values lie more than one deviation below the mean
_FEW = 8  # values say nothing of that
MEDIAN = math.sqrt(math.pi / 2)
"""The standard error of a median over that of a mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    value: float
    error: float
    """Its relative standard error."""


def scatter(values: Sequence[float]) -> float:
    """The relative standard deviation of values that are about the same, but for a few steps."""
    recent = values[-_RECENT - 1 :]
    changes = _changes(recent, 1)
    if not changes:
        return _PRIOR
    usual = changes[min(len(changes) - 1, int(_QUANTILE * len(changes)))] / _NORMAL
    weight = len(changes)
    return math.sqrt((weight * usual**2 + _PRIOR_WEIGHT * _PRIOR**2) / (weight + _PRIOR_WEIGHT))


def noise(values: Sequence[float]) -> float:
    """The part of the scatter that is not a move of the level: of what moves, values that lie further apart differ
    by more; of what only scatters, they do not."""
    near, far = _apart(values, 1), _apart(values, _FAR)
    if near is None or far is None:
        return scatter(values)
    moves = max(0.0, (far**2 - near**2) / (_FAR - 1))
    weight = len(values) - 1
    own = max(0.0, near**2 - moves) / 2
    return math.sqrt((weight * own + _PRIOR_WEIGHT * _PRIOR**2) / (weight + _PRIOR_WEIGHT))


def trend(values: Sequence[float], spread: float) -> float:
    """By how much they rise from one to the next, by least squares; 0 where that does not stand out from noise of
    this relative standard deviation."""
    count = len(values)
    if count < _LEAST_TREND:
        return 0.0
    middle, mean = (count - 1) / 2, math.fsum(values) / count
    squares = (count**3 - count) / 12
    slope = math.fsum([(index - middle) * value for index, value in enumerate(values)]) / squares
    return slope if abs(slope) > STANDS_OUT * spread * mean / math.sqrt(squares) else 0.0


def _apart(values: Sequence[float], lag: int) -> float | None:
    """The relative standard deviation of the difference of values that lie so far apart."""
    changes = _changes(values, lag)
    if len(changes) < _FEW:
        return None
    return changes[int(_QUANTILE * len(changes))] * math.sqrt(2) / _NORMAL


def scatter_below(values: Sequence[float]) -> float:
    """The relative standard deviation of values that are cut off above, from those below their median."""
    middle = median(values)
    if len(values) < _FEW or middle <= 0:
        return 0.0
    return (middle - sorted(values)[round(_ONE_BELOW * (len(values) - 1))]) / middle


def new_level(
    values: Sequence[float], *, of: Sequence[float] | None = None, confirmed_by: int = 1, least: float = 0.0
) -> int:
    """The index from which on the values are about the same, as all but the newest were.

    A step counts once so many values in a row stand out to the same side: one of a load, which is followed at
    once, two of a cost, which a single stalled window must not move; a trend once the median of a few does. Less
    than the `least` change is never a step. The scatter is that of these values, or that of a longer series.
    """
    usual = max(scatter((values if of is None else of)[:-1]), _LEAST)
    for few in (confirmed_by, _TREND):
        before, newest = values[:-few], values[-few:]
        if before and _stands_out(before, newest, usual, least):
            return len(values) - few
    return 0


def _stands_out(before: Sequence[float], newest: Sequence[float], usual: float, least: float) -> bool:
    """Whether the newest values are on one side of those before, further than the scatter explains."""
    mean = math.fsum(before) / len(before)
    middling = len(newest) >= _TREND
    shown = [median(newest)] if middling else newest
    spread = usual * math.sqrt((MEDIAN**2 / len(newest) if middling else 1) + 1 / len(before))
    off = [_relative(mean, value) for value in shown]
    enough = max(STANDS_OUT * spread, least)
    return min(off) > enough or max(off) < -enough


def _changes(values: Sequence[float], lag: int) -> list[float]:
    """By how much values that lie so far apart differ, relatively, in ascending order."""
    pairs = zip(values, values[lag:], strict=False)
    return sorted([2 * abs(b - a) / (a + b) if a + b > 0 else 0.0 for a, b in pairs])


def _relative(before: float, after: float) -> float:
    """The change as a share of the mean of both: from -2 to 2, and the same there and back."""
    return 2 * (after - before) / (after + before) if after + before > 0 else 0.0
