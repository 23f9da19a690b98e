"""What being attached to costs a job of somebody else: the same job, attached to and let go in turn.

One job runs throughout, batch after batch of as many rows as it can take, and all of its time is computed: what
elastream needs in the driver is missing there. A window begins once the first batches after `attach` are known, as
it looks at them more often. On a machine that does other things, too, the processor time of a row is the surest:
that of the driver's two processes together, by the rows of the batches that ended.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil

import elastream
from benchmarks.batches import batch_of
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import session, temporary_folder, wait_until
from benchmarks.spread import ratio_of_pairs

MOST_PERCENT = 1.0
_SLOTS = 2
_ROWS = 40_000  # of a batch
_HASHES = 40  # of a row
_WARM_UP_BATCHES = 20
_KNOWN_AFTER_S = 15.0  # a window of the manager, and the batches that it looks at without resting


@dataclass(frozen=True, kw_only=True)
class Window:
    rows_per_s: float
    batch_s: float
    """On the median."""
    cpu_s_per_row: float


def run(*, pairs: int = 6, window_s: float = 40.0) -> Report:
    found = []
    with session("attached-overhead", slots=_SLOTS) as spark, temporary_folder() as folder:
        query = _job(spark, str(folder / "checkpoint"))
        wait_until(lambda: _newest(query) >= _WARM_UP_BATCHES, "batches to warm up")
        for number in range(pairs):
            order = (True, False) if number % 2 else (False, True)
            pair = {attached: _window(spark, query, window_s, attached, folder) for attached in order}
            found.append((pair[True], pair[False]))
        query.stop()
    return _report(found, window_s)


def _job(spark: Any, checkpoint: str) -> Any:
    hashed = f"aggregate(sequence(1, {_HASHES}), cast(value AS string), (text, n) -> md5(text)) AS hashed"
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", 4)
    rows = source.load().selectExpr("value % 100 AS key", hashed).groupBy("key").agg({"hashed": "max"})
    writer = rows.writeStream.queryName("hashes").format("noop").outputMode("update")
    return writer.option("checkpointLocation", checkpoint).start()


def _newest(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def _window(spark: Any, query: Any, window_s: float, attached: bool, folder: Any) -> Window:
    if not attached:
        time.sleep(_KNOWN_AFTER_S)
        return _measured(query, window_s)
    with elastream.attach(spark, recommend=True, folder=folder / f"run-{time.time_ns()}"):
        time.sleep(_KNOWN_AFTER_S)
        return _measured(query, window_s)


def _measured(query: Any, window_s: float) -> Window:
    """Between the ends of two batches."""
    first, began_s, cpu_s = _at_the_end_of_a_batch(query)
    time.sleep(window_s)
    last, ended_s, cpu_then_s = _at_the_end_of_a_batch(query)
    batches = [batch_of("hashes", progress) for progress in query.recentProgress]
    taken = [batch for batch in batches if first < batch.number <= last]
    rows = _ROWS * (last - first)
    return Window(
        rows_per_s=rows / (ended_s - began_s),
        batch_s=median(batch.took_s for batch in taken),
        cpu_s_per_row=(cpu_then_s - cpu_s) / rows,
    )


def _at_the_end_of_a_batch(query: Any) -> tuple[int, float, float]:
    seen = _newest(query)
    wait_until(lambda: _newest(query) > seen, "a batch")
    return _newest(query), time.monotonic(), _cpu_s()


def _cpu_s() -> float:
    """Of this process and the JVM below it."""
    this = psutil.Process(os.getpid())
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _report(pairs: list[tuple[Window, Window]], window_s: float) -> Report:
    lost = ratio_of_pairs([(on.rows_per_s, off.rows_per_s) for on, off in pairs]).minus_from(1.0)
    longer = ratio_of_pairs([(on.batch_s, off.batch_s) for on, off in pairs])
    dearer = ratio_of_pairs([(on.cpu_s_per_row, off.cpu_s_per_row) for on, off in pairs])
    return Report(
        measures=(
            _percent("throughput lost", lost.value, lost.between, at_most=MOST_PERCENT),
            _percent(
                "batch time added", longer.value - 1, (longer.low - 1, longer.high - 1), at_most=MOST_PERCENT
            ),
            _percent("processor time of a row added", dearer.value - 1, (dearer.low - 1, dearer.high - 1)),
            Measure(
                what="rows of the job, not attached: median",
                value=median(off.rows_per_s for _, off in pairs),
                unit="/s",
            ),
            Measure(
                what="batch of the job, not attached: median",
                value=1000 * median(off.batch_s for _, off in pairs),
                unit="ms",
            ),
        ),
        notes=(
            f"{len(pairs)} pairs of windows of {window_s:g} s, attached and not; the manager looks every 10 s",
        ),
    )


def _percent(what: str, share: float, between: tuple[float, float], at_most: float | None = None) -> Measure:
    low, high = between
    return Measure(what=what, value=100 * share, unit="%", at_most=at_most, between=(100 * low, 100 * high))
