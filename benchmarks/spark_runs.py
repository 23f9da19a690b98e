"""What the benchmarks on Spark share: backlogs, load, the batches that ended, sizes on disk, and stopwatches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.batches import Batch, batch_of
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import Segment, SegmentLog
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.manager.decision import Decision
from elastream.workloads.generator import table

PATIENCE_S = 240.0
_POLL_S = 0.02
_WORDS = 5


@contextmanager
def session(name: str, *, slots: int, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    given = {"spark.ui.port": "0", "spark.driver.memory": "2g", **(settings or {})}
    spark = start_session(name, master=f"local[{slots}]", settings=given)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def running(
    spark: SparkSession,
    pipeline: Pipeline,
    folder: Path,
    *,
    batch_interval_s: float,
    channel_bound: int | None = None,
) -> Iterator[SparkEngine]:
    engine = SparkEngine(pipeline, spark, folder, batch_interval_s=batch_interval_s, channel_bound=channel_bound)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    # Spark may still delete a file of its own while the folder goes
    with tempfile.TemporaryDirectory(prefix="elastream-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def channel(folder: Path, name: str) -> Path:
    return folder / "channels" / name


def checkpoint(folder: Path, name: str) -> Path:
    return folder / "checkpoints" / name


@contextmanager
def generator(feed: Path, records_per_s: float) -> Iterator[None]:
    """The load generator in a process of its own: in this one it would compete with what is measured."""
    command = [sys.executable, "-m", "elastream.workloads.generator", str(feed), "--load", f"{records_per_s}"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def put_once(feed: Path, records: int) -> None:
    """So many records, numbered from where the feed ends, in one commit."""
    found = FileChannel(feed)
    found.create()
    found.append(_sentences(found.log.head().records, records))


def put_backlog(feed: Path, *, commits: int, records_each: int) -> None:
    """A backlog of any length on little disk: every commit has a link to the same file."""
    log = SegmentLog(feed)
    log.create()
    original = feed / "records.parquet"
    pq.write_table(_sentences(0, records_each), original)
    for _ in range(commits):
        batch = log.head().batch + 1
        path = feed / "segments" / f"b{batch}" / original.name
        path.parent.mkdir(parents=True)
        path.hardlink_to(original)
        log.publish(batch, [Segment(path=str(path.relative_to(feed)), records=records_each)])


def _sentences(first: int, count: int) -> Any:
    return table(first, count, words=_WORDS, created_ms=round(time.time() * 1000))


def wait_until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {patience_s:g} s")
        time.sleep(_POLL_S)


def none_failed(engine: SparkEngine) -> bool:
    """True, or an error: a query that is gone would be waited for in vain."""
    for name, query in engine._queries.items():
        if (error := query.failure()) is not None:
            raise RuntimeError(f"{name} failed, so there is nothing to measure: {error}")
    return True


def rescale(engine: SparkEngine, operator: str, parallelism: int) -> None:
    before = engine.plan()
    after = before.with_changes({operator: parallelism})
    outcome = engine.rescale(Decision(number=1, at_s=time.time(), before=before, after=after))
    if not outcome.succeeded:
        raise RuntimeError(f"{operator} could not be given {parallelism} instances: {outcome.detail}")


def batches_of(engine: SparkEngine) -> list[Batch]:
    """The last batches of every query that had records: Spark keeps a hundred of each run."""
    found = [
        batch_of(name, progress)
        for name, query in engine._queries.items()
        for progress in query.query.recentProgress
        if progress["numInputRows"] > 0
    ]
    return sorted(found, key=lambda batch: batch.ended_s)


# When batches ended: also where nobody in this process could ask Spark


def ends_s(checkpoint: Path) -> list[float]:
    """When the batches of a query ended, the newest last: Spark then writes their commit file."""
    found = []
    for path in (checkpoint / "commits").glob("[0-9]*"):
        try:
            found.append(path.stat().st_mtime)
        except FileNotFoundError:  # Spark deletes old ones
            continue
    return sorted(found)


def await_batches(checkpoint: Path, batches: int, *, since_s: float | None = None) -> float:
    """Wait for so many further batches; when the first of them ended."""
    since_s = max(ends_s(checkpoint), default=0.0) if since_s is None else since_s

    def further() -> list[float]:
        return [end_s for end_s in ends_s(checkpoint) if end_s > since_s]

    wait_until(lambda: len(further()) >= batches, f"{checkpoint}: {batches} further batches")
    return further()[0]


# Stopwatches


@dataclass
class Stopwatch:
    """Calls of a function while it was watched: when each began, and how long it took."""

    began_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)


@contextmanager
def watched(owner: Any, name: str) -> Iterator[Stopwatch]:
    """Time every call of a method or function of a module until the end of the block."""
    watch, original = Stopwatch(), getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        began_s = time.time()
        try:
            return original(*args, **kwargs)
        finally:
            watch.began_s.append(began_s)
            watch.took_s.append(time.time() - began_s)

    setattr(owner, name, timed)
    try:
        yield watch
    finally:
        setattr(owner, name, original)


# Sizes on disk


def size_bytes(folder: Path) -> int:
    """Of all files below a folder; one that goes away meanwhile has no size."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                continue
    return total


# A driver in a process of its own


@contextmanager
def driver(module: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m MODULE FOLDER` in a session of its own; with all of its children it is killed at the end."""
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
