"""Q18: the last bid of each person on each auction."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q18")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8, output_mode="update")
def last_bids(bids: DataFrame) -> DataFrame:
    """The highest, where several came in the same millisecond."""
    last = F.max(F.struct("at", "price")).alias("last")
    return bids.groupBy("bidder", "auction").agg(last).select("bidder", "auction", "last.at", "last.price")


pipeline.keep("results", reads="last_bids", folder=Path("out/nexmark/q18").absolute())
