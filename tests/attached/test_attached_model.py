"""What is learned of batches at one size, against batches at others whose costs are known."""

from __future__ import annotations

import pytest
from attached_batches import model_of, ran

from elastream.attached.batch import BatchRun, StageRun, covered_s
from elastream.attached.model import fit

SKEWED = (0.8, 0.8, 0.9, 0.9, 3.0)


@pytest.mark.parametrize("learned_at", [1, 2, 8])
@pytest.mark.parametrize("cores", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("shape", [(), SKEWED])
def test_batches_at_one_size_tell_those_at_others(learned_at: int, cores: int, shape: tuple[float, ...]) -> None:
    model = model_of(cores=learned_at, shape=shape)
    for rows in (500, 3000, 20_000):
        measured = ran(0, rows, cores, shape=shape).duration_s
        assert model.duration_s(rows, cores) == pytest.approx(measured, rel=0.05)
    assert model.scatter == pytest.approx(0.0, abs=0.01)


def test_the_costs_are_found_and_the_driver_is_fixed() -> None:
    model = model_of(per_row_s=0.003, fixed_s=0.4, driver_s=0.7)
    for stage in model.stages:
        assert (stage.fixed_s, stage.per_row_s) == (pytest.approx(0.4), pytest.approx(0.003))
    assert model.driver_s == pytest.approx(0.7)
    assert model.parts_s == {"queryPlanning": pytest.approx(0.35), "walCommit": pytest.approx(0.175)}
    assert model.slot_s(1000) == pytest.approx(2 * 3.4)


def test_batches_that_are_all_alike_blame_the_rows() -> None:
    model = model_of(rows=(1000, 1010, 990, 1000))
    assert model.stages[0].fixed_s == 0
    assert model.duration_s(1000, 2) == pytest.approx(ran(0, 1000, 2).duration_s, rel=0.03)


def test_one_batch_that_stalled_moves_little() -> None:
    batches = [ran(number, 1000 + 200 * number, 4) for number in range(12)]
    batches[5] = ran(5, 2000, 4, noise=30.0)
    model = fit(batches)
    assert model is not None
    assert model.duration_s(2000, 2) == pytest.approx(ran(0, 2000, 2).duration_s, rel=0.05)


def test_noise_is_told_as_scatter() -> None:
    noise = (0.8, 1.2, 0.9, 1.1, 1.0, 0.85, 1.15, 1.05)
    model = fit([ran(number, 4000, 4, noise=one, driver_s=0.0) for number, one in enumerate(noise)])
    assert model is not None
    assert 0.05 < model.scatter < 0.25


def test_too_few_batches_and_batches_of_another_kind_are_no_model() -> None:
    assert fit([]) is None
    assert fit([ran(0, 10, 2), ran(1, 10, 2)]) is None
    assert fit([ran(number, 0, 2) for number in range(9)]) is None, "without rows nothing is learned"
    mixed = [ran(0, 900, 4, tasks=(3,)), *[ran(number, 500 * number, 4) for number in range(1, 6)]]
    model = fit(mixed)
    assert model is not None
    assert len(model.stages) == 2
    assert model.batches == 5


def test_a_source_with_a_task_for_each_core_goes_on_so_where_that_is_no_chance() -> None:
    at_two = [ran(number, 1000 * number, cores, tasks=(cores, 8)) for number, cores in ((1, 2), (2, 4), (3, 2))]
    at_one = [ran(number, 1000 * number, 2, tasks=(2, 2)) for number in range(1, 4)]
    seen, by_chance, known = fit(at_two), fit(at_one), fit(at_one, splits_by_cores=True)
    assert seen is not None
    assert by_chance is not None
    assert known is not None
    assert len(seen.plan(1000, 6).stages[0].tasks_s) == len(known.plan(1000, 6).stages[0].tasks_s) == 6
    assert len(by_chance.plan(1000, 6).stages[0].tasks_s) == 2
    assert not known.stages[1].follows_cores, "a shuffle has the partitions that are set"
    on_one = [ran(number, 1000 * number, 1, tasks=(2, 8)) for number in range(1, 4)]
    smallest = fit(on_one, splits_by_cores=True)
    assert smallest is not None
    assert smallest.stages[0].follows_cores, "Spark splits for two cores at least"


def _stage(begin_s: float, end_s: float) -> StageRun:
    return StageRun(tasks=1, slot_s=end_s - begin_s, submitted_s=begin_s, completed_s=end_s)


def test_stages_that_ran_at_once_do_not_wait_for_each_other() -> None:
    batch = BatchRun(
        batch=1,
        started_s=0.0,
        duration_s=6.0,
        rows=10,
        cores=4,
        stages=(_stage(1.0, 2.0), _stage(1.5, 3.0), _stage(3.0, 4.0)),
    )
    assert batch.after == ((), (), (0, 1))
    assert batch.driver_s == pytest.approx(3.0), "1 s before, 2 s after"


def test_time_is_covered_once() -> None:
    assert covered_s([(0, 2), (1, 3), (5, 6), (5.5, 5.7)]) == pytest.approx(4.0)
    assert covered_s([]) == 0
