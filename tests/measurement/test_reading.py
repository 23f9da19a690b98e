"""A reading refuses what no instance can have done, and says which instance it was."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest

from elastream.errors import InvalidInput
from elastream.measurement import Reading

NOT_A_COUNT = [-1.0, -0.001, math.nan, -math.inf]
TOO_MANY = [math.inf, 1e300, 10**400]
MEASURED_BY_SOME = [
    "backlog",
    "overdue",
    "wait_in_s",
    "wait_out_s",
    "latency_s",
    "cpu_utilization",
    "memory_utilization",
    "heap_utilization",
    "state_size",
]


def reading(**changes: Any) -> Reading:
    fields: dict[str, Any] = {
        "operator": "map",
        "instance": 3,
        "window_s": 60.0,
        "useful_s": 30.0,
        "records_in": 100.0,
        "records_out": 200.0,
    }
    return Reading(**(fields | changes))


def refused(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as error:
        reading(**changes)
    return str(error.value)


@pytest.mark.parametrize("field", ["instance", "instances"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_instances_are_counted(field: str, value: float) -> None:
    assert refused(**{field: value}).startswith(f"reading of 'map': {field} must be at ")


@pytest.mark.parametrize("field", ["useful_s", "records_in", "records_out", *MEASURED_BY_SOME])
@pytest.mark.parametrize("value", NOT_A_COUNT)
def test_what_cannot_be_counted_is_refused_by_instance_and_field(field: str, value: float) -> None:
    message = refused(**{field: value})

    assert message.startswith(f"reading of 'map' instance 3: {field} must be a number of at least 0, ")
    assert message.endswith(f"found {value}")


@pytest.mark.parametrize("field", ["window_s", "useful_s", "records_in", "records_out", *MEASURED_BY_SOME])
@pytest.mark.parametrize("value", TOO_MANY)
def test_more_than_any_window_holds_is_refused_by_instance_and_field(field: str, value: float) -> None:
    assert refused(**{field: value}).startswith(f"reading of 'map' instance 3: {field} must be at most ")


@pytest.mark.parametrize("value", [*NOT_A_COUNT, *TOO_MANY])
def test_a_count_for_one_edge_is_checked_like_any_other(value: float) -> None:
    message = refused(records_out={"left": 3.0, "right": value})

    assert message.startswith("reading of 'map' instance 3: records_out to 'right' must be")


@pytest.mark.parametrize("value", [*NOT_A_COUNT, *TOO_MANY])
def test_what_an_agent_read_is_checked_like_any_other(value: float) -> None:
    message = refused(metrics={"open_files": 3.0, "state_size": value})

    assert message.startswith("reading of 'map' instance 3: metrics['state_size'] must be")


@pytest.mark.parametrize("window_s", [0.0, 5e-324, *NOT_A_COUNT])
def test_a_window_has_a_length(window_s: float) -> None:
    assert refused(window_s=window_s).startswith("reading of 'map' instance 3: window_s must be")


def test_an_instance_has_a_number_of_at_least_0() -> None:
    assert refused(instance=-1) == "reading of 'map': instance must be at least 0, found -1"


def test_useful_time_lies_within_the_window() -> None:
    assert refused(useful_s=61.0) == "reading of 'map' instance 3: useful_s (61) is above window_s (60)"


def test_two_clocks_may_differ_by_their_rounding() -> None:
    assert reading(useful_s=60.00001).useful_s == 60.00001


def test_zero_is_a_count() -> None:
    idle = reading(useful_s=0.0, records_in=0.0, records_out=0.0, **dict.fromkeys(MEASURED_BY_SOME, 0.0))

    assert idle.backlog == 0.0


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    assert all(getattr(reading(), field) is None for field in MEASURED_BY_SOME)


def test_one_number_goes_to_every_downstream_operator_alike() -> None:
    assert reading(records_out=7.0).records_out_to("left") == 7.0
    assert reading(records_out=7.0).records_out_to("right") == 7.0


def test_an_object_has_a_number_for_each_downstream_operator() -> None:
    split = reading(records_out=MappingProxyType({"left": 3.0, "right": 5.0}))

    assert split.records_out_to("left") == 3.0
    assert split.records_out_to("right") == 5.0
