"""The file channel as a Spark data source: tasks read their records from Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.source import ChannelReader
from elastream.engines.spark.channels.splits import Slice
from elastream.errors import ElastreamError

FORMAT = "elastream_files"
_BATCH_ROWS = 10_000


class FileChannelSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return FileChannelReader(self.options, schema)


class FileChannelReader(ChannelReader):
    def _read_slice(self, part: Slice, expected: Any) -> Iterator[Any]:
        return read_slice(self._log.folder, part, expected)


def read_slice(folder: Path, part: Slice, expected: Any) -> Iterator[Any]:
    """Some records of a Parquet file in this folder, in batches of Arrow of the expected schema.

    All of them, or an error: a file that holds fewer than the log says must not pass for a short one.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / part.path, memory_map=True) as file:
        at = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=expected.names):
            first, last = max(part.first - at, 0), min(part.last - at, batch.num_rows)
            if first < last:
                yield batch.slice(first, last - first).cast(expected)
            at += batch.num_rows
            if at >= part.last:
                return
    if at < part.last:
        raise ElastreamError(f"{folder / part.path}: {part.last} records were expected, found {at}")
