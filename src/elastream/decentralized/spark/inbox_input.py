"""The inbox as the input of a streaming query, without Python workers.

A data source in Python costs Spark five processes for every query: with a dozen instances on two cores more than
all the rest. So the query is a stream of ticks of Spark's own (`rate-micro-batch`, one row for each task of a
batch), and a row is turned into the records that the plan of the batch gives to its task. They come as JSON
through a property of the JVM, which the driver sets before the batch runs: `reflect` reads it when the row is
processed. An instance is one JVM, so every task sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from elastream.decentralized.spark.inbox import Lanes, Offset
from elastream.engines.spark.channels.files_source import read_slice
from elastream.engines.spark.channels.json_records import encode
from elastream.engines.spark.channels.splits import Slice

_FROM_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "mode": "FAILFAST",
}


class JsonInput:
    """The records of one operator, given to each batch as JSON."""

    def __init__(self, name: str, schema: StructType, *, slots: int) -> None:
        self.name = name
        self._schema = schema
        self._slots = slots

    def frame(self, spark: SparkSession) -> DataFrame:
        ticks = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", self._slots)
            .option("numPartitions", self._slots)
            .load()
        )
        task = F.pmod(F.col("value"), F.lit(self._slots)).cast("string")
        text = F.expr(f"reflect('java.lang.System', 'getProperty', concat('{self._property}', task), '[]')")
        records = F.from_json("text", ArrayType(self._schema), _FROM_JSON)
        rows = ticks.select(task.alias("task")).select(text.alias("text"))
        return rows.select(F.explode(records).alias("record")).select("record.*")

    def put(self, spark: SparkSession, parts: Sequence[Sequence[str]]) -> int:
        """Where the query finds them, a part for each task; how many records that is."""
        properties: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
        for number in range(self._slots):
            records = parts[number] if number < len(parts) else []
            properties.setProperty(f"{self._property}{number}", f"[{','.join(records)}]")
        return sum(map(len, parts))

    def put_evenly(self, spark: SparkSession, records: Sequence[str]) -> int:
        return self.put(spark, [records[task :: self._slots] for task in range(self._slots)])

    @property
    def _property(self) -> str:
        return f"elastream.inbox.{self.name}."


class InboxInput(JsonInput):
    """The lanes from one operator, which lie in `folder`."""

    def __init__(self, name: str, lanes: Lanes, folder: Path, schema: StructType, *, slots: int) -> None:
        super().__init__(name, schema, slots=slots)
        self.lanes = lanes
        self._folder = folder

    def load(self, spark: SparkSession, start: Offset, end: Offset) -> int:
        """Put what lies between two offsets where the query finds it; how many records that is."""
        return self.put(spark, [self._read(part) for part in self.lanes.parts(start, end, self._slots)])

    def _read(self, slices: list[Slice]) -> list[str]:
        expected = to_arrow_schema(self._schema, timezone="UTC")
        batches = [batch for part in slices for batch in read_slice(self._folder, part, expected)]
        return [record.decode() for record in encode(pa.Table.from_batches(batches, expected))]
