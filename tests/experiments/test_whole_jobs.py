"""The comparison of rules for the executors of whole jobs, and the job that it simulates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastream.arrivals.load import Constant
from elastream.policies.spark_dra import SparkDynamicAllocation
from experiments.frame import Report, find, write
from experiments.simulated_job import JobModel, SimulatedJob, StageModel
from experiments.whole_jobs import OURS, Allocating, compare, job_model, keep_in_time, simulated

pytestmark = pytest.mark.slow
HOUR_S = 3600.0


def model(rows_per_s: float, *, executors: int, start_s: float = 8.0) -> JobModel:
    """Without noise: 8 tasks of a millisecond a row, on executors of two cores."""
    return JobModel(
        load=Constant(records_per_s=rows_per_s),
        interval_s=10.0,
        stages=(StageModel(tasks=8, per_row_s=0.001, per_task_s=0.0),),
        driver_s=0.5,
        cores=2,
        most=8,
        initial=executors,
        start_s=start_s,
        noise=0.0,
    )


def test_a_batch_takes_its_waves_of_tasks() -> None:
    job = SimulatedJob(model(800, executors=1))
    job.run(39.9)
    batches = job.take_ended()
    # 8,000 rows are 8 tasks of a second, in 4 waves of 2
    assert [batch.duration_s for batch in batches] == pytest.approx([4.5] * 4)
    assert [batch.started_s for batch in batches] == [0, 10, 20, 30]
    assert {batch.cores for batch in batches} == {2}


def test_a_batch_that_takes_too_long_is_followed_at_once_by_a_larger_one() -> None:
    job = SimulatedJob(model(4000, executors=1))  # 8 tasks of 5 s in 4 waves: 20.5 s
    job.run(62.0)
    first, second = job.take_ended()
    assert (first.duration_s, second.started_s) == pytest.approx((20.5, 20.5))
    assert second.rows == pytest.approx(4000 * 20.5)
    measures = job.measures()
    assert (measures.late, measures.late_s) == (2, pytest.approx(20.5 + 41.5))


def test_an_executor_comes_after_a_while_and_helps_the_batch_that_runs() -> None:
    job = SimulatedJob(model(1600, executors=1, start_s=2.5))  # 8 tasks of 2 s
    job.ask_for(4)
    job.run(9.0)
    (batch,) = job.take_ended()
    assert batch.duration_s == pytest.approx(4.5)  # two tasks until 2.5 s, and then all the others
    assert batch.cores == 0  # nobody can tell on how many it ran
    assert job.measures().executor_s == pytest.approx(4 * 9.0)


def test_only_idle_executors_go_the_longest_idle_first() -> None:
    job = SimulatedJob(model(800, executors=4))
    job.run(1.0)
    job.ask_for(1)
    assert job.up == 4  # all work
    job.run(5.0)
    job.ask_for(1, idle_for_s=10.0)
    assert job.up == 4  # none for so long
    job.ask_for(1)
    assert (job.up, job.measures().came_and_went) == (1, 3)


def test_what_can_be_seen_of_tasks() -> None:
    job = SimulatedJob(model(800, executors=1))
    job.run(0.4)
    assert (job.tasks().running, job.tasks().pending) == (0, 0)
    job.run(0.6)
    assert (job.tasks().running, job.tasks().pending, job.tasks().idle_s) == (2, 6, ())
    job.run(9.0)
    assert job.tasks().idle_s == (pytest.approx(4.5),)


# --- the rules on a steady load ---------------------------------------------------------------------------


def test_dynamic_allocation_takes_what_shortens_a_batch_and_ours_what_is_needed() -> None:
    """Two cores and a half of work, for which two executors do: there is time for it."""
    steady = job_model(Constant(records_per_s=2500.0))
    decider = Allocating(policy=SparkDynamicAllocation())
    job = SimulatedJob(steady)
    for _ in range(5 * 600):
        job.run(job.now_s + decider.every_s)
        decider.look(job)
    assert job.up == 7  # with more no task would wait for a second
    ours = SimulatedJob(steady)
    assert keep_in_time(ours, 600.0).late == 0
    assert ours.up == 2


@pytest.fixture(scope="module")
def report() -> Report:
    return compare(("google_jobs",), lambda what, share: None, hours=0.5)


def test_it_is_listed_and_holds(report: Report, tmp_path: Path) -> None:
    assert find("whole-jobs").question
    assert report.holds
    written = write("whole-jobs", report, tmp_path)
    assert {OURS, "spark-dra", "spark-24815", "elastic-scaling"} <= set(
        json.loads(written[0].read_text())["data"]["google_jobs"]
    )


def test_the_report_says_where_ours_is_not_better(report: Report) -> None:
    runs = report.data["google_jobs"]
    cheaper = runs["elastic-scaling"]["executor_s"] < runs[OURS]["executor_s"]
    assert any(f"Where {OURS} has more: google_jobs" in note for note in report.differs) == cheaper


def test_the_same_run_gives_the_same() -> None:
    assert simulated("clarknet", OURS, duration_s=600) == simulated("clarknet", OURS, duration_s=600)
