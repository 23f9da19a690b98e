from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.dataflow import Operator
from elastream.decentralized.protocol.decision import (
    Action,
    Duplicate,
    Leave,
    ScalingPolicy,
    Situation,
    Stay,
    Variant,
    decide,
    duplications,
    replication_factor,
    secure_target,
    why_not_scalable,
    with_backlog,
)
from elastream.errors import InvalidInput
from experiments.decentralized_simulator import ideal_count

PLAIN = ScalingPolicy()
COUNTED = ScalingPolicy(variant=Variant.COUNTED)


def at(load: float, *, keeper: bool = False, instances: int | None = None, capacity: float = 100.0) -> Situation:
    return Situation(load_per_s=load, capacity_per_s=capacity, keeper=keeper, instances=instances)


def test_between_the_thresholds_nothing_happens_and_no_die_is_cast() -> None:
    rng = random.Random(1)
    before = rng.getstate()
    assert isinstance(decide(PLAIN, at(70), rng), Stay)
    assert rng.getstate() == before


def test_twice_the_target_makes_one_copy_for_certain() -> None:
    assert decide(PLAIN, at(140), random.Random(1)) == Duplicate(
        times=1, why="load 1.400 is at least 0.8, factor 1.000 for target 0.700"
    )


@pytest.mark.parametrize("factor", [0.19, 0.5, 1.0, 2.3])
def test_the_mean_number_of_copies_is_the_factor(factor: float) -> None:
    rng = random.Random(3)
    found = [duplications(factor, rng) for _ in range(20_000)]
    assert mean(found) == pytest.approx(factor, abs=0.02)
    assert max(found) - min(found) <= 1


def test_a_load_of_one_to_two_times_the_target_duplicates_sometimes() -> None:
    """With the printed floor it never would."""
    rng = random.Random(1)
    actions = [decide(PLAIN, at(100), rng) for _ in range(1_000)]
    assert mean(isinstance(action, Duplicate) for action in actions) == pytest.approx(100 / 70 - 1, abs=0.05)


def test_a_low_load_ends_an_instance_with_what_it_is_too_many() -> None:
    rng = random.Random(1)
    actions = [decide(PLAIN, at(42), rng) for _ in range(1_000)]
    assert mean(isinstance(action, Leave) for action in actions) == pytest.approx(0.4, abs=0.05)


def test_the_keeper_stays() -> None:
    assert "keeper" in decide(PLAIN, at(0, keeper=True), random.Random(1)).why
    assert isinstance(decide(PLAIN, at(0), random.Random(1)), Leave)


@given(load=st.floats(0, 1e6), count=st.integers(1, 1000), capacity=st.floats(1, 1e4))
def test_both_variants_agree_where_the_load_is_shared_fairly(load: float, count: int, capacity: float) -> None:
    now = at(load, instances=count, capacity=capacity)
    assert replication_factor(PLAIN, now, 0.7) == pytest.approx(replication_factor(COUNTED, now, 0.7), abs=1e-6)


def test_the_own_capacity_counts() -> None:
    """Two nodes with the same load: the weaker is above its threshold."""
    assert isinstance(decide(PLAIN, at(140, capacity=100), random.Random(1)), Duplicate)
    assert isinstance(decide(PLAIN, at(140, capacity=200), random.Random(1)), Stay)


# r_secure


def test_r_secure_lowers_the_target_where_chance_could_leave_someone_overloaded() -> None:
    secure = ScalingPolicy(secure=True)
    assert secure_target(secure, at(110)) == pytest.approx(0.55)
    assert all(decide(secure, at(110), random.Random(seed)) == Duplicate(times=1, why=_WHY) for seed in range(50))
    assert any(isinstance(decide(PLAIN, at(110), random.Random(seed)), Stay) for seed in range(50))


_WHY = "load 1.100 is at least 0.8, factor 1.000 for target 0.550"


@pytest.mark.parametrize("load", [85, 99, 100, 150, 290])
def test_r_secure_never_raises_the_target(load: float) -> None:
    assert secure_target(ScalingPolicy(secure=True), at(load)) <= 0.7


@given(load=st.floats(80, 5_000), seed=st.integers(0, 1_000))
def test_with_r_secure_nobody_stays_above_its_capacity(load: float, seed: int) -> None:
    action = decide(ScalingPolicy(secure=True), at(load), random.Random(seed))
    copies = 1 + (action.times if isinstance(action, Duplicate) else 0)
    assert load / copies <= 100 * (1 + 1e-9)


