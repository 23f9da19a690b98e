"""The same job under elastream: `elastream run examples/page_views/ported.py`.

python examples/page_views/write_views.py &     # something to read
elastream run examples/page_views/ported.py
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from elastream import Pipeline

SCHEMA = "at timestamp, visitor string, url string, load_ms int"

pipeline = Pipeline("page_views")


@pipeline.source
def views(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json("out/incoming_views")


@pipeline.operator(reads="views", max_parallelism=16)
def pages(views: DataFrame) -> DataFrame:
    path = F.regexp_extract("url", r"^https?://[^/]+(/[^?#]*)", 1)
    return views.where(path != "").select("at", "visitor", "load_ms", path.alias("page"))


@pipeline.operator(reads="pages", state_partitions=12)
def per_minute(pages: DataFrame) -> DataFrame:
    return (
        pages.withWatermark("at", "30 seconds")
        .groupBy(F.window("at", "1 minute"), "page")
        .agg(F.count("*").alias("views"), F.max("load_ms").alias("slowest_ms"))
        .select(F.col("window.start").alias("minute"), "page", "views", "slowest_ms")
    )


@pipeline.sink(reads="per_minute")
def results(batch: DataFrame, batch_id: int, unique_id: str) -> None:
    batch.write.mode("overwrite").parquet(f"out/page_views_results/batch={unique_id}")
