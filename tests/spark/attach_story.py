"""An unmodified streaming job on a standalone cluster, attached: it starts with all executors and is sized.

    python attach_story.py MASTER FOLDER

In the end it prints as JSON what it saw.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import elastream
from elastream.manager.events import Acted, Decided, Proposed

_PATIENCE_S = 400.0
ROWS = 10
SLEEP_MS = 10


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("attached")
    settings = {
        "spark.ui.port": "0",
        "spark.executor.cores": "1",
        "spark.executor.instances": "4",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def query(spark: SparkSession, folder: Path, *, every: str = "5 seconds") -> Any:
    """Of 30 s that a batch may take, its rows wait for 3 s: one executor is enough, also on a busy machine."""
    rows = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", ROWS)
        .option("numPartitions", 8)
        .load()
        .selectExpr("value", f"reflect('java.lang.Thread', 'sleep', cast({SLEEP_MS} as bigint)) AS slept")
    )
    writer = rows.writeStream.queryName("values").format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime=every).start()


class Story:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.events: list[Any] = []
        self.seen: dict[str, Any] = {}

    def up(self) -> int:
        return int(self.spark.sparkContext._jsc.sc().getExecutorIds().size())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline_s:
                told = [str(event) for event in self.events[-6:]]
                raise AssertionError(f"{what}: {self.up()} executors, {told}")
            time.sleep(0.2)

    def acted(self) -> list[Any]:
        return [event for event in self.events if isinstance(event, Acted)]

    def tell(self) -> None:
        self.until(lambda: self.up() == 4, "four executors at the start")
        running = query(self.spark, self.folder)
        attached = elastream.attach(
            self.spark,
            latency="30 s",
            max_executors=4,
            folder=self.folder / "run",
            knobs={"interval": "5 s", "warm_up_intervals": 0, "scale_down_delay": "10 s"},
            on_event=self.events.append,
        )
        self.until(lambda: bool(self.acted()) and self.up() < 4, "fewer executors")
        self.seen["sized"] = self.up()
        batches = running.lastProgress["batchId"]
        self.until(lambda: running.lastProgress["batchId"] >= batches + 2, "the job goes on")
        self.seen["reasons"] = [
            str(reason)
            for event in self.events
            if isinstance(event, Proposed)
            for reason in event.proposal.advice["executors"].reasons
        ][-3:]
        self.seen["decided"] = [str(event.decision) for event in self.events if isinstance(event, Decided)]
        attached.detach()
        self.until(lambda: self.up() == 4, "four executors again")
        self.seen["is active"] = running.isActive
        running.stop()


def main(master: str, folder: str) -> None:
    spark = session(master)
    spark.sparkContext.setLogLevel("ERROR")
    story = Story(spark, Path(folder))
    story.tell()
    values = [row.value for row in spark.read.parquet(str(Path(folder) / "out")).select("value").collect()]
    story.seen["rows"], story.seen["distinct"] = len(values), len(set(values))
    story.seen["highest"] = max(values)
    spark.stop()
    print(json.dumps(story.seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
