"""The taxi rides of Belkhiria's thesis (4.3.2) on instances that scale themselves, without a manager:

    elastream decentralized run examples/taxi_zones.py

Rides come in, invalid ones are dropped, `inZone` keeps those that begin or end in Midtown, and a sink counts
them. A ride costs `inZone` 12 ms of waiting, so that an instance can do somewhat more than 60 a second, the
thesis's C, on a machine that does other things too. `elastream capacity examples/taxi_zones.py inZone` measures
it.
"""

import os
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.rides import EAST, NORTH, SCHEMA, SOUTH, WEST

RIDE_MS = 12

load = {"steps": [[0, 200], [150, 500], [330, 120]]}
"""Rides per second, as in Figure 4.8 of the thesis, with shorter stretches."""
records = "rides"
"""What the load generator writes."""
capacities = {"inZone": 60.0}
"""Rides per second that an instance can process. The other operators stay at one."""

pipeline = Pipeline("taxi_zones")
pipeline.feed("rides", schema=SCHEMA)


@pipeline.operator(reads="rides")
def valid(rides: DataFrame) -> DataFrame:
    has_places = (F.col("pickup_lon") != 0) & (F.col("dropoff_lon") != 0)
    return rides.where((F.col("pickup") < F.col("dropoff")) & has_places)


def in_midtown(end: str) -> Column:
    lon, lat = F.col(f"{end}_lon"), F.col(f"{end}_lat")
    return lon.between(WEST, EAST) & lat.between(SOUTH, NORTH)


@pipeline.operator(reads="valid")
def inZone(valid: DataFrame) -> DataFrame:  # noqa: N802 - the thesis's name
    costing = valid.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {RIDE_MS}L) != ''"))  # it gives 'null'
    return costing.where(in_midtown("pickup") | in_midtown("dropoff")).select("id", "created_ms")


pipeline.keep("counted", reads="inZone", folder=Path(os.environ.get("TAXI_ZONES_KEPT", "out/taxi_zones_counted")))
