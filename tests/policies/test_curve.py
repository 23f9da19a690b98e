"""Learned capacity curves: exact laws are recovered, noise is not believed, and the inverse is an inverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastream.policies.curve import LearnedCurve, Linear, PowerSpeedup, ScalabilityLaw, learn
from elastream.policies.knowledge import CapacityPoint

Capacity = Callable[[float], float]


def power(alpha: float, beta: float) -> Capacity:
    return lambda n: alpha * n**beta


def scalability(alpha: float, contention: float, coherence: float = 0.0) -> Capacity:
    """The universal scalability law; without coherence it is Amdahl's law."""
    return lambda n: alpha * n / (1 + contention * (n - 1) + coherence * n * (n - 1))


def seen(capacity: Capacity, instances: Iterable[int], *, saturated: bool = False) -> list[CapacityPoint]:
    return [CapacityPoint(parallelism=n, true_per_s=capacity(n), saturated=saturated) for n in instances]


def learned(capacity: Capacity, *instances: int) -> LearnedCurve:
    curve = learn(seen(capacity, instances))
    assert curve is not None
    return curve


# --- plain ------------------------------------------------------------------------------------------------------


def test_plain_ds2_takes_every_instance_to_add_the_same() -> None:
    line = Linear(50.0)

    assert line.capacity(4) == 200.0
    assert line.needed(200.0) == 4.0


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(4, 200.0)],
        [(1, 100.0), (4, 100.0)],  # no rise, no shape
        [(1, 100.0), (4, 80.0)],
    ],
)
def test_fewer_than_two_useful_points_are_no_curve(points: list[tuple[int, float]]) -> None:
    assert learn([CapacityPoint(parallelism=n, true_per_s=capacity) for n, capacity in points]) is None


# --- laws that are recovered ------------------------------------------------------------------------------------


@given(st.floats(0.25, 1.0), st.floats(1e-3, 1e6), st.sets(st.integers(1, 64), min_size=2, max_size=6))
@settings(deadline=None)
def test_a_power_law_is_recovered_from_any_two_of_its_points(
    beta: float, alpha: float, instances: set[int]
) -> None:
    curve = learned(power(alpha, beta), *instances)

    assert isinstance(curve.law, PowerSpeedup)
    assert curve.law.exponent == pytest.approx(beta, abs=1e-6)
    lowest, highest = min(instances), max(instances)
    for n in (lowest, (lowest + highest) / 2, highest, highest * min(2.0, highest / lowest)):
        assert curve.capacity(n) == pytest.approx(alpha * n**beta, rel=1e-6)
        assert curve.needed(alpha * n**beta) == pytest.approx(n, rel=1e-6)


@pytest.mark.parametrize("contention", [0.05, 0.1, 0.3])
def test_amdahls_law_is_recovered_from_three_points(contention: float) -> None:
    capacity = scalability(100.0, contention)

    curve = learned(capacity, 1, 4, 16)

    assert isinstance(curve.law, ScalabilityLaw)
    assert curve.law.contention == pytest.approx(contention, rel=1e-6)
    assert curve.law.coherence == pytest.approx(0.0, abs=1e-9)
    assert curve.capacity(60) == pytest.approx(capacity(60), rel=1e-6)
    assert curve.needed(capacity(60)) == pytest.approx(60, rel=1e-6)


@pytest.mark.parametrize(("contention", "coherence"), [(0.0, 0.002), (0.05, 0.001), (0.1, 0.0005)])
def test_the_cost_of_coherence_is_recovered_too(contention: float, coherence: float) -> None:
    capacity = scalability(100.0, contention, coherence)

    curve = learned(capacity, 1, 3, 9)

    assert isinstance(curve.law, ScalabilityLaw)
    assert curve.law.contention == pytest.approx(contention, abs=1e-6)
    assert curve.law.coherence == pytest.approx(coherence, rel=1e-3)
    assert curve.needed(capacity(16)) == pytest.approx(16, rel=1e-3)


def test_points_near_a_power_law_are_taken_for_one() -> None:
    noisy = [(1, 101.0), (4, 199.0), (16, 402.0)]

    curve = learn([CapacityPoint(parallelism=n, true_per_s=capacity) for n, capacity in noisy])

    assert curve is not None
    assert isinstance(curve.law, PowerSpeedup)
    assert curve.law.exponent == pytest.approx(0.5, abs=0.01)


# --- measurements that are not believed -------------------------------------------------------------------------


def test_growth_above_linear_is_taken_as_noise() -> None:
    curve = learned(power(100.0, 1.4), 2, 4)

    assert curve.law == PowerSpeedup(1.0)
    assert curve.needed(curve.capacity(4) * 2) == pytest.approx(8.0)


def test_almost_no_growth_is_not_extrapolated_without_end() -> None:
    assert learned(power(100.0, 0.01), 2, 4).law == PowerSpeedup(0.2)


def test_points_that_do_not_rise_are_passed_over() -> None:
    dip = [(1, 100.0), (4, 90.0), (9, 300.0)]

    curve = learn([CapacityPoint(parallelism=n, true_per_s=capacity) for n, capacity in dip])

    assert curve is not None
    assert [n for n, _ in curve.points] == [4, 9]


def test_the_order_in_which_the_points_were_seen_does_not_matter() -> None:
    points = seen(power(100.0, 0.7), (1, 3, 9))

    assert learn(points) == learn(points[::-1])


