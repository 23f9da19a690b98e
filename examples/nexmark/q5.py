"""Q5: the auctions with the most bids in the last ten seconds, every two. A sliding window."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q5")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", state_partitions=8)
def counts(bids: DataFrame) -> DataFrame:
    window = F.window("at", "10 seconds", "2 seconds")
    return bids.withWatermark("at", "4 seconds").groupBy(window, "auction").agg(F.count("*").alias("bids"))


@pipeline.operator(reads="counts", state_partitions=4)
def hottest(counts: DataFrame) -> DataFrame:
    """All of them, where several have as many."""
    of_a_window = counts.groupBy("window").agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("all")
    )
    most = F.filter("all", lambda one: one["bids"] == F.col("most"))
    return of_a_window.select("window.start", F.explode(most).alias("hot")).select(
        "start", "hot.auction", "hot.bids"
    )


pipeline.keep("results", reads="hottest", folder=Path("out/nexmark/q5").absolute())
