"""The bundled taxi rides: what is in them, and which of them the taxi pipeline must count."""

from __future__ import annotations

from examples.paper_workloads.taxi_zone_rides import in_zone, ride, rides, table


def test_the_extract_is_what_its_readme_says() -> None:
    assert len(rides()) == 2_000
    assert sum(not one.is_valid for one in rides()) == 24
    assert rides()[0].dropoff == "2015-12-01 12:00:00"
    assert rides()[-1].dropoff == "2015-12-01 12:05:34"


def test_rides_come_again_under_other_numbers() -> None:
    found = table(1_999, 3, created_ms=7)
    assert found["id"].to_pylist() == [1_999, 2_000, 2_001]
    assert found["pickup"].to_pylist() == [ride(1_999).pickup, ride(0).pickup, ride(1).pickup]
    assert set(found["created_ms"].to_pylist()) == {7}


def test_what_must_be_counted_begins_or_ends_in_the_zone_and_is_valid() -> None:
    counted = in_zone(range(2_000))
    assert counted == [number - 2_000 for number in in_zone(range(2_000, 4_000))]
    assert 900 < len(counted) < 1_100
    assert all(ride(number).is_valid and ride(number).is_in_zone for number in counted)
