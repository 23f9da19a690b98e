"""The experiments of Gesscale, with fewer seeds and operators than they have when they are run."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from elastream.measurement.elasticity import Elasticity
from experiments import gesscale_figure3, gesscale_model, gesscale_reachable, gesscale_table3
from experiments.fog_testbed import FogTestbed, far_apart
from experiments.frame import Report, find, write

pytestmark = pytest.mark.slow
ALGORITHMS = ("THR-NLUnaware", "THR-NLAware", "MDL-NLUnaware", "Gesscale", "ours", "ideal")


def silent(what: str, share: float) -> None:
    pass


@pytest.fixture(scope="module")
def table3() -> Report:
    return gesscale_table3.report(silent, seeds=2, seeds_when_changed=1, changes={})


def means(report: Report, measure: str, replay: str = "paced") -> dict[str, float]:
    runs = report.data["runs"][replay]
    return {label: sum(run[measure] for run in several) / len(several) for label, several in runs.items()}


def test_all_seven_measures_of_all_algorithms_are_shown_beside_the_papers(table3: Report) -> None:
    shown = {check.what: check for check in table3.checks}
    for measure in gesscale_table3._MEASURES:
        for label in ALGORITHMS:
            check = shown[f"paced: {measure.name}: {label}"]
            assert "±" in check.ours
            assert (check.paper == "—") == (label not in ALGORITHMS[:4])
            assert f"full speed: {measure.name}: {label}" in shown
    assert shown["paced: cost: Gesscale"].paper == "1,000"
    assert {"changed: nothing (1 seeds), paced", "changed: nothing (1 seeds), full speed"} <= set(shown)


@pytest.mark.parametrize("replay", ["paced", "full speed"])
def test_ours_acts_less_costs_less_and_is_short_for_less_time_than_the_baselines(
    table3: Report, replay: str
) -> None:
    for measure in ("cost", "accuracy_over"):
        found = means(table3, measure, replay)
        assert found["ours"] < min(found[label] for label in ALGORITHMS[:3])
    actions = means(table3, "reconfigurations", replay)
    assert actions["ours"] < min(actions[label] for label in ALGORITHMS[:2])
    at_pace = means(table3, "timeshare_under")
    assert at_pace["ours"] < min(at_pace[label] for label in ALGORITHMS[:3])


def test_the_ideal_is_never_off_and_would_hold_every_bound(table3: Report) -> None:
    for measure in ("accuracy_over", "accuracy_under", "timeshare_over", "timeshare_under"):
        assert means(table3, measure)["ideal"] == 0
    duration_min = FogTestbed().rides.duration_s / 60
    assert 3.1 <= means(table3, "cost")["ideal"] / duration_min <= 3.35  # what table III implies
    for runs in table3.data["runs"].values():
        found = {label: [Elasticity(**run) for run in several] for label, several in runs.items()}
        free = [dataclasses.replace(run, reconfigurations=0) for run in found["ideal"]]  # its actions cost nothing
        assert all(bound.holds for bound in gesscale_table3._bounds("", {**found, "ours": free}))


def test_figure_3_is_drawn(tmp_path: Path) -> None:
    report = gesscale_figure3.run(silent)
    assert [check for check in report.checks if not check.holds] == []
    assert all(file.stat().st_size > 0 for file in write("gesscale-figure3", report, tmp_path))


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
    chosen = [one["error_from_3_chosen"] for one in report.data["operators"]]
    assert sum(chosen) / len(chosen) < from_three
    assert from_one > from_three > from_six
    assert from_two > from_six
    assert all(file.stat().st_size > 0 for file in write("gesscale-model", report, tmp_path))


@pytest.mark.parametrize("name", ["gesscale-figure3", "gesscale-model", "gesscale-table3"])
def test_they_are_listed(name: str) -> None:
    assert find(name).question


# --- what can be reached ----------------------------------------------------------------------------------------


def best_by_trying(needed: list[int], actions: int, price: float) -> float:
    most = max(needed)
    costs = []
    for sizes in itertools.product(range(1, most + 1), repeat=len(needed) - 1):
        path = (1, *sizes)
        if sum(a != b for a, b in itertools.pairwise(path)) <= actions:
            costs.append(sum(n + price * max(0, d - n) for n, d in zip(path, needed, strict=True)))
    return min(costs)


@pytest.mark.parametrize("actions", [0, 1, 2, 3])
@pytest.mark.parametrize("price", [1.2, 3.0])
def test_hindsight_finds_what_costs_least_of_all_there_is(actions: int, price: float) -> None:
    needed = [1, 2, 4, 4, 3, 1, 2]
    found = gesscale_reachable.cheapest_sizes(np.array(needed), actions=actions, price=price)
    assert found[0] == 1
    assert sum(a != b for a, b in itertools.pairwise(found)) <= actions
    cost = sum(n + price * max(0, d - n) for n, d in zip(found, needed, strict=True))
    assert cost == pytest.approx(best_by_trying(needed, actions, price))


def test_who_reacts_without_a_wait_is_a_minute_late_and_two_minutes_in_an_action() -> None:
    hours = gesscale_reachable.Hours(
        arriving=np.array([50.0, 50, 150, 150, 350, 350, 350, 150, 150]),
        needed=np.array([1, 1, 2, 2, 4, 4, 4, 2, 2]),
        sustained=np.arange(9) * 100.0,
    )
    found = gesscale_reachable.reacting_sizes(hours, grows_at=1.0, grows_to=0.0, spare=0.0, waits=0)
    assert list(found) == [1, 1, 1, 2, 2, 4, 4, 4, 2]


def test_with_few_actions_nobody_who_reacts_is_near_the_ideal_and_seldom_short() -> None:
    shown = {check.what: check.ours for check in gesscale_reachable.report(silent, seeds=1).checks}
    costs = [
        float(shown[f"{how}: the least cost"].split("%")[0])
        for how in ("with hindsight, 12 actions", "reacting, 12 actions at the most")
    ]
    assert costs[0] < 3 < costs[1]
