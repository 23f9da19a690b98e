"""The measurement of an operator: equations 1 to 6 of DS2, by hand and for the instances that the paper leaves
undefined, and the same from one reading of all instances together."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.measurement import Measurement, Reading
from elastream.measurement.quantity import declared_in
from elastream.measurement.tasks import TaskSpread


def measured(readings: Sequence[Reading], consumers: Sequence[str] = ()) -> Measurement:
    return Measurement(operator="map", readings=tuple(readings), consumers=tuple(consumers))


def reading(
    instance: int = 0, *, useful_s: float = 30.0, records_in: float = 600.0, records_out: Any = 0.0, **others: Any
) -> Reading:
    return Reading(
        operator="map",
        instance=instance,
        window_s=60.0,
        useful_s=useful_s,
        records_in=records_in,
        records_out=records_out,
        **others,
    )


def test_the_rates_of_an_instance() -> None:
    one = reading(useful_s=30.0, records_in=600.0, records_out=1_200.0)

    assert one.true_per_s == 20.0  # (1): 600 / 30
    assert one.true_output_per_s("sink") == 40.0  # (2): 1200 / 30
    assert one.observed_per_s == 10.0  # (3): 600 / 60
    assert one.observed_output_per_s("sink") == 20.0  # (4): 1200 / 60


def test_the_true_rates_of_an_operator_are_the_sums_over_its_instances() -> None:
    rates = measured(
        [
            reading(0, useful_s=30.0, records_in=600.0, records_out=1_200.0),  # 20 in, 40 out
            reading(1, useful_s=60.0, records_in=300.0, records_out=600.0),  # 5 in, 10 out
        ],
        ["sink"],
    )

    assert rates.true_per_s == 25.0  # (5)
    assert rates.true_output_per_s == {"sink": 50.0}  # (6)
    assert rates.true_per_instance == 12.5
    assert rates.selectivity("sink") == 2.0
    assert rates.observed_per_s == 15.0
    assert rates.observed_output_per_s == {"sink": 30.0}
    assert rates.utilization == 0.75
    assert rates.totals.records_in == 900.0


def test_output_is_counted_per_edge() -> None:
    rates = measured([reading(useful_s=30.0, records_in=600.0, records_out={"a": 60.0, "b": 1_800.0})], "ab")

    assert rates.true_output_per_s == {"a": 2.0, "b": 60.0}
    assert rates.selectivity("a") == pytest.approx(0.1)
    assert rates.selectivity("b") == pytest.approx(3.0)


def test_an_idle_instance_neither_lowers_nor_raises_what_the_others_can_do() -> None:
    busy = reading(0, useful_s=30.0, records_in=600.0, records_out=600.0)
    idle = reading(1, useful_s=0.0, records_in=0.0)

    both = measured([busy, idle], ["sink"])

    assert both.true_per_instance == measured([busy], ["sink"]).true_per_instance == 20.0
    assert (both.instances, both.useful_instances) == (2, 1)
    assert both.utilization == 0.25


def test_without_useful_time_there_is_no_true_rate_but_an_observed_one() -> None:
    rates = measured([reading(useful_s=0.0, records_in=600.0, records_out=60.0)], ["sink"])

    assert rates.true_per_s is None
    assert rates.true_per_instance is None
    assert rates.observed_per_s == 10.0
    assert rates.utilization == 0.0


def test_counts_without_useful_time_still_tell_the_selectivity() -> None:
    """A light operator may be done within a tick of the clock; what it puts out for a record was counted."""
    rates = measured([reading(useful_s=0.0, records_in=600.0, records_out=60.0)], ["sink"])

    assert rates.selectivity("sink") == pytest.approx(0.1)


@pytest.mark.parametrize("useful_s", [0.0, 30.0])
def test_an_operator_that_processed_nothing_has_no_selectivity(useful_s: float) -> None:
    rates = measured([reading(useful_s=useful_s, records_in=0.0)], ["sink"])

    assert rates.selectivity("sink") is None


def test_less_than_a_tick_of_any_clock_is_no_useful_time() -> None:
    rates = measured([reading(useful_s=5e-324, records_in=600.0)], ["sink"])

    assert rates.true_per_s is None
    assert reading(useful_s=5e-324).true_per_s is None


def test_what_some_instances_did_not_measure_is_left_out() -> None:
    rates = measured(
        [
            reading(0, backlog=5.0, wait_out_s=30.0, latency_s=0.1),
            reading(1, backlog=7.0, wait_out_s=6.0, latency_s=0.4),
            reading(2),
        ],
        [],
    )

    assert rates.totals.backlog == 12.0
    assert rates.wait_out_share == 0.5
    assert rates.totals.latency_s == 0.4


def test_what_nobody_measured_is_none() -> None:
    rates = measured([reading()], [])

    assert (rates.totals.backlog, rates.wait_out_share, rates.totals.latency_s) == (None, None, None)


READINGS = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0, 1e12), st.floats(0, 1e12)), min_size=1, max_size=8
).map(lambda rows: [reading(i, useful_s=u, records_in=n, records_out=m) for i, (u, n, m) in enumerate(rows)])


@given(READINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_instances_does_not_change_a_digit(readings: list[Reading], rng: random.Random) -> None:
    shuffled = rng.sample(readings, len(readings))

    found, expected = measured(shuffled, ["sink"]), measured(readings, ["sink"])

    assert found.totals == expected.totals
    assert numbers(found) == numbers(expected)


@given(READINGS)
def test_observed_rates_never_exceed_true_ones(readings: list[Reading]) -> None:
    for one in readings:
        true = one.true_per_s
        assert true is None or one.observed_per_s <= true * (1 + 1e-9)
        assert math.isfinite(one.observed_per_s)


# --- all instances together -----------------------------------------------------------------------------------


def numbers(found: Measurement) -> list[Any]:
    names = [*declared_in(Measurement), "true_per_instance", "wait_out_share", "true_output_per_s", "instances"]
    return [getattr(found, name) for name in (*names, "observed_output_per_s", "useful_instances")]


@given(
    st.integers(1, 20),
    st.just(0.0) | st.floats(1e-6, 60),  # too little time gives no rate, and together it may be enough
    st.floats(0, 1e12),
    st.floats(0, 1e12),
    st.none() | st.floats(0, 60),
    st.none() | st.floats(0, 1e12),
)
def test_one_reading_of_all_says_what_as_many_equal_ones_do(
    instances: int, useful_s: float, came: float, went: float, waited_s: float | None, backlog: float | None
) -> None:
    one = reading(
        useful_s=useful_s,
        records_in=came,
        records_out=went,
        wait_out_s=waited_s,
        wait_core_s=waited_s,
        backlog=backlog,
    )
    each = [replace(one, instance=instance) for instance in range(instances)]
    all_of_them = measured(each).totals

    assert all_of_them.instances == instances
    expected, found = numbers(measured(each, ["sink"])), numbers(measured([all_of_them], ["sink"]))
    # of all together nobody knows how they differed
    skew = [list(declared_in(Measurement)).index(name) for name in ("largest_share", "skew")]
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a == (None if index in skew and instances > 1 else pytest.approx(b))


@given(st.integers(1, 20), st.floats(0, 60), st.floats(0, 1e12))
def test_the_mean_of_all_is_what_each_of_equal_ones_did(instances: int, useful_s: float, came: float) -> None:
    one = reading(
        useful_s=useful_s, records_in=came, records_out={"sink": came}, latency_s=3.0, cpu_utilization=0.5
    )

    mean = measured([replace(one, instance=i) for i in range(instances)]).totals.mean

    assert mean.instances == 1
    assert (mean.useful_s, mean.records_in) == (pytest.approx(useful_s), pytest.approx(came))
    assert mean.records_out == {"sink": pytest.approx(came)}
    assert (mean.latency_s, mean.cpu_utilization) == (3.0, pytest.approx(0.5))


def test_the_time_of_all_may_be_as_many_windows_as_there_are_instances() -> None:
    assert reading(instances=4, useful_s=240.0).utilization == 1.0
    with pytest.raises(
        InvalidInput, match=r"of 'map' 4 instances: useful_s \(241\) is above 4 times window_s \(60\)"
    ):
        reading(instances=4, useful_s=241.0)


def test_a_reading_is_of_at_least_one_instance() -> None:
    with pytest.raises(InvalidInput, match="instances must be at least 1, found 0"):
        reading(instances=0)


# --- skew -----------------------------------------------------------------------------------------------------

HALF = TaskSpread(tasks=4, records_total=800.0, records=(100.0, 130.0, 135.0, 200.0, 400.0), busy_s=(1.0,) * 5)


def test_one_task_with_half_of_the_records_is_seen() -> None:
    found = measured([reading(instances=4, tasks=HALF)])

    assert (found.largest_share, found.skew) == (0.5, 2.0)


def test_one_instance_with_half_of_the_records_is_seen() -> None:
    found = measured([reading(i, records_in=count) for i, count in enumerate((400.0, 130.0, 135.0, 135.0))])

    assert (found.largest_share, found.skew) == (0.5, 2.0)


def test_tasks_without_records_have_no_skew() -> None:
    idle = TaskSpread(tasks=4, records_total=0.0, records=(0.0,) * 5, busy_s=(1.0,) * 5)

    found = measured([reading(instances=4, tasks=idle)])

    assert (found.largest_share, found.skew) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tasks": 0}, "there must be at least 1, found 0"),
        (
            {"records": (1.0, 2.0)},
            r"records must be 5 numbers that rise \(least, quartiles, most\), found \[1.0, 2.0\]",
        ),
        ({"busy_s": (5.0, 4.0, 3.0, 2.0, 1.0)}, "busy_s must be 5 numbers that rise"),
        ({"records": (-1.0, 0.0, 0.0, 0.0, 0.0)}, "records must be a number of at least 0, found -1.0"),
        ({"records_total": math.nan}, "records_total must be a number of at least 0, found nan"),
    ],
)
def test_what_no_tasks_can_have_done_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(HALF, **wrong)
