"""When the records of a load are due."""

from __future__ import annotations

import numpy as np
import pytest

from elastream.arrivals.load import Constant, Sine, Steps
from elastream.arrivals.schedule import Schedule


def test_as_many_are_due_as_the_load_has_brought() -> None:
    schedule = Schedule(Steps(steps=((0, 100), (10, 300))))
    assert [schedule.due(t_s) for t_s in (0, 1, 10, 12, 200)] == [0, 100, 1_000, 1_600, 58_000]


def test_a_record_is_due_when_the_load_has_brought_it() -> None:
    schedule = Schedule(Steps(steps=((0, 100), (10, 300))))
    assert schedule.due_s(np.array([0, 50, 1_000, 1_300])) == pytest.approx([0, 0.5, 10, 11])


def test_what_was_answered_stays_true_when_it_is_asked_further() -> None:
    asked, fresh = (Schedule(Sine(mean=50, amplitude=60, period_s=30)) for _ in range(2))
    before = asked.due_s(np.arange(100))
    asked.due(5_000)
    assert (asked.due_s(np.arange(100)) == before).all()
    assert (fresh.due_s(np.arange(100_000))[:100] == before).all()


def test_a_load_that_has_ended_brings_no_more() -> None:
    schedule = Schedule(Steps(steps=((0, 10), (1, 0))))
    assert schedule.due(3_600) == 10
    assert schedule.due_s(np.array([5]))[0] == pytest.approx(0.5)
    assert np.isfinite(schedule.due_s(np.array([11]))).all()


def test_nothing_is_due_of_no_load() -> None:
    assert Schedule(Constant(records_per_s=0)).due(100) == 0
