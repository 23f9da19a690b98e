"""A pipeline is started on a cluster of which some workers see other folders: an application of its own.

    python same_folder_story.py MASTER FOLDER

Prints as JSON what became of each of three starts: with the run's folder, the folder of a sink and none in a place
that a worker sees otherwise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from running import BATCH_INTERVAL_S

from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, session_settings, starting_slots
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.errors import ElastreamError

SHARED, ELSEWHERE = "shared", "elsewhere"
EXECUTOR = ExecutorOptions(cores=1, memory="512m")


def pipeline(sink: Path) -> Pipeline:
    """Two slots: one on each of two executors."""
    declared = Pipeline("p")
    declared.feed("numbers", schema="id bigint")

    @declared.operator(reads="numbers")
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers

    declared.keep("all", reads="passed", folder=sink)
    return declared


def main(master: str, folder: Path) -> None:
    shared, elsewhere = folder / SHARED, folder / ELSEWHERE
    settings = session_settings(EXECUTOR, slots=starting_slots(pipeline(shared))) | {"spark.ui.port": "0"}
    spark = start_session("same_folder", master=master, settings=settings)
    told = {}
    for name, run, sink in (
        ("run", elsewhere / "run", shared / "kept1"),
        ("sink", shared / "run2", elsewhere / "kept"),
        ("none", shared / "run3", shared / "kept3"),
    ):
        engine = SparkEngine(pipeline(sink), spark, run, batch_interval_s=BATCH_INTERVAL_S, executors=EXECUTOR)
        try:
            engine.start()
        except ElastreamError as error:
            told[name] = str(error)
        else:
            told[name] = "started"
            engine.stop()
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
