"""Taxi rides for a feed: a bundled extract, over and over, each ride with a number of its own.

What is valid and what lies in the zone is also said here in plain Python: what must be in a sink can be computed
without Spark.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

SCHEMA = (
    "id bigint, created_ms bigint, pickup string, dropoff string, pickup_lon double, pickup_lat double, "
    "dropoff_lon double, dropoff_lat double"
)
WEST, EAST, SOUTH, NORTH = -73.995, -73.965, 40.745, 40.770
"""The zone: Midtown Manhattan."""
_TEXTS = ("pickup", "dropoff")
_NUMBERS = ("pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat")


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneRide:
    pickup: str
    dropoff: str
    pickup_lon: float
    pickup_lat: float
    dropoff_lon: float
    dropoff_lat: float

    @property
    def is_valid(self) -> bool:
        """It ends after it begins, and has coordinates."""
        return self.pickup < self.dropoff and self.pickup_lon != 0 and self.dropoff_lon != 0

    @property
    def is_in_zone(self) -> bool:
        """It begins or ends there."""
        return _in_zone(self.pickup_lon, self.pickup_lat) or _in_zone(self.dropoff_lon, self.dropoff_lat)


@cache
def rides() -> tuple[ZoneRide, ...]:
    file = Path(__file__).with_name("rides") / "nyc_2015-12-01_noon.csv"
    with file.open(encoding="utf-8") as text:
        return tuple(
            ZoneRide(**{name: row[name] for name in _TEXTS}, **{name: float(row[name]) for name in _NUMBERS})  # type: ignore[arg-type]
            for row in csv.DictReader(text)
        )


def ride(number: int) -> ZoneRide:
    return rides()[number % len(rides())]


def table(first: int, count: int, *, created_ms: int) -> pa.Table:
    numbers = range(first, first + count)
    chosen = [ride(number) for number in numbers]
    columns = {name: pa.array([getattr(one, name) for one in chosen]) for name in (*_TEXTS, *_NUMBERS)}
    created = pa.array([created_ms] * count, pa.int64())
    return pa.table({"id": pa.array(numbers, pa.int64()), "created_ms": created, **columns})


def in_zone(numbers: Iterable[int]) -> list[int]:
    """Of the rides with these numbers, those that the taxi pipeline must count."""
    return [number for number in numbers if ride(number).is_valid and ride(number).is_in_zone]


def _in_zone(lon: float, lat: float) -> bool:
    return WEST <= lon <= EAST and SOUTH <= lat <= NORTH
