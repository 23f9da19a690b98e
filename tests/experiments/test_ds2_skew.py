from __future__ import annotations

from pathlib import Path

import pytest

from experiments import frame

NAME = "ds2-skew"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_skew_does_not_change_where_it_ends(report: frame.Report) -> None:
    for run in report.data["runs"]:
        last = run["actions"][-1]
        assert (last["flatmap"], last["count"]) == run["right_without_skew"]


@pytest.mark.parametrize("hot_share", [0.2, 0.5, 0.7])
def test_the_hot_instance_limits_linear_operators_to_its_share(report: frame.Report, hot_share: float) -> None:
    linear = [run for run in report.data["runs"] if run["hot_share"] == hot_share and "5.2" in run["case"]]
    assert len(linear) == 2
    assert all(run["achieved_share"] == pytest.approx(1 / (20 * hot_share)) for run in linear)


def test_without_skew_the_target_is_met_and_none_is_named(report: frame.Report) -> None:
    without = [run for run in report.data["runs"] if run["hot_share"] is None]
    assert len(without) == 3
    assert all(run["achieved_share"] == pytest.approx(1) and run["skew"] == "not named" for run in without)


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
