"""Capacities against their formulas, and what skew, stragglers and partitions leave of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_models import linear

from elastream.dataflow.state_partitions import effective_instances
from elastream.engines.simulated import Amdahl, OperatorModel, PowerLaw, Usl
from elastream.engines.simulated.engine_model import InstanceSet
from elastream.errors import InvalidInput


def test_a_power_law_with_exponent_one_scales_perfectly() -> None:
    capacity = PowerLaw(per_instance_per_s=120)
    assert [capacity.total_per_s(n) for n in (1, 2, 7)] == [120, 240, 840]


def test_a_power_law_loses_to_delay() -> None:
    capacity = PowerLaw(per_instance_per_s=100, exponent=0.5, delay_cost=1000, delay_s=0.05)
    assert capacity.total_per_s(4) == pytest.approx(100 * 2 - 50)


def test_a_delay_that_costs_everything_leaves_nothing_rather_than_less() -> None:
    assert PowerLaw(per_instance_per_s=1, delay_cost=10, delay_s=1).total_per_s(5) == 0


def test_amdahl_approaches_its_limit() -> None:
    capacity = Amdahl(per_instance_per_s=100, serial_share=0.1)
    assert capacity.total_per_s(1) == 100
    assert capacity.total_per_s(100_000) == pytest.approx(1000, rel=1e-3)


def test_usl_has_its_peak_where_the_law_says() -> None:
    capacity = Usl(per_instance_per_s=100, contention=0.05, coherence=0.01)
    peak = max(range(1, 100), key=capacity.total_per_s)
    assert abs(peak - math.sqrt((1 - 0.05) / 0.01)) < 1


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_rate_must_be_positive_and_finite(value: float) -> None:
    with pytest.raises(InvalidInput, match="per_instance_per_s"):
        PowerLaw(per_instance_per_s=value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hot_share": 0.0}, "hot_share"),
        ({"hot_share": 1.5}, "hot_share"),
        ({"slow_instance": 2.0}, "slow_instance"),
        ({"selectivity": -1.0}, "selectivity"),
        ({"selectivity": {"next": math.nan}}, "selectivity"),
        ({"window_s": 0.0}, "window_s"),
        ({"fire_cost_s_per_record": 0.1}, "window_s"),
        ({"slide_s": 5.0}, "slide_s"),
        ({"window_s": 4.0, "slide_s": 5.0}, "slide_s"),
        ({"queue_records": 0.0}, "queue_records"),
    ],
)
def test_an_operator_is_checked(options: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        linear(100, **options)


def test_even_instances_do_the_total_capacity() -> None:
    assert InstanceSet(model=linear(100), n=6).effective_per_s == pytest.approx(600)


def test_the_hot_instance_limits_all() -> None:
    assert InstanceSet(model=linear(100, hot_share=0.5), n=10).effective_per_s == pytest.approx(200)


def test_a_hot_share_below_the_even_one_changes_nothing() -> None:
    assert InstanceSet(model=linear(100, hot_share=0.1), n=4).effective_per_s == pytest.approx(400)


def test_a_straggler_limits_all() -> None:
    assert InstanceSet(model=linear(100, slow_instance=0.25), n=8).effective_per_s == pytest.approx(200)


def test_what_is_not_parallel_stays_at_one_instance() -> None:
    assert InstanceSet(model=linear(100, not_parallel=True), n=8).effective_per_s == 100


def test_firing_a_window_is_part_of_what_can_be_sustained() -> None:
    # 10 ms to set a record aside and 30 ms to fire it: 25 a second
    windowed = linear(100, window_s=10, fire_cost_s_per_record=0.03)
    assert InstanceSet(model=windowed, n=4).sustained_per_s == pytest.approx(100)


@given(n=st.integers(1, 32), partitions=st.integers(32, 100))
def test_partitions_do_the_work_of_the_effective_instances(n: int, partitions: int) -> None:
    instances = InstanceSet(model=linear(100), n=n, state_partitions=partitions)
    assert instances.effective_per_s == pytest.approx(100 * effective_instances(n, partitions))


@given(
    n=st.integers(1, 40),
    hot_share=st.none() | st.floats(0.001, 1),
    slow=st.floats(0.01, 1),
    partitions=st.none() | st.integers(40, 200),
    not_parallel=st.booleans(),
)
def test_shares_sum_to_one_and_the_slowest_instance_is_the_limit(
    n: int, hot_share: float | None, slow: float, partitions: int | None, not_parallel: bool
) -> None:
    model = OperatorModel(
        capacity=Usl(per_instance_per_s=100, contention=0.01, coherence=0.001),
        hot_share=hot_share,
        slow_instance=slow,
        not_parallel=not_parallel,
    )
    instances = InstanceSet(model=model, n=n, state_partitions=partitions)
    shares = [instances.share(i) for i in range(n)]
    assert math.fsum(shares) == pytest.approx(1)
    limit = min(instances.rate_per_s(i) / share for i, share in enumerate(shares) if share > 0)
    assert instances.effective_per_s == pytest.approx(limit)
