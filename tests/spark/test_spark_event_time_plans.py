"""What is found in real plans: which columns are followed, passed on and marked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.event_time import (
    Needed,
    carried_delays,
    event_time_of,
    with_watermarks,
    without_marks,
)

_SCHEMA = StructType(
    [
        StructField("at", TimestampType()),
        StructField("text", StringType()),
        StructField("auction", IntegerType()),
    ]
)


class Inputs:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.names: dict[str, str] = {}
        self._spark, self._folder = spark, folder
        write_control(folder / "control", Control())

    def read(self, name: str) -> DataFrame:
        channel = FileChannel(self._folder / name)
        channel.create()
        self.names[str(channel.log.folder)] = name
        return channel.stream(self._spark, _SCHEMA, reader="r", control=self._folder / "control")


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    return Inputs(spark, tmp_path)


def columns(needed: frozenset[Needed]) -> set[str | None]:
    return {one.column for one in needed}


def test_a_watermark_is_traced_to_the_column_that_is_read(inputs: Inputs) -> None:
    frame = inputs.read("a").filter("auction > 1").withWatermark("at", "10 seconds").groupBy("at").count()
    assert columns(event_time_of(frame, inputs.names).followed["a"]) == {"at"}


def test_one_on_a_computed_column_is_not(inputs: Inputs) -> None:
    frame = inputs.read("a").withColumn("at", F.to_timestamp("text")).withWatermark("at", "1 second")
    found = event_time_of(frame, inputs.names)
    assert columns(found.followed["a"]) == {None}
    assert "at" not in found.passed_on["a"]


def test_columns_are_passed_on_under_their_new_names(inputs: Inputs) -> None:
    frame = inputs.read("a").select(F.col("at").alias("time"), "auction", (F.col("auction") + 1).alias("next"))
    assert event_time_of(frame, inputs.names).passed_on == {"a": {"time": "at", "auction": "auction"}}
    frame = inputs.read("a").select("at", F.upper("text").alias("text"))
    assert event_time_of(frame, inputs.names).passed_on == {"a": {"at": "at"}}


def test_a_watermark_above_a_union_is_traced_to_each_input(inputs: Inputs) -> None:
    a = inputs.read("a").select("at", "auction")
    b = inputs.read("b").select("auction", "at").filter("auction > 3")
    frame = a.unionByName(b).withWatermark("at", "10 seconds").groupBy(F.window("at", "1 minute")).count()
    found = event_time_of(frame, inputs.names)
    assert found.shared == {"a": {"at": 10_000}, "b": {"at": 10_000}}
    assert {name: columns(needed) for name, needed in found.followed.items()} == {"a": {"at"}, "b": {"at"}}
    assert found.mixed == frozenset()


def test_one_above_a_union_of_computed_columns_is_told_as_mixed(inputs: Inputs) -> None:
    b = inputs.read("b").withColumn("at", F.to_timestamp("text"))
    frame = inputs.read("a").union(b.select("at", "text", "auction")).withWatermark("at", "10 seconds")
    assert event_time_of(frame, inputs.names).mixed == {"a", "b"}


def test_each_input_of_a_join_has_its_own(inputs: Inputs) -> None:
    a = inputs.read("a").withWatermark("at", "10 seconds").alias("a")
    b = inputs.read("b").withWatermark("at", "20 seconds").alias("b")
    found = event_time_of(a.join(b, F.expr("a.auction = b.auction and a.at = b.at")), inputs.names)
    assert {name: columns(needed) for name, needed in found.followed.items()} == {"a": {"at"}, "b": {"at"}}
    assert found.shared == {}
    assert found.passed_on == {}


def test_watermarks_hold_behind_what_keeps_no_state(inputs: Inputs) -> None:
    marked = inputs.read("a").withWatermark("at", "10 seconds")
    windows = marked.groupBy(F.window("at", "1 minute"), "auction").count()
    assert carried_delays(marked.filter("auction > 1"), output_mode="append") == {"at": 10_000}
    assert carried_delays(marked.dropDuplicates(["at"]), output_mode="append") == {"at": 10_000}
    assert carried_delays(windows, output_mode="append") == {"window": 0}
    assert carried_delays(windows, output_mode="update") == {}
    other = inputs.read("b").select(F.col("at").alias("then"), F.col("auction").alias("what"))
    joined = marked.join(other.withWatermark("then", "1 second"), F.expr("at = then and auction = what"))
    assert carried_delays(joined, output_mode="append") == {}


def test_marks_are_taken_off_and_put_on_again(inputs: Inputs) -> None:
    marked = inputs.read("a").withWatermark("at", "10 seconds")
    bare = without_marks(marked.schema)
    assert [field.metadata for field in bare.fields] == [{}, {}, {}]
    again = with_watermarks(inputs.read("a"), {"at": 10_000})
    assert again.schema == marked.schema
