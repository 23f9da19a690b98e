"""Q14: the bids of a range of prices, with the time of day and a count of letters: computed in each record."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q14")
pipeline.feed("bids", schema=SCHEMAS["bids"])
generator = feed_load("bids", load=10_000)


@pipeline.operator(reads="bids", max_parallelism=16)
def computed(bids: DataFrame) -> DataFrame:
    hour = F.expr("(unix_millis(at) div 3600000) % 24")  # in UTC, whatever the session's time zone is
    time_of_day = F.when(hour.between(8, 18), "day").when((hour <= 6) | (hour >= 20), "night").otherwise("other")
    return bids.where("price * 908 between 1000000001 and 49999999999").select(
        "auction",
        "bidder",
        F.expr("price * 908 div 1000").alias("price"),
        time_of_day.alias("time_of_day"),
        "at",
        F.length(F.regexp_replace("extra", "[^c]", "")).alias("letters_c"),
    )


pipeline.keep("results", reads="computed", folder=Path("out/nexmark/q14").absolute())
