"""Q23: the bids of persons who sell, too, with the person and the auctions. Two joins, one after the other."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q23")
pipeline.feed("bids", schema=SCHEMAS["bids"])
pipeline.feed("persons", schema=SCHEMAS["persons"])
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
generator = feed_load("bids", "persons", "auctions", load=10_000)


@pipeline.operator(reads=("persons", "auctions"), state_partitions=8)
def sellers(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    sold = auctions.select(F.col("id").alias("sells"), "seller", "item")
    return persons.select("id", "name").join(sold, F.col("id") == F.col("seller")).drop("seller")


@pipeline.operator(reads=("bids", "sellers"), state_partitions=8)
def bids_of_sellers(bids: DataFrame, sellers: DataFrame) -> DataFrame:
    bid = bids.select("bidder", "auction", "price", "at")
    return bid.join(sellers, F.col("bidder") == F.col("id")).drop("id")


pipeline.keep("results", reads="bids_of_sellers", folder=Path("out/nexmark/q23").absolute())
