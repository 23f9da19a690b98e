"""The forecaster on recorded load, on load without a pattern, and when a season changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastream.forecast import Forecaster
from elastream.testing import alike, snapshot_of
from experiments.forecast_gate import CHANGES, PATTERNLESS, judge, patternless
from experiments.forecast_series import NINE, compare, read_series, smape
from experiments.forecast_sizing import patternless as played_without_pattern
from experiments.forecast_sizing import run_with
from experiments.forecast_spark import AHEAD, REACTING, checks_of, the_day
from experiments.frame import find, write
from experiments.on_spark import SparkRun


def test_they_are_listed() -> None:
    assert find("forecast-series").question
    assert find("forecast-gate").question
    assert find("forecast-sizing").question
    assert find("forecast-spark").minutes


def test_smape_is_the_published_measure() -> None:
    assert smape([100, 50], [100, 150]) == pytest.approx(50)


@pytest.mark.parametrize("name", NINE)
def test_the_series_are_whole(name: str) -> None:
    series = read_series(name)
    assert len(series.times_s) == len(series.messages) >= 2010
    assert min(series.messages) > 80_000
    assert list(series.times_s) == sorted(set(series.times_s))


def test_the_series_whose_rows_are_not_all_there(tmp_path: Path) -> None:
    report = compare(("alibaba",), lambda what, share: None)
    assert [check for check in report.checks if not check.holds] == []
    assert report.data["alibaba"]["ours"][1] < report.data["alibaba"]["published"]["GRU"]
    assert 0.05 < report.data["alibaba"]["above_0.9_quantile"] < 0.15
    assert [path.suffix for path in write("forecast-series", report, tmp_path)] == [".json", ".png"]


@pytest.mark.parametrize("kind", PATTERNLESS)
def test_without_a_pattern_it_is_as_good_as_the_last_value(kind: str) -> None:
    for seed in range(6):
        assert max(patternless(kind, seed).values()) <= 1.01, seed


def test_a_season_that_changes_costs_one_day_at_most() -> None:
    told: list[float] = []
    report = judge(1, lambda what, share: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(report.checks) == 3 * len(PATTERNLESS) + 4 * len(CHANGES)
    for kind in CHANGES:
        for ahead, days in report.data["changes"][kind].items():
            assert max(days[1:]) <= 1.005, (kind, ahead)
            assert min(days[1:]) < 1, (kind, ahead)


@pytest.mark.parametrize(
    ("kind", "seed", "lasts_s"), [("Brownian", 0, 5400.0), ("constant with noise", 13, 9000.0)]
)
def test_sizing_by_forecasts_costs_nothing_where_there_is_no_pattern(kind: str, seed: int, lasts_s: float) -> None:
    played = replace(played_without_pattern(kind, seed), duration_s=lasts_s)
    reacting, ahead = run_with(played, "ds2 at 0.7"), run_with(played, "ds2-forecast")
    assert ahead.cost <= 1.01 * reacting.cost
    assert ahead.timeshare_under <= reacting.timeshare_under + 0.01


def test_the_days_before_the_live_one_teach_its_season() -> None:
    day = the_day()
    begun = Forecaster.begun_with(day.before, 1e9)
    assert begun.seasons_s[0] == pytest.approx(day.lasts_s, rel=0.02)
    assert begun.scores[1].share > 0.5
    assert day.before[-1][1] == pytest.approx(day.load.rate_at(0.0), rel=0.15)


def live(sizes: Sequence[int], waiting: Sequence[float]) -> SparkRun:
    """A window of 5 s each, in which 100/s arrive."""
    snapshots = [
        replace(
            snapshot_of(
                edges=[("records", "work")],
                source_rates={"records": 100.0},
                readings=alike("work", instances=size, window_s=5.0, backlog=left / size),
            ),
            at_s=5.0 * (number + 1),
        )
        for number, (size, left) in enumerate(zip(sizes, waiting, strict=True))
    ]
    return SparkRun(operator="work", snapshots=tuple(snapshots), events=(), began_s=0.0)


def test_a_live_pair_is_held_to_the_time_behind_and_to_the_cost() -> None:
    """The first four windows are not counted."""
    begins = [1000.0] * 4
    reacting = live([2] * 4 + [2, 2, 4, 4], [*begins, 0, 400, 500, 0])
    ahead = live([2] * 4 + [2, 3, 3, 3], [*begins, 0, 200, 400, 0])
    behind, cost, _ = checks_of(1, {REACTING: reacting, AHEAD: ahead})
    assert (behind.ours, behind.holds) == ("25.0% (reacting: 50.0%)", True)
    assert (cost.ours, cost.holds) == ("55 (reacting: 60)", True)
    behind, cost, _ = checks_of(1, {REACTING: ahead, AHEAD: reacting})
    assert not behind.holds
    assert not cost.holds
