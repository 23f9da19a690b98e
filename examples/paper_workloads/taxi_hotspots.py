"""Gesscale's workload: to each taxi ride the nearest of three sights of New York, and how far away it is.

The operator is written twice: for Spark, and in plain Python to check what Spark found. What a record costs is
waited for, without using a core, so that the right number of instances is known by arithmetic.
"""

from __future__ import annotations

import math
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from .taxi_replay import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from elastream.engines.spark.pipeline import Pipeline

HOTSPOTS = {
    "Times Square": (-73.9855, 40.7580),
    "Brooklyn Bridge": (-73.9969, 40.7061),
    "Metropolitan Museum": (-73.9632, 40.7794),
}
"""Longitude and latitude."""

_KM_PER_DEGREE = 111.195
_AT_LATITUDE = math.cos(math.radians(40.75))  # degrees of longitude are shorter here, and the city is flat enough


def nearest_hotspot(lon: float, lat: float) -> tuple[str, float]:
    """Its name and its distance in km, in a straight line."""
    distances = {
        name: _KM_PER_DEGREE * math.sqrt(((lon - there_lon) * _AT_LATITUDE) ** 2 + (lat - there_lat) ** 2)
        for name, (there_lon, there_lat) in HOTSPOTS.items()
    }
    name = min(distances, key=lambda hotspot: distances[hotspot])
    return name, distances[name]


def with_nearest_hotspot(rides: DataFrame) -> DataFrame:
    """The rides with two more columns: hotspot, distance_km."""
    from pyspark.sql import functions as F

    def distance_km(lon: float, lat: float) -> Column:
        east, north = (F.col("lon") - lon) * _AT_LATITUDE, F.col("lat") - lat
        return F.sqrt(east * east + north * north) * _KM_PER_DEGREE

    candidates = [
        F.struct(distance_km(lon, lat).alias("distance_km"), F.lit(name).alias("hotspot"))
        for name, (lon, lat) in HOTSPOTS.items()
    ]
    nearest = reduce(F.least, candidates)  # of structs: by the first field
    return rides.withColumn("nearest", nearest).select(*rides.columns, "nearest.hotspot", "nearest.distance_km")


def taxi_hotspots(*, kept: Path, record_ms: int, max_parallelism: int) -> Pipeline:
    """The pipeline: rides, the operator, and a sink that keeps every result once."""
    from pyspark.sql import functions as F

    from elastream.engines.spark.pipeline import Pipeline

    pipeline = Pipeline("taxi_hotspots")
    pipeline.feed("rides", schema=SCHEMA)

    @pipeline.operator(reads="rides", max_parallelism=max_parallelism)
    def hotspots(rides: DataFrame) -> DataFrame:
        cost = F.expr(f"reflect('java.lang.Thread', 'sleep', {record_ms}L) != ''")  # it gives 'null'
        return with_nearest_hotspot(rides.where(cost))

    pipeline.keep("kept", reads="hotspots", folder=kept)
    return pipeline
