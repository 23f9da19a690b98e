"""What the tests on Spark share: a pipeline that runs in a folder, its feeds, and what its sinks keep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.workspace import Workspace
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.measurement import Snapshot

BATCH_INTERVAL_S = 0.2
LONGEST_BATCH_S = 0.5
PATIENCE_S = 600.0  # for a machine that does other things too
_TICK_S = 0.2
_MOST_LAG = 100  # so that there is little left to do in the end, however slow the machine is


def wait_until(true: Callable[[], bool], what: str | Callable[[], str], *, patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline_s, f"not in time: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def write(channel: DurableChannel, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Publish a batch of a feed, as a process that writes one would."""
    spark_schema = StructType.fromDDL(schema)
    assert isinstance(spark_schema, StructType)
    arrow_schema = to_arrow_schema(spark_schema, timezone="UTC")
    columns = [
        pa.array(values, kind.type) for values, kind in zip(zip(*rows, strict=True), arrow_schema, strict=True)
    ]
    channel.append(pa.table(columns, schema=arrow_schema))


def costing(frame: DataFrame, milliseconds: int) -> DataFrame:
    """Every record takes so long, without using a core."""
    return frame.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {milliseconds}L) != ''"))


class Running:
    """A pipeline in a folder, under an engine; its sinks are those of `keep` in `kept(folder, name)`."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        folder: Path,
        *,
        channels: ChannelKind | None = None,
        longest_batch_s: float = LONGEST_BATCH_S,
        batch_interval_s: float = BATCH_INTERVAL_S,
        **options: Any,
    ) -> None:
        self._meanwhile: list[Snapshot] = []
        self.pipeline = pipeline
        self.folder = folder
        self.workspace = Workspace(folder / "run", pipeline.name, channels)
        self.engine = SparkEngine(
            pipeline,
            spark,
            folder / "run",
            batch_interval_s=batch_interval_s,
            longest_batch_s=longest_batch_s,
            channels=channels,
            **options,
        )

    def __enter__(self) -> Self:
        for step in self.pipeline.steps:
            if step.kind is Kind.FEED:
                self.workspace.channel(step.name).create()
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()

    def put(self, feed: str, rows: Sequence[tuple[Any, ...]]) -> None:
        schema = self.pipeline[feed].schema
        assert schema is not None
        write(self.workspace.channel(feed), schema, rows)

    def rescale(self, **wanted: int) -> RescaleOutcome:
        before = self.engine.plan()
        return self.engine.rescale(Decision(number=1, at_s=0, before=before, after=before.with_changes(wanted)))

    def pending(self) -> dict[str, int]:
        """What each step has still to do, in the order of the pipeline: each may add to the next."""
        return {
            f"{read} → {name}": self.workspace.channel(read).log.pending(name)
            for name in self.pipeline.graph().order
            for read in self.pipeline[name].reads
        }

    def drain(self) -> None:
        """Wait until nothing is left to do."""
        self.wait_until(
            lambda: not any(self.pending().values()),
            lambda: f"drained, there is still to do: {self.pending()}",
        )

    def wait_until(self, true: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """And start again what fails meanwhile."""

        def is_true() -> bool:
            self.revive()
            return true()

        wait_until(is_true, what)

    def revive(self) -> None:
        """Start again what has failed, as a manager does: on a slow machine a query fails easily."""
        if any(query.failure() for query in self.engine._queries.values()):
            self._meanwhile.append(self.engine.measure())

    def measured(self) -> list[Snapshot]:
        """What was measured since the last call, also by the way."""
        found, self._meanwhile = [*self._meanwhile, self.engine.measure()], []
        return found

    def runs(self) -> dict[str, str]:
        """The id of the run of each query."""
        return {name: str(query.query.runId) for name, query in self.engine._queries.items()}

    def kept(self, name: str) -> list[tuple[Any, ...]]:
        """What a sink keeps, in the order in which it came."""
        return list(records(FileChannel(kept(self.folder, name))))


class Numbers:
    """Puts numbers from 0 into a feed for as long as the context lasts, in a thread of its own."""

    def __init__(self, running: Running, feed: str, *, per_tick: int) -> None:
        self.count = 0
        self._running = running
        self._feed = feed
        self._per_tick = per_tick
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._put)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _put(self) -> None:
        while not self._stopped.wait(_TICK_S):
            if max(self._running.pending().values()) < _MOST_LAG:
                first, self.count = self.count, self.count + self._per_tick
                self._running.put(self._feed, [(number,) for number in range(first, self.count)])


def kept(folder: Path, name: str) -> Path:
    return folder / "kept" / name


def records(channel: DurableChannel) -> Iterator[tuple[Any, ...]]:
    for table in channel.tables():
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
