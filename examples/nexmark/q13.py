"""Q13: every bid with what a table says of its auction. A join with something that does not change."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q13")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def described(bids: DataFrame) -> DataFrame:
    table = bids.sparkSession.range(10_000).select("id", F.concat(F.lit("side-"), "id").alias("value"))
    keyed = bids.withColumn("key", F.col("auction") % 10_000)
    return keyed.join(F.broadcast(table), F.col("key") == table["id"]).select(
        "auction", "bidder", "price", "at", "value"
    )


pipeline.keep("results", reads="described", folder=Path("out/nexmark/q13").absolute())