def test_r_secure_does_not_keep_anybody_from_ending() -> None:
    assert isinstance(decide(ScalingPolicy(secure=True), at(0), random.Random(1)), Leave)


# Looking ahead


def test_looking_ahead_does_not_end_what_the_rest_needs() -> None:
    ahead = ScalingPolicy(variant=Variant.COUNTED, look_ahead=True)
    flapping = Situation(load_per_s=100 / 3, capacity_per_s=60.0, instances=3)
    assert all(isinstance(decide(ahead, flapping, random.Random(seed)), Stay) for seed in range(50))
    assert any(isinstance(decide(COUNTED, flapping, random.Random(seed)), Leave) for seed in range(50))
    plenty = Situation(load_per_s=10.0, capacity_per_s=60.0, instances=10)
    assert any(isinstance(decide(ahead, plenty, random.Random(seed)), Leave) for seed in range(50))


# What has piled up


def behind(load: float, overdue: float) -> Situation:
    return Situation(load_per_s=load, capacity_per_s=100.0, overdue=overdue)


CATCHES_UP = ScalingPolicy(catch_up_s=60.0)


def test_a_backlog_is_shared_out_until_it_is_worked_off_in_time() -> None:
    assert isinstance(decide(ScalingPolicy(), behind(70, 60_000), random.Random(1)), Stay)
    action = decide(CATCHES_UP, behind(70, 60 * 230), random.Random(1))
    assert isinstance(action, Duplicate)
    assert action.times == 2, "70 arrive and 230 are to be worked off a second: three instances at their best"


def test_nobody_ends_who_works_off_a_backlog() -> None:
    busy = behind(30, 60 * 70)
    assert all(isinstance(decide(CATCHES_UP, busy, random.Random(seed)), Stay) for seed in range(50))


@given(load=st.floats(0, 1_000), overdue=st.floats(0, 1e6))
def test_what_waits_never_makes_the_load_lower(load: float, overdue: float) -> None:
    now = behind(load, overdue)
    assert with_backlog(CATCHES_UP, now).load_per_s >= load
    assert with_backlog(CATCHES_UP, replace(now, overdue=0.0)).load_per_s == load
    assert with_backlog(ScalingPolicy(), now) == now


# Bounds on the instances


def bounded(
    load: float, instances: int | None, most: int | None, *, keeper: bool = False, least: int = 1
) -> Situation:
    return Situation(
        load_per_s=load, capacity_per_s=100.0, keeper=keeper, instances=instances, least=least, most=most
    )


def test_without_room_nobody_duplicates_and_it_says_why() -> None:
    action = decide(PLAIN, bounded(700, 4, 4), random.Random(1))
    assert action == Stay(
        why="load 7.000 is at least 0.8, factor 9.000 for target 0.700, "
        "but 4 of at most 4 instances run: room for 0.000"
    )


def test_with_enough_room_the_bound_is_no_matter() -> None:
    assert decide(PLAIN, bounded(140, 4, 8), random.Random(1)) == decide(PLAIN, at(140), random.Random(1))


@given(count=st.integers(1, 20), room=st.integers(0, 20), seed=st.integers(0, 1_000))
def test_who_decides_together_goes_beyond_the_bound_by_fewer_than_there_are(
    count: int, room: int, seed: int
) -> None:
    rng = random.Random(seed)
    actions = [decide(PLAIN, bounded(10_000, count, count + room), rng) for _ in range(count)]
    added = sum(action.times for action in actions if isinstance(action, Duplicate))
    assert added <= room + max(0, count - 1)
    assert count > 1 or added == room, "who is alone fills it"


def test_together_they_fill_the_room_on_average() -> None:
    rng = random.Random(3)
    actions = [decide(PLAIN, bounded(10_000, 5, 7), rng) for _ in range(5_000)]
    added = [action.times if isinstance(action, Duplicate) else 0 for action in actions]
    assert 5 * mean(added) == pytest.approx(2.0, abs=0.1)


def test_beyond_the_bound_the_excess_ends_whatever_the_load_and_the_keeper_stays() -> None:
    rng = random.Random(1)
    actions = [decide(PLAIN, bounded(700, 6, 4), rng) for _ in range(2_000)]
    assert mean(isinstance(action, Leave) for action in actions) == pytest.approx(2 / 5, abs=0.04)
    assert "6 instances are more than the 4 that there may be, ends with probability 0.400" in actions[0].why
    stays = decide(PLAIN, bounded(700, 6, 4, keeper=True), rng)
    assert stays == Stay(why="6 instances are more than the 4 that there may be, but the keeper stays")


