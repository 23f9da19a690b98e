from __future__ import annotations

from pathlib import Path

import pytest

from experiments import frame

NAME = "ds2-flink-wordcount"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_two_actions_up_and_two_down(report: frame.Report) -> None:
    plans = [(action["flatmap"], action["count"]) for action in report.data["actions"]]
    assert plans == [(15, 9), (16, 9), (8, 5), (7, 5)]


def test_both_operators_scale_sub_linearly(report: frame.Report) -> None:
    assert all(0.5 < law["exponent"] < 1 for law in report.data["capacities"].values())


def test_the_job_stands_still_for_30_to_50_s(report: frame.Report) -> None:
    assert all(30 <= end_s - begin_s <= 50 for begin_s, end_s in report.data["downtimes_s"])


def test_the_second_phase_begins_ten_minutes_after_the_first_has_settled(report: frame.Report) -> None:
    settled_s = report.data["actions"][1]["in_force_s"]
    assert report.data["second_phase_from_s"] == pytest.approx(settled_s + 600)


def test_one_instance_fewer_falls_behind(report: frame.Report) -> None:
    left_alone = {check.what: check.ours for check in report.checks if "left alone" in check.what}
    assert [text == "keeps up" for text in left_alone.values()] == [True, False, False] * 2


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
