from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import ds2_sublinear, frame

pytestmark = pytest.mark.slow
NAME = "ds2-sublinear"


@pytest.fixture(scope="module")
def report() -> Iterator[frame.Report]:
    """With two seeds of each case; `python -m experiments run` has three."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ds2_sublinear, "_SEEDS", 2)
        yield frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


def test_both_begin_with_the_same_action(report: frame.Report) -> None:
    """With one parallelism measured there is no curve yet."""
    assert all(run["ds2"][:2] == run["ds2-learned"][:2] for run in report.data["runs"])


def test_a_power_law_is_found_at_once(report: frame.Report) -> None:
    runs = [run for run in report.data["runs"] if run["law"].startswith("n^")]
    assert {run["times_the_start"] for run in runs} == {2, 5, 10, 20}
    assert sum(len(run["ds2-learned"]) == 3 for run in runs) >= 0.95 * len(runs)


def test_the_worse_an_operator_scales_the_more_actions_plain_ds2_takes(report: frame.Report) -> None:
    laws = ["n^0.5", "n^0.6", "n^0.7", "n^0.8", "n^0.9", "n^0.95"]
    most = [max(len(run["ds2"]) - 1 for run in report.data["runs"] if run["law"] == law) for law in laws]
    assert most == sorted(most, reverse=True)
    assert most[0] > 10


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
