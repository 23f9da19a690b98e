"""The capacity model of operators that work in micro-batches: its prices are found again, its inequality holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.measurement.batch_cost import LEAST_BATCHES, Batch, BatchCost, BatchMemory, fit

LINEAR = BatchCost(
    per_record_s=0.005,
    per_task_s=0.0,
    per_state_partition_s=0.0,
    state_partitions=0,
    driver_s=0.0,
    balance=1.0,
    longest_batch_s=1.0,
)


def batches(
    *,
    per_task_s: float = 0.0,
    fixed_s: float = 0.0,
    per_record_s: float = 0.001,
    tasks: Callable[[int], int] = lambda index: 1 + index % 4,
    count: int = 40,
    noise: float = 0.0,
) -> list[Batch]:
    """Batches of 100 to 1,000 records that cost exactly these prices, or about."""
    random = np.random.default_rng(7)
    found = []
    for index in range(count):
        records = int(random.integers(100, 1_000))
        busy_s = per_task_s * tasks(index) + fixed_s + per_record_s * records
        busy_s *= float(random.normal(1.0, noise)) if noise else 1.0
        found.append(Batch(records=records, busy_s=busy_s, tasks=tasks(index), driver_s=0.1))
    return found


def fitted(found: list[Batch], *, state_partitions: int = 0, longest_batch_s: float = 1.0) -> BatchCost:
    cost = fit(found, state_partitions=state_partitions, longest_batch_s=longest_batch_s)
    assert cost is not None
    return cost


# --- finding the prices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "within"), [(0.0, 1e-6), (0.02, 0.1)])
def test_the_prices_of_a_stateless_operator_are_found(noise: float, within: float) -> None:
    cost = fitted(batches(per_task_s=0.05, per_record_s=0.002, noise=noise))
    assert cost.per_record_s == pytest.approx(0.002, rel=within)
    assert cost.per_task_s == pytest.approx(0.05, rel=3 * within)
    assert cost.per_state_partition_s == 0


@pytest.mark.parametrize(("noise", "within"), [(0.0, 1e-6), (0.02, 0.1)])
def test_the_prices_of_a_stateful_operator_are_found(noise: float, within: float) -> None:
    cost = fitted(
        batches(per_task_s=0.05, fixed_s=12 * 0.03, per_record_s=0.002, noise=noise), state_partitions=12
    )
    assert cost.per_record_s == pytest.approx(0.002, rel=within)
    assert cost.per_task_s == pytest.approx(0.05, rel=5 * within)
    assert cost.per_state_partition_s == pytest.approx(0.03, rel=5 * within)


def test_with_one_number_of_tasks_the_fixed_price_is_that_of_the_state() -> None:
    """What does not vary cannot be told apart: the whole fixed price is the state's, the same for any p."""
    cost = fitted(batches(per_task_s=0.05, fixed_s=0.24, tasks=lambda _: 4), state_partitions=12)
    assert cost.per_task_s == 0
    assert 12 * cost.per_state_partition_s == pytest.approx(0.24 + 4 * 0.05)
    assert cost.per_record_s == pytest.approx(0.001)


def test_without_state_and_with_one_number_of_tasks_the_fixed_price_is_that_of_the_tasks() -> None:
    cost = fitted(batches(per_task_s=0.05, tasks=lambda _: 4))
    assert cost.per_task_s == pytest.approx(0.05)
    assert cost.per_record_s == pytest.approx(0.001)


@pytest.mark.parametrize("stalled", range(16))
@pytest.mark.parametrize(("more", "within"), [(0, 0.1), (1, 0.15)])
def test_one_or_two_batches_that_stalled_move_the_prices_but_little(
    stalled: int, more: int, within: float
) -> None:
    """With plain least squares a record would cost 0.4 to 2.8 ms, by which batches they are."""
    found = batches(per_task_s=0.15, per_record_s=0.002, count=16, noise=0.05, tasks=lambda _: 2)
    for index in {stalled, (stalled + more) % 16}:
        found[index] = replace(found[index], busy_s=found[index].busy_s + 2)
    assert fitted(found).per_record_s == pytest.approx(0.002, rel=within)


def test_a_price_that_has_changed_is_learned() -> None:
    memory = BatchMemory()
    for batch in [*batches(per_record_s=0.001, noise=0.05), *batches(per_record_s=0.002, noise=0.05)]:
        memory.add(batch)
    assert fitted(list(memory.batches())).per_record_s == pytest.approx(0.002, rel=0.1)


