"""Q21: the channel of every bid: the four large ones by their name, others by what their address says."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q21")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


LARGE = {"google": "0", "facebook": "1", "baidu": "2", "apple": "3"}


@pipeline.operator(reads="bids", max_parallelism=16)
def with_channel(bids: DataFrame) -> DataFrame:
    numbers = F.create_map(*(F.lit(word) for pair in LARGE.items() for word in pair))
    said = F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    number = F.coalesce(F.try_element_at(numbers, F.lower("channel")), F.when(said != "", said))
    return bids.select("auction", "bidder", "price", "channel", number.alias("channel_id")).where(
        "channel_id is not null"
    )


pipeline.keep("results", reads="with_channel", folder=Path("out/nexmark/q21").absolute())
