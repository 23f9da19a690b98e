"""Q8: who came and opened an auction in the same ten seconds. A join of tumbling windows."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q8")
pipeline.feed("persons", schema=SCHEMAS["persons"])
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
generator = feed_load("persons", "auctions", load=50_000)


WINDOW, LATE = "10 seconds", "4 seconds"


@pipeline.operator(reads=("persons", "auctions"), state_partitions=8)
def new_sellers(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    came = persons.withWatermark("at", LATE).select("id", "name", F.window("at", WINDOW).alias("window"))
    sold = auctions.withWatermark("at", LATE).select("seller", F.window("at", WINDOW).alias("opened"))
    same = (F.col("id") == F.col("seller")) & (F.col("window") == F.col("opened"))
    return came.join(sold, same).select("id", "name", F.col("window.start").alias("start"))


@pipeline.operator(reads="new_sellers", state_partitions=8)
def once(new_sellers: DataFrame) -> DataFrame:
    """A pair comes with the later of the two, so what comes of two windows overlaps."""
    return new_sellers.withWatermark("start", "20 seconds").dropDuplicates(["id", "start"])


pipeline.keep("results", reads="once", folder=Path("out/nexmark/q8").absolute())
