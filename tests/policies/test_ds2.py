"""DS2 against answers computed by hand: equations 7 and 8, and everything that stands on top of them.

In these pipelines `records_per_s` with a useful share of 1 is what one instance can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from elastream.dataflow import Operator
from elastream.errors import InvalidInput
from elastream.measurement import Reading, Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.policies.catalog import create
from elastream.policies.ds2 import AS_PUBLISHED, DS2
from elastream.policies.knowledge import NOTHING_KNOWN, CapacityPoint, Correction, Knowledge
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.testing import alike, chain, snapshot_of

DIAMOND = [("source", "left"), ("source", "right"), ("left", "join"), ("right", "join")]


def one_operator(
    *,
    rate: float,
    per_instance: float = 100.0,
    instances: int = 1,
    operator: Operator | None = None,
    **measured: Any,
) -> Snapshot:
    """A source and one operator, `map`."""
    return snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": rate},
        readings=alike("map", instances=instances, records_per_s=per_instance, **measured),
        operators=[operator] if operator else [],
    )


def parallelism(snapshot: Snapshot, **options: Any) -> Mapping[str, int]:
    return DS2(**options)(snapshot).parallelism


def reasons(proposal: Proposal, name: str, kind: ReasonKind) -> list[str]:
    return [reason.text for reason in proposal.advice[name].reasons if reason.kind is kind]


# --- equations 7 and 8 ------------------------------------------------------------------------------------------


def test_the_word_count_of_the_paper_needs_10_and_20_although_its_rate_is_rounded() -> None:
    """1M sentences a minute; FlatMap does 100K a minute, Count 1M a minute; 20 words a sentence (§5.2)."""
    snapshot = snapshot_of(
        edges=chain("source", "flatmap", "count"),
        source_rates={"source": 16666.67},  # 10.000002 and 20.000004 instances
        readings=[
            Reading(operator="flatmap", window_s=60, useful_s=60, records_in=100_000, records_out=2_000_000),
            Reading(operator="count", window_s=60, useful_s=60, records_in=1_000_000, records_out=0),
        ],
    )

    assert parallelism(snapshot) == {"flatmap": 10, "count": 20}


def test_the_example_of_section_3_is_answered_in_one_step() -> None:
    """o1 can do 10/s and puts out 10 for each; o2 can do 200/s, half of it unused; the target is 40/s."""
    snapshot = snapshot_of(
        edges=chain("source", "o1", "o2"),
        source_rates={"source": 40.0},
        readings=[
            *alike("o1", records_per_s=10, selectivity=10.0),
            *alike("o2", records_per_s=100, useful_share=0.5),
        ],
    )

    assert parallelism(snapshot) == {"o1": 4, "o2": 2}


def test_a_chain() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "parse", "filter", "enrich", "sink"),
        source_rates={"source": 1_000.0},
        readings=[
            *alike("parse", records_per_s=300, instances=2),  # 1000 / 300 = 3.33
            *alike("filter", records_per_s=900, selectivity=0.25),  # 1000 / 900 = 1.11
            *alike("enrich", records_per_s=40, selectivity=2.0),  # 250 / 40 = 6.25
            *alike("sink", records_per_s=250),  # 500 / 250 = 2
        ],
    )

    assert parallelism(snapshot) == {"parse": 4, "filter": 2, "enrich": 7, "sink": 2}


def test_a_diamond() -> None:
    snapshot = snapshot_of(
        edges=[*DIAMOND, ("join", "sink")],
        source_rates={"source": 100.0},
        readings=[
            *alike("left", records_per_s=30, selectivity=2.0),  # 100 / 30 = 3.33
            *alike("right", records_per_s=60, selectivity=0.5),  # 100 / 60 = 1.67
            *alike("join", records_per_s=80, selectivity=0.1),  # (200 + 50) / 80 = 3.125
            *alike("sink", records_per_s=5),  # 25 / 5 = 5
        ],
    )

    assert parallelism(snapshot) == {"left": 4, "right": 2, "join": 4, "sink": 5}


def test_several_sources() -> None:
    snapshot = snapshot_of(
        edges=[("bids", "map"), ("map", "join"), ("people", "join"), ("join", "sink")],
        source_rates={"bids": 900.0, "people": 100.0},
        readings=[
            *alike("map", records_per_s=200, selectivity=0.5),  # 900 / 200 = 4.5
            *alike("join", records_per_s=50, selectivity=0.01),  # (450 + 100) / 50 = 11
            *alike("sink", records_per_s=1_000),
        ],
    )

    assert parallelism(snapshot) == {"map": 5, "join": 11, "sink": 1}


def test_selectivities_that_differ_per_edge() -> None:
    snapshot = snapshot_of(
        edges=[("source", "route"), ("route", "rare"), ("route", "common")],
        source_rates={"source": 100.0},
        readings=[
            *alike("route", records_per_s=50, selectivity={"rare": 0.1, "common": 3.0}),
            *alike("rare", records_per_s=4),  # 10 / 4 = 2.5
            *alike("common", records_per_s=60),  # 300 / 60 = 5
        ],
    )

    assert parallelism(snapshot) == {"route": 2, "rare": 3, "common": 5}


def test_one_number_of_records_out_goes_to_every_edge() -> None:
    snapshot = snapshot_of(
        edges=[("source", "copy"), ("copy", "a"), ("copy", "b")],
        source_rates={"source": 100.0},
        readings=[*alike("copy", records_per_s=50), *alike("a", records_per_s=10), *alike("b", records_per_s=50)],
    )

    assert parallelism(snapshot) == {"copy": 2, "a": 10, "b": 2}


def test_true_rates_count_and_not_observed_ones() -> None:
    """30/s observed, but only a tenth of the time was useful: one instance could do 300/s."""
    assert parallelism(one_operator(rate=600, per_instance=30, useful_share=0.1)) == {"map": 2}


def test_scaling_down_is_as_direct_as_scaling_up() -> None:
    assert parallelism(one_operator(rate=100, per_instance=50, useful_share=0.5, instances=12)) == {"map": 1}


def test_instances_that_differ_are_averaged() -> None:
    readings = [
        Reading(operator="map", instance=0, window_s=10, useful_s=10, records_in=1_000, records_out=0),  # 100/s
        Reading(operator="map", instance=1, window_s=10, useful_s=5, records_in=1_000, records_out=0),  # 200/s
    ]
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 1_050}, readings=readings)

    assert parallelism(snapshot) == {"map": 7}  # 1050 / 150


def test_the_advice_tells_what_was_measured_and_what_the_formula_gave() -> None:
    snapshot = one_operator(rate=250, per_instance=50, useful_share=0.5, instances=2, backlog=7.0)
    advice = AS_PUBLISHED(snapshot).advice["map"]

    assert advice.current == 2
    assert advice.parallelism == 3
    assert advice.need == pytest.approx(2.5)
    assert advice.target_per_s == pytest.approx(250.0)
    assert advice.true_per_s == pytest.approx(200.0)
    assert advice.true_per_instance_per_s == pytest.approx(100.0)
    assert advice.observed_per_s == pytest.approx(100.0)
    assert advice.utilization == pytest.approx(0.5)
    assert advice.backlog == 14.0
    assert [reason.kind for reason in advice.reasons] == [ReasonKind.MEASURED, ReasonKind.FORMULA]
    assert "must process 250/s, an instance can do 100/s: 2.50 instances" in str(advice.reasons[1])


def test_an_answer_within_all_bounds_is_expected_to_sustain_everything() -> None:
    assert DS2()(one_operator(rate=250)).expected_share == 1.0


# --- knobs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "tolerance", "instances"),
    [
        (1002, 0.0, 11),
        (1002, 0.05, 10),
        (1005, 0.05, 10),
        (1006, 0.05, 11),
        (1000, 0.05, 10),
        (4, 0.05, 1),  # never less than one
        (199, 1.0, 1),
    ],
)
def test_a_need_may_lie_over_a_whole_number_by_the_tolerance(
    rate: float, tolerance: float, instances: int
) -> None:
    assert parallelism(one_operator(rate=rate), tolerance=tolerance) == {"map": instances}


def test_what_is_tolerated_is_said() -> None:
    proposal = DS2(tolerance=0.05)(one_operator(rate=1002))

    assert reasons(proposal, "map", ReasonKind.TOLERATED) == ["a need of 10.02 is taken as 10 (tolerance 0.05)"]
    assert not DS2(tolerance=0.05)(one_operator(rate=990)).names(ReasonKind.TOLERATED)


@pytest.mark.parametrize(("utilization", "instances"), [(1.0, 10), (0.8, 13), (0.5, 20), (0.01, 1_000)])
def test_only_the_target_utilization_of_the_capacity_is_used(utilization: float, instances: int) -> None:
    assert parallelism(one_operator(rate=1_000), target_utilization=utilization) == {"map": instances}


def test_a_backlog_is_worked_off_in_a_minute_by_default() -> None:
    assert parallelism(one_operator(rate=500, backlog=6_000)) == {"map": 6}
    assert parallelism(one_operator(rate=500, backlog=6_000), single_window=True) == {"map": 5}


def test_for_a_backlog_at_most_as_much_again_is_asked() -> None:
    assert parallelism(one_operator(rate=500, backlog=6_000_000)) == {"map": 10}


def test_a_backlog_is_worked_off_too_when_nothing_arrives_any_more() -> None:
    paused = one_operator(rate=0, instances=3, backlog=6_000_000)
    proposal = DS2(catch_up_s=60.0)(paused)
    assert proposal.parallelism == {"map": 6}
    assert "is to be gone in 8 h 20 min" in str(proposal.reasons[0]), "what is asked for, not what is wished"


def test_a_backlog_that_is_soon_gone_asks_for_nothing() -> None:
    assert parallelism(one_operator(rate=500, instances=6, useful_share=0.9, backlog=500)) == {"map": 5}


def test_a_backlog_is_worked_off_in_the_catch_up_time_by_all_that_follow_too() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 500.0},
        readings=[
            *alike("map", instances=2, backlog=6_000, selectivity=2.0),  # 500 + 12,000 / 60 = 700
            *alike("sink"),  # 1,400
        ],
    )

    proposal = DS2(catch_up_s=60.0)(snapshot)

    assert proposal.parallelism == {"map": 7, "sink": 14}
    assert [str(reason) for reason in proposal.reasons] == ["a backlog of 12,000 records is to be gone in 60 s"]


def test_the_backlog_of_a_source_is_asked_of_everything_behind_it() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 500.0},
        readings=[*alike("source", backlog=30_000), *alike("map")],
    )

    assert parallelism(snapshot, catch_up_s=100.0) == {"map": 8}


def test_a_correction_asks_for_that_much_more_and_says_so() -> None:
    proposal = DS2()(one_operator(rate=1_000), Knowledge(corrections={"source": Correction(ratio=1.25)}))

    assert proposal.parallelism == {"map": 13}
    assert proposal.reasons[0].kind is ReasonKind.CORRECTED


@pytest.mark.parametrize(
    "options",
    [
        {"target_utilization": 0.0},
        {"target_utilization": 1.1},
        {"tolerance": -0.1},
        {"tolerance": float("nan")},
        {"catch_up_s": 0.0},
    ],
)
def test_options_out_of_bounds_are_refused(options: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        DS2(**options)


def test_the_catalog_makes_both_kinds() -> None:
    assert create("ds2") == DS2()
    assert create("ds2-learned", {"tolerance": "0.1"}) == DS2(learned_curve=True, tolerance=0.1)


# --- bounds -----------------------------------------------------------------------------------------------------


def test_bounds_clamp_and_say_so() -> None:
    bounded = Operator(name="map", min_parallelism=3, max_parallelism=8)

    low = DS2()(one_operator(rate=100, operator=bounded))
    high = DS2()(one_operator(rate=800, operator=bounded))

    assert low.parallelism == {"map": 3}
    assert reasons(low, "map", ReasonKind.CLAMPED) == ["1 wanted, but it has at least 3 (min_parallelism)"]
    assert high.parallelism == {"map": 8}
    assert not high.names(ReasonKind.CLAMPED)


def test_an_operator_at_its_most_is_named_as_the_bottleneck() -> None:
    proposal = DS2()(one_operator(rate=1_600, operator=Operator(name="map", max_parallelism=8)))

    assert proposal.parallelism == {"map": 8}
    assert proposal.names(ReasonKind.BOTTLENECK) == ("map",)
    assert str(proposal.reasons[0]).startswith(
        "map is the bottleneck: with all instances that it may have, or that help, it can take 50%"
    )
    assert proposal.expected_share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rate", "instances"), [(800, 8), (801, 11), (1_066, 11), (1_067, 16), (1_601, 32), (3_200, 32), (9_999, 32)]
)
def test_state_partitions_leave_only_the_useful_parallelisms(rate: float, instances: int) -> None:
    """32 partitions: nine instances do no more than eight, as one of them still has four."""
    stateful = Operator(name="map", state_partitions=32)

    assert parallelism(one_operator(rate=rate, operator=stateful)) == {"map": instances}


@pytest.mark.parametrize(
    ("rate", "instances"), [(800, 8), (801, 11), (3_200, 32), (3_201, 33), (4_801, 49), (6_400, 64), (9_999, 64)]
)
def test_state_that_can_be_moved_bounds_nothing(rate: float, instances: int) -> None:
    """Up to its partitions only the useful parallelisms; beyond them it is moved, and then every one is useful."""
    stateful = Operator(name="map", state_partitions=32, max_parallelism=64, movable_state=True)

    assert parallelism(one_operator(rate=rate, operator=stateful)) == {"map": instances}
    assert DS2()(one_operator(rate=rate, operator=stateful)).expected_share == pytest.approx(min(1, 6_400 / rate))


def test_what_state_partitions_changed_is_said() -> None:
    proposal = DS2()(one_operator(rate=850, operator=Operator(name="map", state_partitions=32)))

    assert reasons(proposal, "map", ReasonKind.CLAMPED) == [
        "32 state partitions: 11 instances do the work of 10.7"
    ]


def test_a_bound_between_two_useful_parallelisms_takes_the_lower_one() -> None:
    """Ten instances of 32 partitions do no more than eight, so two of them would be wasted."""
    stateful = Operator(name="map", state_partitions=32, max_parallelism=10)

    assert parallelism(one_operator(rate=900, operator=stateful)) == {"map": 8}
    assert parallelism(one_operator(rate=700, operator=stateful), target_utilization=0.8) == {"map": 8}
    assert DS2()(one_operator(rate=1_600, operator=stateful)).expected_share == pytest.approx(0.5)


# --- bottlenecks that cannot grow -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bottleneck",
    [Operator(name="slow", fixed=True), Operator(name="slow", max_parallelism=2)],
    ids=["fixed", "bounded"],
)
def test_a_bottleneck_caps_what_is_asked_before_and_after_it(bottleneck: Operator) -> None:
    """It passes 100/s of 1000/s; the operator before it gives it two for each that it takes."""
    snapshot = snapshot_of(
        edges=chain("source", "before", "slow", "after"),
        source_rates={"source": 1_000.0},
        readings=[
            *alike("before", records_per_s=10, selectivity=2.0),
            *alike("slow", records_per_s=50, instances=2, selectivity=3.0),
            *alike("after", records_per_s=50),
        ],
        operators=[bottleneck],
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"before": 5, "slow": 2, "after": 6}
    assert proposal.names(ReasonKind.BOTTLENECK) == ("slow",)
    assert proposal.expected_share == pytest.approx(0.05)


def test_a_single_source_diamond_into_a_fixed_join_counts_both_branches() -> None:
    """Each record of the source reaches the join three times, so a join of 60/s takes 20/s of the source."""
    snapshot = snapshot_of(
        edges=DIAMOND,
        source_rates={"source": 100.0},
        readings=[
            *alike("left", records_per_s=5, selectivity=2.0),
            *alike("right", records_per_s=10, selectivity=1.0),
            *alike("join", records_per_s=60),
        ],
        operators=[Operator(name="join", fixed=True)],
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"left": 4, "right": 2, "join": 1}
    assert proposal.expected_share == pytest.approx(0.2)


def test_sources_that_share_a_bottleneck_do_not_ask_for_more_than_it_passes_before_it() -> None:
    """Either source alone could fill `slow`, and so `a` and `b` may have to; `merge` never sees more than it."""
    snapshot = snapshot_of(
        edges=[("s", "a"), ("t", "b"), ("a", "merge"), ("b", "merge"), ("merge", "slow")],
        source_rates={"s": 1_000.0, "t": 1_000.0},
        readings=[alike(name, records_per_s=10)[0] for name in ("a", "b", "merge")]
        + alike("slow", records_per_s=50),
        operators=[Operator(name="slow", fixed=True)],
    )

    assert parallelism(snapshot) == {"a": 5, "b": 5, "merge": 5, "slow": 1}


def test_a_branch_beside_a_bottleneck_is_held_back_with_its_source() -> None:
    snapshot = snapshot_of(
        edges=[("source", "slow"), ("source", "beside"), ("other", "apart")],
        source_rates={"source": 1_000.0, "other": 1_000.0},
        readings=[*alike("slow"), *alike("beside", records_per_s=10), *alike("apart", records_per_s=10)],
        operators=[Operator(name="slow", fixed=True)],
    )

    assert parallelism(snapshot) == {"slow": 1, "beside": 10, "apart": 100}


def test_a_backlog_before_a_bottleneck_is_not_asked_for_more_than_it_passes() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "before", "slow"),
        source_rates={"source": 1_000.0},
        readings=[
            *alike("source", backlog=1e6),
            *alike("before", records_per_s=10, backlog=1e6),
            *alike("slow", records_per_s=50),
        ],
        operators=[Operator(name="slow", fixed=True)],
    )

    assert parallelism(snapshot, catch_up_s=10.0) == {"before": 5, "slow": 1}


def test_the_narrowest_of_two_bottlenecks_counts() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "first", "map", "second"),
        source_rates={"source": 1_000.0},
        readings=[
            *alike("first", records_per_s=80),
            *alike("map", records_per_s=1),
            *alike("second", records_per_s=20),
        ],
        operators=[Operator(name="first", fixed=True), Operator(name="second", fixed=True)],
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"first": 1, "map": 20, "second": 1}
    assert str(proposal.reasons[0]).startswith("second is the bottleneck")


def test_a_fixed_operator_with_room_to_spare_changes_nothing() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 1_000.0},
        readings=[*alike("map"), *alike("sink", records_per_s=300, instances=9)],
        operators=[Operator(name="sink", fixed=True)],
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"map": 10, "sink": 9}
    assert not proposal.names(ReasonKind.BOTTLENECK)
    assert reasons(proposal, "sink", ReasonKind.CLAMPED) == ["4 wanted, but its parallelism is fixed"]


# --- shared workers ---------------------------------------------------------------------------------------------


def test_shared_workers_are_as_many_as_all_needs_together() -> None:
    """Timely (§4.3): every worker runs every operator, so 1.2 + 0.5 + 0.7 = 2.4 makes three workers, not four."""
    snapshot = snapshot_of(
        edges=chain("source", "a", "b", "c"),
        source_rates={"source": 60.0},
        readings=[
            *alike("a", records_per_s=50),
            *alike("b", records_per_s=120),
            *alike("c", records_per_s=600 / 7),
        ],
    )

    proposal = DS2(shared_workers=True)(snapshot)

    assert proposal.workers == 3
    assert proposal.parallelism == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize(("tolerance", "workers"), [(0.0, 3), (0.05, 2)])
def test_the_tolerance_is_applied_to_the_sum(tolerance: float, workers: int) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "a", "b"),
        source_rates={"source": 100.0},
        readings=[*alike("a"), *alike("b", records_per_s=98.0)],  # 1 + 1.0204
    )

    assert DS2(shared_workers=True, tolerance=tolerance)(snapshot).workers == workers


def test_shared_workers_cannot_be_counted_without_one_of_the_needs() -> None:
    snapshot = snapshot_of(edges=chain("source", "a", "b"), source_rates={"source": 100.0}, readings=alike("a"))

    proposal = DS2(shared_workers=True)(snapshot)

    assert proposal.parallelism == {}
    assert proposal.workers is None
    assert "the workers cannot be counted: b without a need" in reasons(proposal, "a", ReasonKind.NO_DATA)


# --- what was not measured --------------------------------------------------------------------------------------


def test_an_operator_without_readings_has_no_proposal_and_does_not_silence_the_others() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "silent", "sink"),
        source_rates={"source": 200.0},
        readings=[*alike("map"), *alike("sink", records_per_s=50)],  # half arrives, so the sink's load will double
        parallelism={"silent": 4},
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"map": 2, "sink": 2}
    assert proposal.advice["silent"].current == 4
    assert reasons(proposal, "silent", ReasonKind.NO_DATA) == ["no readings in this window"]
    assert proposal.names(ReasonKind.INFERRED) == ("sink",)
    assert proposal.applied_to(snapshot.plan) == {"map": 2, "silent": 4, "sink": 2}


def test_without_any_readings_nothing_is_proposed() -> None:
    proposal = DS2()(snapshot_of(edges=chain("source", "a", "b"), source_rates={"source": 100.0}))

    assert proposal.parallelism == {}
    assert proposal.names(ReasonKind.NO_DATA) == ("a", "b")


def test_an_operator_without_useful_time_has_no_proposal_and_says_so() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "idle", "sink"),
        source_rates={"source": 200.0},
        readings=[*alike("idle", records_per_s=0, useful_share=0, instances=5), *alike("sink", instances=5)],
    )

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {}
    assert reasons(proposal, "idle", ReasonKind.NO_DATA) == [
        "it had no useful time, so what it can do is not known"
    ]
    assert reasons(proposal, "sink", ReasonKind.NO_DATA) == [
        "what it must process is not known: an operator before it was not seen at work"
    ]


def test_an_operator_too_quick_to_be_timed_still_passes_its_load_on() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "quick", "sink"),
        source_rates={"source": 200.0},
        readings=[*alike("quick", useful_share=0, selectivity=2.0), *alike("sink", records_per_s=50)],
    )

    assert parallelism(snapshot) == {"sink": 8}


def test_some_idle_instances_do_not_matter() -> None:
    readings = alike("map", instances=4)
    idle = [
        Reading(operator="map", instance=i, window_s=60, useful_s=0, records_in=0, records_out=0) for i in (4, 5)
    ]
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 500.0}, readings=[*readings, *idle]
    )

    assert parallelism(snapshot) == {"map": 5}


def test_where_other_windows_come_nothing_is_decided_for_an_operator_that_did_not_report_whole() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 500.0},
        readings=[*alike("map"), *alike("sink")],
        parallelism={"map": 3},
    )

    assert parallelism(snapshot) == {"map": 5, "sink": 5}
    assert DS2()(snapshot, NOTHING_KNOWN.with_snapshot(snapshot)).parallelism == {"sink": 5}


def test_an_operator_that_does_next_to_nothing_is_not_given_a_billion_instances() -> None:
    proposal = DS2()(one_operator(rate=1_000, per_instance=1e-12))

    assert proposal.parallelism == {}
    assert proposal.names(ReasonKind.NO_DATA) == ("map",)


def test_an_operator_whose_batches_leave_no_time_for_records_does_not_take_the_others_to_zero() -> None:
    """Of a bounded operator that can do nothing one could say that it caps the rest at nothing."""
    all_overhead = BatchCost(
        per_record_s=0.001,
        per_task_s=2.0,
        per_state_partition_s=0.0,
        state_partitions=0,
        driver_s=0.1,
        balance=1.0,
        longest_batch_s=1.0,
    )
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 500.0},
        readings=[*alike("map"), *alike("sink", instances=3)],
        operators=[Operator(name="sink", max_parallelism=4)],
    )

    proposal = DS2()(replace(snapshot, batch_costs={"sink": all_overhead}))

    assert proposal.parallelism == {"map": 5}
    assert proposal.names(ReasonKind.NO_DATA) == ("sink",)


@pytest.mark.parametrize(("movable", "instances"), [(False, 4), (True, 10)])
def test_state_that_is_moved_costs_every_batch_its_new_partitions(movable: bool, instances: int) -> None:
    """800 records take 8 instances, and the 16 partitions that these get a tenth of a second each."""
    cost = BatchCost(
        per_record_s=0.01,
        per_task_s=0.0,
        per_state_partition_s=0.1,
        state_partitions=0,
        driver_s=0.0,
        balance=1.0,
        longest_batch_s=1.0,
    )
    stateful = Operator(
        name="map", state_partitions=4, max_parallelism=32 if movable else None, movable_state=movable
    )
    snapshot = one_operator(rate=800, operator=stateful)

    assert parallelism(replace(snapshot, batch_costs={"map": cost})) == {"map": instances}


@pytest.mark.parametrize("useful_share", [0.0, 0.3])
def test_nothing_arriving_takes_everything_to_its_least(useful_share: float) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 0.0},
        readings=[
            *alike("map", records_per_s=0, useful_share=useful_share, instances=6),
            *alike("sink", records_per_s=0, useful_share=useful_share, instances=6),
        ],
        operators=[Operator(name="sink", min_parallelism=2)],
    )

    assert parallelism(snapshot) == {"map": 1, "sink": 2}


def test_a_filter_that_lets_nothing_through_leaves_nothing_to_do_behind_it() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "filter", "sink"),
        source_rates={"source": 300.0},
        readings=[
            *alike("filter", selectivity=0.0),
            *alike("sink", records_per_s=0, useful_share=0, instances=3),
        ],
    )

    assert parallelism(snapshot) == {"filter": 3, "sink": 1}


# --- what was learned -------------------------------------------------------------------------------------------


def learned(*points: tuple[int, float]) -> Knowledge:
    return Knowledge(points={"map": tuple(CapacityPoint(parallelism=n, true_per_s=c) for n, c in points)})


def test_a_learned_curve_sizes_a_sub_linear_operator_at_once() -> None:
    """Capacity 100·√n: plain DS2 sees 50/s an instance and asks for 8; the curve knows that it takes 16."""
    snapshot = one_operator(rate=400, per_instance=50, instances=4)
    knowledge = learned((1, 100.0), (4, 200.0))

    assert DS2()(snapshot, knowledge).parallelism == {"map": 8}
    proposal = DS2(learned_curve=True)(snapshot, knowledge)
    assert proposal.parallelism == {"map": 16}
    assert proposal.policy == "ds2-learned"
    assert reasons(proposal, "map", ReasonKind.LEARNED) == ["its capacity grows as n^0.50 (1: 100/s, 4: 200/s)"]


def test_with_one_point_the_learned_policy_is_plain() -> None:
    snapshot = one_operator(rate=400, per_instance=50, instances=4)

    assert DS2(learned_curve=True)(snapshot, learned((4, 200.0))).advice == DS2()(snapshot).advice


def test_a_bounded_operator_with_a_learned_peak_is_taken_to_its_peak_and_caps_the_rest() -> None:
    """σ = 0, κ = 1/100: no number of instances does more than ten of them, though 64 are allowed."""
    capacity = {n: 100 * n / (1 + n * (n - 1) / 100) for n in (1, 4, 8)}
    snapshot = snapshot_of(
        edges=chain("source", "before", "map"),
        source_rates={"source": 10_000.0},
        readings=[*alike("before", records_per_s=10), *alike("map", records_per_s=capacity[8] / 8, instances=8)],
        operators=[Operator(name="map", max_parallelism=64)],
    )

    proposal = DS2(learned_curve=True)(snapshot, learned(*capacity.items()))

    peak = 100 * 10 / (1 + 10 * 9 / 100)
    assert proposal.parallelism["map"] == 10
    assert proposal.advice["before"].need == pytest.approx(peak / 10, rel=1e-6)
    assert proposal.expected_share == pytest.approx(peak / 10_000, rel=1e-6)


def test_an_operator_whose_rate_did_not_move_is_named_and_left_alone() -> None:
    snapshot = one_operator(rate=800, per_instance=25.5, instances=4)

    proposal = DS2()(snapshot, learned((1, 100.0), (4, 102.0)))

    assert proposal.parallelism == {"map": 4}
    assert reasons(proposal, "map", ReasonKind.NOT_PARALLEL) == [
        "not data-parallel: 100/s with 1, 102/s with 4; left alone, as more instances do not help"
    ]


def test_the_last_growth_tells_and_not_an_earlier_one() -> None:
    proposal = DS2()(one_operator(rate=800, instances=4), learned((1, 100.0), (2, 190.0), (4, 195.0)))

    assert proposal.names(ReasonKind.NOT_PARALLEL) == ("map",)


def test_an_operator_that_is_not_data_parallel_caps_the_others() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "before", "map"),
        source_rates={"source": 800.0},
        readings=[*alike("before", records_per_s=10), *alike("map", records_per_s=25, instances=4)],
    )

    assert DS2()(snapshot, learned((1, 100.0), (4, 100.0))).parallelism == {"before": 10, "map": 4}


@pytest.mark.parametrize(
    "points",
    [
        [(4, 200.0)],  # only the present
        [(1, 100.0), (4, 200.0)],  # it gained
        [(3, 200.0), (4, 200.0)],  # too small a step to tell
        [(1, 100.0), (3, 100.0)],  # the present is not known
        [(4, 200.0), (8, 200.0)],  # more were tried, but it is back at fewer
    ],
)
def test_nothing_else_is_taken_for_not_data_parallel(points: list[tuple[int, float]]) -> None:
    snapshot = one_operator(rate=800, per_instance=50, instances=4)

    proposal = DS2()(snapshot, learned(*points))

    assert not proposal.names(ReasonKind.NOT_PARALLEL)
    assert proposal.parallelism == {"map": 16}


# --- skew -------------------------------------------------------------------------------------------------------


def test_skew_is_named_and_the_answer_is_what_would_be_right_without_it() -> None:
    """Four instances of 100/s, one takes 70 % of 200/s: two would do, were the keys even."""
    shares = [0.7, 0.1, 0.1, 0.1]
    readings = [
        Reading(
            operator="map",
            instance=instance,
            window_s=60,
            useful_s=60 * min(1.0, 2 * share),
            records_in=60 * 100 * min(1.0, 2 * share),
            records_out=0,
        )
        for instance, share in enumerate(shares)
    ]
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 200.0}, readings=readings)

    proposal = DS2()(snapshot)

    assert proposal.parallelism == {"map": 2}
    assert proposal.names(ReasonKind.SKEW) == ("map",)


# --- what batches cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "told"), [(100.0, True), (5_000.0, False)])
def test_where_the_state_is_most_of_the_work_it_says_so(rate: float, told: bool) -> None:
    """Twelve partitions of 0.3 s each are 3.6 s of a batch; 100 records/s for 3 s are 0.3 s, 5,000/s are 15 s."""
    cost = BatchCost(
        per_record_s=0.001,
        per_task_s=0.0,
        per_state_partition_s=0.3,
        state_partitions=12,
        driver_s=0.0,
        balance=1.0,
        longest_batch_s=3.0,
    )
    stateful = Operator(name="map", state_partitions=12)
    proposal = DS2()(replace(one_operator(rate=rate, operator=stateful), batch_costs={"map": cost}))

    assert proposal.names(ReasonKind.STATE) == (("map",) if told else ())


@pytest.mark.parametrize(
    ("overdue", "held_back", "grows"),
    [
        ([4_500, 4_600, 4_400, 4_500], False, True),
        ([4_500, 4_600, 0, 4_500], False, False),  # it had time left in between
        ([4_500, 4_600, 4_400, 4_500], True, False),  # by those after it
    ],
)
def test_what_was_done_while_records_were_always_overdue_counts_and_not_what_batches_seem_to_cost(
    overdue: list[float], held_back: bool, grows: bool
) -> None:
    """Three instances can do 2,390/s by their batches, so 4,500 records beside 1,770/s seemed as good as gone:
    they did 1,800/s, and the records waited for a minute."""
    cost = BatchCost(
        per_record_s=0.00107,
        per_task_s=0.23,
        per_state_partition_s=0.0,
        state_partitions=0,
        driver_s=0.23,
        balance=1.0,
        longest_batch_s=3.0,
    )
    knowledge = NOTHING_KNOWN
    for number, records in enumerate(overdue):
        reading = Reading(
            operator="map",
            instances=3,
            window_s=10.0,
            useful_s=24.0,
            records_in=18_000.0,
            records_out=0.0,
            backlog=records + 5_000,
            overdue=records,
            wait_out_s=29.0 if held_back else None,
        )
        rates, edges = {"source": 1_770.0}, chain("source", "map")
        snapshot = snapshot_of(edges=edges, source_rates=rates, readings=[reading], parallelism={"map": 3})
        snapshot = replace(snapshot, batch_costs={"map": cost}, at_s=10.0 * number)
        knowledge = knowledge.with_snapshot(snapshot)
    assert (DS2()(snapshot, knowledge).parallelism["map"] > 3) == grows


# --- what pays for an action ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beside", "taken"), [(4, 15), (80, 16)])
def test_what_is_taken_away_pays_for_an_action_of_the_whole_pipeline(beside: int, taken: int) -> None:
    """Five large operators that could each do with one less after some hours were five actions a day."""
    readings = [
        *alike("map", instances=16, records_per_s=100.0, useful_share=0.9),
        *alike("count", instances=beside, records_per_s=1_600.0 / beside, useful_share=0.999),
    ]
    snapshot = snapshot_of(
        edges=chain("source", "map", "count"), source_rates={"source": 1_600.0}, readings=readings
    )
    knowledge = NOTHING_KNOWN
    for number in range(40):
        snapshot = replace(snapshot, at_s=60.0 * number)
        knowledge = knowledge.with_snapshot(snapshot)
    assert DS2()(snapshot, knowledge).parallelism == {"map": taken, "count": beside}
