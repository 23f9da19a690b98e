"""The forecaster: what it learns, how far it is trusted, and that no input harms it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.forecast.forecaster import JUDGED, Forecaster
from elastream.forecast.history import LONGEST_S, MOST_SLOTS, History
from elastream.forecast.model import HORIZONS
from elastream.forecast.saved import forecaster_from_dict, forecaster_to_dict
from elastream.forecast.seasons import find_seasons
from elastream.forecast.trust import score

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
ROW_S = 900.0
DAY = int(DAY_S / ROW_S)


def wave(rows: int, *, period: int = DAY, noise: float = 0.02, seed: int = 0) -> np.ndarray:
    turns = np.arange(rows) / period * 2 * np.pi
    random = np.random.default_rng(seed)
    return 1000 * np.exp(0.6 * np.cos(turns) + 0.2 * np.sin(3 * turns) + random.normal(0, noise, rows))


def told(rates: Iterable[float], *, step_s: float = ROW_S, begin_s: float = 0.0) -> Forecaster:
    return Forecaster().warmed((begin_s + row * step_s, float(rate)) for row, rate in enumerate(rates))


def error_over(
    forecaster: Forecaster, rates: np.ndarray, since: int, until: int, ahead: int = 4
) -> tuple[float, Forecaster]:
    """Of forecasts for some rows as a share of the last value's, and the forecaster after them."""
    ours = last_value = 0.0
    for row in range(since, until):
        forecaster = forecaster.observed(row * ROW_S, float(rates[row]))
        then = math.log(rates[row + ahead])
        ours += abs(then - math.log(forecaster.forecast(ahead * ROW_S).median))
        last_value += abs(then - math.log(rates[row]))
    return ours / last_value, forecaster


@pytest.fixture(scope="module")
def four_days() -> Forecaster:
    return told(wave(4 * DAY))


# what it learns


def test_a_day_is_found_and_forecast(four_days: Forecaster) -> None:
    assert DAY_S in four_days.seasons_s
    assert error_over(four_days, wave(6 * DAY), 4 * DAY, 5 * DAY)[0] < 0.25


def test_a_period_of_its_own_is_found() -> None:
    assert find_seasons(np.log(wave(600, period=70)), MINUTE_S)[0] == pytest.approx(70, abs=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_random_walk_has_no_seasons(seed: int) -> None:
    walk = np.cumsum(np.random.default_rng(seed).normal(0, 0.02, 2000))
    assert find_seasons(walk, MINUTE_S) == ()


def test_the_forecast_follows_the_season_at_every_horizon(four_days: Forecaster) -> None:
    expected = wave(5 * DAY, noise=0)
    for hours in (0.25, 1, 2, 4, 6):
        found = four_days.forecast(hours * HOUR_S).median
        assert found == pytest.approx(expected[4 * DAY - 1 + int(hours * HOUR_S / ROW_S)], rel=0.12)


def test_quantiles_rise_and_hold_what_they_say(four_days: Forecaster) -> None:
    forecaster, rates, above = four_days, wave(5 * DAY, seed=1), 0
    for row in range(4 * DAY, 5 * DAY - 1):
        forecaster = forecaster.observed(row * ROW_S, float(rates[row]))
        found = forecaster.forecast(ROW_S)
        assert found.median <= found.quantile(0.8) <= found.quantile(0.95)
        above += rates[row + 1] > found.quantile(0.9)
    assert above / DAY < 0.25


@pytest.mark.parametrize("begin_s", [0.0, 1e9])
def test_it_begins_with_a_recording_of_any_clock(begin_s: float) -> None:
    rates = [(begin_s + row * ROW_S, float(rate)) for row, rate in enumerate(wave(4 * DAY))]
    for now_s in (0.0, 2e9):
        begun = Forecaster.begun_with(rates, now_s)
        assert begun.history.at_s == now_s
        assert begun.scores[3].share == 1.0
    assert Forecaster.begun_with(rates, rates[-1][0] + HOUR_S).history.at_s == rates[-1][0]
    assert Forecaster.begun_with([], 5.0).forecast(60.0).median == 0.0


# how far it is trusted


def test_where_nothing_was_earned_it_is_the_last_value() -> None:
    walk = np.abs(1000 + np.cumsum(np.random.default_rng(3).normal(0, 20, 400)))
    forecaster = told(walk, step_s=MINUTE_S)
    found = forecaster.forecast(5 * MINUTE_S)
    assert found.score.judged > 200
    assert (found.score.share, found.median) == (0.0, walk[-1])
    assert found.quantile(0.9) > found.median


def test_its_error_is_measured_against_that_of_the_last_value(four_days: Forecaster) -> None:
    scores = four_days.scores
    assert [score.horizon_s for score in scores] == [horizon * ROW_S for horizon in HORIZONS]
    assert scores[3].error < 0.5 * scores[3].last_value_error
    assert scores[3].share == 1.0


def test_that_a_mean_tells_more_than_the_last_value_is_no_pattern(four_days: Forecaster) -> None:
    """Who averages what scatters knows it already."""
    random = np.random.default_rng(1)
    around_a_level = told(1000 + random.normal(0, 50, 480), step_s=MINUTE_S)
    assert max(one.share for one in around_a_level.scores) == 1.0
    assert max(one.beyond_level for one in around_a_level.scores) == 0.0
    assert all(one.beyond_level == one.share == 1.0 for one in four_days.scores[2:5])


def test_what_was_never_seen_before_ends_trust_until_it_is_no_longer_new() -> None:
    random = np.random.default_rng(0)
    happened = random.normal(0, 0.1, 200)
    forecast = happened + random.normal(0, 0.02, 200)
    happened[150] = forecast[150] + 0.7
    shares = [score(60.0, 1, forecast[:count], happened[:count]).share for count in (150, 151, 170, 180)]
    assert shares == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.slow
def test_trust_is_lost_when_the_season_is_and_regained() -> None:
    """A launch: from one day on another shape, three times as high."""
    before, after = wave(5 * DAY), 3 * np.roll(wave(5 * DAY, seed=1) ** 1.2 / 4, DAY // 3)
    rates, forecaster, days = np.concatenate((before, after)), told(before), []
    for day in range(5, 9):
        error, forecaster = error_over(forecaster, rates, day * DAY, (day + 1) * DAY)
        days.append(error)
    assert days[0] < 1.5
    assert max(days[1:]) <= 1.01
    assert days[-1] < 0.9


# what comes in


def test_it_is_a_value(four_days: Forecaster) -> None:
    before = forecaster_to_dict(four_days)
    assert four_days.observed(4 * DAY_S, 5000.0) is not four_days
    assert forecaster_to_dict(four_days) == before


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, 1e300])
def test_what_is_no_rate_is_passed_over(four_days: Forecaster, rate: float) -> None:
    assert four_days.observed(4 * DAY_S, rate) is four_days
    assert four_days.observed(math.nan, 1.0) is four_days


