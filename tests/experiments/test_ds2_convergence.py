from __future__ import annotations

from pathlib import Path

import pytest

from experiments import frame

NAME = "ds2-convergence"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_six_queries_run_from_six_starts_with_both_policies(report: frame.Report) -> None:
    runs = {(run["query"], run["start"], run["policy"]) for run in report.data["runs"]}
    assert len(runs) == len(report.data["runs"]) == 6 * 6 * 2


def test_every_query_is_started_under_and_over_its_need(report: frame.Report) -> None:
    for query in ("Q1", "Q2", "Q3", "Q5", "Q8", "Q11"):
        ends = {run["start"]: run["least"][run["main"]] for run in report.data["runs"] if run["query"] == query}
        assert min(ends) < ends[min(ends)]
        assert max(ends) >= ends[max(ends)]


def test_an_operator_behind_a_shuffle_takes_ds2_three_actions_and_the_learned_curve_two(
    report: frame.Report,
) -> None:
    paths = {
        run["policy"]: [plan["count-bids"] for plan in run["plans"]]
        for run in report.data["runs"]
        if (run["query"], run["start"]) == ("Q5", 8)
    }
    assert paths == {"ds2": [8, 14, 15, 16], "ds2-learned": [8, 14, 16]}


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
