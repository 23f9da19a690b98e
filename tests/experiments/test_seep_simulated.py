from __future__ import annotations

from pathlib import Path

import pytest

from elastream.policies.rules.check import doubts
from elastream.policies.rules.yaml_form import parse_rules, rules_to_yaml
from experiments import frame
from experiments.seep_cases import Case, cases

NAME = "seep-simulated"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def actions(report: frame.Report, name: str) -> list[tuple[float, str]]:
    return [(action["at_s"], action["changes"]) for action in report.data[name]["actions"]]


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_it_acts_thirty_seconds_after_the_first_reading_above(report: frame.Report) -> None:
    assert actions(report, "5.2.2") == [(95, "SimpleStatelessOperator 1 → 2")]
    assert actions(report, "5.2.2, looked at every 1 s") == [(91, "SimpleStatelessOperator 1 → 2")]


def test_only_the_slow_operator_is_scaled(report: frame.Report) -> None:
    assert actions(report, "5.2.4") == [(95, "SimpleStatelessOperator2 1 → 3")]


def test_short_peaks_change_nothing_but_with_a_low_threshold_they_do(report: frame.Report) -> None:
    assert actions(report, "5.2.5") == []
    assert len(actions(report, "5.2.5 with a threshold of 30")) == 1


def test_the_queue_grows_by_five_a_second_until_the_action(report: frame.Report) -> None:
    queue = dict(report.data["5.2.3"]["queue_length"])
    assert [queue[at_s] for at_s in (60.0, 95.0, 145.0, 190.0)] == pytest.approx([300, 475, 225, 0], abs=1e-6)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.section)
def test_the_rules_of_the_thesis_can_be_written_in_yaml_and_raise_no_doubt(case: Case) -> None:
    assert parse_rules(rules_to_yaml(case.rules), "rules.yaml").rules == case.rules
    assert doubts(case.rules) == ()


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
