"""A session of Spark's, and a broker where channels in Kafka are asked for: for programs that are no tests."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.engines.spark.session import start_session


@contextlib.contextmanager
def surroundings(channels: str, log: Path) -> Iterator[tuple[SparkSession, Broker | None]]:
    """`channels` are of files, or may be in Kafka; Spark's own log goes into a file."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="event-time-spark-")))
        broker = None if channels == "files" else stack.enter_context(Broker(folder / "kafka"))
        settings = {"spark.ui.port": "0", "spark.driver.memory": "2g", "spark.sql.warehouse.dir": str(folder)}
        jars = [] if broker is None else kafka_jars().paths(JarUse.CONNECTOR)
        spark = start_session("event_time", master="local[8]", settings=settings, jars=jars, log=log)
        stack.callback(spark.stop)
        yield spark, broker
