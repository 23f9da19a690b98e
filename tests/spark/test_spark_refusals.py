"""Operators that cannot run as declared, and folders that are not theirs: refused before anything runs."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import BATCH_INTERVAL_S, Running, kept

from elastream.engines.spark import jvm_lock
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.run import read_pipeline
from elastream.errors import ElastreamError, InvalidInput


def pipeline_with(function: Callable[..., Any], *, name: str = "p", **options: Any) -> Pipeline:
    pipeline = Pipeline(name)
    pipeline.feed("numbers", schema="id bigint, key bigint")

    def step(numbers: DataFrame) -> Any:
        return function(numbers)

    pipeline.operator(reads="numbers", **options)(step)
    return pipeline


def refused(spark: SparkSession, pipeline: Pipeline, folder: Path) -> str:
    engine = SparkEngine(pipeline, spark, folder / "run", batch_interval_s=BATCH_INTERVAL_S)
    with pytest.raises(InvalidInput) as error:
        engine.start()
    assert not [query.name for query in spark.streams.active], "nothing was left running"
    return str(error.value)


@pytest.mark.parametrize(("found", "name"), [(None, "NoneType"), (3, "int"), ("words", "str")])
def test_an_operator_returns_a_dataframe(spark: SparkSession, tmp_path: Path, found: Any, name: str) -> None:
    said = refused(spark, pipeline_with(lambda numbers: found), tmp_path)
    assert said == f"'step' must return a DataFrame, found {name}"


def test_an_operator_returns_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    said = refused(spark, pipeline_with(lambda numbers: spark.range(3)), tmp_path)
    assert said == "'step' must return a streaming DataFrame, found one that is not"


STATEFUL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "Aggregate": lambda numbers: numbers.groupBy("key").count(),
    "Deduplicate": lambda numbers: numbers.dropDuplicates(["key"]),
    "Distinct": lambda numbers: numbers.sparkSession.sql("SELECT DISTINCT key FROM {numbers}", numbers=numbers),
    "GlobalLimit": lambda numbers: numbers.limit(5),
    "Join": lambda numbers: numbers.join(numbers.withColumnRenamed("key", "other"), "id"),
}


@pytest.mark.parametrize("kind", STATEFUL)
def test_state_that_is_not_declared(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    said = refused(spark, pipeline_with(STATEFUL[kind], output_mode="update"), tmp_path)
    assert said == f"'step' keeps state ({kind}): declare its state_partitions, for example 12"


def test_state_in_two_places(spark: SparkSession, tmp_path: Path) -> None:
    def twice(numbers: DataFrame) -> DataFrame:
        return numbers.dropDuplicates(["id"]).groupBy("key").count()

    said = refused(spark, pipeline_with(twice, state_partitions=4, output_mode="update"), tmp_path)
    assert said.startswith("'step' keeps state in 2 places (Deduplicate, Aggregate)")


def test_state_that_is_declared_but_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    said = refused(spark, pipeline_with(lambda numbers: numbers, state_partitions=4), tmp_path)
    assert said == "'step' has state_partitions, but keeps no state"


def test_a_join_with_a_table_keeps_no_state(spark: SparkSession, tmp_path: Path) -> None:
    names = spark.createDataFrame([(0, "even"), (0, "zero"), (1, "odd")], "key bigint, name string")
    counted = names.groupBy("key").agg(F.count("*").alias("names"))
    pipeline = pipeline_with(lambda numbers: numbers.join(counted, "key").select("id", "names"))
    pipeline.keep("all", reads="step", folder=kept(tmp_path, "all"))
    with Running(spark, pipeline, tmp_path) as running:
        running.put("numbers", [(number, number % 2) for number in range(10)])
        running.drain()
        assert sorted(running.kept("all")) == [(number, 1 + (number + 1) % 2) for number in range(10)]


def test_a_schema_that_changed_since_the_checkpoint_and_a_folder_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = pipeline_with(lambda numbers: numbers)
    with Running(spark, pipeline, tmp_path) as running:
        running.put("numbers", [(1, 1)])
        running.drain()
    other = pipeline_with(lambda numbers: numbers, name="another")
    assert "holds the checkpoints of the pipeline 'p', not of 'another'" in refused(spark, other, tmp_path)
    changed = pipeline_with(lambda numbers: numbers.select("key"))
    said = refused(spark, changed, tmp_path)
    assert "what 'step' puts out has changed" in said
    assert "it was struct<id:bigint,key:bigint>, now it is struct<key:bigint>" in said
    with Running(spark, pipeline, tmp_path) as running:  # nothing was lost, and nothing is locked
        running.put("numbers", [(2, 2)])
        running.drain()
        assert running.workspace.channel("numbers").log.pending("step") == 0


def test_the_spark_of_an_earlier_run_that_is_still_at_work_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill of the Python process alone; another process sees the lock of the JVM."""
    pipeline = pipeline_with(lambda numbers: numbers)
    path = tmp_path / "run" / "lock.jvm"
    held = Running(spark, pipeline, tmp_path)
    held.engine.start()
    with path.open("r+") as file, pytest.raises(OSError, match="temporarily unavailable"):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    monkeypatch.setattr(jvm_lock, "_PATIENCE_S", 0.5)
    with pytest.raises(ElastreamError, match="the Spark of an earlier run is still at work here"):
        jvm_lock.JvmLock(spark, path).take()
    held.engine.stop()
    again = jvm_lock.JvmLock(spark, path)
    again.take()
    again.release()


_FILE = """
from pyspark.sql import functions as F
from elastream.engines.spark.pipeline import Pipeline

pipeline = Pipeline("shouting")
pipeline.feed("words", schema="word string")

def shout(word):
    return word.upper() + "!"

@pipeline.operator(reads="words")
def shouted(words):
    return words.select(F.udf(shout)("word").alias("word"))
"""


def test_functions_of_a_pipeline_file_are_found_by_the_python_workers(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shouting_pipeline.py").write_text(_FILE)
    pipeline = read_pipeline(tmp_path / "shouting_pipeline.py").pipeline
    pipeline.keep("all", reads="shouted", folder=kept(tmp_path, "all"))
    with Running(spark, pipeline, tmp_path) as running:
        running.put("words", [("hey",), ("you",)])
        running.drain()
        assert running.kept("all") == [("HEY!",), ("YOU!",)]
