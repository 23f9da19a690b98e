"""Q4: the average price at which the auctions of a category ended: the winning bids of Q9, averaged."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from winning_bids import in_time, winning

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q4")
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("auctions", "bids", load=10_000)

pipeline.operator(reads=("auctions", "bids"), state_partitions=8)(in_time)
pipeline.operator(reads="in_time", state_partitions=8)(winning)


@pipeline.operator(reads="winning", state_partitions=4, output_mode="update")
def averages(winning: DataFrame) -> DataFrame:
    """With every auction that ends anew; sums, so that they are exact."""
    return winning.groupBy("category").agg(F.sum("price").alias("total"), F.count("*").alias("auctions"))


pipeline.keep("results", reads="averages", folder=Path("out/nexmark/q4").absolute())
