"""What arrives at a source: steps, trends, noise, and the room that a load asks for."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from elastream.measurement.arrivals import Arrivals
from elastream.measurement.scatter import noise, scatter, trend


def seen(rates: Iterable[float]) -> Arrivals:
    arrivals = Arrivals()
    for rate in rates:
        arrivals = arrivals.with_rate(rate)
    return arrivals


def noisy(level: float, share: float, windows: int, *, seed: int = 1) -> list[float]:
    draws = random.Random(seed)
    return [level * (1 + draws.gauss(0, share)) for _ in range(windows)]


class TestSteps:
    def test_a_step_is_followed_at_once(self) -> None:
        assert seen([*noisy(100, 0.01, 10), 200.0]).rate.value == 200.0

    def test_of_a_window_with_a_step_its_end_counts(self) -> None:
        arrivals = seen(noisy(360, 0.01, 10)).with_rate(580.0, 720.0)
        assert arrivals.rate.value == 720.0
        assert arrivals.stepped_up
        assert not arrivals.with_rate(715.0, 722.0).stepped_up
        assert arrivals.with_rate(715.0, 722.0).rate.value == pytest.approx(717.5)

    def test_a_step_within_the_end_is_awaited_for_one_window(self) -> None:
        """Sizing for half of it, and an action later for the rest, took twice as long."""
        arrivals = seen(noisy(360, 0.01, 10)).with_rate(396.0, 470.0)
        assert arrivals.rate.value == pytest.approx(360, rel=0.01)
        assert not arrivals.stepped_up
        assert arrivals.with_rate(720.0, 720.0).rate.value == 720.0
        assert arrivals.with_rate(396.0, 470.0).rate.value == pytest.approx(470), "but not for longer"

    def test_a_fall_counts_by_its_end_too(self) -> None:
        arrivals = seen(noisy(720, 0.01, 10)).with_rate(450.0, 240.0)
        assert arrivals.rate.value == 240.0
        assert not arrivals.stepped_up

    def test_an_end_that_leads_back_is_no_level(self) -> None:
        assert seen(noisy(100, 0.01, 10)).with_rate(200.0, 110.0).rate.value == 200.0

    def test_within_a_level_the_end_of_a_window_says_nothing(self) -> None:
        arrivals = seen([100.0] * 10).with_rate(100.5, 130.0)
        assert arrivals.rate.value == pytest.approx(100.05, abs=0.01)


class TestTrends:
    def test_the_end_of_a_trend_is_the_rate_and_it_leads_on(self) -> None:
        rates = [1000.0 * 1.01**i for i in range(80)]
        arrivals = seen(rates)
        assert arrivals.rate.value == pytest.approx(rates[-1], rel=0.02)
        assert arrivals.rate.value * (1 + arrivals.room) >= rates[-1] * 1.01

    @pytest.mark.parametrize("seed", range(20))
    def test_noise_has_none(self, seed: int) -> None:
        rates = noisy(1000, 0.03, 40, seed=seed)
        assert trend(rates, noise(rates)) == 0

    def test_a_fall_does_not_lead_on(self) -> None:
        assert seen([1000.0 - 5 * i for i in range(40)]).room == 0


class TestNoise:
    @pytest.mark.parametrize("seed", range(5))
    def test_what_only_scatters_is_all_noise(self, seed: int) -> None:
        rates = noisy(1000, 0.05, 60, seed=seed)
        assert noise(rates) == pytest.approx(scatter(rates), rel=0.4)

    def test_what_walks_is_hardly_any(self) -> None:
        draws, rates = random.Random(4), [1000.0]
        for _ in range(60):
            rates.append(rates[-1] * (1 + draws.gauss(0, 0.05)))
        assert noise(rates) < 0.7 * scatter(rates)


class TestRoom:
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.1])
    @pytest.mark.parametrize("seed", range(5))
    def test_a_constant_load_gets_none_however_it_scatters(self, share: float, seed: int) -> None:
        assert seen(noisy(1000, share, 120, seed=seed)).room < 0.02

    def test_one_step_an_hour_is_followed_and_not_foreseen(self) -> None:
        assert seen([1000.0] * 60 + [1400.0] * 60).room == 0

    def test_a_load_that_goes_up_and_down_gets_as_much_as_it_rises(self) -> None:
        rates = [1000.0, 1000.0, 1000.0, 1000.0, 1200.0, 1200.0, 1200.0, 1200.0] * 12
        assert 0.15 <= seen([*rates, 1000.0]).room <= 0.3

    def test_at_its_height_it_gets_little_more(self) -> None:
        rates = [1000.0, 1000.0, 1000.0, 1000.0, 1600.0, 1600.0, 1600.0, 1600.0] * 12
        assert seen(rates).room <= 0.2 < seen([*rates, 1000.0]).room

    def test_zeros_and_a_source_that_comes_back(self) -> None:
        assert seen([0.0] * 70).room == 0
        assert seen([0.0] * 70 + [500.0]).room < 1
