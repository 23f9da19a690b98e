"""Which records make a batch fail, told by asking about parts of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.isolation import NotIsolatedError, isolate


class Batch:
    """One that fails where some of these records are in it."""

    def __init__(self, culprits: set[int]) -> None:
        self.culprits = culprits
        self.asked = 0

    def error_of(self, first: int, last: int) -> str | None:
        self.asked += 1
        named = sorted(one for one in self.culprits if first <= one < last)
        return f"record {named[0]}" if named else None


@given(st.integers(1, 500), st.sets(st.integers(0, 499), max_size=8))
def test_each_culprit_is_found_with_its_own_error_and_nothing_else(records: int, wanted: set[int]) -> None:
    culprits = {one for one in wanted if one < records}
    batch = Batch(culprits)
    if not culprits:
        with pytest.raises(NotIsolatedError, match="no single record"):
            isolate(records, batch.error_of, most=8)
        return
    assert isolate(records, batch.error_of, most=8) == {one: f"record {one}" for one in culprits}
    assert batch.asked <= 2 + 2 * len(culprits) * (1 + math.ceil(math.log2(records)))


def test_what_fails_without_a_record_is_no_fault_of_one() -> None:
    with pytest.raises(NotIsolatedError, match="without any record, too: no table"):
        isolate(10, lambda first, last: "no table", most=8)


def test_too_many_are_a_mistake_of_another_kind() -> None:
    batch = Batch(set(range(1000)))
    with pytest.raises(NotIsolatedError, match="more than 8 records"):
        isolate(1000, batch.error_of, most=8)
    assert batch.asked < 50, "and that is found out soon"


def test_what_takes_several_records_together_is_no_matter_of_one() -> None:
    with pytest.raises(NotIsolatedError, match="no single record"):
        isolate(4, lambda first, last: "both" if first == 0 and last == 4 else None, most=8)
