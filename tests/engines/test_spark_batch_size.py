"""The size of batches: what it comes to, batch after batch, on machines that are simulated by two numbers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.batch_size import REMEMBERED, FullBatch, next_size

LONGEST_S = 3.0


def sizes(
    *,
    price_s: float,
    per_record_s: float,
    begin: int = 200,
    batches: int = 40,
    longest_s: float = LONGEST_S,
    times: Callable[[int], float] = lambda number: 1.0,
) -> list[int]:
    """What batches come to hold where there is always enough to fill them; each takes some times its price."""
    found, recent = [begin], deque[FullBatch](maxlen=REMEMBERED)
    for number in range(batches):
        took_s = price_s * times(number) + per_record_s * found[-1]
        recent.append(FullBatch(records=found[-1], took_s=took_s))
        found.append(next_size(tuple(recent), longest_s=longest_s))
    return found


@pytest.mark.parametrize("begin", [5, 200, 1_000_000])
def test_batches_come_to_take_about_as_long_as_they_may(begin: int) -> None:
    last = sizes(price_s=0.5, per_record_s=0.001, begin=begin)[-1]
    assert 0.7 * LONGEST_S <= 0.5 + 0.001 * last <= 1.2 * LONGEST_S


def test_slow_records_make_small_batches() -> None:
    assert sizes(price_s=0.1, per_record_s=0.4)[-1] == 7


def test_where_the_price_alone_is_too_much_records_take_as_long_as_it() -> None:
    last = sizes(price_s=8.0, per_record_s=0.01)[-1]
    assert 0.01 * last == pytest.approx(8.0, rel=0.1)


def test_after_a_busy_time_batches_are_as_they_were() -> None:
    before = sizes(price_s=0.5, per_record_s=0.001)[-1]
    busy = sizes(price_s=8.0, per_record_s=0.001, begin=before)[-1]
    after = sizes(price_s=0.5, per_record_s=0.001, begin=busy)[-1]
    assert busy >= before
    assert 0.7 * LONGEST_S <= 0.5 + 0.001 * after <= 1.2 * LONGEST_S


@given(recent=st.lists(st.builds(FullBatch, records=st.integers(5, 10**8), took_s=st.floats(0, 1e4)), min_size=1))
def test_a_size_is_always_one_that_a_batch_can_have(recent: list[FullBatch]) -> None:
    size = next_size(recent, longest_s=LONGEST_S)
    assert 5 <= size <= 10**8
    assert size <= 2 * recent[-1].records


@given(seed=st.integers(0, 1000))
def test_a_busy_machine_makes_no_batches_of_a_few_records(seed: int) -> None:
    """Four seconds are fixed, now three and then six, where half a second is wanted; a record costs 10 µs."""
    draw = random.Random(seed)
    last = sizes(
        price_s=4.0,
        per_record_s=0.00001,
        batches=60,
        longest_s=0.5,
        times=lambda number: draw.lognormvariate(0, 0.4),
    )[-20:]
    assert median(last) > 1000


def test_from_the_least_size_it_grows_where_all_is_fixed() -> None:
    assert sizes(price_s=4.0, per_record_s=0.00001, begin=5, longest_s=0.5, batches=10)[-1] > 1000


def test_a_size_that_a_slow_first_batch_has_made_far_too_small_is_left() -> None:
    """2.8 s of a batch are fixed, 1 ms is for a record; the first two batches also waited for Python to start."""
    found = sizes(
        price_s=2.8, per_record_s=0.001, begin=400, batches=30, times=lambda number: 8.0 if number < 2 else 1.0
    )
    assert min(found) < 100
    assert found[-1] >= 400


def test_at_the_right_size_nothing_changes() -> None:
    found = sizes(price_s=2.8, per_record_s=0.0, begin=1000, times=lambda number: 1.05 if number % 2 else 0.95)
    assert set(found) == {1000}
