"""The inbox as a Spark data source: one stream over all lanes from the instances of one operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from elastream.engines.decentralized.inbox import Lanes, Offset
from elastream.engines.spark.channels.files_source import read_slice
from elastream.engines.spark.channels.splits import Slice

FORMAT = "elastream_inbox"


@dataclass
class Part(InputPartition):
    slices: list[Slice]


class InboxSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return InboxReader(self.options, schema)


class InboxReader(DataSourceStreamReader):
    """Options: `path` (the lanes of an operator), `senders` (its instances), `most` (records of a batch),
    `slots` (tasks of a batch)."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folder = Path(options["path"])
        self._lanes = Lanes(self._folder, Path(options["senders"]))
        self._most = int(options["most"])
        self._slots = int(options["slots"])
        self._schema = schema

    def initialOffset(self) -> Offset:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return self._lanes.latest(start, self._most)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [Part(slices) for slices in self._lanes.parts(start, end, self._slots)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        expected = to_arrow_schema(self._schema, timezone="UTC")
        assert isinstance(partition, Part)
        for part in partition.slices:
            yield from read_slice(self._folder, part, expected)


def read_inbox(
    spark: SparkSession, lanes: Path, senders: Path, schema: StructType, *, most_records: int, slots: int
) -> DataFrame:
    return (
        spark.readStream.format(FORMAT)
        .schema(schema)
        .options(path=str(lanes), senders=str(senders), most=str(most_records), slots=str(slots))
        .load()
    )
