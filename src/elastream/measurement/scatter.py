"""How much a series of measurements scatters, and whether it has just made a step.

The scatter is estimated from the differences of neighbours, which a slow trend hardly moves, by a quantile of
them, which a single step does not move. Values that go to and fro all the time are scatter; one that leaves and
stays is a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

STANDS_OUT = 4.0
"""Standard deviations: what is further away is not explained by scatter."""
_PRIOR = 0.03  # the relative standard deviation that is assumed before anything was seen
_PRIOR_WEIGHT = 2  # differences that this assumption counts for
_RECENT = 20  # differences that are looked at
_QUANTILE, _NORMAL = 0.7, 1.466  # of absolute differences, and what it is of normal values with a deviation of 1
_LEAST = 0.002  # smaller steps than this are nobody's affair
_TREND = 4  # values of which the median shows a trend
_ONE_BELOW = 0.159  # of normal values lie more than one deviation below the mean
_FEW = 8  # values say nothing of that
MEDIAN = math.sqrt(math.pi / 2)
"""The standard error of a median over that of a mean."""


def scatter(values: Sequence[float]) -> float:
    """The relative standard deviation of values that are about the same, but for a few steps."""
    recent = values[-_RECENT - 1 :]
    changes = sorted(abs(_relative(a, b)) for a, b in pairwise(recent))
    if not changes:
        return _PRIOR
    usual = changes[min(len(changes) - 1, int(_QUANTILE * len(changes)))] / _NORMAL
    weight = len(changes)
    return math.sqrt((weight * usual**2 + _PRIOR_WEIGHT * _PRIOR**2) / (weight + _PRIOR_WEIGHT))


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


def _relative(before: float, after: float) -> float:
    """The change as a share of the mean of both: from -2 to 2, and the same there and back."""
    return 2 * (after - before) / (after + before) if after + before > 0 else 0.0
