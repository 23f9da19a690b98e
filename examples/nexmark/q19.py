"""Q19: the ten highest bids of each auction."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q19")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8, output_mode="update")
def highest(bids: DataFrame) -> DataFrame:
    bid = F.struct("price", F.col("at"), "bidder")
    return bids.groupBy("auction").agg(F.max_by(bid, bid, 10).alias("bids"))


pipeline.keep("results", reads="highest", folder=Path("out/nexmark/q19").absolute())
