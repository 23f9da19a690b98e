"""How an operator's capacity depends on its parallelism: learned from the points that were seen.

Plain DS2 assumes that n instances do n times the work of one. Where they do less it creeps up, each step
correcting the last. Once an operator was measured at two parallelisms the shape shows, and a capacity of α·n^β
through the points gives the answer at once:

- between two points that were seen: the power law through them;
- above the highest: α·n^β fitted to all of them; where three or more points plainly do not lie on a power law,
  the universal scalability law (contention and coherence, of which Amdahl's law is a part) fitted to them;
- below the lowest: for a few instances fewer, with the exponent in the middle between that of the two lowest
  points, if the power law goes on, and 1, if the curve straightens as Amdahl's does; further down proportional,
  so that shrinking is not too bold for an operator that scales sub-linearly.

β stays within (0, 1]: measurements that suggest more than linear growth are taken as noise. So is what was only
timed and lies above the law of the points that were seen at saturation: an operator that keeps up is not shrunk
because it once looked faster than everything that is known for sure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, linear_regression

import numpy as np
from scipy.optimize import nnls

from elastream.measurement.batch_cost import BatchCost
from elastream.policies.knowledge import CapacityPoint

_LEAST_EXPONENT = 0.2
_ROUNDING = 1e-9
_REACH_DOWN = 1.25  # times fewer instances than the lowest point has: further down the exponent is too unsure
_WORTHWHILE = 0.05  # of the capacity: what one more instance must add where keys are skewed
_MISFIT = 0.01  # root mean square residual, as a share of the capacity, that a power law may have


@dataclass(frozen=True, slots=True)
class Linear:
    """Plain DS2: every instance adds the same."""

    per_instance_per_s: float

    def capacity(self, instances: float) -> float:
        return self.per_instance_per_s * instances

    def needed(self, records_per_s: float) -> float:
        return records_per_s / self.per_instance_per_s


@dataclass(frozen=True, slots=True)
class PowerSpeedup:
    """Capacity relative to one instance: n^β."""

    exponent: float

    def speedup(self, instances: float) -> float:
        return float(instances**self.exponent)

    def instances(self, speedup: float) -> float:
        return float(speedup ** (1 / self.exponent))

    def __str__(self) -> str:
        return f"n^{self.exponent:.2f}"


@dataclass(frozen=True, slots=True)
class ScalabilityLaw:
    """Capacity relative to one instance: n / (1 + σ·(n − 1) + κ·n·(n − 1))."""

    contention: float
    coherence: float

    @property
    def peak(self) -> float:
        """The instances beyond which more of them do less."""
        return math.sqrt(max(0.0, 1 - self.contention) / self.coherence) if self.coherence > 0 else math.inf

    def speedup(self, instances: float) -> float:
        """The most that so many can do: those beyond the peak are better left idle."""
        n = max(1.0, min(instances, self.peak))
        if math.isinf(n):
            return 1 / self.contention if self.contention > 0 else math.inf
        return n / (1 + self.contention * (n - 1) + self.coherence * n * (n - 1))

    def instances(self, speedup: float) -> float:
        """The smaller root of κ·S·n² − (1 − σ·S + κ·S)·n + (1 − σ)·S; infinite beyond the peak."""
        if speedup > self.speedup(math.inf) * (1 + _ROUNDING):
            return math.inf
        a = self.coherence * speedup
        b = 1 - self.contention * speedup + self.coherence * speedup
        c = (1 - self.contention) * speedup
        divisor = b + math.sqrt(max(0.0, b * b - 4 * a * c))
        return 2 * c / divisor if divisor > 0 else math.inf

    def __str__(self) -> str:
        return f"n/(1 + {self.contention:.3g}·(n−1) + {self.coherence:.2g}·n·(n−1))"


@dataclass(frozen=True, slots=True)
class LearnedCurve:
    """Capacity through measured points, at least two, of different parallelism, in ascending order."""

    points: tuple[tuple[float, float], ...]
    law: PowerSpeedup | ScalabilityLaw
    """Above the highest point."""

    def capacity(self, instances: float) -> float:
        (lowest, at_lowest), (highest, at_highest) = self._foot, self.points[-1]
        if instances <= lowest:
            return at_lowest * instances / lowest
        if instances >= highest:
            return at_highest * self.law.speedup(instances) / self.law.speedup(highest)
        (n1, c1), (n2, c2) = next(pair for pair in self._stretches if instances <= pair[1][0])
        return float(c1 * (instances / n1) ** (math.log(c2 / c1) / math.log(n2 / n1)))

    def needed(self, records_per_s: float) -> float:
        lowest, at_lowest = self._foot
        if records_per_s <= at_lowest:
            return lowest * records_per_s / at_lowest
        for (n1, c1), (n2, c2) in self._stretches:
            if records_per_s <= c2:
                return float(n1 * (n2 / n1) ** (math.log(records_per_s / c1) / math.log(c2 / c1)))
        highest, at_highest = self.points[-1]
        growth = records_per_s / at_highest
        # Extrapolate no further up than the points reach down, but never less than plain DS2 would.
        furthest = highest * max(highest / self.points[0][0], growth)
        wanted = growth * self.law.speedup(highest)
        if wanted > self.law.speedup(furthest) * (1 + _ROUNDING):
            return furthest
        return min(furthest, self.law.instances(wanted))

    @property
    def _stretches(self) -> Iterable[tuple[tuple[float, float], tuple[float, float]]]:
        return pairwise((self._foot, *self.points))

    @property
    def _foot(self) -> tuple[float, float]:
        """Where the curve becomes proportional: a little below the lowest point."""
        (n1, c1), (n2, c2) = self.points[:2]
        exponent = min(1.0, math.log(c2 / c1) / math.log(n2 / n1))
        reach = min(n2 / n1, _REACH_DOWN)
        return n1 / reach, float(c1 / reach ** ((1 + exponent) / 2))


EvenCurve = Linear | LearnedCurve | BatchCost


@dataclass(frozen=True, slots=True)
class Skewed:
    """A curve for even keys, where the hottest key has a share h of the records.

    A key is on one instance. Of n the one with the hottest key gets h + (1 − h) / n of the records, so together
    they do the work of 1 / (h + (1 − h) / n) that are evenly loaded, and never that of more than 1 / h.
    """

    even: EvenCurve
    hottest: float

    def capacity(self, instances: float) -> float:
        return self.even.capacity(self.worth(instances))

    def needed(self, records_per_s: float) -> float:
        even = self.even.needed(records_per_s)
        if even <= 1:
            return even
        left = 1 / even - self.hottest
        return (1 - self.hottest) / left if left > 0 else math.inf

    def worth(self, instances: float) -> float:
        """The evenly loaded instances that do as much."""
        if instances <= 1:
            return instances
        return 1 / (self.hottest + (1 - self.hottest) / instances)

    @property
    def worthwhile(self) -> int:
        """The instances beyond which one more gains next to nothing."""
        n = 1
        while self.worth(n + 1) >= (1 + _WORTHWHILE) * self.worth(n):
            n += 1
        return n


Curve = EvenCurve | Skewed


def learn(points: Sequence[CapacityPoint]) -> LearnedCurve | None:
    """The curve through what was seen; None with fewer than two useful points."""
    ascending = sorted(points, key=lambda point: point.parallelism)
    sure = _through([point for point in ascending if point.saturated])
    return _through(ascending if sure is None else [_below(sure, point) for point in ascending])


def _below(sure: LearnedCurve, point: CapacityPoint) -> CapacityPoint:
    """What was timed, at most as high as the law through the points that are sure has it."""
    (lowest, _), (highest, at_highest) = sure.points[0], sure.points[-1]
    limit = sure.capacity(point.parallelism)
    # as far as the law may be extrapolated, and not where it falls: there something is wrong with the law
    trusted = highest < point.parallelism <= highest * highest / lowest and limit > at_highest
    return replace(point, true_per_s=min(point.true_per_s, limit)) if trusted else point


def _through(points: Iterable[CapacityPoint]) -> LearnedCurve | None:
    """Points of ascending parallelism."""
    rising: list[tuple[float, float]] = []
    for point in points:
        # A point no higher than one with fewer instances tells of noise or of saturation; the curve must
        # rise to be inverted.
        while rising and rising[-1][1] >= point.true_per_s:
            rising.pop()
        rising.append((float(point.parallelism), point.true_per_s))
    return LearnedCurve(tuple(rising), _law(rising)) if len(rising) >= 2 else None


def _law(points: list[tuple[float, float]]) -> PowerSpeedup | ScalabilityLaw:
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(capacity) for _, capacity in points]
    slope, intercept = linear_regression(xs, ys)
    misfit = math.sqrt(fmean((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True)))
    if len(points) >= 3 and misfit > _MISFIT:
        law, misfit_of_law = _scalability_law(points)
        if misfit_of_law < misfit:
            return law
    return PowerSpeedup(min(1.0, max(_LEAST_EXPONENT, slope)))


def _scalability_law(points: list[tuple[float, float]]) -> tuple[ScalabilityLaw, float]:
    """n / capacity is linear in (1, n − 1, n·(n − 1)), so non-negative least squares finds the parameters."""
    n = np.array([instances for instances, _ in points])
    capacity = np.array([capacity for _, capacity in points])
    # each row is weighted by capacity / n, so that errors count relative to the point
    terms = np.column_stack([np.ones_like(n), n - 1, n * (n - 1)]) * (capacity / n)[:, None]
    (unit, contention, coherence), _ = nnls(terms, np.ones_like(n))
    if unit <= 0:
        return ScalabilityLaw(0.0, 0.0), math.inf
    misfit = float(np.sqrt(np.mean((terms @ [unit, contention, coherence] - 1) ** 2)))
    return ScalabilityLaw(float(contention / unit), float(coherence / unit)), misfit
