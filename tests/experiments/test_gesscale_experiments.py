"""The experiments of Gesscale, with fewer seeds and operators than they have when they are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import gesscale_model, gesscale_table3
from experiments.fog_testbed import FogTestbed, far_apart
from experiments.frame import Report, find, write

pytestmark = pytest.mark.slow
ALGORITHMS = ("THR-NLUnaware", "THR-NLAware", "MDL-NLUnaware", "Gesscale", "Gesscale by input rate", "ideal")


def silent(what: str, share: float) -> None:
    pass


@pytest.fixture(scope="module")
def table3() -> Report:
    changes = {"delays cost half": (FogTestbed(largest_delay_costs=0.5), 0.2)}
    return gesscale_table3.report(silent, seeds=2, seeds_when_changed=1, changes=changes)


def means(report: Report, measure: str) -> dict[str, float]:
    return {label: sum(run[measure] for run in runs) / len(runs) for label, runs in report.data["runs"].items()}


def test_all_seven_measures_of_all_algorithms_are_shown_beside_the_papers(table3: Report) -> None:
    shown = {check.what: check for check in table3.checks}
    for measure in gesscale_table3._MEASURES:
        for label in ALGORITHMS:
            check = shown[f"{measure.name}: {label}"]
            assert "±" in check.ours
            assert (check.paper == "—") == (label not in ALGORITHMS[:4])
    assert shown["cost: Gesscale"].paper == "1,000"
    assert "changed: delays cost half" in shown


def test_gesscale_is_cheaper_and_acts_less_than_both_threshold_rules(table3: Report) -> None:
    for measure in ("cost", "reconfigurations", "accuracy_over"):
        found = means(table3, measure)
        assert found["Gesscale"] < found["THR-NLAware"]
        assert found["Gesscale"] < found["THR-NLUnaware"]


def test_the_ideal_is_never_off(table3: Report) -> None:
    for measure in ("accuracy_over", "accuracy_under", "timeshare_over", "timeshare_under"):
        assert means(table3, measure)["ideal"] == 0
    duration_min = FogTestbed().rides.duration_s / 60
    assert 3.1 <= means(table3, "cost")["ideal"] / duration_min <= 3.35  # what table III implies


def test_it_is_written_with_its_plot(table3: Report, tmp_path: Path) -> None:
    written = write("gesscale-table3", table3, tmp_path)
    assert json.loads(written[0].read_text())["data"]["testbed"]["alpha_per_s"] == 80
    assert written[1].stat().st_size > 20_000


def test_delays_of_the_testbed_are_from_0_to_300_ms() -> None:
    pool = far_apart(3)
    assert len(pool.nodes) == 8
    assert pool.matrix.max() == pytest.approx(0.3)
    assert far_apart(3) == pool != far_apart(4)


def test_the_model_is_within_its_bound(tmp_path: Path) -> None:
    report = gesscale_model.report(silent, operators=25)
    assert [check for check in report.checks if not check.holds] == []
    errors = [[one[f"error_from_{count}"] for one in report.data["operators"]] for count in (1, 2, 3, 6)]
    from_one, from_two, from_three, from_six = (sum(found) / len(found) for found in errors)
    assert from_one > from_three > from_six
    assert from_two > from_six
    assert all(file.stat().st_size > 0 for file in write("gesscale-model", report, tmp_path))


@pytest.mark.parametrize("name", ["gesscale-model", "gesscale-table3"])
def test_they_are_listed(name: str) -> None:
    assert find(name).question
