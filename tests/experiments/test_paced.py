"""The clock of an emulated instance: so many records a second, over batches and breaks."""

from __future__ import annotations

import pytest

from experiments.workloads.paced import done_s


def done(*arrived_s: float, free_s: float | None, now_s: float = 100.0) -> float:
    return done_s(arrived_s, free_s=free_s, now_s=now_s, rate_per_s=5)


def test_records_that_wait_are_done_one_after_the_other() -> None:
    assert done(90.0, 91.0, 92.0, free_s=100.0) == pytest.approx(100.6)


def test_the_time_between_two_batches_is_not_lost_where_records_were_waiting() -> None:
    assert done(90.0, 91.0, 92.0, free_s=99.5) == pytest.approx(100.1)


def test_nothing_is_done_before_it_has_arrived() -> None:
    assert done(99.0, 99.9, free_s=95.0) == pytest.approx(100.1)


def test_a_new_instance_and_one_that_was_away_begin_now() -> None:
    assert done(50.0, free_s=None) == pytest.approx(100.2)
    assert done(50.0, free_s=60.0) == pytest.approx(100.2)


@pytest.mark.parametrize("batch_s", [0.3, 1.0, 2.7])
def test_the_rate_is_right_however_long_batches_are(batch_s: float) -> None:
    """Records wait all the time, and there are breaks of 0.2 s between batches."""
    free_s, now_s, count = None, 100.0, 0
    while now_s < 160:
        its = [100.0] * max(1, round(5 * batch_s))
        free_s = done_s(its, free_s=free_s, now_s=now_s, rate_per_s=5)
        count += len(its)
        now_s = max(now_s, free_s) + 0.2
    assert count / (now_s - 100.0) == pytest.approx(5, rel=0.05)
