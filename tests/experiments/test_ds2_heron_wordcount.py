from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from experiments import frame

NAME = "ds2-heron-wordcount"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_ds2_acts_once_after_one_interval(report: frame.Report) -> None:
    [action] = report.data["runs"]["DS2"]["actions"]
    assert (action["decided_s"], action["flatmap"], action["count"]) == (60, 10, 20)


def test_dhalion_changes_one_operator_at_a_time_and_never_shrinks(report: frame.Report) -> None:
    plans = [(1, 1), *((a["flatmap"], a["count"]) for a in report.data["runs"]["Dhalion"]["actions"])]
    grown = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(plans)]
    assert all(min(change) == 0 and max(change) > 0 for change in grown)


def test_dhalion_looks_again_three_minutes_after_an_action(report: frame.Report) -> None:
    actions = report.data["runs"]["Dhalion"]["actions"]
    waits_s = [after["decided_s"] - before["in_force_s"] for before, after in pairwise(actions)]
    assert all(wait_s >= 180 and wait_s % 60 == 0 for wait_s in waits_s)


def test_dhalion_ends_at_the_need_times_the_pace_of_the_replay(report: frame.Report) -> None:
    ends = {pace: plans[-1] for pace, plans in report.data["dhalion_by_replay_pace"].items()}
    assert ends["1 × the load"] == (10, 20)
    assert ends["2 × the load"] == (20, 40)


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
