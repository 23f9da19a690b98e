"""Partition arithmetic against brute force: deal the partitions out and look at the fullest instance."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastream.dataflow.state_partitions import effective_instances, enough_for, least_useful, partitions_for

PARTITIONS = st.integers(min_value=1, max_value=200)
PARALLELISMS = st.integers(min_value=1, max_value=250)


def fullest(parallelism: int, partitions: int) -> int:
    """The partitions of the fullest instance when they are dealt out one by one."""
    held = [0] * parallelism
    for partition in range(partitions):
        held[partition % parallelism] += 1
    return max(held)


def test_the_useful_parallelisms_of_32_partitions() -> None:
    useful = {least_useful(p, 32) for p in range(1, 33)}

    assert useful == {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 32}


@given(PARALLELISMS, PARTITIONS)
def test_instances_do_the_work_that_their_fullest_one_allows(parallelism: int, partitions: int) -> None:
    assert effective_instances(parallelism, partitions) == partitions / fullest(parallelism, partitions)


@given(PARALLELISMS, PARTITIONS)
def test_the_least_useful_parallelism_is_the_first_that_does_as_much(parallelism: int, partitions: int) -> None:
    same = (p for p in range(1, parallelism + 1) if fullest(p, partitions) == fullest(parallelism, partitions))

    assert least_useful(parallelism, partitions) == next(same)


@given(st.floats(min_value=-5, max_value=250), PARTITIONS)
@example(need=32 / 3, partitions=32)
@example(need=0.0, partitions=1)
@example(need=8.000001, partitions=32)
def test_enough_is_the_first_parallelism_that_does_the_work(need: float, partitions: int) -> None:
    reaching = (p for p in range(1, partitions + 1) if partitions / fullest(p, partitions) >= need)

    assert enough_for(need, partitions) == next(reaching, partitions)


@pytest.mark.parametrize(("need", "instances"), [(8, 8), (8.1, 11), (10.6, 11), (10.7, 16), (16.5, 32), (40, 32)])
def test_a_need_between_two_useful_values_takes_the_higher_one(need: float, instances: int) -> None:
    assert enough_for(need, 32) == instances


def test_without_state_every_parallelism_is_useful() -> None:
    assert effective_instances(9, None) == 9.0
    assert least_useful(9, None) == 9
    assert enough_for(8.1, None) == 9
    assert enough_for(-2.0, None) == 1


@given(PARALLELISMS, PARTITIONS, st.none() | PARALLELISMS)
def test_state_that_is_moved_has_as_many_partitions_for_each_instance(
    parallelism: int, partitions: int, most: int | None
) -> None:
    found = partitions_for(parallelism, partitions, most=most)

    if parallelism <= partitions:
        assert found == partitions
    else:
        assert effective_instances(parallelism, found) == parallelism
        assert found <= max(parallelism, most or 2 * parallelism)


@pytest.mark.parametrize(("parallelism", "partitions"), [(3, 4), (4, 4), (5, 10), (8, 16), (9, 9), (16, 16)])
def test_state_is_moved_into_twice_as_many_partitions_where_it_may_double(
    parallelism: int, partitions: int
) -> None:
    assert partitions_for(parallelism, 4, most=16) == partitions
