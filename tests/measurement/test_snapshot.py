"""A snapshot knows what it lacks, and refuses what contradicts its graph."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import InvalidInput
from elastream.measurement import Reading, Snapshot
from elastream.testing import alike, chain, snapshot_of

CHAIN = Dataflow.of(
    [Operator(name="source", source=True), Operator(name="map"), Operator(name="sink")],
    chain("source", "map", "sink"),
)


def snapshot(**changes: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "dataflow": CHAIN,
        "plan": Plan({"map": 2, "sink": 1}),
        "source_rates": {"source": 100.0},
        "readings": (*alike("map", instances=2), *alike("sink")),
    }
    return Snapshot(**(fields | changes))


def refused(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as error:
        snapshot(**changes)
    return str(error.value)


# --- completeness -----------------------------------------------------------------------------------------------


def test_with_a_reading_of_every_instance_it_is_complete() -> None:
    assert snapshot().is_complete
    assert snapshot().missing == ()


def test_missing_instances_and_operators_are_named_with_their_numbers() -> None:
    lacking = snapshot(readings=tuple(alike("map")))

    assert not lacking.is_complete
    assert lacking.missing == (
        "map: readings of 1 of 2 instances",
        "sink: readings of 0 of 1 instances",
    )


def test_what_the_engine_failed_to_measure_makes_it_incomplete() -> None:
    assert snapshot(gaps=("jobs 7 to 9",)).missing == ("jobs 7 to 9",)


def test_sources_need_no_readings_but_may_have_them() -> None:
    with_source = snapshot(readings=(*snapshot().readings, *alike("source", instances=3)))

    assert with_source.is_complete
    assert with_source.measurements["source"].instances == 3


def test_instances_need_not_be_numbered_from_zero() -> None:
    renumbered = tuple(replace(reading, instance=reading.instance + 5) for reading in snapshot().readings)

    assert snapshot(readings=renumbered).is_complete


# --- what it knows ----------------------------------------------------------------------------------------------


def test_readings_and_rates_are_grouped_by_operator() -> None:
    found = snapshot()

    assert {name: len(one.readings) for name, one in found.measurements.items()} == {"map": 2, "sink": 1}
    assert found.measurements["map"].true_per_s == 200.0
    assert found.measurements["map"].true_output_per_s == {"sink": 200.0}
    assert found.measurements["sink"].true_output_per_s == {}


def test_an_operator_without_readings_has_no_rates() -> None:
    assert "sink" not in snapshot(readings=tuple(alike("map"))).measurements


def test_other_rates_may_be_asked_of_the_same_measurements() -> None:
    asked = snapshot().at_source_rates({"source": 500.0})

    assert asked.source_rates == {"source": 500.0}
    assert asked.readings == snapshot().readings


# --- what it refuses --------------------------------------------------------------------------------------------


def test_a_reading_of_an_unknown_operator_is_placed_and_answered_with_the_nearest() -> None:
    readings = (*alike("map"), *alike("snik"))

    assert refused(readings=readings) == "readings[1]: unknown operator 'snik' (did you mean 'sink'?)"


def test_two_readings_of_one_instance_are_refused() -> None:
    assert refused(readings=(*alike("map"), *alike("map"))) == (
        "readings[1]: a second reading of 'map' instance 0 in one window"
    )


def test_more_readings_than_instances_are_refused() -> None:
    assert refused(readings=tuple(alike("map", instances=3))) == (
        "operator 'map' has parallelism 2, but there are readings of 3 instances"
    )


def test_records_to_an_operator_that_is_not_downstream_are_refused() -> None:
    readings = (*alike("sink"), *alike("map", selectivity={"snk": 1.0}))

    assert refused(readings=readings) == (
        "readings[1].records_out: 'map' has no edge to 'snk' (did you mean 'sink'?)"
    )


def test_a_missing_source_rate_is_named() -> None:
    assert refused(source_rates={}) == "source_rates: no rate for the source 'source'"


def test_a_rate_for_what_is_not_a_source_is_refused() -> None:
    assert "'map' is not a source (known: source)" in refused(source_rates={"source": 1.0, "map": 1.0})
    assert "'sorce' is an unknown operator (did you mean 'source'?)" in refused(source_rates={"sorce": 1.0})


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf, 10**400])
def test_a_rate_is_a_number_of_at_least_0(rate: float) -> None:
    message = refused(source_rates={"source": rate})

    assert message.startswith("source_rates: 'source' must be ")
    assert message.endswith(f"found {rate}")


@pytest.mark.parametrize("at_s", [math.nan, math.inf, -math.inf])
def test_a_window_ends_at_some_time(at_s: float) -> None:
    assert refused(at_s=at_s) == f"at_s must be a number, found {at_s}"


def test_a_plan_for_an_unknown_operator_is_answered_with_the_nearest() -> None:
    plan = Plan({"map": 2, "sink": 1, "mapp": 1})

    assert refused(plan=plan) == "the plan names an unknown operator 'mapp' (did you mean 'map'?)"


def test_a_plan_without_one_of_the_operators_is_refused() -> None:
    assert refused(plan=Plan({"map": 2})) == "the plan has no parallelism for 'sink'"


# --- the builder that tests use ---------------------------------------------------------------------------------


def test_the_builder_takes_the_parallelism_from_the_readings() -> None:
    built = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", instances=2), *alike("sink")],
    )

    assert built == snapshot()
    assert isinstance(built.readings[0], Reading)
