"""How the rate is raised when a capacity is measured: throughputs are given, nothing is run."""

from __future__ import annotations

import pytest

from elastream.decentralized.protocol.capacity_ramp import CapacityStep, MeasuredCapacity, core_counts, ramp
from elastream.errors import ElastreamError, InvalidInput


def saturating(most_per_s: float) -> list[CapacityStep]:
    return list(ramp(lambda rate_per_s: min(rate_per_s, most_per_s), first_per_s=20.0, growth=2.0))


def test_the_rate_grows_until_the_output_no_longer_follows() -> None:
    steps = saturating(60.0)
    assert [step.offered_per_s for step in steps] == [20.0, 40.0, 80.0]
    assert [step.follows for step in steps] == [True, True, False]
    assert MeasuredCapacity(cores=1, steps=steps).per_s == 60.0, "what is processed then is the capacity"


def test_a_little_less_than_was_offered_still_follows() -> None:
    """A tenth may be in the batch that is under way."""
    assert [step.offered_per_s for step in saturating(37.0)] == [20.0, 40.0, 80.0]
    assert [step.offered_per_s for step in saturating(35.0)] == [20.0, 40.0]


def test_a_first_rate_that_is_too_much_already_is_enough() -> None:
    assert saturating(7.5) == [CapacityStep(offered_per_s=20.0, processed_per_s=7.5)]


def test_each_rate_is_held_once_and_only_when_its_result_is_asked_for() -> None:
    held: list[float] = []

    def hold(rate_per_s: float) -> float:
        held.append(rate_per_s)
        return rate_per_s

    steps = ramp(hold, first_per_s=10.0, growth=1.5)
    assert held == []
    assert [next(steps).offered_per_s, next(steps).offered_per_s] == held == [10.0, 15.0]


def test_an_output_that_always_follows_is_told_with_the_last_rate() -> None:
    with pytest.raises(ElastreamError, match="still follows at 40 records per second: begin with a higher rate"):
        list(ramp(lambda rate_per_s: rate_per_s, first_per_s=40.0, growth=1.0 + 1e-6))


@pytest.mark.parametrize(("written", "found"), [("1", [1]), ("1,2,4", [1, 2, 4]), ("4, 1", [4, 1])])
def test_core_counts_are_taken_in_the_order_given(written: str, found: list[int]) -> None:
    assert core_counts(written) == found


@pytest.mark.parametrize("written", ["", "0", "-1", "1,0", "1,,2", "two", "1.5", "1;2", "1,1"])
def test_what_is_no_list_of_core_counts_is_refused(written: str) -> None:
    with pytest.raises(InvalidInput, match=f"--cores: expected .*, found '{written}'"):
        core_counts(written)
