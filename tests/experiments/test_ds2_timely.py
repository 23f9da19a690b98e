from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from experiments import frame

pytestmark = pytest.mark.slow
NAME = "ds2-timely"


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return frame.find(NAME).run(lambda what, share: None)


def test_it_holds(report: frame.Report) -> None:
    assert [check for check in report.checks if not check.holds] == []


@pytest.mark.parametrize("query", ["Q3", "Q5", "Q11"])
def test_four_workers_are_found_from_every_start(report: frame.Report, query: str) -> None:
    assert set(report.data["queries"][query]["workers_by_start"].values()) == {4}


@pytest.mark.parametrize(("query", "worker_seconds"), [("Q3", 3.5), ("Q11", 3.5)])
@pytest.mark.parametrize("workers", [4, 5])
def test_an_epoch_takes_its_share_of_the_workers_time(
    report: frame.Report, query: str, worker_seconds: float, workers: int
) -> None:
    """Without windows that delay some of them, and to a step of the simulation."""
    seconds = report.data["queries"][query]["latencies_s"][workers]
    assert fmean(seconds) == pytest.approx(worker_seconds / workers, abs=1 / 32)


def test_the_epoch_in_which_windows_fire_is_late(report: frame.Report) -> None:
    seconds = report.data["queries"]["Q5"]["latencies_s"][4]
    late = [epoch for epoch, latency in enumerate(seconds) if latency > report.data["target_s"]]
    assert late == list(range(5, report.data["epochs"], 5))


def test_it_writes_json_and_a_plot(report: frame.Report, tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in frame.write(NAME, report, tmp_path))
