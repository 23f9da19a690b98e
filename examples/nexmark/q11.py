"""Q11: how many bids a person makes in a session, which ends after ten seconds without one."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q11")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8)
def sessions(bids: DataFrame) -> DataFrame:
    session = F.session_window("at", "10 seconds")
    counted = bids.withWatermark("at", "4 seconds").groupBy(session, "bidder").agg(F.count("*").alias("bids"))
    return counted.select("bidder", "bids", "session_window.start", "session_window.end")


pipeline.keep("results", reads="sessions", folder=Path("out/nexmark/q11").absolute())
