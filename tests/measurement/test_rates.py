"""Equations 1 to 6 of DS2, by hand and for the instances that the paper leaves undefined."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.measurement import Reading
from elastream.measurement.rates import (
    observed_output_rate,
    observed_processing_rate,
    operator_rates,
    true_output_rate,
    true_processing_rate,
)


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

    assert true_processing_rate(one) == 20.0  # (1): 600 / 30
    assert true_output_rate(one, "sink") == 40.0  # (2): 1200 / 30
    assert observed_processing_rate(one) == 10.0  # (3): 600 / 60
    assert observed_output_rate(one, "sink") == 20.0  # (4): 1200 / 60


def test_the_true_rates_of_an_operator_are_the_sums_over_its_instances() -> None:
    rates = operator_rates(
        [
            reading(0, useful_s=30.0, records_in=600.0, records_out=1_200.0),  # 20 in, 40 out
            reading(1, useful_s=60.0, records_in=300.0, records_out=600.0),  # 5 in, 10 out
        ],
        ["sink"],
    )

    assert rates.true_processing_per_s == 25.0  # (5)
    assert rates.true_output_per_s == {"sink": 50.0}  # (6)
    assert rates.true_per_instance == 12.5
    assert rates.selectivity("sink") == 2.0
    assert rates.observed_processing_per_s == 15.0
    assert rates.observed_output_per_s == {"sink": 30.0}
    assert rates.utilization == 0.75
    assert rates.records_in == 900.0


def test_output_is_counted_per_edge() -> None:
    rates = operator_rates([reading(useful_s=30.0, records_in=600.0, records_out={"a": 60.0, "b": 1_800.0})], "ab")

    assert rates.true_output_per_s == {"a": 2.0, "b": 60.0}
    assert rates.selectivity("a") == pytest.approx(0.1)
    assert rates.selectivity("b") == pytest.approx(3.0)


def test_an_idle_instance_neither_lowers_nor_raises_what_the_others_can_do() -> None:
    busy = reading(0, useful_s=30.0, records_in=600.0, records_out=600.0)
    idle = reading(1, useful_s=0.0, records_in=0.0)

    both = operator_rates([busy, idle], ["sink"])

    assert both.true_per_instance == operator_rates([busy], ["sink"]).true_per_instance == 20.0
    assert (both.instances, both.useful_instances) == (2, 1)
    assert both.utilization == 0.25


def test_without_useful_time_there_is_no_true_rate_but_an_observed_one() -> None:
    rates = operator_rates([reading(useful_s=0.0, records_in=600.0, records_out=60.0)], ["sink"])

    assert rates.true_processing_per_s is None
    assert rates.true_per_instance is None
    assert rates.observed_processing_per_s == 10.0
    assert rates.utilization == 0.0


def test_counts_without_useful_time_still_tell_the_selectivity() -> None:
    """A light operator may be done within a tick of the clock; what it puts out for a record was counted."""
    rates = operator_rates([reading(useful_s=0.0, records_in=600.0, records_out=60.0)], ["sink"])

    assert rates.selectivity("sink") == pytest.approx(0.1)


@pytest.mark.parametrize("useful_s", [0.0, 30.0])
def test_an_operator_that_processed_nothing_has_no_selectivity(useful_s: float) -> None:
    rates = operator_rates([reading(useful_s=useful_s, records_in=0.0)], ["sink"])

    assert rates.selectivity("sink") is None


def test_less_than_a_tick_of_any_clock_is_no_useful_time() -> None:
    rates = operator_rates([reading(useful_s=5e-324, records_in=600.0)], ["sink"])

    assert rates.true_processing_per_s is None
    assert true_processing_rate(reading(useful_s=5e-324)) is None


def test_what_some_instances_did_not_measure_is_left_out() -> None:
    rates = operator_rates(
        [
            reading(0, backlog=5.0, wait_out_s=30.0, latency_s=0.1),
            reading(1, backlog=7.0, wait_out_s=6.0, latency_s=0.4),
            reading(2),
        ],
        [],
    )

    assert rates.backlog == 12.0
    assert rates.wait_out_share == 0.5
    assert rates.latency_s == 0.4


def test_what_nobody_measured_is_none() -> None:
    rates = operator_rates([reading()], [])

    assert (rates.backlog, rates.wait_out_share, rates.latency_s) == (None, None, None)


READINGS = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0, 1e12), st.floats(0, 1e12)), min_size=1, max_size=8
).map(lambda rows: [reading(i, useful_s=u, records_in=n, records_out=m) for i, (u, n, m) in enumerate(rows)])


@given(READINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_instances_does_not_change_a_digit(readings: list[Reading], rng: random.Random) -> None:
    shuffled = rng.sample(readings, len(readings))

    assert operator_rates(shuffled, ["sink"]) == operator_rates(readings, ["sink"])


@given(READINGS)
def test_observed_rates_never_exceed_true_ones(readings: list[Reading]) -> None:
    for one in readings:
        true = true_processing_rate(one)
        assert true is None or observed_processing_rate(one) <= true * (1 + 1e-9)
        assert math.isfinite(observed_processing_rate(one))
