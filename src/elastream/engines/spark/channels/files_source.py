"""The file channel as a Spark data source: a stream over a `SegmentLog` with as many splits as the control says.

Spark asks `latestOffset` and `partitions` in a process on the driver and `read` in tasks on the executors. An
offset is a position in the log. What lies before it is acknowledged when Spark asks what comes after it, so that
segments can be deleted and the backlog is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.control import read_control
from elastream.engines.spark.channels.segments import Position, SegmentLog
from elastream.engines.spark.channels.splits import Slice, splits

FORMAT = "elastream_files"
_BATCH_ROWS = 10_000


class FileChannelSource(DataSource):
    """Options: `path` (the folder of the channel), `reader` (whose positions are kept), `control` (a file)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return FileChannelReader(
            folder=Path(self.options["path"]),
            reader=self.options["reader"],
            control=Path(self.options["control"]),
            schema=schema,
        )


@dataclass
class Split(InputPartition):
    slices: list[Slice]


class FileChannelReader(DataSourceStreamReader):
    def __init__(self, *, folder: Path, reader: str, control: Path, schema: StructType) -> None:
        self._log = SegmentLog(folder)
        self._reader = reader
        self._control = control
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return asdict(self._log.acknowledged(self._reader))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # a limit of any size: Spark passes it to latestOffset, which reads the real one from the control
        return ReadMaxRows(2**62)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark asks when the batch that ended here is committed. It would say so in commit() too, but only with
        # the next batch: a writer that waits for its readers would then wait for one that waits for it.
        self._log.acknowledge(self._reader, Position(**start))
        all_of_it = isinstance(limit, ReadAllAvailable)
        most_records = None if all_of_it else read_control(self._control).most_records
        return asdict(self._log.position(Position(**start), most_records=most_records))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = Position(**start), Position(**end)
        parallelism = read_control(self._control).parallelism
        return [Split(part) for part in splits(self._log.commits(first, last), first, last, parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        expected = to_arrow_schema(self._schema, timezone="UTC")
        assert isinstance(partition, Split)
        for part in partition.slices:
            with pq.ParquetFile(self._log.folder / part.path, memory_map=True) as file:
                at = 0
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=expected.names):
                    first, last = max(part.first - at, 0), min(part.last - at, batch.num_rows)
                    if first < last:
                        yield batch.slice(first, last - first).cast(expected)
                    at += batch.num_rows
                    if at >= part.last:
                        break
