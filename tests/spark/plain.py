"""The same pipeline as one query of plain Spark: what elastream's results are compared to."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from running import PATIENCE_S

from elastream.engines.spark.pipeline import Kind, Pipeline


def composed(
    spark: SparkSession, pipeline: Pipeline, name: str, *, feeds: Mapping[str, DataFrame] | None = None
) -> DataFrame:
    """What a step puts out, with the functions of all before it in one plan; `feeds` are what is read of those."""
    step = pipeline[name]
    if step.kind is Kind.FEED:
        assert feeds is not None
        return feeds[name]
    assert step.function is not None
    if step.kind is Kind.SOURCE:
        return step.function(spark)  # type: ignore[no-any-return]
    return step.function(*(composed(spark, pipeline, read, feeds=feeds) for read in step.reads))  # type: ignore[no-any-return]


class PlainQuery:
    """One streaming query in append mode, and all that it has put out."""

    def __init__(self, spark: SparkSession, frame: DataFrame, *, state_partitions: int = 2) -> None:
        self._spark = spark
        self._frame = frame
        self._state_partitions = state_partitions
        self._name = f"plain_{uuid.uuid4().hex}"

    def __enter__(self) -> Self:
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._state_partitions))
        self._query = self._frame.writeStream.format("memory").queryName(self._name).outputMode("append").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()
        self._spark.catalog.dropTempView(self._name)

    def settle(self) -> None:
        settle(self._query)
        assert self._query.exception() is None, f"plain Spark fails, too: {self._query.exception()}"

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._spark.table(self._name).collect()]

    def late(self) -> int:
        """As many as Spark has counted: in an aggregate, records of one key and task are one by then."""
        return sum(
            int(operator["numRowsDroppedByWatermark"])
            for progress in self._query.recentProgress
            for operator in progress["stateOperators"]
        )


def settle(query: StreamingQuery) -> None:
    """Wait until a query has nothing left to do: no input, and no batch for a watermark that has moved on."""
    waiting = threading.Thread(target=_process_all, args=(query,), daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive(), f"{query.name} has still something to do: {query.status}"


def _process_all(query: StreamingQuery) -> None:
    try:
        query.processAllAvailable()
    except Exception:  # it has failed, or was stopped: whoever waits for it finds out
        return