def test_prices_are_never_negative() -> None:
    """Large batches that are cheaper by the record than small ones would give records a negative price."""
    found = [Batch(records=1_000 * n, busy_s=1.0 / n, tasks=1, driver_s=0.0) for n in range(1, 9)]
    cost = fitted(found)
    assert cost.per_record_s > 0
    assert cost.per_task_s >= 0


def test_of_identical_batches_all_of_the_price_is_the_records() -> None:
    alike = [Batch(records=500, busy_s=1.0, tasks=2, driver_s=0.1)] * 10
    cost = fitted(alike)
    explained = cost.per_task_s * 2 + cost.per_record_s * 500
    assert explained == pytest.approx(1.0), "the batches that were seen are explained, whoever is to blame"
    assert cost.per_record_s > 0


def test_the_drivers_time_is_that_of_the_middle_batch() -> None:
    times_s = (9, 0.2, 0.1, 0.3, 0.2)
    found = [replace(batch, driver_s=driver_s) for batch, driver_s in zip(batches(count=5), times_s, strict=True)]
    assert fitted(found).driver_s == 0.2


def test_the_balance_is_that_of_the_batches_where_it_is_known() -> None:
    found = [Batch(records=10 * n, busy_s=n * 1.0, tasks=4, driver_s=0.0) for n in range(1, 6)]
    found[2] = replace(found[2], balance=0.5)
    assert fitted(found).balance == pytest.approx(0.5)
    assert fitted([replace(batch, balance=None) for batch in found]).balance == 1.0


def test_where_batches_of_any_size_cost_the_same_all_of_the_price_is_the_records() -> None:
    """The fixed price explains everything; records that cost nothing would never need an instance."""
    found = [Batch(records=100 + 10 * n, busy_s=0.8, tasks=4, driver_s=0.1) for n in range(8)]
    cost = fitted(found)
    assert cost.per_record_s == pytest.approx(8 * 0.8 / sum(batch.records for batch in found))
    assert cost.per_task_s == 0


any_batches = st.lists(
    st.builds(
        Batch,
        records=st.integers(0, 10**8),
        busy_s=st.floats(0, 1e5),
        tasks=st.integers(0, 64),
        driver_s=st.floats(0, 1e3),
        balance=st.none() | st.floats(0, 1),
        state_partitions=st.none() | st.integers(0, 64),
    ),
    max_size=40,
)


@given(found=any_batches, state_partitions=st.integers(0, 64))
def test_whatever_batches_there_were_they_have_a_price_or_none(found: list[Batch], state_partitions: int) -> None:
    cost = fit(found, state_partitions=state_partitions, longest_batch_s=1.0)
    assert cost is None or math.isfinite(cost.capacity(4))


def test_too_few_batches_tell_nothing() -> None:
    enough = batches(count=LEAST_BATCHES)
    empty = Batch(records=0, busy_s=1.0, tasks=1, driver_s=0.1)
    assert fit(enough[:-1], state_partitions=0, longest_batch_s=1.0) is None
    assert fit([*enough[:-1], empty, empty], state_partitions=0, longest_batch_s=1.0) is None
    assert fit(enough, state_partitions=0, longest_batch_s=1.0) is not None


def test_batches_that_took_no_time_tell_nothing() -> None:
    free = [Batch(records=n, busy_s=0.0, tasks=1, driver_s=0.1) for n in range(1, 10)]
    assert fit(free, state_partitions=0, longest_batch_s=1.0) is None


# --- how many instances -----------------------------------------------------------------------------------------

costs = st.builds(
    BatchCost,
    per_record_s=st.floats(1e-6, 0.01),
    per_task_s=st.floats(0, 0.1),
    per_state_partition_s=st.floats(0, 0.05),
    state_partitions=st.integers(0, 32),
    driver_s=st.floats(0, 0.3),
    balance=st.floats(0.3, 1),
    longest_batch_s=st.floats(0.5, 10),
)


