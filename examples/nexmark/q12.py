"""Q12: how many bids a person makes in ten seconds of the machine's clock. A window of processing time."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q12")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def stamped(bids: DataFrame) -> DataFrame:
    """With when its batch was taken: Spark keeps that, so a batch that is run again has the same."""
    return bids.select("bidder", F.current_timestamp().alias("taken"))


@pipeline.operator(reads="stamped", state_partitions=8)
def counts(stamped: DataFrame) -> DataFrame:
    windows = stamped.withWatermark("taken", "0 seconds").groupBy(F.window("taken", "10 seconds"), "bidder")
    return windows.agg(F.count("*").alias("bids")).select("bidder", "bids", "window.start")


pipeline.keep("results", reads="counts", folder=Path("out/nexmark/q12").absolute())
