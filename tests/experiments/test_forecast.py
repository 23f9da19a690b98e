"""The forecaster on recorded load, on load without a pattern, and when a season changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.forecast_gate import CHANGES, PATTERNLESS, judge, patternless
from experiments.forecast_series import NINE, compare, read_series, smape
from experiments.frame import find, write


def test_they_are_listed() -> None:
    assert find("forecast-series").question
    assert find("forecast-gate").question


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
