"""Taxi rides replayed by their times, as in Gesscale's evaluation: a process that writes them to a feed.

    python -m examples.paper_workloads.taxi_replay FOLDER --speed 10 --replication 3

Ten seconds of the day are played in one, and every ride comes three times. It is an open loop: it does not slow
down when the pipeline does. The rides are a fiftieth of those of a day (`rides/README.md`); the day begins again
where it ends. A replay that is started again goes on after the last record that was written.
"""

from __future__ import annotations

import csv
import gzip
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from elastream.errors import InvalidInput
from elastream.workloads.feed_process import run_writer

SCHEMA = (
    "day int, ride bigint, copy int, type string, pickup string, dropoff string, lon double, lat double, "
    "passengers int, distance_mi double, total double"
)
_COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]
_TYPES = (
    *(pa.int32(), pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64()),
    *(pa.int32(), pa.float64(), pa.float64()),
)
_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ride:
    number: int
    """In the file, from 0."""
    pickup_s: float
    """Since midnight."""
    type: str
    pickup: str
    dropoff: str
    lon: float
    lat: float
    passengers: int
    distance_mi: float
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A record, and when it is to be written."""

    at_s: float
    """Since the replay began."""
    day: int
    ride: Ride
    copy: int

    @property
    def record(self) -> tuple[object, ...]:
        """In the order of the schema."""
        ride = self.ride
        what = (self.day, ride.number, self.copy, ride.type, ride.pickup, ride.dropoff)
        return (*what, ride.lon, ride.lat, ride.passengers, ride.distance_mi, ride.total)


@dataclass(frozen=True, kw_only=True, slots=True)
class RideReplay:
    speed: float = 10.0
    replication: int = 3
    begin_h: float = 0.0
    """The hour of the day."""
    hours: float = 24.0
    """Of the recorded day; more than 24 begin it anew."""

    def __post_init__(self) -> None:
        for option, value in (("--speed", self.speed), ("--hours", self.hours)):
            if not value > 0:
                raise InvalidInput(f"{option} must be above 0, found {value:g}")
        if self.replication < 1:
            raise InvalidInput(f"--replication must be at least 1, found {self.replication}")
        if not 0 <= self.begin_h < 24:
            raise InvalidInput(f"--begin must be an hour from 0 to below 24, found {self.begin_h:g}")

    @property
    def duration_s(self) -> float:
        return self.hours * 3600 / self.speed

    @property
    def command(self) -> tuple[str, ...]:
        """The module that replays, and its arguments; the folder of the feed is to follow."""
        given = ("--speed", self.speed, "--replication", self.replication, "--begin", self.begin_h)
        return (__name__, *map(str, (*given, "--hours", self.hours)))

    def due(self, rides: Sequence[Ride]) -> Iterator[Due]:
        """Every record of the replay, in the order of its time."""
        begin_s, end_s = self.begin_h * 3600, (self.begin_h + self.hours) * 3600
        for day in range(int(end_s // _DAY_S) + 1):
            for ride in rides:
                at_s = day * _DAY_S + ride.pickup_s
                if begin_s <= at_s < end_s:
                    for copy in range(self.replication):
                        yield Due(at_s=(at_s - begin_s) / self.speed, day=day, ride=ride, copy=copy)


def read_rides() -> tuple[Ride, ...]:
    """The bundled rides in the order of their pickup, without those that are invalid or came twice."""
    file = Path(__file__).with_name("rides") / "nyc_2015-12-01.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
        rows = list(enumerate(csv.DictReader(text)))
    found, seen = [], set()
    for number, row in rows:
        ride = _ride(number, row)
        same = tuple(row.values())
        if ride.lon and ride.lat and same not in seen:
            seen.add(same)
            found.append(ride)
    return tuple(found)


def _ride(number: int, row: dict[str, str]) -> Ride:
    pickup = datetime.fromisoformat(row["pickup"])
    return Ride(
        number=number,
        pickup_s=pickup.hour * 3600 + pickup.minute * 60 + pickup.second,
        type=row["type"],
        pickup=row["pickup"],
        dropoff=row["dropoff"],
        lon=float(row["lon"]),
        lat=float(row["lat"]),
        passengers=int(row["passengers"]),
        distance_mi=float(row["distance_mi"]),
        total=float(row["total"]),
    )


def main(
    folder: Annotated[Path, typer.Argument(help="The folder of the feed's channel.")],
    speed: Annotated[float, typer.Option(help="Seconds of the day that are played in one.")] = 10.0,
    replication: Annotated[int, typer.Option(help="How often each ride comes.")] = 3,
    begin: Annotated[float, typer.Option(help="The hour of the day to begin with.")] = 0.0,
    hours: Annotated[float, typer.Option(help="How much of the day is played; above 24 it begins anew.")] = 24.0,
    tick: Annotated[float, typer.Option(help="Seconds between two writes.")] = 0.5,
) -> None:
    """Write taxi rides to a feed by their times, whatever the pipeline does."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    replay = RideReplay(speed=speed, replication=replication, begin_h=begin, hours=hours)
    _write(folder, replay, tick, stopping)


def to_table(due: Iterable[Due]) -> pa.Table:
    """The records, as they are written to a feed."""
    columns = list(zip(*(one.record for one in due), strict=True))
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, _TYPES, strict=True)], names=_COLUMNS)


def _write(folder: Path, replay: RideReplay, tick_s: float, stopping: list[int]) -> None:
    from elastream.engines.spark.channels.kinds import open_channel

    channel = open_channel(folder)
    channel.create()
    left = list(replay.due(read_rides()))[channel.log.head().records :]
    began_s = time.monotonic() - (left[0].at_s if left else 0.0)
    while left and not stopping:
        time.sleep(tick_s)
        now_s = time.monotonic() - began_s
        count = next((index for index, due in enumerate(left) if due.at_s > now_s), len(left))
        if count:
            channel.append(to_table(left[:count]))
            left = left[count:]


if __name__ == "__main__":
    run_writer(main, "the rides")
