"""The size of batches: what it comes to, batch after batch, on machines that are simulated by two numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.batch_size import FullBatch, next_size, to_compare

LONGEST_S = 3.0


def sizes(*, price_s: float, per_record_s: float, begin: int = 200, batches: int = 40) -> list[int]:
    """What batches come to hold where there is always enough to fill them."""
    found, before = [begin], None
    for _ in range(batches):
        now = FullBatch(records=found[-1], took_s=price_s + per_record_s * found[-1])
        found.append(next_size(now, before, longest_s=LONGEST_S))
        before = to_compare(now, before)
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


@given(
    now=st.builds(FullBatch, records=st.integers(5, 10**8), took_s=st.floats(0, 1e4)),
    before=st.none() | st.builds(FullBatch, records=st.integers(5, 10**8), took_s=st.floats(0, 1e4)),
)
def test_a_size_is_always_one_that_a_batch_can_have(now: FullBatch, before: FullBatch | None) -> None:
    size = next_size(now, before, longest_s=LONGEST_S)
    assert 5 <= size <= 10**8
    assert size <= 2 * now.records