def test_no_rate_at_all_and_one_rate() -> None:
    assert Forecaster().forecast(HOUR_S).quantile(0.9) == 0.0
    one = Forecaster().observed(0.0, 7.0).forecast(HOUR_S)
    assert (one.median, one.quantile(0.99), one.score.judged) == (7.0, 7.0, 0)


def test_zeros_stay_zeros() -> None:
    found = told(np.zeros(300)).forecast(HOUR_S)
    assert (found.median, found.quantile(0.99)) == (0.0, 0.0)


def test_a_gap_of_a_day_is_filled_by_the_season_and_forecasts_go_on(four_days: Forecaster) -> None:
    rates = wave(7 * DAY)
    forecaster = four_days.warmed((row * ROW_S, float(rates[row])) for row in range(5 * DAY, 6 * DAY))
    assert forecaster.history.seen.sum() == 5 * DAY
    assert not forecaster.history.seen[4 * DAY : 5 * DAY].any()
    assert error_over(forecaster, rates, 6 * DAY, 7 * DAY - 4)[0] < 0.4


def test_the_rate_grows_a_thousandfold(four_days: Forecaster) -> None:
    forecaster = four_days
    rates = 1000 * wave(6 * DAY)
    for row in range(4 * DAY, 4 * DAY + 20):
        forecaster = forecaster.observed(row * ROW_S, float(rates[row]))
        assert 0.1 * rates[row] < forecaster.forecast(HOUR_S).median < 10 * rates[row]


def test_a_clock_that_is_set_back_takes_only_what_lies_ahead(four_days: Forecaster) -> None:
    back = four_days.observed(4 * DAY_S - 2 * HOUR_S, 1000.0)
    assert len(back.history) == 4 * DAY - 7
    assert back.scores[0].judged >= four_days.scores[0].judged - 8
    assert len(four_days.observed(-DAY_S, 1000.0).history) == 1


def test_a_clock_that_is_set_back_by_days_does_not_stop_the_fits(four_days: Forecaster) -> None:
    rates = wave(4 * DAY)
    back = four_days.warmed((row * ROW_S, float(rates[row])) for row in range(2 * DAY, 4 * DAY))
    assert max(back.tried) <= back.history.newest
    assert back.scores[3].share == 1.0


@pytest.mark.slow
def test_the_interval_may_vary() -> None:
    random = np.random.default_rng(0)
    times_s = np.cumsum(random.uniform(40, 90, 700))
    forecaster = Forecaster().warmed((t, 1000 * math.exp(0.5 * math.sin(t / 2000))) for t in times_s)
    assert forecaster.history.step_s == MINUTE_S  # 30 s at first, of which half saw no rate
    expected = 1000 * math.exp(0.5 * math.sin((times_s[-1] + 900) / 2000))
    assert forecaster.forecast(900.0).median == pytest.approx(expected, rel=0.05)


