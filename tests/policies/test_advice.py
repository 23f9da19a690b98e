from __future__ import annotations

import pytest

from elastream.dataflow import Operator
from elastream.policies.advice import bounded, measured, whole
from elastream.policies.proposal import Advice, ReasonKind
from elastream.testing import alike, chain, snapshot_of
from elastream.texts import rate_text


@pytest.mark.parametrize(
    ("records_per_s", "text"),
    [(0, "0/s"), (0.01234, "0.0123/s"), (9.5, "9.5/s"), (99.94, "99.9/s"), (99.96, "100/s"), (1666.7, "1,667/s")],
)
def test_rates_are_short(records_per_s: float, text: str) -> None:
    assert rate_text(records_per_s) == text


@pytest.mark.parametrize(
    ("need", "instances"),
    [(0.0, 1), (0.3, 1), (3.0, 3), (3.0000000000000004, 3), (3.0001, 4), (0.1 + 0.2 + 2.7, 3)],
)
def test_a_need_becomes_whole_instances(need: float, instances: int) -> None:
    assert whole(need) == instances


def test_what_did_not_report_and_what_had_no_useful_time_is_said() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 1},
        readings=alike("map", records_per_s=0, useful_share=0),
        parallelism={"map": 3},
    )
    assert str(measured(snapshot, "map").reasons[0]) == (
        "processes 0/s in 60 s, readings of 1 of 3 instances, utilization 0 %, no useful time, so no true rate"
    )


@pytest.mark.parametrize(
    ("operator", "wanted", "parallelism", "clamped"),
    [
        (Operator(name="map"), 9, 9, False),
        (Operator(name="map"), 0, 1, True),
        (Operator(name="map", min_parallelism=3), 2, 3, True),
        (Operator(name="map", max_parallelism=8, state_partitions=6), 9, 6, True),
        (Operator(name="map", fixed=True), 4, 4, False),
        (Operator(name="map", fixed=True, max_parallelism=2), 9, 4, True),
    ],
)
def test_bounds(operator: Operator, wanted: int, parallelism: int, clamped: bool) -> None:
    advice = bounded(operator, Advice(operator="map", current=4, parallelism=4), wanted)
    assert advice.parallelism == parallelism
    assert advice.names(ReasonKind.CLAMPED) is clamped
