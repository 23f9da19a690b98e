"""What is learned from windows: capacity points per operator, and when they are forgotten."""

from __future__ import annotations

import pytest

from elastream.measurement import Reading, Snapshot
from elastream.policies.knowledge import NOTHING_KNOWN, CapacityPoint, Correction, Knowledge
from elastream.testing import alike, chain, snapshot_of


def window(
    *,
    instances: int = 1,
    each: float = 100.0,
    useful_share: float = 0.5,
    backlog: float | None = None,
    parallelism: int | None = None,
) -> Snapshot:
    """One window of an operator whose instances can do `each` records per second of useful time."""
    return snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 50.0},
        readings=alike(
            "map",
            instances=instances,
            records_per_s=each * useful_share,
            useful_share=useful_share,
            backlog=backlog,
        ),
        parallelism={"map": parallelism or instances},
    )


def after(*windows: Snapshot) -> Knowledge:
    knowledge = NOTHING_KNOWN
    for one in windows:
        knowledge = knowledge.with_snapshot(one)
    return knowledge


def capacities(knowledge: Knowledge) -> dict[int, float]:
    return {point.parallelism: round(point.true_per_s, 6) for point in knowledge.of("map")}


def test_at_first_nothing_is_known() -> None:
    assert NOTHING_KNOWN.of("map") == ()
    assert NOTHING_KNOWN.correction("source") == 1.0


def test_a_window_teaches_the_true_rate_of_all_instances_together() -> None:
    assert capacities(after(window(instances=3))) == {3: 300.0}


def test_every_parallelism_has_its_own_point_newest_last() -> None:
    knowledge = after(window(instances=1, each=100), window(instances=4, each=50))

    assert [(point.parallelism, point.true_per_s) for point in knowledge.of("map")] == [(1, 100.0), (4, 200.0)]


def test_learning_leaves_the_earlier_knowledge_as_it_was() -> None:
    before = after(window(instances=1))

    before.with_snapshot(window(instances=2))

    assert capacities(before) == {1: 100.0}


def test_at_saturation_what_was_observed_counts_and_not_what_was_timed() -> None:
    """Busy for 95 % of the time with records waiting: 95/s is what it can do, whatever the timer says."""
    (point,) = after(window(each=100, useful_share=0.95, backlog=1e6)).of("map")

    assert point.true_per_s == pytest.approx(95.0)
    assert point.saturated


def test_what_was_seen_at_saturation_takes_the_place_of_what_was_timed() -> None:
    knowledge = after(window(each=100), window(each=90, useful_share=1.0, backlog=1e6))

    assert capacities(knowledge) == {1: 90.0}


def test_what_is_timed_later_hardly_moves_what_was_seen_at_saturation() -> None:
    (point,) = after(window(each=90, useful_share=1.0, backlog=1e6), window(each=100)).of("map")

    assert 90.0 < point.true_per_s < 91.0


def test_windows_at_one_parallelism_are_averaged() -> None:
    knowledge = after(window(each=100), window(each=110))

    assert capacities(knowledge) == {1: 105.0}
    assert knowledge.of("map")[0].windows == 2


def test_the_average_follows_slow_change() -> None:
    knowledge = after(*[window(each=100)] * 50, *[window(each=120)] * 20)

    assert knowledge.of("map")[0].true_per_s == pytest.approx(120.0, rel=0.01)


def test_what_two_windows_contradict_is_forgotten_with_everything_earlier() -> None:
    changed = window(instances=1, each=50)
    knowledge = after(window(instances=1, each=100), window(instances=2, each=90), changed, changed)

    assert knowledge.of("map") == (CapacityPoint(parallelism=1, true_per_s=50.0),)


def test_one_window_that_stalled_makes_nothing_forgotten() -> None:
    """A curve that was known is not learned anew, with actions, because of it."""
    usual, stalled = window(instances=2, each=90), window(instances=2, each=9)

    assert capacities(after(window(instances=1), usual, stalled)) == {1: 100.0, 2: 180.0}
    assert capacities(after(window(instances=1), usual, stalled, usual, stalled)) == {1: 100.0, 2: 180.0}
    assert capacities(after(window(instances=1), stalled, usual)) == {1: 100.0, 2: 180.0}


def test_only_so_many_parallelisms_are_remembered() -> None:
    knowledge = after(*(window(instances=n) for n in range(1, 20)))

    assert [point.parallelism for point in knowledge.of("map")] == list(range(12, 20))


def test_instances_that_did_not_report_are_taken_to_be_like_the_others() -> None:
    """Two of four reported: the four do 400/s, and did not lose half of their capacity."""
    timed = after(window(instances=2, parallelism=4))
    saturated = after(window(instances=2, parallelism=4, useful_share=1.0, backlog=1e6))

    assert capacities(timed) == capacities(saturated) == {4: 400.0}


def test_an_idle_instance_does_not_lower_the_capacity_of_all() -> None:
    busy = window(instances=3).readings
    idle = Reading(operator="map", instance=3, window_s=60, useful_s=0, records_in=0, records_out=0)
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 50.0}, readings=[*busy, idle])

    assert capacities(after(snapshot)) == {4: 400.0}


@pytest.mark.parametrize("useful_share", [0.0, 0.5])
def test_a_window_without_work_teaches_nothing(useful_share: float) -> None:
    idle = window(each=0.0, useful_share=useful_share)

    assert after(window(each=100), idle).points == after(window(each=100)).points


def test_an_operator_without_readings_keeps_what_was_known() -> None:
    silent = snapshot_of(edges=chain("source", "map"), source_rates={"source": 50.0})

    assert after(window(), silent).points == after(window()).points


def test_sources_are_not_learned() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 50.0}, readings=[*alike("source"), *alike("map")]
    )

    assert set(after(snapshot).points) == {"map"}


def test_the_correction_outlives_a_window() -> None:
    corrected = Knowledge(corrections={"source": Correction(ratio=1.2)})
    assert corrected.with_snapshot(window()).correction("source") == 1.2
