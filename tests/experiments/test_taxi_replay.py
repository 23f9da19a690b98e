"""Recorded rides: what is left of them after cleaning, and when each of them comes."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from elastream.errors import InvalidInput
from examples.paper_workloads.taxi_hotspots import HOTSPOTS, nearest_hotspot
from examples.paper_workloads.taxi_replay import RideReplay, read_rides

RIDES = read_rides()


def test_invalid_rides_are_left_out_and_the_others_are_in_order() -> None:
    assert len(RIDES) == 8_355 - 108
    assert [ride.pickup_s for ride in RIDES] == sorted(ride.pickup_s for ride in RIDES)
    assert all(-74.5 < ride.lon < -73.5 and 40.4 < ride.lat < 41.1 for ride in RIDES)
    assert all(ride.pickup.startswith("2015-12-01") for ride in RIDES)


def test_a_day_at_ten_times_its_speed_with_every_ride_three_times() -> None:
    replay = RideReplay(speed=10, replication=3)
    due = list(replay.due(RIDES))
    assert replay.duration_s == 8_640
    assert Counter(one.ride.number for one in due) == {ride.number: 3 for ride in RIDES}
    for one in due:
        assert one.at_s == pytest.approx(one.ride.pickup_s / 10)
        assert one.day == 0


def test_beyond_midnight_the_day_begins_anew() -> None:
    due = list(RideReplay(speed=100, replication=1, begin_h=20, hours=6).due(RIDES))
    expected = [r.number for r in RIDES if r.pickup_s >= 20 * 3600]
    expected += [r.number for r in RIDES if r.pickup_s < 2 * 3600]
    assert [one.ride.number for one in due] == expected
    assert len({one.record[:3] for one in due}) == len(due), "day, ride and copy tell records apart"
    times = [one.at_s for one in due]
    assert times == sorted(times)
    assert times[-1] <= 6 * 3600 / 100


def test_the_same_day_twice_has_every_ride_twice() -> None:
    due = list(RideReplay(speed=1, replication=1, begin_h=4, hours=48).due(RIDES))
    assert Counter(one.ride.number for one in due) == {ride.number: 2 for ride in RIDES}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 0}, "--speed must be above 0, found 0"),
        ({"hours": -1}, "--hours must be above 0, found -1"),
        ({"replication": 0}, "--replication must be at least 1, found 0"),
        ({"begin_h": 24}, "--begin must be an hour from 0 to below 24, found 24"),
    ],
)
def test_a_replay_that_cannot_be(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RideReplay(**options)  # type: ignore[arg-type]


def great_circle_km(lon: float, lat: float, to_lon: float, to_lat: float) -> float:
    """The haversine formula: another way to the same distance."""
    a, b = math.radians(lat), math.radians(to_lat)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(to_lon - lon) / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(half))


def test_the_nearest_hotspot_is_nearest_by_the_great_circle_too() -> None:
    names = set()
    for ride in RIDES:
        name, km = nearest_hotspot(ride.lon, ride.lat)
        circles = {spot: great_circle_km(ride.lon, ride.lat, *place) for spot, place in HOTSPOTS.items()}
        assert circles[name] <= min(circles.values()) * 1.002
        assert km == pytest.approx(circles[name], rel=0.01)
        names.add(name)
    assert names == set(HOTSPOTS)
