"""The elasticity measures of SPEC, by hand on small step functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.measurement.elasticity import Elasticity, Moment, elasticity


def moment(lasts_s: float, demand: int, supply: int) -> Moment:
    return Moment(lasts_s=lasts_s, demand={"map": demand}, supply={"map": supply})


def measure(*moments: Moment, excess_s: float = 0.0, reconfigurations: int = 0) -> Elasticity:
    return elasticity(moments, excess_s=excess_s, reconfigurations=reconfigurations)


# --- one operator -----------------------------------------------------------------------------------------------


def test_too_many_for_a_part_of_the_time() -> None:
    # 3 too many for 30 s of 120 s
    found = measure(moment(30, demand=2, supply=5), moment(90, demand=5, supply=5))
    assert found.accuracy_over == pytest.approx(0.75)
    assert found.timeshare_over == pytest.approx(0.25)
    assert (found.accuracy_under, found.timeshare_under) == (0, 0)


def test_too_few_for_a_part_of_the_time() -> None:
    # 4 too few for 20 s and 1 too few for 60 s, of 100 s
    found = measure(moment(20, demand=6, supply=2), moment(60, demand=6, supply=5), moment(20, demand=6, supply=6))
    assert found.accuracy_under == pytest.approx(1.4)
    assert found.timeshare_under == pytest.approx(0.8)
    assert (found.accuracy_over, found.timeshare_over) == (0, 0)


def test_too_many_at_one_time_do_not_make_up_for_too_few_at_another() -> None:
    found = measure(moment(50, demand=4, supply=2), moment(50, demand=2, supply=4))
    assert found.accuracy_over == found.accuracy_under == pytest.approx(1.0)
    assert found.timeshare_over == found.timeshare_under == pytest.approx(0.5)


# --- several operators ------------------------------------------------------------------------------------------


def test_with_two_operators_a_moment_can_be_both() -> None:
    both = Moment(lasts_s=10, demand={"map": 3, "count": 5}, supply={"map": 5, "count": 1})
    right = Moment(lasts_s=30, demand={"map": 3, "count": 5}, supply={"map": 3, "count": 5})
    found = measure(both, right)
    assert found.accuracy_over == pytest.approx(2 * 10 / 40)
    assert found.accuracy_under == pytest.approx(4 * 10 / 40)
    assert found.timeshare_over == found.timeshare_under == pytest.approx(0.25)


def test_areas_of_operators_add_up_but_their_time_counts_once() -> None:
    found = measure(Moment(lasts_s=60, demand={"map": 1, "count": 1}, supply={"map": 3, "count": 2}))
    assert found.accuracy_over == pytest.approx(3.0)
    assert found.timeshare_over == pytest.approx(1.0)


# --- excess time, reconfigurations, cost ------------------------------------------------------------------------


def test_excess_time_is_relative_to_the_whole_time() -> None:
    assert measure(moment(200, 1, 1), excess_s=50).excess_time == pytest.approx(0.25)


def test_reconfigurations_are_passed_on() -> None:
    assert measure(moment(1, 1, 1), reconfigurations=7).reconfigurations == 7


def test_each_instance_costs_one_unit_a_minute_whether_needed_or_not() -> None:
    long = Moment(lasts_s=90, demand={"map": 1, "count": 1}, supply={"map": 4, "count": 2})
    short = Moment(lasts_s=30, demand={"map": 9, "count": 9}, supply={"map": 1, "count": 1})
    assert measure(long, short).cost == pytest.approx(6 * 1.5 + 2 * 0.5)


def test_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="over some time"):
        measure()


# --- properties -------------------------------------------------------------------------------------------------

plans = st.fixed_dictionaries({"map": st.integers(1, 50), "count": st.integers(1, 50)})
spans = st.floats(0.1, 1e4)


@given(st.lists(st.tuples(spans, plans), min_size=1, max_size=10))
def test_nothing_is_wrong_where_supply_equals_demand(steps: list[tuple[float, dict[str, int]]]) -> None:
    found = measure(*(Moment(lasts_s=lasts_s, demand=plan, supply=plan) for lasts_s, plan in steps))
    wrong = (found.accuracy_over, found.accuracy_under, found.timeshare_over, found.timeshare_under)
    assert wrong == (0, 0, 0, 0)


@given(st.lists(st.tuples(spans, plans, plans), min_size=1, max_size=10))
def test_over_less_under_is_the_mean_difference(steps: list[tuple[float, dict[str, int], dict[str, int]]]) -> None:
    found = measure(*(Moment(lasts_s=lasts_s, demand=d, supply=s) for lasts_s, d, s in steps))
    total_s = sum(lasts_s for lasts_s, _, _ in steps)
    difference = sum(lasts_s * (sum(s.values()) - sum(d.values())) for lasts_s, d, s in steps)
    assert found.accuracy_over - found.accuracy_under == pytest.approx(difference / total_s, abs=1e-6)
    assert 0 <= found.timeshare_under <= 1 + 1e-9
    assert 0 <= found.timeshare_over <= 1 + 1e-9


@given(spans, plans, plans, st.floats(0.01, 0.99))
def test_cutting_a_span_in_two_changes_nothing(
    lasts_s: float, demand: dict[str, int], supply: dict[str, int], cut: float
) -> None:
    whole = Moment(lasts_s=lasts_s, demand=demand, supply=supply)
    parts = [Moment(lasts_s=lasts_s * share, demand=demand, supply=supply) for share in (cut, 1 - cut)]
    one, two = measure(whole), measure(*parts)
    for name in ("accuracy_over", "accuracy_under", "timeshare_over", "timeshare_under", "cost"):
        assert getattr(two, name) == pytest.approx(getattr(one, name))
