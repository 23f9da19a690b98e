"""Q3: who sells in some states, in one category. An incremental join, whose state is all that ever came."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.nexmark import SCHEMAS
from elastream.workloads.nexmark_load import feed_load

pipeline = Pipeline("nexmark_q3")
pipeline.feed("persons", schema=SCHEMAS["persons"])
pipeline.feed("auctions", schema=SCHEMAS["auctions"])
generator = feed_load("persons", "auctions", load=50_000)


@pipeline.operator(reads="persons", max_parallelism=16)
def local_persons(persons: DataFrame) -> DataFrame:
    return persons.where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")


@pipeline.operator(reads="auctions", max_parallelism=16)
def in_category(auctions: DataFrame) -> DataFrame:
    return auctions.where("category = 10").select("seller", F.col("id").alias("auction"))


@pipeline.operator(reads=("in_category", "local_persons"), state_partitions=8)
def local_sellers(in_category: DataFrame, local_persons: DataFrame) -> DataFrame:
    joined = in_category.join(local_persons, in_category["seller"] == local_persons["id"])
    return joined.select("name", "city", "state", "auction")


pipeline.keep("results", reads="local_sellers", folder=Path("out/nexmark/q3").absolute())
