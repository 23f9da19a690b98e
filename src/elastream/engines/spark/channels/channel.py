"""A durable stream between two operators: what every kind of channel can do, wherever its records lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.segments import SegmentLog, StreamPosition


class DurableChannel(Protocol):
    @property
    def log(self) -> SegmentLog:
        """What is in the stream, and who has read how much of it."""
        ...

    def create(self) -> None:
        """Make it ready to be written, and clear away what a killed writer left behind: for the writer."""
        ...

    def write(self, frame: DataFrame, batch: int, *, event_time: str | None = None) -> int:
        """Put a batch into the stream, all of it and once; how many records it has.

        `event_time` is the column by which it may be cut for readers that follow it, where the channel can.
        """
        ...

    def append(self, records: pa.Table) -> None:
        """Put a batch of records into the stream without Spark: for a process that writes a feed."""
        ...

    def stream(
        self, spark: SparkSession, schema: StructType, *, reader: str, control: Path, at_cuts: bool = False
    ) -> DataFrame:
        """What is in the stream, for a query of its own positions; its parallelism is that of the control.

        A query that follows event time stops at cuts only (`engines/spark/event_time.py`).
        """
        ...

    def between(
        self, first: StreamPosition, last: StreamPosition, expected: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Some of its records in order, without Spark."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """What is in the stream now, in order."""
        ...

    def forget(self, readers: Sequence[str]) -> int:
        """Delete what all these readers are done with; how many commits that was."""
        ...
