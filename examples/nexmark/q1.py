"""Q1: the price of every bid in euros. A map."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q1")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def in_euros(bids: DataFrame) -> DataFrame:
    return bids.withColumn("price", F.expr("price * 908 div 1000"))


pipeline.keep("results", reads="in_euros", folder=Path("out/nexmark/q1").absolute())