def test_who_was_told_no_count_knows_of_itself() -> None:
    assert decide(PLAIN, bounded(10_000, None, 3), random.Random(1)) == Duplicate(
        times=2,
        why="load 100.000 is at least 0.8, factor 141.857 for target 0.700, "
        "but 1 of at most 3 instances run: room for 2.000",
    )


def test_too_few_grow_to_what_there_should_be_whatever_the_load() -> None:
    why = "1 instances are fewer than the 3 that there should be, factor 2.000"
    assert decide(PLAIN, bounded(0, 1, None, keeper=True, least=3), random.Random(1)) == Duplicate(
        times=2, why=why
    )
    rng = random.Random(1)
    actions = [decide(PLAIN, bounded(10, 3, 8, least=4), rng) for _ in range(3_000)]
    added = [action.times if isinstance(action, Duplicate) else 0 for action in actions]
    assert 3 * mean(added) == pytest.approx(1.0, abs=0.1), "together, on average"


@given(count=st.integers(2, 20), spare=st.integers(0, 20))
def test_who_leaves_together_leaves_as_many_as_there_should_be_on_average(count: int, spare: int) -> None:
    least = max(1, count - spare)
    rng = random.Random(1)
    actions = [decide(PLAIN, bounded(0, count, None, least=least), rng) for _ in range(300)]
    left = (count - 1) * mean(isinstance(action, Leave) for action in actions)
    assert left == pytest.approx(count - least, abs=0.13 * count)
    assert count > least or all(isinstance(action, Stay) for action in actions)


def test_who_does_not_leave_for_there_would_be_too_few_says_so() -> None:
    assert decide(PLAIN, bounded(10, 3, None, least=3), random.Random(1)) == Stay(
        why="load 0.100 is at most 0.6, but 3 of at least 3 instances run, ends with probability 0.000"
    )


def test_nobody_makes_more_copies_than_its_load_can_be_divided_among() -> None:
    def among(parts: int) -> Action:
        now = Situation(load_per_s=1_000, capacity_per_s=100.0, parts=parts)
        return decide(PLAIN, now, random.Random(1))

    why = "load 10.000 is at least 0.8, factor 13.286 for target 0.700"
    assert among(4) == Duplicate(times=3, why=f"{why}, but its load has 4 parts")
    assert among(1) == Stay(why=f"{why}, but its load has 1 parts")
    assert among(40).why == why


def test_who_was_told_no_count_cannot_keep_the_least() -> None:
    assert isinstance(decide(PLAIN, bounded(0, None, None, least=3), random.Random(1)), Leave)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower_load": 0.8, "upper_load": 0.6}, r"the thresholds cross: lower_load \(0.8\)"),
        ({"lower_load": 0.8}, "the thresholds cross"),
        ({"target_load": 0.0}, "target_load must be above 0"),
        ({"target_load": 0.9}, r"target_load \(0.9\) must lie between lower_load \(0.6\) and upper_load \(0.8\)"),
        ({"look_ahead": True}, "use the variant 'counted'"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ScalingPolicy(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capacity_per_s": 0.0}, "capacity_per_s must be a finite number above 0, found 0"),
        ({"capacity_per_s": float("nan")}, "capacity_per_s must be a finite number above 0"),
        ({"load_per_s": -1.0}, "load_per_s must be a finite number of at least 0"),
        ({"load_per_s": float("nan")}, "load_per_s must be a finite number of at least 0"),
        ({"instances": 0}, "instances must be at least 1"),
        ({"most": 0}, "most must be at least 1, found 0"),
        ({"least": 0}, "at least one instance and at most its bound, found 0 to any"),
        ({"least": 3, "most": 2}, "at least one instance and at most its bound, found 3 to 2"),
    ],
)
def test_a_situation_that_cannot_be_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Situation(**{"load_per_s": 1.0, "capacity_per_s": 1.0, **fields})  # type: ignore[arg-type]


def test_the_counted_variant_says_that_it_needs_the_count() -> None:
    with pytest.raises(InvalidInput, match="needs the number of instances"):
        decide(COUNTED, at(200), random.Random(1))


def test_a_stateful_operator_is_kept_at_one_and_told_why() -> None:
    assert "'count' is stateful" in why_not_scalable(Operator(name="count", state_partitions=8))
    assert "cannot be parallel" in why_not_scalable(Operator(name="sink", fixed=True))
    assert why_not_scalable(Operator(name="map")) == ""


def test_the_ideal_count_is_the_nearest_and_at_least_one() -> None:
    assert [ideal_count(load, 500, 0.7) for load in (0, 100, 524, 526, 643)] == [1, 1, 1, 2, 2]
