"""A streaming job as somebody has it, with nothing of elastream in it: three queries over Kafka.

    python attached_job.py SERVERS ORDERS PAYMENTS FOLDER

Each has a batch every ten seconds. One looks at each order by itself, one counts them by window, one joins them
with their payments. What an order costs is a wait, so that more executors than there are cores have work.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVERY = "10 seconds"
PRICE_MS, COUNT_MS, JOIN_MS = 80, 60, 60


def waits(milliseconds: int) -> str:
    return f"reflect('java.lang.Thread', 'sleep', cast({milliseconds} as bigint)) AS waited"


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    return rows.selectExpr("cast(cast(value AS string) AS bigint) AS id", "timestamp")


def start(name: str, rows: DataFrame, folder: str) -> None:
    writer = rows.writeStream.queryName(name).format("parquet").option("path", f"{folder}/{name}")
    writer.option("checkpointLocation", f"{folder}/checkpoint-{name}").trigger(processingTime=EVERY).start()


def main(servers: str, orders_topic: str, payments_topic: str, folder: str) -> None:
    spark = SparkSession.builder.appName("shop").getOrCreate()
    orders, payments = read(spark, servers, orders_topic), read(spark, servers, payments_topic)

    start("prices", orders.selectExpr("id", waits(PRICE_MS)), folder)

    looked_at = orders.selectExpr("id % 10 AS shop", "timestamp", waits(COUNT_MS))
    windowed = looked_at.withWatermark("timestamp", "5 seconds").groupBy(
        F.window("timestamp", "10 seconds"), "shop"
    )
    start("counts", windowed.count(), folder)

    left = orders.selectExpr("id", "timestamp AS ordered", waits(JOIN_MS)).withWatermark("ordered", "5 seconds")
    right = payments.selectExpr("id AS of", "timestamp AS paid").withWatermark("paid", "5 seconds")
    soon = F.expr("id = of AND paid BETWEEN ordered - INTERVAL 5 SECONDS AND ordered + INTERVAL 5 SECONDS")
    start("joined", left.join(right, soon), folder)

    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
