"""The application of Belkhiria's thesis (4.3.2): taxi rides, those that are valid, those in a zone, how many.

A ride costs `inZone` some milliseconds of waiting, so that many instances fit on few cores and what one can do is
known beforehand: with 12 ms somewhat more than 60 rides a second, which is the thesis's C.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from elastream.engines.spark.pipeline import Pipeline

from .taxi_zone_rides import EAST, NORTH, SCHEMA, SOUTH, WEST

CAPACITY_PER_S = 60.0
RIDE_MS = 12


def taxi_zones(*, kept: Path, ride_ms: int = RIDE_MS) -> Pipeline:
    """The sink keeps the numbers of the rides that it counts in the folder `kept`."""
    pipeline = Pipeline("taxi_zones")
    pipeline.feed("rides", schema=SCHEMA)

    @pipeline.operator(reads="rides")
    def valid(rides: DataFrame) -> DataFrame:
        has_places = (F.col("pickup_lon") != 0) & (F.col("dropoff_lon") != 0)
        return rides.where((F.col("pickup") < F.col("dropoff")) & has_places)

    @pipeline.operator(reads="valid")
    def inZone(valid: DataFrame) -> DataFrame:  # noqa: N802 - the thesis's name
        costing = valid.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {ride_ms}L) != ''"))
        return costing.where(_in_zone("pickup") | _in_zone("dropoff")).select("id", "created_ms")

    pipeline.keep("counted", reads="inZone", folder=kept)
    return pipeline


def _in_zone(end: str) -> Column:
    lon, lat = F.col(f"{end}_lon"), F.col(f"{end}_lat")
    return lon.between(WEST, EAST) & lat.between(SOUTH, NORTH)
