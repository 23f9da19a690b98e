"""Back pressure, measured or told by backlogs, and the operator that is the cause of it."""

from __future__ import annotations

import pytest

from elastream.measurement import Snapshot
from elastream.measurement.back_pressure import back_pressure, is_overloaded
from elastream.testing import alike, chain, snapshot_of


def waits(**shares: float | None) -> Snapshot:
    """A pipeline of operators that waited for so much of the window."""
    names = ("source", *(name for name in shares if name != "source"))
    readings = [reading for name, share in shares.items() for reading in alike(name, wait_out_share=share)]
    return snapshot_of(edges=chain(*names), source_rates={"source": 100}, readings=readings)


def test_where_waiting_is_measured_it_is_the_back_pressure() -> None:
    snapshot = waits(source=0.8, map=0.3, sink=None)
    assert back_pressure(snapshot, "source") == pytest.approx(0.8)
    assert back_pressure(snapshot, "map") == pytest.approx(0.3)
    assert back_pressure(snapshot, "sink") == 0.0


@pytest.mark.parametrize(
    ("source", "first", "overloaded"),
    [(0.9, 0.1, ("first",)), (0.9, 0.9, ("second",)), (0.4, 0.0, ()), (0.5, 0.5, ())],
)
def test_overloaded_is_who_is_not_held_back_while_all_before_it_are(
    source: float, first: float, overloaded: tuple[str, ...]
) -> None:
    snapshot = waits(source=source, first=first, second=None)
    found = {name: is_overloaded(snapshot, name, high=0.5) for name in ("first", "second")}
    assert found == {name: name in overloaded for name in ("first", "second")}


def test_of_several_before_it_all_must_be_held_back() -> None:
    def join(left: float, right: float) -> Snapshot:
        return snapshot_of(
            edges=[("left", "join"), ("right", "join")],
            source_rates={"left": 1, "right": 1},
            readings=[
                *alike("left", wait_out_share=left),
                *alike("right", wait_out_share=right),
                *alike("join"),
            ],
        )

    assert is_overloaded(join(0.9, 0.9), "join", high=0.5) is True
    assert is_overloaded(join(0.9, 0.1), "join", high=0.5) is False


@pytest.mark.parametrize(("arriving", "expected"), [(200.0, 1.0), (100.5, 0.0), (100.0, 0.0), (50.0, 0.0)])
def test_where_nobody_waits_a_backlog_that_grows_tells(arriving: float, expected: float) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": arriving}, readings=alike("map", records_per_s=100)
    )
    assert back_pressure(snapshot, "source") == expected


@pytest.mark.parametrize(("backlog", "expected"), [(2_000.0, 0.1), (4_000.0, 1.0)])
def test_where_nobody_has_to_wait_a_large_backlog_that_grows_tells_too(backlog: float, expected: float) -> None:
    """100/s are processed of 200/s: half a minute's work is 3,000 records."""
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 200},
        readings=[
            *alike("source", records_per_s=200, wait_out_share=0.1),
            *alike("map", records_per_s=100, backlog=backlog),
        ],
    )
    assert back_pressure(snapshot, "source") == pytest.approx(expected)


def test_a_backlog_between_operators_is_what_was_put_in_and_not_taken() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100},
        readings=[*alike("map", selectivity=3.0), *alike("sink", records_per_s=200)],
    )
    assert back_pressure(snapshot, "map") == 1.0
    assert is_overloaded(snapshot, "sink", high=0.5) is True
    assert is_overloaded(snapshot, "map", high=0.5) is False


def test_without_readings_nothing_is_known() -> None:
    snapshot = snapshot_of(edges=chain("source", "map", "sink"), source_rates={"source": 1})
    assert back_pressure(snapshot, "map") is None
    assert is_overloaded(snapshot, "map", high=0.5) is None
