"""Q2: the bids for some auctions. A filter."""

from pathlib import Path

from pyspark.sql import DataFrame

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q2")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def asked_for(bids: DataFrame) -> DataFrame:
    return bids.where("auction % 123 = 0").select("auction", "price")


pipeline.keep("results", reads="asked_for", folder=Path("out/nexmark/q2").absolute())
