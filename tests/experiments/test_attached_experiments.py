"""What the experiments on attached jobs make of what they saw; on Spark they run only when they are asked for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from elastream.attached.batch import BatchRun, StageRun
from experiments import attached_peers, predicted_batches


def batch(number: int, rows: float, cores: int, *, slot_s: float = 8.0) -> BatchRun:
    """One stage of eight even tasks."""
    took_s = slot_s * rows / 800 / cores
    stage = StageRun(tasks=8, slot_s=slot_s * rows / 800, submitted_s=100.0, completed_s=100.0 + took_s)
    return BatchRun(batch=number, started_s=99.5, duration_s=took_s + 0.5, rows=rows, cores=cores, stages=(stage,))


def test_predictions_are_from_each_size_and_from_each_two_to_the_others() -> None:
    batches = {size: [batch(number, 600 + 100 * number, size) for number in range(4)] for size in (1, 2, 4)}
    found = predicted_batches.compared(batches)
    assert [(one.learned_at, one.at) for one in found][:3] == [((1,), 2), ((1,), 4), ((2,), 1)]
    assert len(found) == 6 + 3
    assert all(one.off == pytest.approx(0.0, abs=0.02) for one in found)
    assert predicted_batches.report({"even": batches}).holds


def test_a_prediction_that_is_off_does_not_hold() -> None:
    batches = {size: [batch(number, 800, size, slot_s=8.0 * size) for number in range(4)] for size in (1, 4)}
    assert not predicted_batches.report({"dearer on more": batches}).holds


def test_batches_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted_batches, "FOLDER", tmp_path)
    batches = {2: [batch(1, 800, 2)]}
    (tmp_path / "scan.json").write_text(
        json.dumps({size: [asdict(one) for one in of] for size, of in batches.items()})
    )
    assert predicted_batches._read("scan") == batches


def seen(executors: int, took_s: float) -> dict[str, Any]:
    return {
        "samples": [[at_s, executors] for at_s in range(-50, 101, 10)],
        "batches": {"counts": [[-20.0, 99.0], [20.0, took_s], [40.0, 4.0]], "joined": [[20.0, took_s / 2]]},
    }


def test_who_is_compared_is_seen_from_outside() -> None:
    found = attached_peers.found_in(seen(3, 15.0))
    assert (found.executor_s, found.mean) == (300.0, 3.0)
    assert (found.late, found.late_time, found.worst_s) == (pytest.approx(1 / 3), pytest.approx(0.15), 15.0)
    assert attached_peers.report({"attach": [seen(3, 5.0)], "spark-dra": [seen(8, 5.0)]}).holds
    assert not attached_peers.report({"attach": [seen(3, 15.0)], "spark-dra": [seen(8, 5.0)]}).holds
    assert not attached_peers.report({"attach": [seen(5, 5.0)], "spark-dra": [seen(8, 5.0)]}).holds


def test_the_job_that_is_driven_has_nothing_of_ours_and_needs_more_at_the_peak_than_there_are_for_the_mean() -> (
    None
):
    assert "elastream" not in Path(attached_peers.attached_job.__file__).read_text().split('"""', 2)[2]
    load = attached_peers.Recorded()
    rates = [load.rate_at(second) for second in range(300)]
    assert max(rates) == pytest.approx(attached_peers._PEAK_PER_S, rel=0.01)
    known = attached_peers.contestants()
    assert known["static mean"].settings["spark.cores.max"] < known["static peak"].settings["spark.cores.max"]
