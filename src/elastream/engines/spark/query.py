"""One step of a pipeline as one Structured Streaming query, and how its parallelism is changed while it runs.

A stateless operator's tasks are the splits of its input channels: another number in the control file, and the
next batch has it. A stateful operator's tasks are its state partitions put together by `coalesce`, which is part
of the query: it is stopped right after a batch has committed, and started again from its checkpoint. Everything
else goes on meanwhile.

A batch is written to files of its own and then published in one rename. Should the driver die in between, Spark
runs the batch again with the same id; if it was published already its plan is run for the sake of its state, and
nothing is published a second time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from elastream.engines.spark.channels.control import Control, read_control, write_control
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.engines.spark.pipeline import Step
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError

_COMMIT_TIMEOUT_S = 60.0
_POLL_S = 0.005
_LONG, _SHORT = 1.5, 0.7  # of the batch interval: a batch that took longer, or less, than it should
_LEAST_RECORDS, _MOST_RECORDS = 100, 100_000_000


class _Stopping(Exception):  # noqa: N818 - not an error: it ends a batch that was not begun
    pass


class StepQuery:
    def __init__(
        self,
        spark: SparkSession,
        step: Step,
        workspace: Workspace,
        *,
        build: Callable[[], DataFrame],
        output: SegmentLog | None,
        readers: tuple[str, ...],
        batch_interval_s: float,
        channel_bound: int | None,
    ) -> None:
        self.step = step
        self.outputs: dict[int, int] = {}
        """Records that each batch put out, until someone takes them away."""
        self.held_back_s = 0.0
        """How long it was kept from writing by readers that lag behind, in all."""
        self._spark = spark
        self._workspace = workspace
        self._build = build
        self._output = output
        self._readers = readers
        self._batch_interval_s = batch_interval_s
        self._channel_bound = channel_bound
        self.failures = 0
        """In a row, without a batch between them."""
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._batch_ended: int | None = None
        self._batch_running = threading.Event()

    @property
    def query(self) -> StreamingQuery:
        if self._query is None:
            raise ElastreamError(f"{self.step.name!r} is not running")
        return self._query

    @property
    def parallelism(self) -> int:
        return read_control(self._workspace.control(self.step.name)).parallelism

    def start(self) -> None:
        frame = self._build()
        if self.step.state_partitions is not None:
            frame = frame.coalesce(self.parallelism)
            self._spark.conf.set("spark.sql.shuffle.partitions", str(self.step.state_partitions))
        self._stopping.clear()
        self._batch_ended = None
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.step.name)
        self._query = (
            frame.writeStream.queryName(self.step.name)
            .outputMode(self.step.output_mode)
            .option("checkpointLocation", str(self._workspace.checkpoint(self.step.name)))
            .trigger(processingTime=f"{round(self._batch_interval_s * 1000)} milliseconds")
            .foreachBatch(self._write)
            .start()
        )

    def stop(self) -> None:
        """Stop right after a batch has committed: one that is interrupted in the middle costs seconds later."""
        if self._query is None:
            return
        self._stopping.set()
        deadline = time.monotonic() + _COMMIT_TIMEOUT_S
        while self._query.isActive and time.monotonic() < deadline and not self._is_committed():
            time.sleep(_POLL_S)
        self._query.stop()

    def failure(self) -> str | None:
        """What a query that ended by itself died of."""
        if self._query is None or self._query.isActive or self._stopping.is_set():
            return None
        error = self._query.exception()
        return "it ended without an error" if error is None else str(error)

    def rescale(self, parallelism: int) -> None:
        path = self._workspace.control(self.step.name)
        control = read_control(path)
        most_records = round(control.most_records * parallelism / control.parallelism)
        write_control(path, Control(parallelism=parallelism, most_records=max(_LEAST_RECORDS, most_records)))
        if self.step.state_partitions is not None:
            self.stop()
            self.start()

    def _is_committed(self) -> bool:
        """Whether no batch runs, and the last one that ran is in Spark's own log of what is done."""
        if self._batch_running.is_set():
            return False
        last = self._batch_ended
        return last is None or (self._workspace.checkpoint(self.step.name) / "commits" / str(last)).exists()

    # In Spark's thread, for every batch

    def _write(self, frame: DataFrame, batch: int) -> None:
        self._batch_running.set()
        try:
            self._hold_back()
            began = time.monotonic()
            if self._output is not None:
                self._publish(frame, batch, self._output)
            elif self.step.function is not None and self.step.kind == "sink":
                self.step.function(frame, batch)
            else:
                _run(frame)
            self._batch_ended = batch
            self.failures = 0
            self._size_batches(time.monotonic() - began)
        finally:
            self._batch_running.clear()

    def _publish(self, frame: DataFrame, batch: int, output: SegmentLog) -> None:
        if output.is_published(batch):
            _run(frame)  # its state has still to be brought up to date
            return
        folder = output.batch_folder(batch)
        frame.write.mode("overwrite").parquet(str(folder))
        files = _counted(folder)
        output.publish(batch, files)
        self.outputs[batch] = sum(records for _, records in files)

    def _size_batches(self, took_s: float) -> None:
        """Let batches grow while they are short and shrink when they are long, so that a backlog is worked off in
        batches between which the parallelism can change."""
        path = self._workspace.control(self.step.name)
        control = read_control(path)
        if took_s > _LONG * self._batch_interval_s:
            most = control.most_records * self._batch_interval_s / took_s
        elif took_s < _SHORT * self._batch_interval_s:
            most = control.most_records * 2
        else:
            return
        sized = replace(control, most_records=min(_MOST_RECORDS, max(_LEAST_RECORDS, round(most))))
        write_control(path, sized)

    def _hold_back(self) -> None:
        """Wait until the slowest reader has room: backpressure, which is never useful time."""
        if self._output is None or self._channel_bound is None:
            return
        began = time.monotonic()
        while any(self._output.pending(reader) > self._channel_bound for reader in self._readers):
            if self._stopping.is_set():
                raise _Stopping(f"{self.step.name} was stopped while it waited for its readers")
            time.sleep(0.05)
        self.held_back_s += time.monotonic() - began


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _counted(folder: Path) -> list[tuple[Path, int]]:
    return [(path, pq.read_metadata(path).num_rows) for path in sorted(folder.glob("*.parquet"))]
