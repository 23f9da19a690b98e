"""Values that differ from one time to the next: their median, and how sure it is.

The machine is noisy, so what is compared is measured in alternating pairs, close to each other in time, and what
counts is the median of the pairs' ratios. The interval is that of the percentile bootstrap, seeded: the same
values give the same interval.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

_RESAMPLES = 4_000


@dataclass(frozen=True, kw_only=True)
class Estimate:
    value: float
    low: float
    high: float

    @property
    def between(self) -> tuple[float, float]:
        return self.low, self.high

    def minus_from(self, whole: float) -> Estimate:
        """`whole` less this: the least becomes the most."""
        return Estimate(value=whole - self.value, low=whole - self.high, high=whole - self.low)


def median_between(values: Sequence[float]) -> Estimate:
    """The median, and the interval in which it lies with 95 % certainty."""
    if not values:
        raise ValueError("a median needs at least one value")
    rng = random.Random(0)
    found = sorted(median(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    cut = round(0.025 * _RESAMPLES)
    return Estimate(value=median(values), low=found[cut], high=found[-1 - cut])


def ratio_of_pairs(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Of each pair the first by the second."""
    return median_between([first / second for first, second in pairs])


def p95(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else quantiles(values, n=20, method="inclusive")[-1]
