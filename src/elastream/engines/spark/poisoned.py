"""Records at which an operator fails again and again: found, put aside with their error, and the batch goes on.

A batch that fails a second time is read once more without Spark's streaming, as a frame of its own, and bisected
(`isolation.py`): the function of the operator is applied to parts of it, and nothing is written. What fails by
itself is put aside (`channels/aside.py`), and the query is started again without it. The frame keeps no state and
has no watermark, so what fails because of what came before is not found; nor what a source or a sink fails at, as
what is outside of the pipeline cannot be read in parts, or would be written twice. Then the run ends as before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.aside import AsideRecord, positions_aside, put_aside, read_aside
from elastream.engines.spark.crash_points import CrashPoint, crash_point
from elastream.engines.spark.failed_input import shown
from elastream.engines.spark.failures import failure_of
from elastream.engines.spark.frames import frame_of
from elastream.engines.spark.isolation import NotIsolatedError, isolate
from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep
from elastream.engines.spark.session import still_runs
from elastream.engines.spark.workspace import Workspace

MOST_OF_A_BATCH = 100
"""Poisoned records, and at most half of it: more are a mistake in the operator, or in all that it is given."""
_PATIENCE_S = 300.0  # meanwhile nothing else is decided
_RECORDS_OF_A_TASK = 5_000


@dataclass(frozen=True, kw_only=True)
class InputBatch:
    """What an operator was to read of one of its inputs, without what was put aside before."""

    channel: str
    records: pa.Table
    positions: list[int]


class Poisoned:
    def __init__(
        self,
        spark: SparkSession,
        workspace: Workspace,
        pipeline: Pipeline,
        schemas: Mapping[str, StructType],
    ) -> None:
        self._spark = spark
        self._workspace = workspace
        self._pipeline = pipeline
        self._schemas = schemas
        self._counts = {name: sum(1 for _ in read_aside(workspace.aside(name))) for name in pipeline.graph().order}

    def put_aside(self, name: str, batch: int) -> str:
        """What was put aside of a batch that fails, in a sentence; `NotIsolatedError` says why nothing was."""
        step = self._pipeline[name]
        if step.kind is not Kind.OPERATOR:
            raise NotIsolatedError(f"what a {step.kind} fails at cannot be taken apart")
        ends_s = time.monotonic() + _PATIENCE_S
        found: list[AsideRecord] = []
        for read in step.reads:
            found += self._culprits(step, self._batch(step, read), ends_s)
        if not found:
            raise NotIsolatedError("by itself it does not fail again")
        folder = self._workspace.aside(name)
        put_aside(folder, batch, found)
        crash_point(CrashPoint.PUT_ASIDE, name)
        self._counts[name] += len(found)
        many = "1 record was" if len(found) == 1 else f"{len(found)} records were"
        first = found[0]
        return f"{name}: {many} put aside: {first.error}, {shown(first.record)} of {first.channel} (all: {folder})"

    def notes(self) -> Iterator[str]:
        for name, count in self._counts.items():
            if count:
                yield f"{name} has put {count:,} of its records aside, see {self._workspace.aside(name)}"

    def _batch(self, step: PipelineStep, read: str) -> InputBatch:
        channel = self._workspace.channel(read)
        schema = to_arrow_schema(self._schemas[read], timezone="UTC")
        first, last = channel.log.batch_of(step.name)
        known = set(positions_aside(self._workspace.aside(step.name), read))
        positions = [at for at in range(first.record, last.record) if at not in known]
        whole = pa.Table.from_batches(list(channel.between(first, last, schema)), schema)
        return InputBatch(
            channel=read, records=whole.take([at - first.record for at in positions]), positions=positions
        )

    def _culprits(self, step: PipelineStep, batch: InputBatch, ends_s: float) -> list[AsideRecord]:
        """Of one of its inputs, while the others bring nothing."""
        if not batch.positions:
            return []

        def error_of(first: int, last: int) -> str | None:
            if time.monotonic() > ends_s:
                raise NotIsolatedError(f"it could not be found out within {_PATIENCE_S:.0f} s")
            return self._error(step, batch.channel, batch.records.slice(first, last - first))

        if error_of(0, len(batch.positions)) is None:
            return []
        most = min(MOST_OF_A_BATCH, max(1, len(batch.positions) // 2))
        culprits = isolate(len(batch.positions), error_of, most=most)
        return [
            AsideRecord(
                channel=batch.channel,
                position=batch.positions[at],
                error=error,
                record=_as_json(batch.records.slice(at, 1).to_pylist()[0]),
            )
            for at, error in culprits.items()
        ]

    def _error(self, step: PipelineStep, channel: str, records: pa.Table) -> str | None:
        """Why the function of the operator fails at these records of an input."""
        inputs = [self._frame(read, records if read == channel else None) for read in step.reads]
        try:
            frame_of(step, *inputs).write.format("noop").mode("overwrite").save()
        except Exception as error:  # whatever a user's function raises, in Python or in Java
            if not still_runs(self._spark):
                raise  # no record is at fault
            return failure_of(str(error)).text
        return None

    def _frame(self, read: str, records: pa.Table | None) -> DataFrame:
        schema = self._schemas[read]
        if records is None or records.num_rows == 0:
            return self._spark.createDataFrame([], schema)
        tasks = -(-records.num_rows // _RECORDS_OF_A_TASK)  # each starts a Python worker: few for the small parts
        return self._spark.createDataFrame(records, schema).coalesce(tasks)


def _as_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """A time or a decimal as its text."""
    found: dict[str, Any] = json.loads(json.dumps(record, default=str))
    return found
