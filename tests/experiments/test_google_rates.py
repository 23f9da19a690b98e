from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.paper_workloads.google_trace import EXTRACT
from experiments import frame
from experiments.seep_google_rates import averaged_over_a_day, run, task_events_per_minute


@pytest.fixture(scope="module")
def report() -> frame.Report:
    return run(lambda *_: None)


def test_the_bundled_counts_are_those_of_the_trace(report: frame.Report) -> None:
    assert len(report.data["jobs_per_minute"]) == 29 * 24 * 60
    assert sum(report.data["jobs_per_minute"]) == 668_089
    assert sum(task_events_per_minute(EXTRACT)) <= 12_656 - 8_148, "those of time 0 are not of a minute"


def test_a_day_is_averaged_from_its_end_on() -> None:
    per_minute = np.concatenate([np.full(24 * 60, 6), np.full(24 * 60, 12)])
    found = averaged_over_a_day(per_minute)
    assert (len(found), found[0], found[12 * 60], found[-1]) == (24 * 60 + 1, 6.0, 9.0, 12.0)


def test_it_says_what_was_found_and_draws_it(report: frame.Report, tmp_path: Path) -> None:
    assert report.holds
    assert "0.23, 0.35, 0.48, 0.58" in report.checks[1].ours
    assert [path.suffix for path in frame.write("rates", report, tmp_path)] == [".json", ".png"]
