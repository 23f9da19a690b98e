"""A pipeline over numbered records, in a process that is there to be killed and started again.

    python exactly_once_driver.py FOLDER [--kafka SERVERS] [--master URL] [--state-partitions N]

It has a stateless, a keyed stateful and a joining operator, each with a sink that keeps what it gives. The
stateless one fails at numbers below 0. It says `ready` when all queries are started. Lines on its standard input
are commands: `rescale marked=3 counts=1` is answered with a line that begins with `rescaled`; `stop`, or the end
of the input, stops it after the batches under way, and it tells where every record went.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from pathlib import Path

from driver_process import commands_given, from_words
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream.dataflow import Plan
from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, session_settings, starting_slots
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.manager.decision import Decision
from elastream.manager.events import Accounted, event_to_json
from elastream.whole_files import write_json

FEED = "numbers"
SCHEMA = "id bigint"
KEYS = 7
OPERATORS = ("marked", "counts", "pairs")
BATCH_INTERVAL_S = 0.4
EXECUTOR = ExecutorOptions(cores=4, memory="512m")
_MEASURE_EVERY_S = 1.0


def pipeline(folder: Path, state_partitions: int = 2) -> Pipeline:
    """What each operator must have put out in the end follows from how many numbers there were."""
    numbered = Pipeline("exactly_once")
    numbered.feed(FEED, schema=SCHEMA)

    @numbered.operator(reads=FEED, parallelism=2)
    def marked(numbers: DataFrame) -> DataFrame:
        known = F.when(F.col("id") >= 0, F.col("id")).otherwise(F.raise_error(F.concat(F.lit("poison "), "id")))
        return numbers.select(known.cast("bigint").alias("id"), (F.col("id") % KEYS).alias("key"))

    # more instances than partitions: their state is moved
    state: dict[str, int] = {"parallelism": 2, "state_partitions": state_partitions, "max_parallelism": 4}

    @numbered.operator(reads="marked", output_mode="update", **state)
    def counts(marked: DataFrame) -> DataFrame:
        return marked.groupBy("key").count()

    @numbered.operator(reads=(FEED, "marked"), **state)
    def pairs(numbers: DataFrame, marked: DataFrame) -> DataFrame:
        return numbers.join(marked, "id")

    for operator in OPERATORS:
        numbered.keep(f"kept_{operator}", reads=operator, folder=kept(folder, operator))
    return numbered


def kept(folder: Path, operator: str) -> Path:
    return folder / f"kept_{operator}"


def told_accounts(folder: Path) -> Path:
    """Where it writes down, when it is stopped, where every record went."""
    return folder / "accounts.json"


def workspace(folder: Path) -> Path:
    return folder / "workspace"


def main(folder: Path, channels: ChannelKind, master: str | None, state_partitions: int) -> None:
    declared = pipeline(folder, state_partitions)
    on_cluster = {} if master is None else session_settings(EXECUTOR, slots=starting_slots(declared))
    temporary = folder / "temporary"  # a killed JVM leaves its temporary files behind
    temporary.mkdir(exist_ok=True)
    spark = start_session(
        "exactly_once",
        master=master or "local[4]",
        settings={
            "spark.ui.port": "0",
            "spark.local.dir": str(temporary),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}",
            **on_cluster,
        },
        jars=channels.jars(),
    )
    engine = SparkEngine(
        declared,
        spark,
        workspace(folder),
        batch_interval_s=BATCH_INTERVAL_S,
        channels=channels,
        executors=EXECUTOR,
    )
    engine.start()
    print("ready", flush=True)
    commands = commands_given()
    while True:
        try:
            verb, *changes = commands.get(timeout=_MEASURE_EVERY_S).split()
        except queue.Empty:
            engine.measure()  # deletes what was read, starts again what has failed
            continue
        if verb == "stop":
            break
        _rescale(engine, from_words(changes))
    engine.halt()
    write_json(told_accounts(folder), event_to_json(Accounted(at_s=time.time(), accounts=engine.accounts())))
    engine.stop()
    spark.stop()
    print("stopped", flush=True)


def _rescale(engine: SparkEngine, wanted: dict[str, int]) -> None:
    before = engine.plan()
    decision = Decision(number=0, at_s=time.time(), before=before, after=Plan({**before, **wanted}))
    outcome = engine.rescale(decision)
    print(f"rescaled {outcome.detail or decision} in {outcome.took_s:.2f} s", flush=True)
    if not outcome.succeeded:
        sys.exit(f"the rescale failed: {outcome.detail}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--kafka")
    arguments.add_argument("--master", help="of a cluster")
    arguments.add_argument("--state-partitions", type=int, default=2)
    given = arguments.parse_args()
    kind = Kafka(servers=given.kafka) if given.kafka else Files()
    main(given.folder, kind, given.master, given.state_partitions)
