"""Q7: the highest bid of every ten seconds. A tumbling window, joined with what it was made of."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q7")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8)
def highest(bids: DataFrame) -> DataFrame:
    window = F.window("at", "10 seconds")
    return bids.withWatermark("at", "4 seconds").groupBy(window).agg(F.max("price").alias("most"))


@pipeline.operator(reads=("highest", "bids"), state_partitions=8)
def bids_as_high(highest: DataFrame, bids: DataFrame) -> DataFrame:
    """All of them, where several are as high."""
    at_ms, within = F.unix_millis("at").alias("at_ms"), F.window("at", "10 seconds").alias("within")
    bid = bids.withWatermark("at", "4 seconds").select("auction", "bidder", "price", at_ms, within)
    same = (F.col("window") == F.col("within")) & (F.col("price") == F.col("most"))
    return highest.join(bid, same).select("auction", "bidder", "price", "at_ms")


pipeline.keep("results", reads="bids_as_high", folder=Path("out/nexmark/q7").absolute())
