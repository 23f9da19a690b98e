"""Skew and stragglers are named where they are, and not where chance made it look so."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.measurement import Measurement, Reading
from elastream.measurement.tasks import TaskSpread
from elastream.policies.imbalance import imbalance
from elastream.policies.proposal import Reason, ReasonKind

WINDOW_S = 60.0


def fed(*records_in: float) -> list[Reading]:
    """Instances of one true rate that were given so many records."""
    fullest = max(records_in) or 1.0
    return [
        Reading(
            operator="map",
            instance=instance,
            window_s=WINDOW_S,
            useful_s=WINDOW_S * count / fullest,
            records_in=count,
            records_out=0,
        )
        for instance, count in enumerate(records_in)
    ]


def timed(*true_per_s: float) -> list[Reading]:
    """Instances that were given the same number of records, and took differently long."""
    slowest = min(true_per_s)
    return [
        Reading(
            operator="map",
            instance=instance,
            window_s=WINDOW_S,
            useful_s=WINDOW_S * slowest / rate,
            records_in=6_000,
            records_out=0,
        )
        for instance, rate in enumerate(true_per_s)
    ]


def found_in(readings: Sequence[Reading]) -> tuple[Reason, ...]:
    return imbalance(Measurement(operator="map", readings=tuple(readings)))


def kinds(readings: Sequence[Reading]) -> list[ReasonKind]:
    return [reason.kind for reason in found_in(readings)]


# --- skew -------------------------------------------------------------------------------------------------------


def test_skew_names_the_instance_and_both_shares() -> None:
    (reason,) = found_in(fed(1_000, 7_000, 1_000, 1_000))

    assert reason.kind is ReasonKind.SKEW
    assert reason.text == (
        "skew: instance 1 takes 70% of the records, an even share is 25%; more instances do not relieve it"
    )


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_the_skews_of_the_paper_are_found(share: float) -> None:
    """One of ten instances takes that share of a million records (§4.2.1)."""
    rest = (1 - share) * 1e6 / 9

    assert kinds(fed(share * 1e6, *[rest] * 9)) == [ReasonKind.SKEW]


@pytest.mark.parametrize("records", [[1_000, 1_000, 1_000], [1_200, 1_000, 900], [1_400, 1_000, 600]])
def test_small_differences_are_no_skew(records: list[float]) -> None:
    assert found_in(fed(*records)) == ()


@pytest.mark.parametrize("records", [[3, 0, 1, 0], [9, 2, 3, 1]])
def test_a_handful_of_records_is_no_skew(records: list[float]) -> None:
    assert found_in(fed(*records)) == ()


@pytest.mark.parametrize("mean", [1, 5, 20, 100, 10_000])
def test_evenly_fed_instances_are_hardly_ever_named_by_chance(mean: int) -> None:
    drawn = np.random.default_rng(mean).poisson(mean, size=(1_000, 8))

    named = sum(bool(found_in(fed(*map(float, window)))) for window in drawn)

    assert named <= 5


def test_idle_instances_are_no_skew() -> None:
    assert found_in(fed(0, 0, 0)) == ()


def test_one_instance_cannot_be_skewed() -> None:
    assert found_in(fed(1_000_000)) == ()


# --- stragglers -------------------------------------------------------------------------------------------------


def test_a_straggler_is_named_with_its_share_of_the_usual_rate() -> None:
    (reason,) = found_in(timed(200, 200, 100, 200))

    assert reason.kind is ReasonKind.STRAGGLER
    assert reason.text == "straggler: instance 2 at 50% of the usual true rate; look at its node"


def test_several_stragglers_are_listed() -> None:
    (reason,) = found_in(timed(*[200] * 7, 100, 80))

    assert "instances 7, 8 at 40%" in reason.text


@pytest.mark.parametrize(
    "rates",
    [
        [200, 180, 220, 150],  # as instances differ
        [200, 100],  # of two, nobody knows which is the odd one
        [200, 200, 100, 100],  # half of them: two kinds of machines, and no stragglers
    ],
)
def test_what_is_no_straggler(rates: list[float]) -> None:
    assert found_in(timed(*rates)) == ()


def test_instances_without_useful_time_or_records_do_not_straggle() -> None:
    idle = [
        Reading(operator="map", instance=9, window_s=60, useful_s=0, records_in=0, records_out=0),
        Reading(operator="map", instance=10, window_s=60, useful_s=9, records_in=0, records_out=0),
    ]

    assert ReasonKind.STRAGGLER not in kinds([*timed(200, 200, 200), *idle])


def test_both_may_be_true_of_one_operator() -> None:
    hot = Reading(operator="map", instance=9, window_s=60, useful_s=60, records_in=30_000, records_out=0)
    slow = Reading(operator="map", instance=8, window_s=60, useful_s=60, records_in=6_000, records_out=0)
    usual = [
        Reading(operator="map", instance=i, window_s=60, useful_s=12, records_in=6_000, records_out=0)
        for i in range(6)
    ]

    assert kinds([*usual, slow, hot]) == [ReasonKind.SKEW, ReasonKind.STRAGGLER]


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, WINDOW_S)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_instances_does_not_matter(rows: list[tuple[float, float]], rng: random.Random) -> None:
    readings = [
        Reading(operator="map", instance=i, window_s=WINDOW_S, useful_s=useful, records_in=count, records_out=0)
        for i, (count, useful) in enumerate(rows)
    ]

    assert found_in(rng.sample(readings, len(readings))) == found_in(readings)


# --- tasks ------------------------------------------------------------------------------------------------------


def spread(instances: int, *, tasks: int, most: float) -> Reading:
    """Of all instances together: the largest task has so many of 1,000 records."""
    rest = (1_000 - most) / max(1, tasks - 1)
    quantiles = (*(rest,) * 4, most)
    return Reading(
        operator="map",
        instances=instances,
        window_s=WINDOW_S,
        useful_s=WINDOW_S,
        records_in=10_000,
        records_out=0,
        tasks=TaskSpread(tasks=tasks, records_total=1_000, records=quantiles, busy_s=(1.0,) * 5),
    )


def test_a_task_with_half_of_the_records_is_named_with_both_shares() -> None:
    (reason,) = found_in([spread(4, tasks=16, most=500)])

    assert reason.kind is ReasonKind.SKEW
    assert reason.text == (
        "skew: one of 16 tasks takes 50% of the records, an even share of 4 instances is 25%; "
        "more instances do not relieve it"
    )


def test_a_task_that_is_larger_than_others_and_no_more_than_an_instance_can_do_is_no_skew() -> None:
    assert found_in([spread(4, tasks=16, most=250)]) == ()


def test_partitions_that_cannot_be_shared_evenly_are_no_skew() -> None:
    """9 instances have 12 partitions, so three of them have two: "its hottest key has 7% of the records"."""
    shared = Measurement(operator="map", readings=(spread(9, tasks=9, most=170),), partitions=12)
    assert imbalance(shared) == ()
    assert shared.hottest_key == 0
    hot = Measurement(operator="map", readings=(spread(9, tasks=9, most=500),), partitions=12)
    assert [reason.kind for reason in imbalance(hot)] == [ReasonKind.SKEW]
    assert hot.hottest_key == pytest.approx(0.4)


def test_one_instance_alone_has_no_skew_whatever_its_tasks() -> None:
    assert found_in([spread(1, tasks=16, most=900)]) == ()
