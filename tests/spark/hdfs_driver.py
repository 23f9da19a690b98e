"""A pipeline in a folder of this machine, under a Spark whose default file system is HDFS: there to be killed.

    python hdfs_driver.py FOLDER [--master MASTER] [--without-scheme]

Numbers come as files of JSON, a third of them is left out, the others are counted by window, and the counts are
kept. It says `ready` when all queries are started. The end of its standard input, or the line `stop`, stops it
after the batches under way.

Without their scheme paths mean HDFS to this Spark. It then says what the check of folders has to say of that, and
goes on writing batches there. Before, it writes a batch whose tasks are tried twice, and says how many records it
has.
"""

from __future__ import annotations

import argparse
import os
import queue
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from driver_process import commands_given
from hadoop import HOST
from pyspark import TaskContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import records

from elastream.engines.spark import folder_witness, same_folder
from elastream.engines.spark.channels import files as files_module
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, is_local, session_settings, starting_slots
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.errors import ElastreamError

LOCAL = "local[4,3]"  # tasks are tried three times
LEFT_OUT = 3  # every so manyth
WINDOW_S = 100
BATCH_INTERVAL_S = 0.4
_MEASURE_EVERY_S = 1.0
_EXECUTOR = ExecutorOptions(cores=2, memory="512m")


def incoming(folder: Path) -> Path:
    return folder / "incoming"


def workspace(folder: Path) -> Path:
    return folder / "run"


def kept(folder: Path) -> Path:
    return folder / "kept_counts"


def pipeline(folder: Path) -> Pipeline:
    declared = Pipeline("on_hdfs")

    @declared.source
    def numbers(spark: SparkSession) -> DataFrame:
        files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        return files.json(f"file://{incoming(folder)}")

    @declared.operator(reads="numbers", parallelism=2)
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers.where(F.col("id") % LEFT_OUT != 0)

    @declared.operator(reads="passed", state_partitions=2, output_mode="update")
    def counts(passed: DataFrame) -> DataFrame:
        """With what no other records of as many have."""
        begin = F.window(F.timestamp_seconds("id"), f"{WINDOW_S} seconds").start.cast("long")
        return passed.groupBy(begin.alias("begin")).agg(
            F.count("id").alias("count"),
            F.sum("id").alias("sum"),
            F.sum(F.col("id") * F.col("id")).alias("squares"),
        )

    declared.keep("kept_counts", reads="counts", folder=kept(folder))
    return declared


def main(folder: Path, master: str, *, without_scheme: bool) -> None:
    declared = pipeline(folder)
    spark = start_session("on_hdfs", master=master, settings=_settings(folder, master, declared))
    print(f"default file system: {spark._jsc.hadoopConfiguration().get('fs.defaultFS')}", flush=True)  # type: ignore[attr-defined]
    if without_scheme:
        _write_with_retries(spark, folder)
        _take_schemes_away(spark, folder)
    engine = SparkEngine(
        declared, spark, workspace(folder), batch_interval_s=BATCH_INTERVAL_S, executors=_EXECUTOR
    )
    engine.start()
    print("ready", flush=True)
    asked = commands_given()
    while True:
        try:
            if asked.get(timeout=_MEASURE_EVERY_S).strip() == "stop":
                break
        except queue.Empty:
            for gap in engine.measure().gaps:  # deletes what was read, starts again what has failed
                print(gap, flush=True)
    engine.stop()
    spark.stop()
    print("stopped", flush=True)


def _settings(folder: Path, master: str, declared: Pipeline) -> dict[str, str]:
    temporary = folder / "temporary"  # a killed JVM leaves its temporary files behind
    temporary.mkdir(exist_ok=True)
    settings = {
        "spark.ui.port": "0",
        "spark.local.dir": str(temporary),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}",
    }
    if is_local(master):
        return settings
    return {
        **settings,
        **session_settings(_EXECUTOR, slots=starting_slots(declared)),
        "spark.yarn.jars": f"local:{_find_spark_home()}/jars/*",  # not to be sent: every node has them
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
    }


def _write_with_retries(spark: SparkSession, folder: Path) -> None:
    def stumbling(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first attempt of every task fails when its records are out."""
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            raise RuntimeError("stumbled")

    channel = FileChannel(folder / "retried")
    channel.create()
    written = channel.write(spark.range(0, 100, 1, 2).mapInArrow(stumbling, "id bigint"), 0)
    print(f"retried: {written} of {len(list(records(channel)))}", flush=True)


def _take_schemes_away(spark: SparkSession, folder: Path) -> None:
    folder_witness.PATIENCE_S = 0.0
    with_scheme, same_folder.for_spark = same_folder.for_spark, str
    try:
        same_folder.check_same_folder(spark, [folder])
    except ElastreamError as error:
        print(f"refused: {error}", flush=True)
    same_folder.for_spark = with_scheme
    files_module.for_spark = str


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--master", default=LOCAL)
    arguments.add_argument("--without-scheme", action="store_true")
    given = arguments.parse_args()
    main(given.folder, given.master, without_scheme=given.without_scheme)
