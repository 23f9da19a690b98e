"""The inbox of a decentralized instance as the input of a query: all types, several tasks, where it goes on."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from running import wait_until, write

from elastream.decentralized.spark.inbox import Lanes
from elastream.decentralized.spark.inbox_input import InboxInput
from elastream.decentralized.spark.plans import BatchPlans
from elastream.engines.spark.channels.files import FileChannel

SCHEMA = (
    "id bigint, text string, at timestamp, local timestamp_ntz, day date, price decimal(20,4), ratio double, "
    "raw binary, tags array<string>, place struct<lon: double, lat: double>, counts map<string, int>, yes boolean"
)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        'a "quoted" line\nand ünïcode',
        datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, 0, 5),
        date(2026, 11, 15),
        Decimal("1234567890123456.7890"),
        0.1,
        b"\x00\xff",
        ["x", "y"],
        {"lon": -73.9, "lat": 40.7},
        [("k", 1)],
        True,
    ),
    (2, *([None] * 11)),
]


def test_what_senders_put_in_comes_out_as_it_was_and_in_as_many_tasks_as_there_are_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType)
    for sender, rows in (("0", ROWS), ("0.1", [(3, *ROWS[0][1:])])):
        lane = FileChannel(tmp_path / "lanes" / sender)
        lane.create()
        write(lane, SCHEMA, rows)
    lanes = Lanes(tmp_path / "lanes", tmp_path / "instances")
    inbox, plans = InboxInput("up", lanes, tmp_path / "lanes", schema, slots=2), BatchPlans(tmp_path / "plans")
    found: dict[int, list[Any]] = {}
    tasks: dict[int, int] = {}

    def take(frame: DataFrame, batch: int) -> None:
        plan = plans.plan(batch, lambda start: {"up": lanes.latest(start.get("up", {}), 100)})
        if inbox.load(spark, plan.start["up"], plan.end["up"]):
            tasks[batch] = frame.rdd.getNumPartitions()
            found[batch] = frame.toArrow().to_pylist()

    def run_until(batches: int) -> None:
        query = (
            inbox.frame(spark)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            wait_until(lambda: len(found) >= batches or query.exception() is not None, lambda: str(found))
            assert query.exception() is None
        finally:
            query.stop()

    run_until(1)
    rows = sorted((row for batch in found.values() for row in batch), key=lambda row: row["id"])
    names = schema.fieldNames()
    assert [tuple(row[name] for name in names) for row in rows] == [*ROWS, (3, *ROWS[0][1:])]
    assert set(tasks.values()) == {2}
    write(FileChannel(tmp_path / "lanes" / "0"), SCHEMA, [(4, *ROWS[1][1:])])
    run_until(2)
    assert [row["id"] for row in found[max(found)]] == [4], "it goes on where it was"
