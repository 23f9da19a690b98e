from __future__ import annotations

import pytest

from elastream.dataflow import Operator
from elastream.measurement import Snapshot
from elastream.policies.lag import Lag
from elastream.policies.proposal import ReasonKind
from elastream.testing import alike, chain, snapshot_of


def one(backlog: float | None, *, instances: int = 2, operator: Operator | None = None) -> Snapshot:
    """source → map, where so many records wait for map in all."""
    each = None if backlog is None else backlog / instances
    return snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 1_000},
        readings=alike("map", instances=instances, backlog=each),
        operators=[operator] if operator else [],
    )


@pytest.mark.parametrize(
    ("backlog", "wanted"),
    [
        (0, 1),
        (1, 1),
        (10_000, 1),
        (17_999, 2),  # 1.8: outside of the tolerance, and rounded up to the present
        (18_000, 2),  # ratio 0.9, within the tolerance
        (22_000, 2),  # ratio 1.1, within the tolerance
        (22_001, 3),  # 2.2001
        (30_000, 3),
        (30_001, 4),
        (1_000_000, 100),
    ],
)
def test_one_instance_for_each_so_many_records(backlog: float, wanted: int) -> None:
    assert Lag()(one(backlog)).parallelism == {"map": wanted}


def test_the_reasons_show_the_whole_calculation() -> None:
    assert [str(reason) for reason in Lag()(one(25_000)).advice["map"].reasons[1:]] == [
        "backlog 25,000 at map",
        "25,000 records / 10,000 an instance = 2.50, so 3",
    ]
    assert Lag()(one(21_000)).names(ReasonKind.TOLERATED) == ("map",)


def test_options_are_obeyed() -> None:
    assert Lag(lag_per_instance=5_000)(one(25_000)).parallelism == {"map": 5}
    assert Lag(tolerance=0)(one(20_001)).parallelism == {"map": 3}


def test_a_missing_backlog_is_no_zero() -> None:
    advice = Lag()(one(None)).advice["map"]
    assert (advice.current, advice.parallelism) == (2, None)
    assert str(advice.reasons[-1]) == "backlog was not measured"


def test_no_readings_no_opinion() -> None:
    proposal = Lag()(snapshot_of(edges=chain("source", "map"), source_rates={"source": 1}))
    assert proposal.parallelism == {}
    assert proposal.names(ReasonKind.NO_DATA) == ("map",)


def test_each_reader_of_a_source_has_the_whole_of_its_backlog_and_nobody_else() -> None:
    snapshot = snapshot_of(
        edges=[("kafka", "map"), ("kafka", "audit"), ("map", "sink")],
        source_rates={"kafka": 1_000},
        readings=[
            *alike("kafka", backlog=40_000),
            *alike("map", backlog=5_000),
            *alike("audit"),
            *alike("sink", backlog=0),
        ],
    )
    # map: 40,000 + 5,000 is 4.5 instances; audit: 40,000 is 4
    assert Lag()(snapshot).parallelism == {"map": 5, "audit": 4, "sink": 1}
    assert str(Lag()(snapshot).advice["map"].reasons[1]) == "backlog 5,000 at map, 40,000 at kafka"


@pytest.mark.parametrize(
    ("operator", "backlog", "wanted"),
    [
        (Operator(name="map", max_parallelism=8), 100_000, 8),
        (Operator(name="map", state_partitions=6), 100_000, 6),
        (Operator(name="map", min_parallelism=2), 0, 2),
        (Operator(name="map", fixed=True), 100_000, 2),
    ],
)
def test_bounds_are_kept(operator: Operator, backlog: float, wanted: int) -> None:
    advice = Lag()(one(backlog, operator=operator)).advice["map"]
    assert advice.parallelism == wanted
    assert advice.names(ReasonKind.CLAMPED)
