"""A plan is a mapping that does not change, and the difference of two plans is an action."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.dataflow import Change, Plan
from elastream.errors import InvalidInput

PLANS = st.dictionaries(st.sampled_from("abcdef"), st.integers(min_value=1, max_value=9)).map(Plan)


def test_a_plan_reads_like_a_mapping() -> None:
    plan = Plan({"map": 2, "count": 5})

    assert plan["count"] == 5
    assert list(plan) == ["map", "count"]
    assert len(plan) == 2
    assert plan.total == 7
    assert str(plan) == "map 2, count 5"


def test_plans_are_equal_by_their_items_whatever_their_order() -> None:
    assert Plan({"a": 1, "b": 2}) == Plan({"b": 2, "a": 1})
    assert hash(Plan({"a": 1, "b": 2})) == hash(Plan({"b": 2, "a": 1}))
    assert Plan({"a": 1}) == {"a": 1}
    assert Plan({"a": 1}) != Plan({"a": 2})


@pytest.mark.parametrize("instances", [0, -1])
def test_less_than_one_instance_is_refused_by_name(instances: int) -> None:
    with pytest.raises(InvalidInput, match=f"operator 'map': parallelism must be at least 1, found {instances}"):
        Plan({"map": instances})


def test_more_instances_than_any_cluster_has_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="operator 'map': parallelism must be at most"):
        Plan({"map": 10**400})


def test_the_difference_lists_only_what_changes() -> None:
    before = Plan({"map": 1, "count": 1, "sink": 1})

    changes = before.changes_to(Plan({"map": 10, "count": 20, "sink": 1}))

    assert changes == (
        Change(operator="map", before=1, after=10),
        Change(operator="count", before=1, after=20),
    )
    assert ", ".join(map(str, changes)) == "map 1 → 10, count 1 → 20"


def test_operators_that_the_other_plan_lacks_are_left_alone() -> None:
    assert Plan({"map": 1, "sink": 1}).changes_to({"map": 3}) == (Change(operator="map", before=1, after=3),)
    assert Plan({"map": 1}).changes_to({"map": 1, "sink": 3}) == ()


def test_changing_a_plan_leaves_the_old_one_as_it_was() -> None:
    before = Plan({"map": 1, "sink": 1})

    after = before.with_changes({"map": 4})

    assert after == {"map": 4, "sink": 1}
    assert before == {"map": 1, "sink": 1}


def test_a_change_of_an_unknown_operator_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match=r"no operator 'flatmp' \(did you mean 'flatmap'\?\)"):
        Plan({"flatmap": 1}).with_changes({"flatmp": 2})


@given(PLANS, PLANS)
def test_carrying_out_the_difference_gives_the_other_plan(before: Plan, other: Plan) -> None:
    changes = before.changes_to(other)

    after = before.with_changes({change.operator: change.after for change in changes})

    assert after == {name: other.get(name, instances) for name, instances in before.items()}
    assert after.changes_to(other) == ()
