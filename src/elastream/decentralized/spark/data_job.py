"""The data job of an instance: one Structured Streaming query over its inbox, in an application of its own.

What a batch makes of its records is collected as Arrow and handed to the scaling module, which shares it out: an
instance has few slots, as a rule one, and there is nothing to gain from letting tasks write. A batch that Spark
runs again after a kill has the same number, by which the outbox and the sinks know it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from elastream.decentralized.protocol.messages import operator_of
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder
from elastream.decentralized.spark.inbox import Lanes, Offset
from elastream.decentralized.spark.inbox_input import InboxInput, JsonInput
from elastream.decentralized.spark.plans import BatchPlans
from elastream.decentralized.spark.settings import RunSettings
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.event_time import has_watermark
from elastream.engines.spark.frames import check_frame, frame_of
from elastream.engines.spark.identity import identity_of, unique_batch
from elastream.engines.spark.jvm_lock import JvmLock
from elastream.engines.spark.lasting_checkpoint import StateFiles, mend, sync_begun, sync_committed
from elastream.engines.spark.local_paths import for_spark
from elastream.engines.spark.pipeline import UNIQUE_ID, Kind, Pipeline, PipelineStep, takes_unique_id
from elastream.engines.spark.same_folder import check_same_folder
from elastream.engines.spark.session import start_session
from elastream.errors import InvalidInput

if TYPE_CHECKING:  # it needs a client of Kafka, which not every run has
    from elastream.decentralized.spark.topic_records import TopicRecords

Send = Callable[[int, pa.Table, float], None]
"""The number of a batch, what it made, and by when that had come into the pipeline."""

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
        self,
        pipeline: Pipeline,
        run: RunFolder,
        folder: InstanceFolder,
        settings: RunSettings,
        send: Send,
        topics: TopicRecords | None = None,
    ) -> None:
        """With `topics` its records come from there, unless it reads a feed."""
        self._pipeline = pipeline
        self._step = pipeline[operator_of(folder.me)]
        self._run = run
        self._folder = folder
        self._settings = settings
        self._send = send
        self._spark: SparkSession | None = None
        self._jvm_lock: JvmLock | None = None
        self._query: StreamingQuery | None = None
        self._topics = topics
        self._inputs: tuple[InboxInput, ...] = ()
        self._topic_inputs: tuple[JsonInput, ...] = ()
        self._plans = BatchPlans(folder.plans)
        self._kept: FileChannel | None = None
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
                "spark.sql.warehouse.dir": for_spark(self._folder.path / "scratch"),
            },
            conf=self._pipeline.conf,
            packages=self._pipeline.packages,
            log=self._folder.path / "spark.log",
        )
        check_same_folder(spark, [self._folder.path])
        self._jvm_lock = JvmLock(spark, self._folder.path / "lock.jvm")
        self._jvm_lock.take()
        self._spark = spark

    @property
    def has_spark(self) -> bool:
        return self._spark is not None

    @property
    def is_running(self) -> bool:
        return self._query is not None

    @property
    def waits_for_input(self) -> bool:
        """Whether the query found nothing to read when it last looked: of a source of Spark's."""
        status = {} if self._query is None else self._query.status
        return bool(status) and not (status["isTriggerActive"] or status["isDataAvailable"])

    def start(self) -> None:
        if self._topics is not None:
            self._topics.start()
        frame = self._frame()
        check_frame(self._step, frame)
        if self._step.kind is Kind.OPERATOR and has_watermark(frame):
            raise InvalidInput(
                f"{self._step.name!r} declares a watermark, and instances that scale themselves send records "
                "along several ways that keep no order of event time: run it with `elastream run`"
            )
        mend(self._folder.checkpoint)
        self._state_files = StateFiles(self._folder.checkpoint)
        self._query = (
            frame.writeStream.queryName("data")
            .outputMode(self._step.output_mode)
            .option("checkpointLocation", for_spark(self._folder.checkpoint))
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
            return frame_of(step, spark)
        known = schemas(spark, self._pipeline, upto=step.name)
        if step.kind is Kind.FEED:
            self._inputs = (self._input(step.name, _declared(step)),)
        elif self._topics is not None:
            slots = self._settings.cores
            self._topic_inputs = tuple(JsonInput(name, known[name], slots=slots) for name in step.reads)
        else:
            self._inputs = tuple(self._input(name, known[name]) for name in step.reads)
        frames = [one.frame(spark) for one in (*self._inputs, *self._topic_inputs)]
        if step.kind is not Kind.OPERATOR:
            return frames[0]
        return frame_of(step, *frames)

    def _input(self, producer: str, schema: StructType) -> InboxInput:
        lanes = lanes_of(self._run, self._folder, self._step)[self._lane_index(producer)]
        senders = self._run.path / "instances" / producer
        return InboxInput(producer, Lanes(lanes, senders), lanes, schema, slots=self._settings.cores)

    def _lane_index(self, producer: str) -> int:
        return self._step.reads.index(producer) if self._step.reads else 0

    @property
    def session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    # In Spark's thread, for every batch

    def _write(self, frame: DataFrame, batch: int) -> None:
        checkpoint = self._folder.checkpoint
        sync_committed(checkpoint)  # of the batch before: its input may be deleted from now on
        sync_begun(checkpoint, batch)
        came_s = self._load(batch) if self._inputs or self._topic_inputs else time.time()
        if came_s is None:
            return
        step = self._step
        if step.kind is Kind.SINK and step.function is not None:
            step.function(frame, batch, **self._told_to_sink(batch))
        else:
            records = frame.toArrow()
            if step.folder is not None:
                self._keep(step.folder, records, batch)
            elif self._pipeline.readers(step.name):
                self._send(batch, records, came_s)
        if step.state_partitions is not None:
            self._state_files.sync()
        self.batches += 1
        crash_point(CrashPoint.AFTER_THE_PUBLICATION, step.name)

    def _told_to_sink(self, batch: int) -> dict[str, str]:
        return {UNIQUE_ID: unique_batch(self._folder.path, batch)} if takes_unique_id(self._step) else {}

    def _keep(self, folder: Path, records: pa.Table, batch: int) -> None:
        if self._kept is None:
            kept = FileChannel(folder, writer=identity_of(self._folder.path))
            kept.create()  # with what a killed process began, or an earlier run
            self._kept = kept
        if records.num_rows:
            self._kept.append(records, batch=batch)

    def _load(self, batch: int) -> float | None:
        """Put what this batch is to read where the query finds it; by when that had come into the pipeline, None
        if there is nothing to do."""
        loaded, came_s = self._load_topics(batch) if self._topic_inputs else self._load_lanes(batch)
        # with state a batch without records still moves watermarks and timers on
        return came_s if loaded or self._step.state_partitions is not None else None

    def _load_lanes(self, batch: int) -> tuple[int, float]:
        """How many records, and by when they had come."""
        plan = self._plans.plan(batch, self._latest)
        loaded = sum(one.load(self.session, plan.start[one.name], plan.end[one.name]) for one in self._inputs)
        came_s = [one.lanes.came_s(plan.end[one.name]) for one in self._inputs if plan.end[one.name]]
        return loaded, fmean(came_s) if came_s else time.time()

    def _load_topics(self, batch: int) -> tuple[int, float]:
        assert self._topics is not None
        found = self._topics.load(batch, self._settings.most_records)
        for one in self._topic_inputs:
            one.put_evenly(self.session, [record.value.decode() for record in found if record.sender == one.name])
        return len(found), max((record.came_s for record in found), default=time.time())

    def _latest(self, start: Mapping[str, Offset]) -> dict[str, Offset]:
        most = self._settings.most_records
        return {one.name: one.lanes.latest(start.get(one.name, {}), most) for one in self._inputs}


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
            found[name] = frame_of(step, spark).schema
        elif step.kind is Kind.OPERATOR:
            empty = [_nothing_of(spark, found[read]) for read in step.reads]
            found[name] = frame_of(step, *empty).schema
    return found


def lanes_of(run: RunFolder, folder: InstanceFolder, step: PipelineStep) -> list[Path]:
    """Where the records of an instance arrive: a folder for each operator that it reads, or that of the feed."""
    if step.kind is Kind.FEED:
        return [run.feed(step.name).parent]
    return [folder.inbox / name for name in step.reads]


def _nothing_of(spark: SparkSession, schema: StructType) -> DataFrame:
    """A stream with this schema that is never run."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.readStream.format("rate").load().select(*columns)


def _declared(step: PipelineStep) -> StructType:
    schema = StructType.fromDDL(step.schema or "")
    if not isinstance(schema, StructType):
        raise InvalidInput(f"{step.name!r}: a feed has a schema of columns, found {step.schema!r}")
    return schema
