"""What ten viewers cost a pipeline on Spark: the same pipeline, served throughout, with viewers and without.

One pipeline runs at full speed (a backlog that never ends), is measured every five seconds, and every window goes
to the server and so to those who look. Windows of time with ten viewers and without alternate, in an order that
turns round with each pair, and the records per second within each pair are compared. The viewers are a process on
the same machine, so what reading costs them is in it, too.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.batches import ended_between, records_per_s
from benchmarks.measure import Measure, Report
from benchmarks.measuring_overhead import pipeline
from benchmarks.spark_runs import (
    await_batches,
    batches_of,
    channel,
    checkpoint,
    none_failed,
    put_backlog,
    running,
    session,
    temporary_folder,
)
from benchmarks.spread import ratio_of_pairs
from elastream.engines.spark.engine import SparkEngine
from elastream.web.feed import Feed
from elastream.web.server import LOOPBACK, Address, Server
from elastream.web.views import ConfigurationView

VIEWERS = 10
MOST_PERCENT = 3.0
_MEASURED_EVERY_S = 5.0
_SLOTS = 4
_WARM_UP_BATCHES = 25
_FIRST = "words"  # with bounded channels all go at its pace


def run(*, pairs: int = 10, window_s: float = 30.0) -> Report:
    feed = Feed("viewers")
    shown = ConfigurationView(pipeline="", shown="run", policy="ds2", options=(), knobs=(), acts=False)
    with session("viewers", slots=_SLOTS) as spark, temporary_folder() as folder:
        put_backlog(channel(folder, "sentences"), commits=4_000, records_each=1_000_000)
        with (
            running(spark, pipeline(), folder, batch_interval_s=1.0, channel_bound=400_000) as engine,
            Server(feed, shown, Address(port=0)) as server,
        ):
            await_batches(checkpoint(folder, "counts"), _WARM_UP_BATCHES)
            with _measured(engine, feed):
                found = [_pair(engine, feed, server.port, window_s, number) for number in range(pairs)]
    lost = ratio_of_pairs(found).minus_from(1.0)
    low, high = lost.between
    between = (100 * low, 100 * high)
    what = f"throughput lost to {VIEWERS} viewers"
    return Report(
        measures=(
            Measure(what=what, value=100 * lost.value, unit="%", between=between),
            Measure(what="at most, with 95 % certainty", value=100 * high, unit="%", at_most=MOST_PERCENT),
            Measure(what="throughput without: median", value=median(off for _, off in found), unit="/s"),
        ),
        notes=(f"{pairs} pairs of windows of {window_s:g} s, measured every {_MEASURED_EVERY_S:g} s in both",),
    )


def _pair(engine: SparkEngine, feed: Feed, port: int, window_s: float, number: int) -> tuple[float, float]:
    found = {}
    for watched in (True, False) if number % 2 else (False, True):
        with _viewers(feed, port, VIEWERS if watched else 0):
            began_s = time.time()
            time.sleep(window_s)
            ended_s = time.time()
        none_failed(engine)
        ended = ended_between(batches_of(engine), began_s, ended_s)
        found[watched] = records_per_s([batch for batch in ended if batch.query == _FIRST])
    return found[True], found[False]


@contextmanager
def _viewers(feed: Feed, port: int, count: int) -> Iterator[None]:
    if count == 0:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.viewers", LOOPBACK, str(port), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "all look\n":
                raise RuntimeError("the viewers did not come")
            yield
            if feed.viewers != count:
                raise RuntimeError(f"{feed.viewers} of {count} viewers are left")
        finally:
            process.terminate()


@contextmanager
def _measured(engine: SparkEngine, feed: Feed) -> Iterator[None]:
    """As the manager does, but nothing is decided: the pipeline stays as it is."""
    stop = threading.Event()

    def measure() -> None:
        while not stop.wait(_MEASURED_EVERY_S):
            feed.snapshot(engine.measure())

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)
