"""`ds2-learned` where a batch cost is known: what a record costs with p tasks is learned from batches.

The engine is a model of one operator in micro-batches; what it is like is found from its batches alone.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.measurement.batch_cost import Batch, BatchCost, BatchMemory, fit
from elastream.policies.catalog import Policy, create
from elastream.policies.proposal import Advice
from elastream.testing import alike, chain, snapshot_of

A_BATCH_S = 5.0
IN_A_WINDOW = 12  # batches
SCATTERS = 4.0  # times the noise: a manager changes nothing for less
STAYS = 0.05  # of the instances, and one: a manager, which sees several windows, takes no action for less


def true_cost(contention: float) -> BatchCost:
    return BatchCost(
        per_record_s=0.002,
        per_task_s=0.03,
        per_state_partition_s=0.0,
        state_partitions=0,
        driver_s=0.2,
        balance=1.0,
        longest_batch_s=A_BATCH_S,
        contention=contention,
        tasks=1,
        reach=1e9,
    )


def worked(cost: BatchCost, instances: int, load: float, draws: random.Random, noise: float) -> list[Batch]:
    """The batches of a window: full ones where it does not keep up, and of several sizes."""
    most = min(load, cost.capacity(instances)) * A_BATCH_S
    price_s = cost.per_record_s * instances**cost.contention
    found = []
    for _ in range(IN_A_WINDOW):
        records = most * draws.uniform(0.3, 1.0)
        busy_s = (cost.per_task_s * instances + price_s * records) * draws.gauss(1, noise)
        found.append(Batch(records=records, busy_s=max(0.0, busy_s), tasks=instances, driver_s=cost.driver_s))
    return found


def asked(policy: Policy, memory: BatchMemory, instances: int, load: float) -> Advice:
    cost = fit(memory.batches(), state_partitions=0, longest_batch_s=A_BATCH_S)
    assert cost is not None
    readings = alike("map", instances=instances, records_per_s=load / instances, useful_share=0.8)
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": load}, readings=readings)
    return policy(replace(snapshot, batch_costs={"map": cost})).advice["map"]


def sizes(
    name: str, contention: float, start: int, times: float, *, noise: float = 0.0, seed: int = 0
) -> list[int]:
    """That it has had once its policy asks for no other, from a start at which it falls behind."""
    cost, policy, memory = true_cost(contention), create(name), BatchMemory()
    load, draws, found = times * cost.capacity(start), random.Random(seed), [start]
    unsure = max(STAYS, SCATTERS * noise)
    for _ in range(8):
        for batch in worked(cost, found[-1], load, draws, noise):
            memory.add(batch)
        wanted = asked(policy, memory, found[-1], load).parallelism
        assert wanted is not None
        if abs(wanted - found[-1]) <= max(len(found) > 2, unsure * found[-1]):
            break
        found.append(wanted)
    needed = cost.needed(load)
    assert (1 - unsure) * needed - 1 <= found[-1] <= (1 + unsure) * needed + 1, found
    return found


@settings(deadline=None)
@given(contention=st.floats(0.05, 0.5), start=st.integers(1, 12), times=st.floats(2, 12))
def test_two_actions_at_most_from_any_start(contention: float, start: int, times: float) -> None:
    assert len(sizes("ds2-learned", contention, start, times)) <= 1 + 2


@pytest.mark.parametrize("contention", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_and_one_more_where_times_are_noisy(contention: float, seed: int) -> None:
    assert len(sizes("ds2-learned", contention, 2, 8, noise=0.03, seed=seed)) <= 1 + 3


def test_plain_ds2_creeps_up() -> None:
    assert len(sizes("ds2", 0.5, 2, 8)) > 1 + 3


def test_the_reasons_say_which_part_speaks() -> None:
    cost, memory, draws = true_cost(0.3), BatchMemory(), random.Random(1)
    for instances in (2, 8):
        for batch in worked(cost, instances, 1e9, draws, 0.01):
            memory.add(batch)
    reasons = " ".join(str(reason) for reason in asked(create("ds2-learned"), memory, 8, 5_000).reasons)
    assert "more a record with twice the 8 tasks of now" in reasons
    assert "more a record" not in " ".join(map(str, asked(create("ds2"), memory, 8, 5_000).reasons))


@pytest.mark.parametrize("seed", range(10))
def test_tasks_that_are_not_in_each_others_way_are_not_said_to_be(seed: int) -> None:
    cost, memory, draws = true_cost(0.0), BatchMemory(), random.Random(seed)
    for instances in (2, 4, 8):
        for batch in worked(cost, instances, 1e9, draws, 0.05):
            memory.add(batch)
    found = fit(memory.batches(), state_partitions=0, longest_batch_s=A_BATCH_S)
    assert found is not None
    assert found.contention <= 0.05
