"""A channel as a Spark data source: a stream over a `SegmentLog` with as many splits as the control says.

Spark asks `latestOffset` and `partitions` in a process on the driver and `read` in tasks on the executors. An
offset is a position in the log, and how often the query was started. What lies before it is acknowledged when
Spark asks what comes after it, so that segments can be deleted and the backlog is exact. How the records of a
split are read is the affair of each kind.

A query that is started again has to run a batch for the watermark that the last one left behind: windows may have
closed. Spark runs such a batch without input only after one of the same run, so a pipeline that was rescaled, or
that was killed, would keep them until more input comes. As the count of starts is a part of the offset, the first
look after a start finds an offset that is new, and with it a batch, though maybe of no records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.aside import folder_beside, positions_aside
from elastream.engines.spark.channels.control import Control, read_control
from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.engines.spark.channels.segments import SegmentLog, StreamPosition
from elastream.engines.spark.channels.splits import Slice, splits

_STARTS = "starts"


@dataclass
class Split(InputPartition):
    slices: list[Slice]
    fetches: Fetches


class ChannelReader(DataSourceStreamReader):
    """Options: `path` (the folder of the channel), `reader` (whose positions are kept), `control` (a file),
    `at_cuts` (`true` for a reader that follows event time)."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._log = SegmentLog(Path(options["path"]))
        self._reader = options["reader"]
        self._control = Path(options["control"])
        self._at_cuts = options.get("at_cuts") == "true"
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._log.acknowledged(self._reader), read_control(self._control))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # a limit of any size: Spark passes it to latestOffset, which reads the real one from the control
        return ReadMaxRows(2**62)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark asks when the batch that ended here is committed. It would say so in commit() too, but only with
        # the next batch: a writer that waits for its readers would then wait for one that waits for it.
        begin, control = _position(start), read_control(self._control)
        all_of_it = isinstance(limit, ReadAllAvailable)
        most_records = None if all_of_it else control.most_records
        end = self._log.position(begin, most_records=most_records, at_cuts=self._at_cuts)
        self._log.acknowledge(self._reader, begin, taken=end.record)
        return self._offset(end, control)

    def _offset(self, at: StreamPosition, control: Control) -> dict[str, Any]:
        return {**asdict(at), _STARTS: control.starts}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = _position(start), _position(end)
        control = read_control(self._control)
        left_out = positions_aside(folder_beside(self._control), self._log.folder.name)
        parts = splits(self._log.commits(first, last), first, last, control.parallelism, left_out=left_out)
        return [Split(part, control.fetches) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        expected = to_arrow_schema(self._schema, timezone="UTC")
        assert isinstance(partition, Split)
        partition.fetches.wait(sum(part.last - part.first for part in partition.slices))
        for part in partition.slices:
            yield from self._read_slice(part, expected)

    def _read_slice(self, part: Slice, expected: Any) -> Iterator[Any]:
        """The records of a slice, in batches of Arrow of the expected schema."""
        raise NotImplementedError


def _position(offset: Mapping[str, Any]) -> StreamPosition:
    return StreamPosition(**{name: value for name, value in offset.items() if name != _STARTS})


def read_stream(
    spark: SparkSession,
    kind: str,
    folder: Path,
    schema: StructType,
    *,
    reader: str,
    control: Path,
    at_cuts: bool,
    **options: str,
) -> DataFrame:
    return (
        spark.readStream.format(kind)
        .schema(schema)
        .options(path=str(folder), reader=reader, control=str(control), at_cuts=str(at_cuts).lower(), **options)
        .load()
    )
