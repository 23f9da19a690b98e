"""Views of each page, minute by minute: a plain Structured Streaming job, as it is before it is ported.

python examples/page_views/write_views.py &     # something to read
python examples/page_views/plain.py
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "at timestamp, visitor string, url string, load_ms int"


def pages(views: DataFrame) -> DataFrame:
    path = F.regexp_extract("url", r"^https?://[^/]+(/[^?#]*)", 1)
    return views.where(path != "").select("at", "visitor", "load_ms", path.alias("page"))


def per_minute(pages: DataFrame) -> DataFrame:
    return (
        pages.withWatermark("at", "30 seconds")
        .groupBy(F.window("at", "1 minute"), "page")
        .agg(F.count("*").alias("views"), F.max("load_ms").alias("slowest_ms"))
        .select(F.col("window.start").alias("minute"), "page", "views", "slowest_ms")
    )


def main() -> None:
    spark = SparkSession.builder.appName("page_views").getOrCreate()
    views = spark.readStream.schema(SCHEMA).json("out/incoming_views")
    query = (
        per_minute(pages(views))
        .writeStream.outputMode("append")
        .format("parquet")
        .option("path", "out/page_views_plain/results")
        .option("checkpointLocation", "out/page_views_plain/checkpoint")
        .trigger(processingTime="5 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