def test_what_was_only_timed_does_not_lift_the_curve_above_what_was_seen_at_saturation() -> None:
    sure = seen(power(100.0, 0.5), (1, 4), saturated=True)
    flattering = CapacityPoint(parallelism=8, true_per_s=500.0)

    curve = learn([*sure, flattering])

    assert curve is not None
    assert curve.capacity(8) <= 100.0 * math.sqrt(8) * (1 + 1e-9)


# --- the inverse ------------------------------------------------------------------------------------------------

POINTS = st.dictionaries(st.integers(1, 200), st.floats(1e-3, 1e6), min_size=2, max_size=8).map(
    lambda found: [CapacityPoint(parallelism=n, true_per_s=capacity) for n, capacity in found.items()]
)


def some_curve(points: list[CapacityPoint]) -> LearnedCurve:
    curve = learn(points)
    assume(curve is not None)
    assert curve is not None
    return curve


@given(POINTS, st.floats(1e-6, 1e9))
@settings(deadline=None)
def test_what_is_needed_for_a_rate_can_do_that_rate(points: list[CapacityPoint], rate: float) -> None:
    curve = some_curve(points)
    needed = curve.needed(rate)
    highest, at_highest = curve.points[-1]
    furthest = highest * max(highest / curve.points[0][0], rate / at_highest)

    assert 0 < needed <= furthest * (1 + 1e-9)
    if needed < furthest * (1 - 1e-9):
        assert curve.capacity(needed) == pytest.approx(rate, rel=1e-5)


@given(POINTS, st.floats(1e-6, 1e9), st.floats(1, 100))
@settings(deadline=None)
def test_more_needs_more_and_more_do_more(points: list[CapacityPoint], rate: float, growth: float) -> None:
    curve = some_curve(points)

    assert curve.needed(rate * growth) >= curve.needed(rate) * (1 - 1e-9)
    assert curve.capacity(rate * growth) >= curve.capacity(rate) * (1 - 1e-9)


@given(POINTS)
@settings(deadline=None)
def test_the_curve_goes_through_the_points_that_it_kept(points: list[CapacityPoint]) -> None:
    curve = some_curve(points)

    for n, capacity in curve.points:
        assert curve.capacity(n) == pytest.approx(capacity, rel=1e-9)
        assert curve.needed(capacity) == pytest.approx(n, rel=1e-6)


@given(st.floats(0.2, 1.0), st.floats(0.001, 1.0))
@settings(deadline=None)
def test_shrinking_is_never_too_bold_for_a_sub_linear_operator(beta: float, share: float) -> None:
    """Below the lowest point the curve is a guess, and it errs on the side of too many."""
    capacity = power(100.0, beta)
    curve = learned(capacity, 8, 16)
    rate = share * capacity(8)

    assert capacity(curve.needed(rate)) >= rate * (1 - 1e-9)


# --- extrapolation ----------------------------------------------------------------------------------------------


def test_extrapolation_goes_no_further_up_than_the_points_reach_down() -> None:
    """Points from 4 to 8 say something up to 16, although √n would want 128 for four times the rate."""
    curve = learned(power(100.0, 0.5), 4, 8)

    assert curve.needed(1.2 * curve.capacity(8)) == pytest.approx(8 * 1.2**2)
    assert curve.needed(1.9 * curve.capacity(8)) == 16.0


def test_the_limit_is_never_below_what_plain_ds2_would_ask_for() -> None:
    curve = learned(power(100.0, 0.5), 4, 8)

    assert curve.needed(10 * curve.capacity(8)) == pytest.approx(80.0)


@pytest.mark.parametrize("rate", [1e12, 1e100, 1e300])
def test_an_absurd_rate_needs_absurdly_many_but_does_not_fail(rate: float) -> None:
    assert learned(power(1.0, 0.2), 1, 2).needed(rate) >= rate / 2


def test_beyond_the_peak_more_instances_do_no_less() -> None:
    """σ = 0, κ = 1/100: ten do the most; the other ninety of a hundred are better left idle."""
    law = ScalabilityLaw(contention=0.0, coherence=0.01)

    assert law.peak == pytest.approx(10.0)
    assert law.speedup(100) == law.speedup(10) == law.speedup(math.inf)
    assert law.instances(law.speedup(10)) == pytest.approx(10.0, rel=1e-6)
    assert law.instances(law.speedup(10) * 1.01) == math.inf


def test_the_limits_of_amdahls_law_are_known() -> None:
    law = ScalabilityLaw(contention=0.1, coherence=0.0)

    assert law.peak == math.inf
    assert law.speedup(math.inf) == pytest.approx(10.0)
    assert law.instances(9.0) == pytest.approx(81.0)
    assert law.instances(11.0) == math.inf
    assert ScalabilityLaw(0.0, 0.0).speedup(math.inf) == math.inf


@given(st.floats(0, 0.9), st.floats(0, 0.1), st.floats(1, 1e4))
@settings(deadline=None)
def test_the_scalability_law_is_inverted_up_to_its_peak(
    contention: float, coherence: float, instances: float
) -> None:
    law = ScalabilityLaw(contention, coherence)
    n = min(instances, law.peak * 0.99) if law.peak > 1.02 else 1.0

    assert law.instances(law.speedup(n)) == pytest.approx(n, rel=1e-3)


def test_a_law_is_written_as_a_formula() -> None:
    assert str(PowerSpeedup(0.5)) == "n^0.50"
    assert str(ScalabilityLaw(0.05, 0.001)) == "n/(1 + 0.05·(n−1) + 0.001·n·(n−1))"
