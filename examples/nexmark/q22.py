"""Q22: the folders in the address of every bid."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q22")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def folders(bids: DataFrame) -> DataFrame:
    parts = F.split("url", "/")
    return bids.select(
        "auction", "bidder", "price", "channel", *(parts[n].alias(f"folder{n - 2}") for n in (3, 4, 5))
    )


pipeline.keep("results", reads="folders", folder=Path("out/nexmark/q22").absolute())
