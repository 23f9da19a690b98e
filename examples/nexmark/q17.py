"""Q17: statistics of the bids of each auction and day. An aggregate that is told again with every change."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q17")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8, output_mode="update")
def statistics(bids: DataFrame) -> DataFrame:
    price = F.col("price")
    return bids.groupBy("auction", F.expr("unix_millis(at) div 86400000").alias("day")).agg(
        F.count("*").alias("bids"),
        F.count_if(price < 10_000).alias("low"),
        F.count_if(price.between(10_000, 999_999)).alias("middle"),
        F.count_if(price >= 1_000_000).alias("high"),
        F.min(price).alias("least"),
        F.max(price).alias("most"),
        F.sum(price).alias("total"),
    )


pipeline.keep("results", reads="statistics", folder=Path("out/nexmark/q17").absolute())
