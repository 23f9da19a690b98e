"""A channel as Spark reads it, of each kind: every record once, in as many tasks as the control says of late."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from running import PATIENCE_S, Running, kept, wait_until, write

from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.stages import Stages

SCHEMA = "id bigint, word string"


class Reader:
    """A query that only reads a channel, and the batches that it was given."""

    def __init__(self, spark: SparkSession, channels: ChannelKind, folder: Path, *, most_records: int) -> None:
        self.channel = channels.channel(folder / "channel", "tests")
        self.channel.create()
        self.batches: dict[int, list[int]] = {}
        self._spark = spark
        self._folder = folder
        self._most_records = most_records
        self._written = 0

    def set_parallelism(self, parallelism: int) -> None:
        control = Control(parallelism=parallelism, most_records=self._most_records)
        write_control(self._folder / "control.json", control)

    def put(self, count: int) -> None:
        """So many further records, numbered, in two batches."""
        for part in (count // 2, count - count // 2):
            write(self.channel, SCHEMA, [(n, f"word{n}") for n in range(self._written, self._written + part)])
            self._written += part

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.ids) >= count, lambda: f"{count} records read, there are {len(self.ids)}")

    @property
    def ids(self) -> list[int]:
        return [number for batch in sorted(self.batches) for number in self.batches[batch]]

    @contextmanager
    def running(self) -> Iterator[str]:
        """The id of the run."""

        def take(frame: DataFrame, batch: int) -> None:
            self.batches[batch] = [row.id for row in frame.collect()]

        schema = StructType.fromDDL(SCHEMA)
        assert isinstance(schema, StructType)
        query = (
            self.channel.stream(self._spark, schema, reader="reader", control=self._folder / "control.json")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            yield str(query.runId)
        finally:
            query.stop()
            query.awaitTermination(int(PATIENCE_S))


def test_a_batch_has_as_many_tasks_as_the_control_says_of_late(
    spark: SparkSession, channels: ChannelKind, tmp_path: Path
) -> None:
    stages = Stages(RestApi(str(spark.sparkContext.uiWebUrl), spark.sparkContext.applicationId))
    reader = Reader(spark, channels, tmp_path, most_records=10_000)
    reader.set_parallelism(1)
    tasks: list[set[int]] = []
    with reader.running() as run:
        for round_, parallelism in enumerate((1, 5, 2)):
            reader.set_parallelism(parallelism)
            seen = set(reader.batches)
            reader.put(100)
            reader.wait_for(100 * (round_ + 1))
            done = [batch for batch in reader.batches if batch not in seen and reader.batches[batch]]

            def known(batches: list[int] = done) -> bool:
                stages.look()
                return all(stages.work(run, batch) for batch in batches)

            wait_until(known, "the stages of the batches are known")
            tasks.append({work.tasks for batch in done if (work := stages.work(run, batch))})
    assert tasks == [{1}, {5}, {2}]
    assert reader.ids == list(range(300)), "every record once, in order"


def test_no_batch_is_larger_than_the_control_says(
    spark: SparkSession, channels: ChannelKind, tmp_path: Path
) -> None:
    reader = Reader(spark, channels, tmp_path, most_records=30)
    reader.set_parallelism(3)
    reader.put(100)
    with reader.running():
        reader.wait_for(100)
    assert reader.ids == list(range(100))
    assert max(map(len, reader.batches.values())) == 30


def test_it_goes_on_where_it_stopped_and_tells_what_it_is_done_with(
    spark: SparkSession, channels: ChannelKind, tmp_path: Path
) -> None:
    reader = Reader(spark, channels, tmp_path, most_records=1_000)
    reader.set_parallelism(2)
    for total in (40, 90):
        reader.put(total - len(reader.ids))
        with reader.running():
            reader.wait_for(total)
            wait_until(lambda: reader.channel.log.pending("reader") == 0, "what was read is acknowledged")
        assert reader.channel.forget(["reader"]) > 0
    assert reader.ids == list(range(90))


ALL_TYPES: dict[str, list[Any]] = {
    "a_long bigint": [1, None],
    "an_int int": [2, None],
    "a_byte tinyint": [-3, None],
    "a_double double": [0.5, None],
    "an_infinite double": [-math.inf, None],
    "a_bool boolean": [True, None],
    "a_string string": ["ö", None],
    "a_binary binary": [b"\x00\xff", None],
    "a_decimal decimal(20,3)": [Decimal("12345678901234567.125"), None],
    "a_date date": [date(2026, 11, 15), None],
    "a_time timestamp": [datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC), None],
    "a_local_time timestamp_ntz": [datetime(1950, 1, 1, 2, 30), None],
    "a_list array<int>": [[1, None, 3], None],
    "a_map map<string,bigint>": [[("a", 1), ("b", None)], None],
    "a_struct struct<x:int,y:array<timestamp>>": [{"x": 1, "y": [datetime(2026, 1, 1, tzinfo=UTC)]}, None],
}


def test_records_of_all_types_come_through_two_channels(
    spark: SparkSession, channels: ChannelKind, tmp_path: Path
) -> None:
    pipeline = Pipeline("types")
    pipeline.feed("everything", schema=", ".join(ALL_TYPES))

    @pipeline.operator(reads="everything")
    def passed(everything: DataFrame) -> DataFrame:
        return everything

    @pipeline.operator(reads="passed")
    def counted(passed: DataFrame) -> DataFrame:
        """Columns that can have no null: not what a file says of its columns."""
        return passed.selectExpr("*", "1L as one", "named_struct('one', 1) as struct_of_one")

    pipeline.keep("kept", reads="counted", folder=kept(tmp_path, "kept"))
    rows = list(zip(*ALL_TYPES.values(), strict=True))
    with Running(spark, pipeline, tmp_path, channels=channels) as running:
        running.put("everything", rows)
        running.drain()
        found = running.kept("kept")
    assert found == [(*row, 1, {"one": 1}) for row in rows]


def test_an_empty_channel_is_waited_for(spark: SparkSession, channels: ChannelKind, tmp_path: Path) -> None:
    reader = Reader(spark, channels, tmp_path, most_records=10)
    reader.set_parallelism(3)
    with reader.running():
        wait_until(lambda: (tmp_path / "checkpoint" / "commits").exists(), "the query has begun")
        reader.put(4)
        reader.wait_for(4)
    assert reader.ids == [0, 1, 2, 3]
