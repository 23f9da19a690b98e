"""What ten viewers cost a pipeline on Spark: the same pipeline, served throughout, with viewers and without.

One pipeline runs at full speed (a backlog that never ends), is measured every five seconds, and every window goes
to the server and so to those who look. Windows of time with ten viewers and without alternate, in an order that
turns round with each pair, and the records per second within each pair are compared. The viewers are a process on
the same machine, so what reading costs them is in it, too.

A machine's speed changes by more from one window to the next than viewers can cost. So the processor time is
compared as well, of the driver's Python, where the server is, and of the viewers: while the pipeline has every
core busy, what they take of it is what the pipeline does not get.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

import psutil

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
from benchmarks.spread import Estimate, median_between, ratio_of_pairs
from elastream.engines.spark.engine import SparkEngine
from elastream.showing.views import ConfigurationView
from elastream.web.address import LOOPBACK, Address
from elastream.web.feed import Feed
from elastream.web.server import Server

VIEWERS = 10
MOST_PERCENT = 3.0
_MEASURED_EVERY_S = 5.0
_SLOTS = 4
_WARM_UP_BATCHES = 25
_FIRST = "words"  # with bounded channels all go at its pace


@dataclass(frozen=True, kw_only=True)
class Window:
    records_per_s: float
    page_share: float
    """Of the processor time that there was, what the driver's Python and the viewers took."""


Crowd = Callable[[Feed, int], AbstractContextManager[list[psutil.Process]]]
"""Of a feed and the port where it is served: the processes of the page while that is done to it."""


def run(*, pairs: int = 10, window_s: float = 30.0) -> Report:
    found = compared(_viewers, pairs=pairs, window_s=window_s)
    lost = ratio_of_pairs([(on.records_per_s, off.records_per_s) for on, off in found]).minus_from(1.0)
    taken = median_between([on.page_share - off.page_share for on, off in found])
    return Report(
        measures=(
            *_bounded(f"throughput lost to {VIEWERS} viewers", lost),
            *_bounded("processor time that they and the server take", taken),
            Measure(what="throughput without: median", value=median(o.records_per_s for _, o in found), unit="/s"),
        ),
        notes=(f"{pairs} pairs of windows of {window_s:g} s, measured every {_MEASURED_EVERY_S:g} s in both",),
    )


def compared(crowd: Crowd, *, pairs: int, window_s: float) -> list[tuple[Window, Window]]:
    """The same pipeline at full speed with a crowd at its page, and without."""
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
                return [_pair(crowd, engine, feed, server.port, window_s, number) for number in range(pairs)]


def _bounded(what: str, found: Estimate) -> tuple[Measure, Measure]:
    between = (100 * found.low, 100 * found.high)
    return (
        Measure(what=what, value=100 * found.value, unit="%", between=between),
        Measure(what="at most, with 95 % certainty", value=100 * found.high, unit="%", at_most=MOST_PERCENT),
    )


def _pair(
    crowd: Crowd, engine: SparkEngine, feed: Feed, port: int, window_s: float, number: int
) -> tuple[Window, Window]:
    found = {}
    for watched in (True, False) if number % 2 else (False, True):
        with crowd(feed, port) if watched else nullcontext([psutil.Process()]) as processes:
            began_s, before_s = time.time(), _processor_s(processes)
            time.sleep(window_s)
            ended_s, after_s = time.time(), _processor_s(processes)
        none_failed(engine)
        ended = ended_between(batches_of(engine), began_s, ended_s)
        found[watched] = Window(
            records_per_s=records_per_s([batch for batch in ended if batch.query == _FIRST]),
            page_share=(after_s - before_s) / (ended_s - began_s) / (psutil.cpu_count() or 1),
        )
    return found[True], found[False]


def _processor_s(processes: Iterable[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)  # user and system, without children


@contextmanager
def _viewers(feed: Feed, port: int) -> Iterator[list[psutil.Process]]:
    """The processes of the page: this one, and that of the viewers."""
    command = [sys.executable, "-m", "benchmarks.viewers", LOOPBACK, str(port), str(VIEWERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "all look\n":
                raise RuntimeError("the viewers did not come")
            yield [psutil.Process(), psutil.Process(process.pid)]
            if feed.viewers != VIEWERS:
                raise RuntimeError(f"{feed.viewers} of {VIEWERS} viewers are left")
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
