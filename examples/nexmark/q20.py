"""Q20: the bids on auctions of one category, with the auction. An incremental join."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q20")
pipeline.feed("bids", schema=SCHEMAS["bids"])
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
generator = feed_load("bids", "auctions", load=10_000)


@pipeline.operator(reads="auctions", max_parallelism=16)
def in_category(auctions: DataFrame) -> DataFrame:
    return auctions.where("category = 10").select("id", "item", "seller", "reserve")


@pipeline.operator(reads=("bids", "in_category"), state_partitions=8)
def expanded(bids: DataFrame, in_category: DataFrame) -> DataFrame:
    bid = bids.select("auction", "bidder", "price", "at")
    return bid.join(in_category, F.col("auction") == F.col("id")).drop("id")


pipeline.keep("results", reads="expanded", folder=Path("out/nexmark/q20").absolute())
