"""Locks and scaling over time: seeded, with what must hold checked after every event."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from elastream.arrivals.load import Brownian, Constant, Load, Steps
from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.locks import Ra1, Ra2, TwoFgme
from elastream.decentralized.protocol.decision import ScalingPolicy, Variant
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.errors import InvalidInput
from elastream.testing import chain
from experiments.as_published.two_fgme import TwoFgmeAsPublished
from experiments.checking.lock_model import MakeLock
from experiments.checking.lock_simulation import BrokenLock, Timing, run_lock
from experiments.decentralized_simulator import Setup, Simulator, Who, simulate_steps

FAST, SLOW = (0.001, 0.002), (1.0, 20.0)


@pytest.mark.parametrize("make", [TwoFgme, Ra1, Ra2])
@pytest.mark.parametrize("delay_s", [FAST, SLOW])
def test_six_and_six_with_messages_faster_and_slower_than_the_time_inside(
    make: MakeLock, delay_s: tuple[float, float]
) -> None:
    timing = Timing(pause_s=1.0, inside_s=1.0, delay_s=delay_s, first_s=2 * delay_s[1])
    run = run_lock(make, sizes=(6, 6), entries=4, timing=timing, seed=5)
    assert all(len(waits) == 4 for waits in run.waits_s.values())


@pytest.mark.parametrize("nodes", [4, 12])
def test_the_traffic_of_ra1_is_exact(nodes: int) -> None:
    timing = Timing(pause_s=1.0, inside_s=1.0)
    run = run_lock(Ra1, sizes=(nodes // 2, nodes // 2), entries=3, timing=timing, seed=1)
    assert run.total == 2 * 3 * nodes * (nodes - 1)


@pytest.mark.parametrize("pause_s", [0.0, 1.0, 5.0])
def test_two_fgme_does_not_flood_when_messages_are_slow(pause_s: float) -> None:
    timing = Timing(pause_s=pause_s, inside_s=1.0, delay_s=SLOW, first_s=20.0)
    run = run_lock(TwoFgme, sizes=(6, 6), entries=5, timing=timing, seed=2)
    assert run.total / (12 * 5 * 6) < 4


def test_a_run_notices_that_the_printed_algorithm_fails() -> None:
    timing = Timing(pause_s=0.5, inside_s=1.0, delay_s=(0.1, 2.0), first_s=2.0)

    def runs() -> None:
        for seed in range(20):
            run_lock(TwoFgmeAsPublished, sizes=(3, 3), entries=3, timing=timing, seed=seed)

    with pytest.raises(BrokenLock, match=r"deadlock|two groups are inside"):
        runs()


def test_a_run_is_the_same_for_the_same_seed() -> None:
    timing = Timing(pause_s=1.0, inside_s=1.0)
    one, again = (run_lock(TwoFgme, sizes=(2, 2), entries=3, timing=timing, seed=7) for _ in range(2))
    assert one.occupancy == again.occupancy


def test_times_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must not be negative"):
        Timing(pause_s=-1.0, inside_s=1.0)
    with pytest.raises(InvalidInput, match="two groups and at least one entry"):
        run_lock(Ra1, sizes=(1, 0), entries=1, timing=Timing(pause_s=1.0, inside_s=1.0), seed=0)


# The discrete-time simulator

OPERATORS = ("a", "b", "c")


def setup(
    load: Load, *, instances: int = 4, who: Who = Who.EVERYBODY, policy: ScalingPolicy | None = None
) -> Setup:
    dataflow = Dataflow.of((Operator(name=name, source=name == "a") for name in OPERATORS), chain(*OPERATORS))
    return Setup(
        dataflow=dataflow,
        loads={"b": load},
        instances={"a": 2, "b": instances, "c": 3},
        policy=policy or ScalingPolicy(),
        who=who,
    )


def test_a_scale_out_takes_three_steps() -> None:
    history = simulate_steps(setup(Constant(records_per_s=2_800), who=Who.LEADER), steps=12, seed=0)
    counts = [moment.instances for moment in history.moments["b"]]
    began = history.rounds[0].step
    assert counts[: began + 3] == [4] * (began + 3)
    assert counts[began + 3] == 8


def test_a_round_takes_the_messages_of_the_formula() -> None:
    history = simulate_steps(setup(Constant(records_per_s=2_800)), steps=30, seed=1)
    assert history.rounds
    for found in history.rounds:
        assert found.neighbours == 5
        assert found.messages == 2 * min(found.added, found.instances) * 5 + found.added
    sent = sum(history.kinds[kind] for kind in ("Duplication", "DuplicationAck", "Start"))
    assert sent == sum(found.messages for found in history.rounds)


@pytest.mark.parametrize("who", list(Who))
def test_the_count_follows_a_rise_and_a_fall(who: Who) -> None:
    load = Steps(steps=((0.0, 1_400.0), (10.0, 7_000.0), (60.0, 700.0)))
    moments = simulate_steps(setup(load, who=who), steps=150, seed=3).moments["b"]
    assert 0.75 <= moments[59].accuracy <= 1.25
    assert moments[59].throughput_share == 1.0
    assert moments[-1].instances in (1, 2, 3)


def test_views_agree_with_who_is_there_when_nothing_is_under_way() -> None:
    load = Brownian(start=2_000, step_std=400, step_s=1.0, seed=3)
    simulator = Simulator(setup(load), seed=2)
    for _ in range(100):
        simulator.step()
    simulator.setup = setup(Constant(records_per_s=350.0 * len(simulator.taking_part("b"))))
    for _ in range(10):
        simulator.step()
    alive = {me for me, state in simulator.states.items() if state.phase is not InstancePhase.ENDED}
    assert len(alive) < len(simulator.states)
    present = set(simulator.taking_part("b"))
    assert alive == {"a/1", "a/2", "c/1", "c/2", "c/3"} | present
    assert simulator.states["a/1"].successors == present
    assert simulator.states["c/3"].predecessors == present


def test_at_100_with_a_capacity_of_60_the_plain_policy_flaps_and_looking_ahead_does_not() -> None:
    def changes(policy: ScalingPolicy) -> int:
        simulated = Setup(
            dataflow=setup(Constant(records_per_s=1)).dataflow,
            loads={"b": Constant(records_per_s=100.0)},
            instances={"a": 1, "b": 2, "c": 1},
            capacity=60.0,
            policy=policy,
        )
        counts = [m.instances for m in simulate_steps(simulated, steps=300, seed=1).moments["b"]]
        assert set(counts[:1]) | set(counts[-1:]) <= {1, 2, 3, 4}
        return sum(a != b for a, b in pairwise(counts))

    assert changes(ScalingPolicy()) > 10
    assert changes(ScalingPolicy(variant=Variant.COUNTED, look_ahead=True)) <= 5


@pytest.mark.parametrize("who", list(Who))
def test_a_bound_holds_but_for_what_is_decided_in_the_same_moment(who: Who) -> None:
    """Ten would be right, and there may be six. A leader knows how many there are; everybody else the count of
    before, so that for a while there may be more."""
    operators = (Operator(name=name, source=name == "a", max_parallelism=6) for name in OPERATORS)
    bounded = replace(
        setup(Constant(records_per_s=3_500), who=who), dataflow=Dataflow.of(operators, chain(*OPERATORS))
    )
    counts = [m.instances for m in simulate_steps(bounded, steps=200, seed=4).moments["b"]]
    assert counts[-1] == 6
    assert max(counts) <= (6 if who is Who.LEADER else 9)
    assert sum(counts[100:]) / 100 == pytest.approx(6, abs=0.3)


def test_weaker_instances_ask_for_more() -> None:
    def mean_count(capacity: float) -> float:
        simulated = Setup(
            dataflow=setup(Constant(records_per_s=1)).dataflow,
            loads={"b": Constant(records_per_s=2_000.0)},
            instances={"a": 1, "b": 6, "c": 1},
            capacity_of=lambda _: capacity,
        )
        counts = [m.instances for m in simulate_steps(simulated, steps=100, seed=1).moments["b"]]
        return sum(counts[50:]) / 50

    assert mean_count(250.0) > 1.5 * mean_count(500.0)


def test_a_setup_that_cannot_be_is_refused() -> None:
    good = setup(Constant(records_per_s=1))
    with pytest.raises(InvalidInput, match="capacity must be above 0, found 0"):
        Setup(dataflow=good.dataflow, loads={}, instances=good.instances, capacity=0.0)
    with pytest.raises(InvalidInput, match="'c' needs at least one"):
        Setup(dataflow=good.dataflow, loads={}, instances={"a": 1, "b": 1})
    stateful = Dataflow.of([Operator(name="a", source=True), Operator(name="b", state_partitions=2)], [("a", "b")])
    with pytest.raises(InvalidInput, match="'b' is stateful"):
        Setup(dataflow=stateful, loads={"b": Constant(records_per_s=1)}, instances={"a": 1, "b": 1})
