"""How long batches take on so many cores, against what can be reckoned by hand, and bounds that always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.attached.schedule import BatchPlan, StagePlan, finish_s, spread


def batch(*stages: StagePlan, driver_s: float = 0.0) -> BatchPlan:
    return BatchPlan(driver_s=driver_s, stages=stages)


def even(tasks: int, each_s: float, *after: int) -> StagePlan:
    return StagePlan(tasks_s=(each_s,) * tasks, after=after)


@pytest.mark.parametrize(("cores", "waves"), [(1, 8), (2, 4), (3, 3), (4, 2), (7, 2), (8, 1), (20, 1)])
def test_even_tasks_run_in_waves(cores: int, waves: int) -> None:
    assert finish_s([batch(even(8, 0.5), driver_s=1.0)], cores) == pytest.approx((1.0 + 0.5 * waves,))


def test_a_stage_waits_for_those_that_it_reads_and_for_no_others() -> None:
    join = batch(even(2, 1.0), even(2, 3.0), even(4, 0.5, 0, 1))
    assert finish_s([join], 4) == (3.5,), "both inputs at once, then the join"
    assert finish_s([join], 2) == (5.0,), "first one input, then the other, then two waves"


def test_one_long_task_bounds_a_stage_however_many_cores() -> None:
    skewed = batch(StagePlan(tasks_s=(0.1, 4.0, 0.1, 0.1)))
    assert finish_s([skewed], 4) == finish_s([skewed], 100) == (4.0,)
    assert skewed.critical_path_s == 4.0


def test_queries_that_fit_beside_each_other_do_not_add_up_and_others_do() -> None:
    one = batch(even(2, 1.0))
    assert finish_s([one, one], 4) == (1.0, 1.0)
    assert finish_s([one, one], 2) == (1.0, 2.0), "the first that was submitted is served first"


def test_a_driver_that_is_busy_leaves_the_cores_to_others() -> None:
    assert finish_s([batch(even(2, 1.0), driver_s=5.0), batch(even(2, 1.0))], 2) == (6.0, 1.0)


def test_stages_without_tasks_and_batches_without_stages_end_at_once() -> None:
    assert finish_s([batch(driver_s=0.3), batch(even(0, 1.0), even(1, 1.0, 0))], 1) == (0.3, 1.0)


def test_tasks_are_as_uneven_as_those_that_were_seen() -> None:
    found = spread(10.0, 5, (0.5, 0.5, 0.5, 0.5, 3.0))
    assert sum(found) == pytest.approx(10.0)
    assert max(found) == pytest.approx(6.0), "three times the mean of 2"
    assert sorted(found)[:4] == pytest.approx([1.0] * 4)
    assert sum(spread(10.0, 3, (0.1, 9.0))) == pytest.approx(10.0), "no task is longer than all of them"
    assert spread(3.0, 3) == (1.0, 1.0, 1.0)
    assert spread(3.0, 1, (0.1, 9.0)) == (3.0,)
    assert spread(0.0, 0, (1.0, 1.0)) == ()
    assert spread(1.0, 2, (0.0, 0.0)) == (0.5, 0.5)


@st.composite
def batches(draw: st.DrawFn) -> BatchPlan:
    stages: list[StagePlan] = []
    for index in range(draw(st.integers(1, 4))):
        tasks = draw(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12))
        after = draw(st.sets(st.integers(0, index - 1))) if index else set()
        stages.append(StagePlan(tasks_s=tuple(tasks), after=tuple(sorted(after))))
    return BatchPlan(driver_s=draw(st.floats(0.0, 2.0)), stages=tuple(stages))


@given(plan=batches(), cores=st.integers(1, 16))
@settings(max_examples=200, deadline=None)
def test_it_lies_between_what_no_schedule_can_beat_and_what_greedy_ones_keep(plan: BatchPlan, cores: int) -> None:
    (found,) = finish_s([plan], cores)
    work_s = sum(sum(stage.tasks_s) for stage in plan.stages)
    path_s = plan.critical_path_s
    assert found >= path_s - 1e-9
    assert found >= plan.driver_s + work_s / cores - 1e-9
    assert found <= path_s + work_s / cores + 1e-9, "Graham's bound of a greedy schedule"


def test_without_a_core_there_is_no_schedule() -> None:
    with pytest.raises(ValueError, match="cores must be at least 1, found 0"):
        finish_s([batch(even(1, 1.0))], 0)