def keeps_up(cost: BatchCost, instances: int, rate: float, slack: float) -> bool:
    """p · b · (T − h)  ≥  F + c · λ · T, as design.md has it, give or take a rounding."""
    fixed_s = cost.per_task_s * instances + cost.per_state_partition_s * cost.state_partitions
    has_s = instances * cost.balance * (cost.longest_batch_s - cost.driver_s)
    return has_s * (1 + slack) >= fixed_s + cost.per_record_s * rate * cost.longest_batch_s


@given(cost=costs, rate=st.floats(1, 100_000))
def test_what_is_needed_is_enough_and_one_fewer_is_not(cost: BatchCost, rate: float) -> None:
    needed = cost.needed(rate)
    assume(needed < 1e6)
    assert keeps_up(cost, math.ceil(needed), rate, slack=1e-9)
    assert not keeps_up(cost, math.ceil(needed) - 1, rate, slack=-1e-9)


@given(cost=costs, rate=st.floats(1, 100_000))
def test_capacity_is_the_inverse_of_need(cost: BatchCost, rate: float) -> None:
    needed = cost.needed(rate)
    assume(needed < 1e9)
    assert cost.capacity(needed) == pytest.approx(rate, rel=1e-6)


@given(cost=costs, instances=st.integers(1, 100))
def test_more_instances_never_sustain_less_where_a_batch_leaves_time(cost: BatchCost, instances: int) -> None:
    assume(cost.needed(1.0) < math.inf)
    assert cost.capacity(instances + 1) >= cost.capacity(instances) >= 0


@given(rate=st.floats(0, 1e6), instances=st.integers(1, 1_000))
def test_without_fixed_prices_it_is_ds2(rate: float, instances: int) -> None:
    assert LINEAR.needed(rate) == pytest.approx(rate * 0.005)
    assert LINEAR.capacity(instances) == pytest.approx(instances / 0.005)


def test_a_batch_that_is_all_fixed_price_cannot_be_helped() -> None:
    late = replace(LINEAR, driver_s=1.5)
    costly = replace(LINEAR, per_task_s=1.0)
    for cost in (late, costly):
        assert cost.needed(1.0) == math.inf
        assert cost.capacity(1_000) == 0


def test_the_word_count_by_hand() -> None:
    """5 ms a record, 400/s, 0.1 s of 1 s for the driver, 0.1 s for a task: 2 / (0.9 − 0.1)."""
    cost = replace(LINEAR, driver_s=0.1, per_task_s=0.1)
    assert cost.needed(400.0) == pytest.approx(2.5)


@given(
    cost=costs,
    contention=st.floats(0, 0.8),
    tasks=st.integers(1, 64),
    reach=st.floats(1, 16),
    rate=st.floats(1, 100_000),
)
def test_where_records_get_dearer_with_more_tasks_need_and_capacity_still_meet(
    cost: BatchCost, contention: float, tasks: int, reach: float, rate: float
) -> None:
    dearer = replace(cost, contention=contention, tasks=tasks, reach=reach)
    needed = dearer.needed(rate)
    assume(needed < 1e6)
    assert dearer.capacity(needed) == pytest.approx(rate, rel=1e-6)
    assert dearer.capacity(2 * needed) > rate
    assert needed <= dearer.linear.needed(rate) * reach**contention * (1 + 1e-9)


# --- bad values, and words --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["per_record_s", "longest_batch_s", "balance"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_what_is_divided_by_must_be_above_0(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"batch cost: {field}"):
        replace(LINEAR, **{field: value})


@pytest.mark.parametrize("field", ["per_task_s", "per_state_partition_s", "driver_s", "state_partitions"])
def test_no_price_is_negative(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"batch cost: {field}"):
        replace(LINEAR, **{field: -1})


def test_the_mean_is_never_above_the_longest() -> None:
    with pytest.raises(InvalidInput, match=r"balance must be at most 1, found 1\.5"):
        replace(LINEAR, balance=1.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("contention", value) for value in (-0.1, 0.9, math.nan, math.inf)),
        *((field, value) for field in ("tasks", "reach") for value in (0, -1, math.nan, math.inf)),
    ],
)
def test_how_much_dearer_records_get_is_a_number_within_bounds(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"batch cost: {field}"):
        replace(LINEAR, **{field: value})


def test_it_reads_as_a_sentence() -> None:
    assert str(replace(LINEAR, driver_s=0.12, per_task_s=0.03)) == (
        "a record costs 5 ms, a task 30 ms, the driver 120 ms, and a batch may take 1 s"
    )
