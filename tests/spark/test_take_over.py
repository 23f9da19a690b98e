"""A pipeline whose source goes on where the checkpoint of a plain job ends: no record twice, and none missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept

from elastream.engines.spark.from_checkpoint import from_checkpoint_of
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import Topic
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.plain_checkpoint import PlainStream, read_stream
from elastream.errors import InvalidInput

Read = Callable[[SparkSession], DataFrame]


def files(folder: Path, **options: str) -> Read:
    return lambda spark: spark.readStream.options(**options).schema("n int").json(str(folder))


def put(folder: Path, *numbers: int) -> None:
    """A file for each; renamed into place, as the plain job may be looking."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        beside = folder / f".{number}"
        beside.write_text(json.dumps({"n": number}))
        beside.rename(folder / f"{number}.json")


def plain_job(spark: SparkSession, read: Read, checkpoint: Path, *, fails_at: int = -1) -> list[int]:
    """Run it over all that is there; what its sink was given. It fails in the batch with this number."""
    given: list[int] = []

    def sink(batch: DataFrame, _: int) -> None:
        found = [row.n for row in batch.collect()]
        if fails_at in found:
            raise RuntimeError("killed before the commit")
        given.extend(found)

    writer = read(spark).writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if fails_at < 0:
        query.awaitTermination()
    else:
        with pytest.raises(Exception, match="killed before the commit"):
            query.awaitTermination()
    return given


def piped(folder: Path, read: Read) -> Pipeline:
    pipeline = Pipeline("taken")

    @pipeline.source
    def numbers(spark: SparkSession) -> DataFrame:
        return read(spark)

    pipeline.keep("all", reads="numbers", folder=kept(folder, "all"))
    return pipeline


def stream_of(checkpoint: Path) -> dict[str, PlainStream]:
    return {"numbers": read_stream(from_checkpoint_of([str(checkpoint)])[0])}


def gone_on(
    spark: SparkSession, folder: Path, read: Read, streams: dict[str, PlainStream], expected: int
) -> list[Any]:
    with Running(spark, piped(folder, read), folder, take_over=streams) as running:
        running.wait_until(lambda: len(running.kept("all")) >= expected, "all is there")
        running.drain()
        found = sorted(n for (n,) in running.kept("all"))
        running.engine.halt()
        assert running.engine.accounts().differences == ()
    return found


def test_files_are_read_on_where_the_job_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    incoming, checkpoint = tmp_path / "incoming", tmp_path / "ck"
    read = files(incoming, maxFilesPerTrigger="1")
    put(incoming, *range(12))  # of which Spark puts ten into one file of its log
    assert sorted(plain_job(spark, read, checkpoint)) == list(range(12))
    put(incoming, 12)
    assert plain_job(spark, read, checkpoint, fails_at=12) == [], "this batch is begun, and not committed"
    put(incoming, 13, 14)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}

    streams = stream_of(checkpoint)
    assert streams["numbers"].unfinished
    assert gone_on(spark, tmp_path, read, streams, 3) == [12, 13, 14]
    assert {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()} == before

    put(incoming, 15)  # and on, in the folder of the run
    assert gone_on(spark, tmp_path, read, {}, 4) == [12, 13, 14, 15]


def test_what_the_source_reads_must_be_what_the_job_read(spark: SparkSession, tmp_path: Path) -> None:
    incoming, checkpoint = tmp_path / "incoming", tmp_path / "ck"
    put(incoming, 1)
    put(tmp_path / "others", 2)
    plain_job(spark, files(incoming), checkpoint)
    streams = stream_of(checkpoint)

    def refused(read: Read) -> str:
        with pytest.raises(InvalidInput) as caught:
            Running(spark, piped(tmp_path, read), tmp_path, take_over=streams).__enter__()
        return str(caught.value)

    assert f"is of other files, such as {incoming}/1.json" in refused(files(tmp_path / "others"))
    rate = lambda spark: spark.readStream.format("rate").load().select(F.col("value").cast("int").alias("n"))  # noqa: E731
    assert "'numbers' reads neither Kafka nor files, and" in refused(rate)
    both = lambda spark: files(incoming)(spark).union(files(tmp_path / "others")(spark))  # noqa: E731
    assert "reads 2 streams" in refused(both)
    assert "keeps state" in refused(lambda spark: files(incoming)(spark).dropDuplicates(["n"]))
    assert not (tmp_path / "run" / "checkpoints" / "numbers").exists(), "nothing was taken"
    put(incoming, 3)
    assert gone_on(spark, tmp_path, files(tmp_path / "inc*"), streams, 1) == [3], "a pattern is well"


def test_topics_are_read_on(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = f"taken_{tmp_path.name}".replace("-", "_")

    def read(spark: SparkSession, topic: str = topic) -> DataFrame:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
        values = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="4").load()
        return values.select(F.col("value").cast("string").cast("int").alias("n"))

    def send(first: int, last: int) -> None:
        values = spark.range(first, last).select(F.col("id").cast("string").alias("value"))
        options = {"kafka.bootstrap.servers": broker.servers, "topic": topic}
        values.write.format("kafka").mode("append").options(**options).save()

    Topic(servers=broker.servers, name=topic, partitions=3).create()
    send(0, 20)
    checkpoint = tmp_path / "ck"
    done = plain_job(spark, read, checkpoint, fails_at=19)
    send(20, 30)
    streams = stream_of(checkpoint)
    assert streams["numbers"].topics == {topic}
    rest = sorted(set(range(30)) - set(done))
    assert 0 < len(done) < 20
    assert gone_on(spark, tmp_path, read, streams, len(rest)) == rest
    other = piped(tmp_path / "b", lambda spark: read(spark, "elsewhere"))
    with pytest.raises(InvalidInput, match=f"'numbers' reads elsewhere, and .* is of the topics {topic}"):
        Running(spark, other, tmp_path / "b", take_over=streams).__enter__()
