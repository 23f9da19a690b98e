"""The data job of an instance: one Structured Streaming query over its inbox, in an application of its own.

What a batch makes of its records is collected as Arrow and handed to the scaling module, which shares it out: an
instance has few slots, as a rule one, and there is nothing to gain from letting tasks write. A batch that Spark
runs again after a kill has the same number, by which the outbox and the sinks know it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from elastream.decentralized.messages import operator_of
from elastream.engines.decentralized.folders import InstanceFolder, RunFolder
from elastream.engines.decentralized.inbox_source import InboxSource, read_inbox
from elastream.engines.decentralized.settings import RunSettings
from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.engine import check_frame, result_of
from elastream.engines.spark.jvm_lock import JvmLock
from elastream.engines.spark.pipeline import Kind, Pipeline, Step
from elastream.engines.spark.session import start_session
from elastream.errors import InvalidInput

FEED_READER = "source"
Send = Callable[[int, pa.Table], None]

# many small JVMs on few cores: no second compiler, no threads for collecting garbage, no web server
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:CICompilerCount=1 -Xss512k -XX:-UsePerfData"
_SPARK = {
    "spark.driver.defaultJavaOptions": _JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling costs more than such small batches gain
    "spark.python.worker.reuse": "true",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


class DataJob:
    def __init__(
        self, pipeline: Pipeline, run: RunFolder, folder: InstanceFolder, settings: RunSettings, send: Send
    ) -> None:
        self._pipeline = pipeline
        self._step = pipeline[operator_of(folder.me)]
        self._run = run
        self._folder = folder
        self._settings = settings
        self._send = send
        self._spark: SparkSession | None = None
        self._jvm_lock: JvmLock | None = None
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self.batches = 0

    def start_spark(self) -> None:
        """Takes seconds. Waits until the JVM of an earlier start, which may outlive a kill by a moment, is
        gone."""
        spark = start_session(
            self._folder.me,
            master=f"local[{self._settings.cores}]",
            settings={
                **_SPARK,
                "spark.driver.memory": self._settings.memory,
                "spark.local.dir": str(self._folder.path / "scratch"),
                "spark.sql.warehouse.dir": str(self._folder.path / "scratch"),
            },
            log=self._folder.path / "spark.log",
        )
        spark.dataSource.register(InboxSource)
        self._jvm_lock = JvmLock(spark, self._folder.path / "lock.jvm")
        self._jvm_lock.take()
        self._spark = spark

    @property
    def has_spark(self) -> bool:
        return self._spark is not None

    @property
    def is_running(self) -> bool:
        return self._query is not None

    def start(self) -> None:
        frame = self._frame()
        check_frame(self._step, frame)
        self._query = (
            frame.writeStream.queryName("data")
            .outputMode(self._step.output_mode)
            .option("checkpointLocation", str(self._folder.checkpoint))
            .foreachBatch(self._write)
            .trigger(processingTime=f"{round(self._settings.batch_interval_s * 1000)} milliseconds")
            .start()
        )

    def failure(self) -> str | None:
        """What the query died of; it can be started again."""
        if self._query is None or self._query.isActive:
            return None
        error = self._query.exception()
        self._query = None
        return "it ended without an error" if error is None else str(error)

    def stop(self) -> None:
        """In the middle of a batch, if need be: it is run again when the instance comes back."""
        self._stopping.set()
        if self._query is not None:
            self._query.stop()
            self._query = None

    def close(self) -> None:
        self.stop()
        if self._jvm_lock is not None:
            self._jvm_lock.release()
        if self._spark is not None:
            self._spark.stop()

    # The query

    def _frame(self) -> DataFrame:
        step, spark = self._step, self.session
        if step.kind is Kind.SOURCE:
            assert step.function is not None
            return result_of(step, step.function(spark))
        if step.kind is Kind.FEED:
            return self._feed(step)
        inputs = [self._input(name) for name in step.reads]
        if step.kind is Kind.SINK:
            return inputs[0]
        assert step.function is not None
        return result_of(step, step.function(*inputs))

    def _feed(self, step: Step) -> DataFrame:
        control = self._folder.path / "control.json"
        write_control(control, Control(parallelism=1, most_records=100 * self._settings.most_records))
        channel = FileChannel(self._run.feed(step.name))
        channel.log.make_folders()
        return channel.stream(self.session, _declared(step), reader=FEED_READER, control=control)

    def _input(self, producer: str) -> DataFrame:
        schema = schemas(self.session, self._pipeline, upto=self._step.name)[producer]
        lanes, senders = self._folder.inbox / producer, self._run.path / "instances" / producer
        return read_inbox(
            self.session,
            lanes,
            senders,
            schema,
            most_records=self._settings.most_records,
            slots=self._settings.cores,
        )

    @property
    def session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    # In Spark's thread, for every batch

    def _write(self, frame: DataFrame, batch: int) -> None:
        step = self._step
        if step.kind is Kind.SINK and step.function is not None:
            step.function(frame, batch)
        else:
            records = frame.toArrow()
            if step.folder is not None:
                _keep(step.folder, records, batch)
            elif self._pipeline.readers(step.name):
                self._send(batch, records)
        self.batches += 1
        crash_point(CrashPoint.AFTER_THE_PUBLICATION, step.name)


def schemas(spark: SparkSession, pipeline: Pipeline, *, upto: str) -> Mapping[str, StructType]:
    """What every operator before this one puts out: found out without reading anything."""
    found: dict[str, StructType] = {}
    for name in pipeline.graph().order:
        if name == upto:
            break
        step = pipeline[name]
        if step.kind is Kind.FEED:
            found[name] = _declared(step)
        elif step.kind is Kind.SOURCE:
            assert step.function is not None
            found[name] = result_of(step, step.function(spark)).schema
        elif step.kind is Kind.OPERATOR:
            assert step.function is not None
            empty = [_nothing_of(spark, found[read]) for read in step.reads]
            found[name] = result_of(step, step.function(*empty)).schema
    return found


def _nothing_of(spark: SparkSession, schema: StructType) -> DataFrame:
    """A stream with this schema that is never run."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.readStream.format("rate").load().select(*columns)


def _declared(step: Step) -> StructType:
    schema = StructType.fromDDL(step.schema or "")
    if not isinstance(schema, StructType):
        raise InvalidInput(f"{step.name!r}: a feed has a schema of columns, found {step.schema!r}")
    return schema


def _keep(folder: Path, records: pa.Table, batch: int) -> None:
    channel = FileChannel(folder)
    channel.create()
    if records.num_rows:
        channel.append(records, batch=batch)
