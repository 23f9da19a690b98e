"""One step of a pipeline as one Structured Streaming query, and how its parallelism is changed while it runs.

An operator's parallelism is a number in its control file, and the next batch has it: nothing is restarted. The
tasks of a stateless one are the splits of its input channels. Those of a stateful one are its state partitions,
put together by `coalesce` on the frame of each batch, just before it is written: it is no part of the plan of
the query, which Spark fixes at its start. Only for more tasks than partitions is the query stopped, right after
a batch has committed; its state is moved (`state.py`), and it is started again from its checkpoint. The others
go on.

A batch is written where only its own attempt writes, and then published in one rename. Should the driver die in
between, Spark runs the batch again with the same id; if it was published already its plan is run for the sake of
its state, and nothing is published a second time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from elastream.engines.spark.batch_size import REMEMBERED, FullBatch, at_most, next_size
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.control import Control, read_control, write_control
from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.lasting_checkpoint import StateFiles, mend, sync_begun
from elastream.engines.spark.pipeline import UNIQUE_ID, PipelineStep, takes_unique_id
from elastream.engines.spark.state import (
    RepartitionRefused,
    WantedPartitions,
    look,
    read_wanted,
    repartition,
    write_wanted,
)
from elastream.engines.spark.watermark_keeper import WatermarkKeeper, keeper_of
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError

_log = logging.getLogger(__name__)

_COMMIT_TIMEOUT_S = 60.0
_TOLD_TIMEOUT_S = 3.0
_POLL_S = 0.005
_HOLD_POLL_S = 0.05
_MOST_ATTEMPTS = 5  # at a batch: a Python worker that does not come up in ten seconds fails it, on a busy machine
_starting = threading.Lock()  # the number of state partitions is a setting of the session, which all queries share


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a batch put out, and how long its readers kept it from doing so."""

    records: int
    held_back_s: float