def test_memory_is_bounded_and_slots_widen_until_it_holds_two_weeks() -> None:
    history = History()
    for second in range(0, 20_000 * 10, 10):
        history = history.observed(second, 5.0)
        history = history.widened() if history.is_to_be_widened else history
        assert len(history) <= MOST_SLOTS
    assert history.step_s == 40.0
    wide = History(step_s=LONGEST_S / MOST_SLOTS, rates=np.ones(MOST_SLOTS), seen=np.ones(MOST_SLOTS, dtype=bool))
    assert not wide.is_to_be_widened
    assert len(wide.observed(LONGEST_S + 1, 1.0)) == MOST_SLOTS


def test_trust_outlives_slots_that_are_widened() -> None:
    forecaster = told(wave(4 * DAY))
    wider = forecaster._widened()
    assert wider.history.step_s == 2 * ROW_S
    assert wider.scores[1].judged == pytest.approx(forecaster.scores[3].judged / 2, abs=10)
    rates = wave(6 * DAY)
    for row in range(4 * DAY, 6 * DAY):
        wider = wider.observed(row * ROW_S, float(rates[row]))
    assert wider.made.shape[1] <= min(JUDGED, len(wider.history))
    assert DAY_S in wider.seasons_s
    assert wider.scores[2].share == 1.0


RATES = st.floats(min_value=0, max_value=1e12) | st.sampled_from([0.0, math.nan, math.inf, -1.0, 1e17])
GAPS_S = st.floats(min_value=0.01, max_value=2 * DAY_S) | st.sampled_from([60.0, 60.0, 60.0, -3600.0, 1e9])


@settings(max_examples=40)
@given(st.lists(st.tuples(GAPS_S, RATES), max_size=30), st.integers(0, 3), st.floats(0, 1e6))
def test_whatever_comes_in_a_forecast_is_a_rate(
    seen: list[tuple[float, float]], before: int, horizon_s: float
) -> None:
    forecaster, at_s = told(wave(before * 80, period=24), step_s=MINUTE_S), before * 80 * MINUTE_S
    for passed_s, rate in seen:
        at_s += passed_s
        forecaster = forecaster.observed(at_s, rate)
        found = forecaster.forecast(horizon_s)
        assert 0 <= found.median <= found.quantile(0.95) < math.inf
        assert len(forecaster.history) <= MOST_SLOTS
        assert forecaster.made.shape[1] <= JUDGED


# how it is kept


def test_it_is_saved_and_goes_on_as_if_nothing_was(four_days: Forecaster) -> None:
    text = json.dumps(forecaster_to_dict(four_days))
    assert len(text) < 120_000
    again = forecaster_from_dict(json.loads(text))
    rates = wave(5 * DAY)
    for row in range(4 * DAY, 4 * DAY + 50):
        four_days = four_days.observed(row * ROW_S, float(rates[row]))
        again = again.observed(row * ROW_S, float(rates[row]))
    for hours in (0.25, 1, 3):
        one, other = four_days.forecast(hours * HOUR_S), again.forecast(hours * HOUR_S)
        assert other.median == pytest.approx(one.median, rel=1e-4)
        assert other.quantile(0.9) == pytest.approx(one.quantile(0.9), rel=1e-4)


def test_a_new_one_can_be_saved_too() -> None:
    assert forecaster_from_dict(forecaster_to_dict(Forecaster())).forecast(60.0).median == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 0}, "version 1 was expected, found 0"),
        ({"version": 2}, "version 1 was expected, found 2"),
        ({"fits": []}, "fits"),
        ({"rates": "no"}, "not what was saved"),
        ({"unseen": [10**6]}, "not what was saved"),
        ({"step_s": -1.0}, "step_s"),
        ({"seasons": [0]}, "seasons"),
        ({"fits": [{"seasons": [], "weights": [1.0], "least": -1.0, "most": 1.0}] * len(HORIZONS)}, "1 weights"),
        ({"surplus": 1}, "unknown key 'surplus'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(change: dict[str, object], message: str) -> None:
    data = forecaster_to_dict(told(wave(100))) | change
    with pytest.raises(InvalidInput, match=message):
        forecaster_from_dict(data, "store.db")


@pytest.mark.parametrize("data", [None, [], "x", {}])
def test_what_is_no_forecaster_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput, match=r"store\.db: version 1 was expected, found None"):
        forecaster_from_dict(data, "store.db")


@pytest.mark.slow
def test_a_day_of_minutes_takes_under_ten_milliseconds_an_update() -> None:
    forecaster = told(wave(1440, period=480), step_s=MINUTE_S)
    took_s = []
    for row in range(60):
        began_s = process_time()
        forecaster = forecaster.observed(DAY_S + row * MINUTE_S, 1000.0)
        forecaster.forecast(5 * MINUTE_S)
        took_s.append(process_time() - began_s)
    assert min(took_s) < 0.010, "the least, as the processor may do other things meanwhile"
