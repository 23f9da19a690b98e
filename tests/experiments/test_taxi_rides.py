from __future__ import annotations

from statistics import fmean

import pytest

from elastream.arrivals.load import bundled_trace
from experiments.workloads.taxi_rides import TaxiRides

MINUTES = range(288)


def rates(seed: int = 0, rides: TaxiRides | None = None) -> list[float]:
    load = (rides or TaxiRides()).load(seed)
    return [load.rate_at(60 * minute + 30) for minute in MINUTES]


def test_two_days_are_played_in_a_tenth_of_the_time() -> None:
    assert TaxiRides().duration_s == 288 * 60


def test_a_million_rides_come_three_times_each() -> None:
    assert sum(rates()) * 60 == pytest.approx(3_000_000, rel=0.005)


def test_the_shape_is_that_of_wednesday_and_thursday() -> None:
    trace = bundled_trace("nyc_taxi")
    shape = [trace.rate_at(2 * 86_400 + 4 * 3600 + 600 * (minute + 0.5)) for minute in MINUTES]
    scale = fmean(rates()) / fmean(shape)
    assert rates() == pytest.approx([scale * part for part in shape], rel=0.2)


def test_it_has_both_strong_falls_of_the_paper() -> None:
    """At 120 and at 270 minutes; within half an hour the load falls by half, and not at any other time."""
    load = rates()
    strong = [minute for minute in range(258) if load[minute + 30] < 0.5 * load[minute]]
    first, second = [m for m in strong if m < 144], [m for m in strong if m >= 144]
    assert 90 <= min(first) <= 120 <= max(first) + 30 <= 160
    assert 235 <= min(second) <= 270 <= max(second) + 30
    from_midnight = rates(rides=TaxiRides(first_hour=0))
    assert not any(from_midnight[minute + 30] < 0.5 * from_midnight[minute] for minute in range(200, 258))


def test_the_noise_is_poissons_and_belongs_to_the_seed() -> None:
    assert rates(1) == rates(1)
    differences = [(a - b) ** 2 for a, b in zip(rates(1), rates(2), strict=True)]
    # the variance of a difference of two counts is twice their mean; a count is 20 times the rate
    counts = [20 * rate for rate in rates(1)]
    assert fmean(differences) * 20**2 == pytest.approx(2 * fmean(counts), rel=0.3)


def test_one_record_for_each_ride_is_a_third() -> None:
    assert fmean(rates(rides=TaxiRides(replication=1))) == pytest.approx(fmean(rates()) / 3)
