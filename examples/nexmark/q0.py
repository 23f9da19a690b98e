"""Q0: every bid as it is: what a pipeline costs that does nothing."""

from pathlib import Path

from pyspark.sql import DataFrame

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q0")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def passed(bids: DataFrame) -> DataFrame:
    return bids


pipeline.keep("results", reads="passed", folder=Path("out/nexmark/q0").absolute())
