"""Flink's autoscaler on cases worked out by hand: rates, capacities, boundaries, delays, alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from elastream.dataflow import Operator
from elastream.errors import InvalidInput
from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.measurement import Reading, Snapshot
from elastream.measurement.tasks import TaskSpread
from elastream.policies.catalog import create
from elastream.policies.evaluate import evaluate
from elastream.policies.flink import Flink
from elastream.policies.flink_memory import PastScaling, Wish
from elastream.policies.flink_metrics import Vertex, aligned, scalability
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.testing import alike, chain, snapshot_of

MINUTE_S = 60.0


def one(
    arriving: float,
    *,
    n: int = 2,
    takes: float | None = None,
    busy: float | Sequence[float] = 0.7,
    lag: float = 0.0,
    held_back: float | None = None,
    operator: Operator | None = None,
) -> Snapshot:
    """source → map in a minute; `takes` is what map takes in, `lag` what waits at the source."""
    taken = arriving if takes is None else takes
    shares = [busy] * n if isinstance(busy, int | float) else list(busy)
    readings = [
        replace(
            alike("map", records_per_s=taken / n, useful_share=share, wait_out_share=held_back)[0], instance=number
        )
        for number, share in enumerate(shares)
    ]
    source = alike("source", records_per_s=taken, useful_share=0.0, backlog=lag)
    return snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": arriving},
        readings=[*source, *readings],
        operators=[operator] if operator else [],
    )


def after(policy: Flink, windows: Sequence[Snapshot], knowledge: Knowledge = NOTHING_KNOWN) -> Knowledge:
    for window in windows:
        knowledge = policy.remember(window, knowledge.watched(MINUTE_S, window.plan))
    return knowledge


def asked(windows: Sequence[Snapshot], policy: Flink | None = None) -> Proposal:
    chosen = policy or Flink()
    return chosen(windows[-1], after(chosen, windows))


def of_map(*windows: Snapshot, policy: Flink | None = None) -> Advice:
    """After as many windows as fill the window of metrics, the last of them repeated."""
    few = [*windows, *[windows[-1]] * (20 - len(windows))]
    return asked(few, policy).advice["map"]


EAGER = Flink(utilization_max=0.95)
"""Busy all the time and without a lag, it does just what is asked, and by default stays."""
AT_ONCE = replace(EAGER, scale_down_interval_s=0)


# --- the size: capacity(0.7) = lag / 1800 + target · 300 / 1800 + target / 0.7, over the true rate --------------


@pytest.mark.parametrize(
    ("arriving", "n", "busy", "need", "wanted"),
    [
        # true 1,000/1 = 1,000; capacity 1,000 · (1/6 + 1/0.7) = 1,595.24
        (1000, 2, 1.0, 3.190, 4),
        # true 2,000; 1,595.24 / 2,000 · 2, within its bounds
        (1000, 2, 0.5, 1.595, 2),
        # true 10,000; factor 0.159, raised to 0.4
        (1000, 10, 0.1, 4.0, 4),
        # true 2,500, the least: factor 0.638; at 40 % it is within [1,000, 2,667]
        (1000, 10, 0.4, 6.381, 10),
        # true 4,000; factor 0.3988, raised to 0.4
        (1000, 10, 0.25, 4.0, 4),
        # true 3,333; factor 0.4786
        (1000, 10, 0.3, 4.786, 5),
    ],
)
def test_the_factor(arriving: float, n: int, busy: float, need: float, wanted: int) -> None:
    advice = of_map(one(arriving, n=n, busy=busy), policy=AT_ONCE)
    assert advice.need == pytest.approx(need, abs=0.001)
    assert advice.parallelism == wanted


def test_without_input_it_could_do_anything_and_shrinks_by_the_most_that_it_may() -> None:
    advice = of_map(one(0, n=10, busy=0.0), policy=AT_ONCE)
    assert (advice.need, advice.parallelism) == (4.0, 4)


def test_the_busiest_of_the_instances_tells_what_all_can_do() -> None:
    # 1,000/s with the busiest at 0.8: 1,250/s, so 1,595.24 / 1,250 · 4 = 5.105; by the mean of 0.5 it were 2,000/s
    advice = of_map(one(1000, n=4, busy=[0.8, 0.4, 0.4, 0.4]), policy=Flink(utilization_max=0.75))
    assert advice.need == pytest.approx(5.105, abs=0.001)
    assert advice.parallelism == 6


def test_of_instances_that_are_read_together_the_longest_task_is_the_busiest() -> None:
    together = Reading(
        operator="map",
        instances=4,
        window_s=60,
        useful_s=120,
        records_in=60_000,
        records_out=0,
        tasks=TaskSpread(tasks=4, records_total=100, records=(25,) * 5, busy_s=(1,) * 5),
    )
    window = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 1000}, readings=[together], parallelism={"map": 4}
    )
    # busy for 0.5: 2,000/s, so 1,595.24 / 2,000 · 4 = 3.19
    assert of_map(window, policy=AT_ONCE).need == pytest.approx(3.190, abs=0.001)


# --- the target -------------------------------------------------------------------------------------------------


def test_the_target_of_a_source_is_what_comes_in_and_what_its_lag_grows_by() -> None:
    # takes 800/s, and the lag grows by 200/s
    windows = [one(1000, takes=800, lag=12_000.0 * number) for number in range(1, 21)]
    assert asked(windows).advice["map"].target_per_s == pytest.approx(1000)


def test_the_target_of_a_source_falls_by_what_its_lag_shrinks_by() -> None:
    # takes 800/s, and the lag falls by 300/s
    windows = [one(500, takes=800, lag=18_000.0 * (20 - number)) for number in range(20)]
    assert asked(windows).advice["map"].target_per_s == pytest.approx(500)


def test_the_target_is_never_below_zero() -> None:
    windows = [one(0, takes=100, lag=30_000.0 * (40 - number)) for number in range(20)]
    assert asked(windows).advice["map"].target_per_s == 0


def test_a_lag_is_to_be_gone_within_the_catch_up_duration() -> None:
    # 180,000 / 1,800 = 100/s more: (100 + 1,595.24) / 1,000 · 2 = 3.390
    advice = of_map(one(1000, busy=1.0, lag=180_000), policy=Flink(observed_switch=9))
    assert advice.need == pytest.approx(3.390, abs=0.001)
    assert advice.names(ReasonKind.CATCH_UP)


def test_no_catch_up_duration_leaves_lag_and_restart_alone() -> None:
    # 1,000 / 0.7 = 1,428.57 of 1,000, times 2
    advice = of_map(one(1000, busy=1.0, lag=180_000), policy=Flink(catch_up_duration_s=0))
    assert advice.need == pytest.approx(2.857, abs=0.001)


def graph(*, out: float, taken: float, waits: Sequence[float] = (0.0,)) -> list[Snapshot]:
    return [
        snapshot_of(
            edges=chain("source", "split", "count"),
            source_rates={"source": 100},
            readings=[
                *alike("split", records_per_s=100, useful_share=0.5, selectivity=out / 100),
                *alike("count", records_per_s=taken, useful_share=0.5, backlog=waiting),
            ],
        )
        for waiting in waits
    ]


def test_downstream_of_a_sole_input_the_records_that_it_took_in_count() -> None:
    # split says that it put out 300/s, count took in 250/s: Flink believes count
    (window,) = graph(out=300, taken=250)
    assert asked([window] * 20).advice["count"].target_per_s == pytest.approx(250)


def test_what_a_channel_holds_more_at_the_end_is_on_its_way() -> None:
    # 250/s taken in, and 3,000 a minute more that wait: 300/s
    windows = graph(out=300, taken=250, waits=[3000.0 * number for number in range(20)])
    assert asked(windows).advice["count"].target_per_s == pytest.approx(300)


def test_of_a_join_with_inputs_of_one_output_each_the_rest_is_of_the_other() -> None:
    window = snapshot_of(
        edges=[("a", "left"), ("b", "right"), ("left", "join"), ("right", "join")],
        source_rates={"a": 100, "b": 100},
        readings=[
            *alike("left", records_per_s=100, selectivity=2.0),
            *alike("right", records_per_s=100, selectivity=3.0),
            *alike("join", records_per_s=550),
        ],
    )
    # left's edge: 550 − 300 = 250, so 2.5 for each; right's: 550 − 200 = 350, so 3.5: 250 + 350
    assert asked([window] * 20).advice["join"].target_per_s == pytest.approx(600)


def test_of_inputs_with_several_outputs_the_records_out_count() -> None:
    window = snapshot_of(
        edges=[("a", "left"), ("b", "right"), ("left", "join"), ("right", "join"), ("right", "other")],
        source_rates={"a": 100, "b": 100},
        readings=[
            *alike("left", records_per_s=100, selectivity=2.0),
            *alike("right", records_per_s=100, selectivity=3.0),
            *alike("join", records_per_s=550),
            *alike("other", records_per_s=300),
        ],
    )
    # left's edge cannot be told from the rest: its 200 out; right's is 550 − 200 = 350
    assert asked([window] * 20).advice["join"].target_per_s == pytest.approx(550)


def test_a_lag_upstream_is_worked_off_downstream_as_well() -> None:
    window = snapshot_of(
        edges=chain("source", "split", "count"),
        source_rates={"source": 100},
        readings=[
            *alike("source", records_per_s=100, backlog=18_000),
            *alike("split", records_per_s=100, useful_share=0.7, selectivity=5.0),
            *alike("count", records_per_s=500, useful_share=1.0),
        ],
    )
    # 10/s of lag become 50/s: (50 + 500 · 1.59524) / 500 = 1.6952
    assert asked([window] * 20).advice["count"].need == pytest.approx(1.695, abs=0.001)


# --- the true rate that is observed under lag -------------------------------------------------------------------


def test_under_lag_the_observed_rate_counts_where_busy_time_tells_much_more() -> None:
    # busy for 0.5 tells 2,000/s; with 30 s of lag it did 1,000 / (1 − 0.2) = 1,250/s, and 2,000 > 1.15 · 1,250
    advice = of_map(one(1000, busy=0.5, lag=30_000, held_back=0.2))
    # (16.667 + 1,595.24) / 1,250 · 2
    assert advice.need == pytest.approx(2.579, abs=0.001)


def test_less_than_15_percent_more_is_believed() -> None:
    # busy for 0.9 tells 1,111/s, which is not above 1.15 · 1,000
    advice = of_map(one(1000, busy=0.9, lag=30_000))
    assert advice.need == pytest.approx((30_000 / 1800 + 1595.238) / 1111.11 * 2, abs=0.001)


def test_less_than_30_s_of_lag_is_no_observation() -> None:
    advice = of_map(one(1000, busy=0.5, lag=29_000))
    assert advice.need == pytest.approx((29_000 / 1800 + 1595.238) / 2000 * 2, abs=0.001)


def test_one_observation_is_too_few() -> None:
    calm, behind = one(1000, busy=0.5, lag=0), one(1000, busy=0.5, lag=30_000)
    one_look = asked([calm] * 19 + [behind]).advice["map"]
    two_looks = asked([calm] * 18 + [behind] * 2).advice["map"]
    # the target has what the lag grew by: 30,000 in 14 minutes
    target = 1000 + 30_000 / (14 * 60)
    capacity = 30_000 / 1800 + target * (1 / 6 + 1 / 0.7)
    assert one_look.need == pytest.approx(capacity / 2000 * 2, abs=0.001)
    assert two_looks.need == pytest.approx(capacity / 1000 * 2, abs=0.001)


# --- when it acts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("true", "out"),
    [
        (999, True),  # below 1,000 / 1.0
        (1000, False),
        (2666, False),  # 1,000 / 6 + 1,000 / 0.4 = 2,666.7
        (2667, True),
    ],
)
def test_it_acts_beyond_what_the_highest_and_the_lowest_utilization_take(true: float, out: bool) -> None:
    assert Flink().is_out(Vertex(target_per_s=1000, true_per_s=true)) is out


def test_growing_is_asked_for_without_the_restart_and_with_the_lag() -> None:
    # 180,000 / 1,800 + 1,000 / 1
    assert Flink().is_out(Vertex(target_per_s=1000, catch_up_per_s=100, true_per_s=1099))
    assert not Flink().is_out(Vertex(target_per_s=1000, catch_up_per_s=100, true_per_s=1101))


def test_within_the_bounds_nothing_changes_although_the_size_would() -> None:
    # busy for 0.9: would be 2.87, but 1,111/s is above 1,000/s
    advice = of_map(one(1000, busy=0.9))
    assert advice.need == pytest.approx(2.871, abs=0.001)
    assert advice.parallelism == 2
    assert advice.names(ReasonKind.HELD)


def two(first_busy: float, second_busy: float) -> Snapshot:
    return snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 200},
        readings=[
            *alike("map", instances=2, useful_share=first_busy),
            *alike("sink", instances=2, useful_share=second_busy),
        ],
    )


def test_one_that_leaves_its_bounds_takes_all_with_it() -> None:
    # the source brings 200/s and map takes 200/s, always busy: 200/s is not below 200/s, so nobody is out
    assert asked([two(1.0, 0.95)] * 20).parallelism == {"map": 2, "sink": 2}
    # with utilization_max 0.97 map is out, and sink (0.95, within) is sized with it: 2 · 1.595 · 0.95 = 3.03
    policy = Flink(utilization_max=0.97)
    assert asked([two(1.0, 0.95)] * 20, policy).parallelism == {"map": 4, "sink": 4}


def test_twenty_minutes_pass_before_it_acts() -> None:
    windows = [one(2000, takes=1000, busy=1.0, lag=60_000.0 * number) for number in range(25)]
    acts_after = [n for n in range(1, 25) if (asked(windows[:n]).parallelism["map"] or 0) > 2]
    assert acts_after[0] == 20
    (why,) = asked(windows[:19]).reasons
    assert str(why) == (
        "its window of metrics is not full: it acts 20 min after a start or an action, and 19 min have passed"
    )


def test_after_an_action_twenty_minutes_pass_again() -> None:
    policy, before, now = EAGER, one(1000, busy=1.0), one(1000, n=4, busy=1.0)
    knowledge = after(policy, [before] * 20)
    knowledge = knowledge.with_plan(now.plan, after_s=10)
    acts = []
    for _ in range(21):
        knowledge = after(policy, [now], knowledge)
        acts.append((policy(now, knowledge).parallelism["map"] or 0) > 4)
    assert acts.index(True) == 20  # the 21st window: 20 minutes and the ten seconds of the action


def test_stabilization_is_not_measured() -> None:
    wild, calm = one(9000, busy=1.0), one(1000, busy=0.7)
    assert asked([wild] * 5 + [calm] * 15).advice["map"].target_per_s == pytest.approx(1000)


def test_the_window_of_metrics_forgets_what_is_older_than_15_minutes() -> None:
    policy = Flink()
    windows = [one(9000, busy=1.0)] * 20 + [one(1000, busy=0.7)] * 15
    assert policy(windows[-1], after(policy, windows)).advice["map"].target_per_s == pytest.approx(1000)


def test_of_a_single_window_it_says_what_it_would_and_does_nothing() -> None:
    advice = evaluate(one(1000, busy=1.0), "flink").advice["map"]
    assert advice.need == pytest.approx(3.190, abs=0.001)
    assert advice.parallelism == 2
    assert "not full" in str(advice.reasons[-1])


# --- shrinking --------------------------------------------------------------------------------------------------


def idle(busy: float, *, n: int = 10) -> Snapshot:
    return one(1000, n=n, busy=busy)


def sizes_over(windows: Sequence[Snapshot], policy: Flink | None = None) -> list[int]:
    """What is proposed for map after each window; nobody acts."""
    chosen, knowledge, found = policy or Flink(), NOTHING_KNOWN, []
    for window in windows:
        knowledge = after(chosen, [window], knowledge)
        found.append(chosen(window, knowledge).parallelism["map"])
    return found


def test_a_wish_to_shrink_waits_for_an_hour() -> None:
    # true 5,000: 0.319 is raised to 0.4
    found = sizes_over([idle(0.2)] * 82)
    assert found.index(4) == 79  # the first wish is after 20 minutes, and the hour after that is over after 80
    assert set(found[79:]) == {4}


def test_then_it_takes_the_highest_recommendation_of_the_hour() -> None:
    # half an hour at 0.35 (true 2,857, factor 0.558: 6) and then at 0.2: 4 is wished last, 6 is done
    found = sizes_over([idle(0.35)] * 50 + [idle(0.2)] * 32)
    assert found[78:81] == [10, 6, 6]


def test_what_was_recommended_more_than_an_hour_ago_is_forgotten() -> None:
    wish = Wish(first_s=0.0)
    for at_s, parallelism in ((0, 8), (1800, 6), (3000, 3), (4000, 5)):
        wish = wish.again(parallelism, now_s=at_s, within_s=3600)
    assert wish.highest == 6
    assert wish.again(2, now_s=5401, within_s=3600).highest == 5


def test_a_moment_in_which_it_is_to_stay_begins_the_hour_anew() -> None:
    # for 20 minutes as busy as it should be: 0.63 is 10.05 of 10
    found = sizes_over([idle(0.2)] * 40 + [idle(0.66)] * 20 + [idle(0.2)] * 60)
    assert set(found) == {10}


def test_nothing_shrinks_with_more_than_five_minutes_of_lag() -> None:
    within, beyond = one(1000, n=10, busy=0.1, lag=300_000), one(1000, n=10, busy=0.1, lag=300_001)
    policy = replace(AT_ONCE, observed_least_looks=1000)
    assert of_map(within, policy=policy).parallelism == 4
    held = of_map(beyond, policy=policy)
    assert held.parallelism == 10
    assert "nothing shrinks: the lag of source is 5 min" in str(held.reasons)


def test_it_may_grow_while_there_is_a_lag() -> None:
    # 1,000 / 1,595.24 + 333.33: 2 · 1.92857, as 1,000/s was observed
    assert of_map(one(1000, busy=1.0, lag=600_000)).parallelism == 4


# --- bounds and alignment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "partitions", "most", "found"),
    [
        (3, 12, 200, 3),
        (5, 12, 200, 6),  # which divides 12
        (7, 12, 200, 12),  # 12 // 7 = 1, and nobody can have fewer
        (9, 128, 200, 10),  # 128 // 9 = 14, 128 // 10 = 12
        (20, 128, 200, 22),  # 6 at 20 and 21, 5 at 22
        (33, 128, 200, 43),  # 3 from 33 to 42, 2 from 43 on
        (65, 128, 200, 128),  # 1 until 128, which divides it
        (65, 128, 100, 65),  # none within the bounds
        (30, 10, 200, 10),  # no more than there are partitions
        (7, None, 200, 7),
    ],
)
def test_alignment_with_partitions(wanted: int, partitions: int | None, most: int, found: int) -> None:
    assert aligned(wanted, partitions, most) == found


def test_keyed_state_aligns_and_bounds() -> None:
    keyed = Operator(name="map", state_partitions=12)
    # need 7.98, so 8: from there 12 is the first that divides 12
    assert of_map(one(1000, n=5, busy=1.0, operator=keyed), policy=EAGER).parallelism == 12


def test_partitions_of_the_source_align_what_reads_it() -> None:
    advice = of_map(one(1000, n=5, busy=1.0), policy=replace(EAGER, source_partitions=10))
    assert advice.parallelism == 10


def test_bounds_hold_and_who_is_beyond_them_is_not_forced_in() -> None:
    assert of_map(one(1000, n=2, busy=1.0), policy=replace(EAGER, vertex_max_parallelism=3)).parallelism == 3
    many = of_map(one(1000, n=10, busy=1.0), policy=replace(EAGER, vertex_max_parallelism=3))
    assert many.parallelism == 10
    few = of_map(one(1000, n=2, busy=0.1), policy=replace(AT_ONCE, vertex_min_parallelism=5))
    assert few.parallelism == 2  # below the least, and not raised to it


def test_what_is_fixed_stays() -> None:
    fixed = Operator(name="map", fixed=True)
    assert of_map(one(1000, busy=1.0, operator=fixed)).parallelism == 2


# --- effect and scalability: off by default ---------------------------------------------------------------------


def grown_without_effect(policy: Flink) -> Advice:
    before, now = one(1000, busy=1.0), one(1000, n=4, busy=0.98)  # 1,000/s, and 1,020/s with twice as many
    knowledge = after(policy, [before] * 20).with_plan(now.plan)
    return policy(now, after(policy, [now] * 20, knowledge)).advice["map"]


def test_growth_without_effect_is_told_and_blocked_only_if_asked_for() -> None:
    # 2,000/s were expected, 1,020 found: 2 % of what was to be gained
    told = grown_without_effect(Flink(utilization_max=0.95))
    assert told.parallelism == 7  # 1,595.24 / 1,020.4 · 4 = 6.25
    assert "ineffective: from 2 to 4 gained 2% of what was expected" in str(told.reasons)
    blocked = grown_without_effect(Flink(utilization_max=0.95, effectiveness_detection=True))
    assert blocked.parallelism == 4


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(1, 100.0), (2, 200.0)], 1.0),  # two are too few
        ([(1, 100.0), (2, 200.0), (4, 400.0)], 1.0),
        # Σ P·R = 100 + 2 · 180 + 4 · 300 = 1,660; Σ P² = 21: 79.05 of 100
        ([(1, 100.0), (2, 180.0), (4, 300.0)], 0.7905),
        ([(1, 100.0), (4, 100.0), (8, 100.0)], 0.5),  # never less
        ([(1, 100.0), (2, 300.0), (4, 800.0)], 1.0),  # never more
    ],
)
def test_observed_scalability(points: list[tuple[int, float]], found: float) -> None:
    assert scalability(points) == pytest.approx(found, abs=0.0001)


def test_observed_scalability_asks_for_more_if_it_is_on() -> None:
    grew = [(1, 2, 100.0), (2, 4, 180.0), (4, 4, 300.0)]
    past = tuple(PastScaling(at_s=0.0, before=b, after=a, true_per_s=rate) for b, a, rate in grew)
    window = one(1000, n=4, busy=1.0)
    knowledge = after(EAGER, [window] * 20)
    knowledge = replace(knowledge, flink=replace(knowledge.flink, scalings={"map": past}))
    # 1,595.24 / 1,000 · 4 = 6.381; over 0.7905 it is 8.072
    assert EAGER(window, knowledge).parallelism == {"map": 7}
    assert replace(EAGER, observed_scalability=True)(window, knowledge).parallelism == {"map": 9}


# --- what is missing, and what is kept --------------------------------------------------------------------------


def test_an_operator_that_nobody_measured_has_no_opinion() -> None:
    window = snapshot_of(edges=chain("source", "map", "sink"), source_rates={"source": 100}, readings=alike("map"))
    advice = asked([window] * 20).advice["sink"]
    assert advice.parallelism is None
    assert advice.names(ReasonKind.NO_DATA)


def test_a_full_heap_stops_it() -> None:
    window = one(1000, busy=1.0)
    readings = tuple(replace(reading, heap_utilization=0.9) for reading in window.readings)
    full = replace(window, readings=readings)
    assert asked([full] * 20, EAGER).parallelism == {"map": 4}
    assert asked([full] * 20, replace(EAGER, heap_usage_threshold=0.8)).parallelism == {"map": 2}


def test_what_it_keeps_survives_a_restart_of_the_manager() -> None:
    policy, window = Flink(), one(0, n=10, busy=0.0)  # an endless true rate is kept, too
    knowledge = after(policy, [window] * 30)
    again = state_from_json(state_to_json(ManagerState(knowledge=knowledge)), place="test").knowledge
    assert again == knowledge
    assert again.flink.true_per_s["map"] == math.inf
    assert policy(window, again) == policy(window, knowledge)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"utilization_min": 0.8}, r"utilization_target \(0.7\) must be from utilization_min \(0.8\)"),
        ({"vertex_min_parallelism": 300}, r"vertex_min_parallelism \(300\) must be at most"),
        ({"metrics_window": "0 s"}, "metrics_window"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create("flink", options)
