"""The parallelism to start with, from recorded windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastream.dataflow import Operator
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.policies.catalog import create
from elastream.policies.proposal import ReasonKind
from elastream.policies.starting_plan import StartingPlan, starting_plan
from elastream.testing import alike, chain, snapshot_of


def window(*, rate: float = 100.0, each: float = 10.0, instances: int = 1, **changed: Any) -> Snapshot:
    """source → map → sink; an instance of map can do `each` records a second, one of sink ten times that."""
    readings = [
        *alike("map", instances=instances, records_per_s=each),
        *alike("sink", instances=instances, records_per_s=each, useful_share=0.1),
    ]
    return snapshot_of(
        edges=chain("source", "map", "sink"), source_rates={"source": rate}, readings=readings, **changed
    )


def start(*windows: Snapshot, rate: float | None = None, policy: str = "ds2") -> StartingPlan:
    return starting_plan(windows, create(policy), None if rate is None else {"source": rate})


def parallelism(plan: StartingPlan) -> dict[str, int]:
    return {name: point.parallelism for name, point in plan.operators.items()}


def test_the_rate_that_is_asked_for_decides_and_not_the_one_that_was_recorded() -> None:
    assert parallelism(start(window(rate=20), rate=500)) == {"map": 50, "sink": 5}


def test_without_a_rate_it_is_the_highest_that_was_recorded() -> None:
    plan = start(window(rate=20), window(rate=300), window(rate=50))

    assert plan.source_rates == {"source": 300}
    assert parallelism(plan) == {"map": 30, "sink": 3}


def test_a_source_that_is_not_named_keeps_its_highest_rate() -> None:
    two = snapshot_of(
        edges=[("left", "map"), ("right", "map")],
        source_rates={"left": 10, "right": 30},
        readings=alike("map", records_per_s=10),
    )

    plan = starting_plan([two], create("ds2"), {"left": 70})

    assert plan.source_rates == {"left": 70, "right": 30}
    assert parallelism(plan) == {"map": 10}


def test_the_answer_is_the_median_and_its_range_is_told() -> None:
    plan = start(*(window(each=each) for each in (5, 10, 12.5, 20)))

    point = plan.operators["map"]
    assert (point.lowest, point.parallelism, point.highest, point.windows) == (5, 10, 20, 4)


def test_the_latest_window_gives_the_reasons() -> None:
    point = start(window(each=5), window(each=10)).operators["map"]
    assert "an instance can do 10/s: 10.00 instances" in point.latest.reasons[1].text


def test_bounds_hold() -> None:
    plan = start(window(operators=[Operator(name="map", max_parallelism=4)]))

    assert parallelism(plan)["map"] == 4
    assert plan.operators["map"].latest.names(ReasonKind.BOTTLENECK)


def test_windows_teach_the_learned_curve() -> None:
    """An operator whose capacity grows as n^0.5: 100/s with one and 400/s with sixteen, so 200/s with four."""
    plan = start(window(each=100), window(each=25, instances=16), rate=200, policy="ds2-learned")
    assert plan.operators["map"].latest.parallelism == 4


def test_an_operator_that_no_window_speaks_of_is_told_and_does_not_silence_the_others() -> None:
    silent = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=alike("map", records_per_s=10),
    )

    plan = start(silent, silent)

    assert parallelism(plan) == {"map": 10}
    assert plan.unknown == ("sink",)


def test_windows_of_an_earlier_pipeline_do_not_count() -> None:
    earlier = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 100.0}, readings=alike("map", records_per_s=1)
    )

    plan = start(earlier, window())

    assert parallelism(plan) == {"map": 10, "sink": 1}
    assert plan.operators["map"].windows == 1


def test_windows_that_were_not_measured_whole_do_not_count() -> None:
    gap = replace(window(each=1), gaps=("a worker did not answer",))

    assert start(window(), gap).operators["map"].highest == 10
    assert start(gap).unknown == ("map", "sink")


def test_no_windows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one recorded window"):
        start()


def test_a_rate_for_what_is_no_source_is_refused_with_the_sources_there_are() -> None:
    with pytest.raises(InvalidInput) as error:
        starting_plan([window()], create("ds2"), {"map": 3.0})
    assert str(error.value) == "'map' is not a source of the recorded pipeline (known: source)"


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="'source' must be"):
        start(window(), rate=rate)