class StepQuery:
    def __init__(
        self,
        spark: SparkSession,
        step: PipelineStep,
        workspace: Workspace,
        *,
        build: Callable[[], DataFrame],
        output: DurableChannel | None,
        cut_by: str | None,
        readers: tuple[str, ...],
        batch_interval_s: float,
        longest_batch_s: float,
        channel_bound: int | None,
    ) -> None:
        self.step = step
        self.written: dict[int, Written] = {}
        """By batch, until someone takes them away."""
        self._spark = spark
        self._workspace = workspace
        self._build = build
        self._output = output
        self._cut_by = cut_by
        self._wants_unique_id = takes_unique_id(step)
        self._readers = readers
        self._batch_interval_s = batch_interval_s
        self._longest_batch_s = longest_batch_s
        self._channel_bound = channel_bound
        self.own_batch: Callable[[DataFrame], None] = lambda frame: None
        """Where it has executors of its own: sees to it that a batch runs there."""
        self.failures = 0
        """In a row, without a batch between them."""
        self.starts = 0
        """How often it was started."""
        self.batches = 0
        """That were done since the run began."""
        self.batch_begun: int | None = None
        """The newest since it was started."""
        self._beginning = threading.Event()
        """Meanwhile one query has ended and the next is not there: who looks must not call that a failure."""
        self._query: StreamingQuery | None = None
        self._ended_progress: list[StreamingQueryProgress] = []
        """Of queries that another one has followed, until someone has taken it in."""
        self._stopping = threading.Event()
        self._batch_ended: int | None = None
        self._batch_running = threading.Event()
        self._lock = threading.Lock()
        """Spark's thread and the one of the manager change the control, and count the waiting."""
        self._held_back_s = 0.0
        self._holding_since: float | None = None
        self._full: deque[FullBatch] = deque(maxlen=REMEMBERED)
        self._state_files = StateFiles(workspace.checkpoint(step.name))
        """Of the run: the next one may write some of them again."""
        self._watermarks: WatermarkKeeper | None = None
        """Of the run, where its plan has several."""
        self.state_can_move = workspace.state_folder is None
        """As far as is known: Spark refuses it for some operators, but only when asked."""
        self._not_started: str | None = None
        """Why it could not be started the last time."""
        self._not_written: str | None = None
        """Why its last batch failed, where that is a sentence of ours: Spark puts it in the middle of its own."""

    @property
    def query(self) -> StreamingQuery:
        if self._query is None:
            raise ElastreamError(f"{self.step.name!r} is not running")
        return self._query

    def recent_progress(self) -> list[StreamingQueryProgress]:
        """What Spark tells of recent batches, those before a restart included until they are forgotten."""
        return [*self._ended_progress, *self.query.recentProgress]

    def forget_ended(self) -> None:
        """Someone has taken in what was told of queries before this one."""
        self._ended_progress = []

    @property
    def parallelism(self) -> int:
        return read_control(self._workspace.control(self.step.name)).parallelism

    @property
    def held_back_s(self) -> float:
        """How long it was kept from writing by readers that lag behind, in all and up to now."""
        with self._lock:
            now = time.monotonic()
            return self._held_back_s + (0.0 if self._holding_since is None else now - self._holding_since)

    @property
    def state_partitions(self) -> int | None:
        """As many as its state has, or will have once it is started."""
        wanted = read_wanted(self._workspace.state(self.step.name))
        return self.step.state_partitions if wanted is None else wanted.partitions

    def start(self) -> None:
        self._beginning.set()
        self.starts += 1
        if mended := mend(self._workspace.checkpoint(self.step.name)):
            _log.warning("%s: torn by a kill or power loss, and run again: %s", self.step.name, ", ".join(mended))
        try:
            if self.step.state_partitions is not None:
                self._settle_state()
            self._begin()
        except ElastreamError as error:
            self._not_started = str(error)
            raise
        finally:
            self._beginning.clear()
        self._not_started = None

    def _begin(self, *, once: bool = False) -> None:
        self._stopping.clear()
        self._batch_ended = self._not_written = self.batch_begun = None
        self._state_files = StateFiles(self._workspace.checkpoint(self.step.name))
        frame = self._build()
        if self.step.state_partitions is not None:
            if not once:  # the batch that is to be finished has its offsets
                self._change_control(lambda control: replace(control, starts=control.starts + 1))
            self._keep_watermarks(frame)
        writer = (
            frame.writeStream.queryName(self.step.name)
            .outputMode(self.step.output_mode)
            .option("checkpointLocation", self._workspace.checkpoint_for_spark(self.step.name))
            .foreachBatch(self._write)
        )
        if once:
            writer = writer.trigger(once=True)
        else:
            writer = writer.trigger(processingTime=f"{round(self._batch_interval_s * 1000)} milliseconds")
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.step.name)
        with _starting:
            if self.step.state_partitions is not None:
                self._spark.conf.set("spark.sql.shuffle.partitions", str(self.state_partitions))
            if self._query is not None:
                self._ended_progress += self._query.recentProgress
            self._query = writer.start()

    def _keep_watermarks(self, frame: DataFrame) -> None:
        if self._watermarks is not None:
            self._watermarks.close()
        path = self._workspace.watermarks(self.step.name)
        self._watermarks = keeper_of(self._spark, self.step.name, frame, path)

    def _settle_state(self) -> None:
        """Move the state, if it does not have the partitions that it is to have."""
        checkpoint = self._workspace.checkpoint(self.step.name)
        found = look(checkpoint)
        if found.unfinished is not None:
            repartition(self._spark, checkpoint, found.unfinished)
            found = look(checkpoint)
        wanted = self.state_partitions
        if wanted is None or found.partitions in (None, wanted):  # a state that is yet to come begins as wanted
            return
        if found.open_batch is not None:
            self._finish_batch()
        crash_point(CrashPoint.REPARTITION_WANTED, self.step.name)
        try:
            if self._workspace.state_folder:
                raise RepartitionRefused(f"it lies in {self._workspace.state_folder.url}, where it is not moved")
            repartition(self._spark, checkpoint, wanted)
        except RepartitionRefused as error:
            raise RepartitionRefused(
                f"{found.partitions} state partitions cannot become {wanted}: {error}"
            ) from error
        _log.info("moved the state of %r from %s to %s partitions", self.step.name, found.partitions, wanted)
        crash_point(CrashPoint.REPARTITION_DONE, self.step.name)

    def _finish_batch(self) -> None:
        """Run the batch that was begun and not committed, and no other: without it the state is not whole."""
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            self._begin(once=True)
            self._stopping.set()  # it is not held back by its readers
            try:
                self.query.awaitTermination()
            except StreamingQueryException as error:
                if attempt == _MOST_ATTEMPTS:
                    reason = str(error)[:300]
                    raise ElastreamError(f"the batch before moving the state failed: {reason}") from error
            else:
                return

    def wait_until_begun(self) -> None:
        """Wait until its sources are there, or it has failed."""
        while self.query.isActive and self.query.status["message"].startswith("Initializing"):
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop right after a batch has committed: one that is interrupted in the middle costs seconds later."""
        if self._query is None:
            return
        self._stopping.set()
        deadline = time.monotonic() + _COMMIT_TIMEOUT_S
        while self._query.isActive and time.monotonic() < deadline and not self._is_committed():
            time.sleep(_POLL_S)
        deadline = min(deadline, time.monotonic() + _TOLD_TIMEOUT_S)
        while self._query.isActive and time.monotonic() < deadline and not self._is_told():
            time.sleep(_POLL_S)
        self._query.stop()

    def failure(self) -> str | None:
        """What a query that ended by itself, or could not be started, died of; the first line says most."""
        if self._beginning.is_set():
            return None
        if self._not_started is not None:
            return self._not_started
        if self._query is None or self._query.isActive or self._stopping.is_set():
            return None
        error = self._query.exception()
        told = "it ended without an error" if error is None else str(error)
        return told if self._not_written is None else f"{self._not_written}\n{told}"

    def is_waiting(self) -> bool:
        """Whether it runs, and has nothing to do: its sources were asked, and answered."""
        query = self._query
        return query is not None and query.isActive and query.status["message"].startswith("Waiting")

    def rescale(self, parallelism: int, state_partitions: int | None = None) -> None:
        """To so many instances from the next batch on, and where given to as many partitions of the state."""
        declared, before = self.step.state_partitions, self.parallelism
        if declared is None or state_partitions in (None, self.state_partitions):
            self._set_parallelism(parallelism)
            return
        assert state_partitions is not None
        # before the control: whoever finds only this has more partitions than it needs, and nothing is wrong
        path = self._workspace.state(self.step.name)
        write_wanted(path, WantedPartitions(declared=declared, partitions=state_partitions))
        self._set_parallelism(parallelism)
        self.stop()
        try:
            self.start()
        except RepartitionRefused:
            self.keep_state()
            self._set_parallelism(before)
            self.start()
            raise

    def set_fetches(self, fetches: Fetches) -> None:
        """What its tasks wait for from the next batch on."""
        self._change_control(lambda control: replace(control, fetches=fetches))

    def keep_state(self) -> None:
        """Go on with the partitions that the state has, and not more instances: Spark cannot move it."""
        found = look(self._workspace.checkpoint(self.step.name)).partitions
        assert found is not None
        assert self.step.state_partitions is not None
        self.state_can_move = False
        path = self._workspace.state(self.step.name)
        write_wanted(path, WantedPartitions(declared=self.step.state_partitions, partitions=found))
        self._change_control(lambda control: replace(control, parallelism=min(control.parallelism, found)))

    def _set_parallelism(self, parallelism: int) -> None:
        self._change_control(
            lambda control: replace(
                control,
                parallelism=parallelism,
                most_records=at_most(control.most_records * parallelism / control.parallelism),
            )
        )
        self._full.clear()  # with other instances it took another time
        crash_point(CrashPoint.RESCALED, self.step.name)

    def _is_committed(self) -> bool:
        """Whether no batch runs, and the last one that ran is in Spark's own log of what is done."""
        if self._batch_running.is_set():
            return False
        last = self._batch_ended
        return last is None or (self._workspace.checkpoint(self.step.name) / "commits" / str(last)).exists()

    def _is_told(self) -> bool:
        """Whether Spark has told of the last batch, which it does a moment after the commit: else what the batch
        dropped as late would not be known."""
        progress, last = self.query.lastProgress, self._batch_ended
        return last is None or (progress is not None and int(progress["batchId"]) >= last)

    def _change_control(self, change: Callable[[Control], Control]) -> None:
        path = self._workspace.control(self.step.name)
        with self._lock:
            write_control(path, change(read_control(path)))

    # In Spark's thread, for every batch

    def _write(self, frame: DataFrame, batch: int) -> None:
        self._batch_running.set()
        checkpoint = self._workspace.checkpoint(self.step.name)
        watermarks = self._watermarks
        self.batch_begun = batch
        try:
            sync_begun(checkpoint, batch)
            if watermarks is not None:
                watermarks.batch_begins(batch)
            held_back_s = self._hold_back()
            began = time.monotonic()
            self.own_batch(frame)
            records = self._put_out(self._in_tasks(frame), batch)
            if self.step.state_partitions is not None:
                self._state_files.sync()
            if watermarks is not None:
                watermarks.batch_ends(batch)
            self.written[batch] = Written(records=records, held_back_s=held_back_s)
            cold, self._batch_ended = self._batch_ended is None, batch
            self.failures = 0
            self.batches += 1
            if not cold:  # the first one starts Python workers and opens state: that says nothing of its size
                self._size_batches(time.monotonic() - began)
        except ElastreamError as error:
            self._not_written = str(error)
            raise
        finally:
            self._batch_running.clear()

    def _in_tasks(self, frame: DataFrame) -> DataFrame:
        """With a task for each instance of this moment: each has some of the state partitions."""
        return frame if self.step.state_partitions is None else frame.coalesce(self.parallelism)

    def _put_out(self, frame: DataFrame, batch: int) -> int:
        """How many records were published."""
        if self._output is not None:
            return self._publish(frame, batch, self._output)
        if self.step.function is not None and self.step.kind == "sink":
            self.step.function(frame, batch, **self._told_to_sink(batch))
        else:
            _run(frame)
        return 0

    def _told_to_sink(self, batch: int) -> dict[str, str]:
        """Batches are numbered from 0 in every folder: what a sink keeps beyond one needs more than the number."""
        return {UNIQUE_ID: self._workspace.unique_id(batch)} if self._wants_unique_id else {}

    def _publish(self, frame: DataFrame, batch: int, output: DurableChannel) -> int:
        """How many records were put out."""
        if output.log.is_published(batch):
            _run(frame)  # its state has still to be brought up to date
            return 0
        records = output.write(frame, batch, event_time=self._cut_by)
        crash_point(CrashPoint.AFTER_THE_PUBLICATION, self.step.name)
        return records

    def _size_batches(self, took_s: float) -> None:
        """A batch that had less to read than it may hold says nothing about the size."""
        most = read_control(self._workspace.control(self.step.name)).most_records
        if not any(self._workspace.channel(read).log.pending(self.step.name) >= most for read in self.step.reads):
            return
        # not the most that it might have held: one that follows event time ends where that allows it
        held = max(self._workspace.channel(read).log.in_batch(self.step.name) for read in self.step.reads)
        self._full.append(FullBatch(records=max(1, held), took_s=took_s))
        size = next_size(tuple(self._full), longest_s=self._longest_batch_s)
        if size != most:
            self._change_control(lambda control: replace(control, most_records=size))

    def _hold_back(self) -> float:
        """Wait until the slowest reader has room: backpressure, which is never useful time. How long it took."""
        if self._output is None or self._channel_bound is None:
            return 0.0
        began = time.monotonic()
        with self._lock:
            self._holding_since = began
        # a query that is to stop does not wait: its batch is written, so that it stops with a batch committed
        while not self._stopping.is_set() and any(
            self._output.log.pending(reader) > self._channel_bound for reader in self._readers
        ):
            time.sleep(_HOLD_POLL_S)
        with self._lock:
            held_back_s = time.monotonic() - began
            self._held_back_s += held_back_s
            self._holding_since = None
        return held_back_s


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
