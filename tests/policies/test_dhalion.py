"""Dhalion: who is the bottleneck, and by how much it grows. Numbers are worked out by hand in each test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.dataflow import Operator
from elastream.measurement import Snapshot
from elastream.policies.dhalion import Dhalion
from elastream.policies.proposal import ReasonKind
from elastream.testing import alike, chain, snapshot_of


def word_count(
    source: float | None, flat_map: float | None, *, instances: int = 1, count: Operator | None = None
) -> Snapshot:
    """source → flat_map → count, with the share of the window for which the first two wait."""
    return snapshot_of(
        edges=chain("source", "flat_map", "count"),
        source_rates={"source": 1_000},
        readings=[
            *alike("source", wait_out_share=source),
            *alike("flat_map", instances=instances, wait_out_share=flat_map),
            *alike("count", instances=instances),
        ],
        operators=[count] if count else [],
    )


@pytest.mark.parametrize(
    ("share", "instances", "wanted"),
    [
        (0.5, 1, 2),  # 500 / 500 = 1: twice as many
        (0.5, 3, 6),
        (0.6, 3, 8),  # 600 / 400 = 1.5: 7.5
        (40 / 60, 1, 3),  # 667 / 333 = 2, and no more than that for the last digit of floating point
        (0.1, 1, 2),  # 100 / 900 = 0.11: 1.11
        (0.8, 2, 10),  # 800 / 200 = 4, where the limit begins
        (0.9, 2, 10),  # 900 / 100 = 9, limited to 4
        (1.0, 2, 10),  # a division by zero in the formula
        (1.2, 2, 10),  # clocks that disagree
    ],
)
def test_the_bottleneck_grows_by_what_it_causes(share: float, instances: int, wanted: int) -> None:
    proposal = Dhalion()(word_count(0.0, share, instances=instances))
    assert proposal.parallelism == {"flat_map": instances, "count": wanted}
    assert proposal.names(ReasonKind.BOTTLENECK) == ("count",)
    assert proposal.names(ReasonKind.FORMULA) == ("count",)


def test_the_reasons_show_the_whole_calculation() -> None:
    reasons = [str(reason) for reason in Dhalion()(word_count(0.0, 0.6, instances=3)).advice["count"].reasons]
    assert reasons == [
        "processes 300/s in 60 s, utilization 100 %, true rate 300/s (100/s an instance)",
        "holds back an operator before it for 600 ms of every second, and is not held back itself",
        "3 · (1 + 1.5) = 7.50, so 8",
    ]


def test_an_operator_that_is_held_back_itself_is_not_the_bottleneck() -> None:
    # the source waits more than flat_map, but flat_map waits for count
    assert Dhalion()(word_count(0.95, 0.5)).parallelism == {"flat_map": 1, "count": 2}


def test_a_little_waiting_of_its_own_does_not_hide_the_bottleneck() -> None:
    # 3 % is above the floor, but much below the 90 % that flat_map makes the source wait
    proposal = Dhalion()(word_count(0.9, 0.03))
    assert proposal.parallelism == {"flat_map": 5, "count": 1}
    assert proposal.names(ReasonKind.HELD) == ("count",)


def test_noise_is_no_symptom() -> None:
    proposal = Dhalion()(word_count(0.02, 0.02))
    assert proposal.parallelism == {"flat_map": 1, "count": 1}
    assert "2 %" in str(proposal.reasons[0])
    assert Dhalion(noise_floor=0.01)(word_count(0.0, 0.02)).parallelism["count"] == 2


def test_a_join_is_found_by_one_input_that_waits() -> None:
    snapshot = snapshot_of(
        edges=[("bids", "join"), ("sellers", "join")],
        source_rates={"bids": 1_000, "sellers": 1},
        readings=[
            *alike("bids", wait_out_share=0.75),
            *alike("sellers", wait_out_share=0.0),
            *alike("join", instances=2),
        ],
    )
    assert Dhalion()(snapshot).parallelism == {"join": 8}  # 750 / 250 = 3: 2 · 4


def test_of_two_that_share_a_producer_the_busier_is_taken() -> None:
    snapshot = snapshot_of(
        edges=[("source", "idle"), ("source", "busy")],
        source_rates={"source": 1_000},
        readings=[
            *alike("source", wait_out_share=0.5),
            *alike("idle", useful_share=0.1),
            *alike("busy", useful_share=1.0),
        ],
    )
    assert Dhalion()(snapshot).parallelism == {"idle": 1, "busy": 2}


def test_of_several_the_one_that_causes_most_then_the_first() -> None:
    def two_branches(left: float, right: float) -> Snapshot:
        return snapshot_of(
            edges=[*chain("s1", "left"), *chain("s2", "right")],
            source_rates={"s1": 10, "s2": 10},
            readings=[
                *alike("s1", wait_out_share=left),
                *alike("s2", wait_out_share=right),
                *alike("left"),
                *alike("right"),
            ],
        )

    assert Dhalion()(two_branches(0.3, 0.5)).parallelism == {"left": 1, "right": 2}
    assert Dhalion()(two_branches(0.5, 0.5)).parallelism == {"left": 2, "right": 1}


def test_a_missing_field_is_named_and_silences_only_those_that_need_it() -> None:
    proposal = Dhalion()(word_count(None, 0.5))
    assert proposal.parallelism == {"count": 2}
    assert str(proposal.advice["flat_map"].reasons[-1]) == "wait_out_s was not measured for source"
    assert Dhalion()(word_count(None, None)).parallelism == {}


def test_who_may_be_held_back_itself_is_not_grown() -> None:
    proposal = Dhalion()(word_count(0.9, None))
    assert proposal.names(ReasonKind.NO_DATA) == ("flat_map", "count")
    assert str(proposal.advice["flat_map"].reasons[-1]) == "wait_out_s was not measured for flat_map"


def test_no_readings_no_opinion() -> None:
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 1}, parallelism={"map": 7})
    advice = Dhalion()(snapshot).advice["map"]
    assert (advice.current, advice.parallelism) == (7, None)
    assert advice.names(ReasonKind.NO_DATA)


def test_a_sink_that_waits_for_the_world_outside_is_not_grown() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "sink"),
        source_rates={"source": 1_000},
        readings=[*alike("source", wait_out_share=0.9), *alike("sink", wait_out_share=0.9)],
    )
    proposal = Dhalion()(snapshot)
    assert proposal.parallelism == {"sink": 1}
    assert "by no operator that can be told: source, sink" in str(proposal.reasons[0])


@pytest.mark.parametrize(
    ("operator", "wanted", "word"),
    [
        (Operator(name="count", fixed=True), 2, "fixed"),
        (Operator(name="count", max_parallelism=3), 3, "max_parallelism"),
        (Operator(name="count", state_partitions=3), 3, "state_partitions"),
    ],
)
def test_bounds_are_kept_and_named(operator: Operator, wanted: int, word: str) -> None:
    advice = Dhalion()(word_count(0.0, 0.5, instances=2, count=operator)).advice["count"]
    assert (advice.parallelism, advice.need) == (wanted, 4.0)
    assert advice.names(ReasonKind.CLAMPED)
    assert word in str(advice.reasons[-1])


shares = st.none() | st.floats(0, 1)


@given(source=shares, flat_map=shares, instances=st.integers(1, 50))
def test_it_never_shrinks_and_changes_one_operator_at_most(
    source: float | None, flat_map: float | None, instances: int
) -> None:
    snapshot = word_count(source, flat_map, instances=instances)
    proposal = Dhalion()(snapshot)
    changes = snapshot.plan.changes_to(proposal.applied_to(snapshot.plan))
    assert len(changes) <= 1
    assert all(change.before < change.after <= 5 * change.before for change in changes)
    assert Dhalion()(snapshot) == proposal
