"""What is kept of a run to be shown, and what it takes to answer: an hour of ten operators, as fast as it comes.

The hour is simulated, a window every five seconds, and handed to the server as a run would; one viewer reads all
of it. The memory that Python holds is counted after a first hour and after more of them: what is kept is bounded,
so hours that follow must not add to it.
"""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import TypeVar

import httpx

from benchmarks.measure import Measure, Report
from elastream.arrivals.load import Sine
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SourceModel
from elastream.engines.simulated.simulation import simulate
from elastream.manager.events import Event
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.policies.catalog import create
from elastream.showing.views import ConfigurationView
from elastream.testing import chain
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.server import Server

HOUR_S = 3_600.0
MOST_ANSWER_KB = 400.0
MOST_ANSWER_S = 0.5
MOST_GROWTH_PERCENT = 5.0
Happened = TypeVar("Happened", Snapshot, Event)
_OPERATORS = tuple(f"operator-{number}" for number in range(1, 11))
_INTERVAL_S = 5.0
_ASKED = 20
_PATIENCE_S = 600.0


def run(*, hour_s: float = HOUR_S, more_hours: int = 3) -> Report:
    happened = _hour(hour_s)
    feed = Feed("ten operators")
    shown = ConfigurationView(pipeline="", shown="simulation", policy="ds2", options=(), knobs=(), acts=False)
    tracemalloc.start()
    try:
        with Server(feed, shown, Address(port=0)) as server, _Viewer(server.url) as viewer:
            began_s = time.perf_counter()
            _show(feed, viewer, happened, 0.0)
            shown_s = time.perf_counter() - began_s
            first_mb = _held_mb()
            plain_kb, sent_kb, answer_s = _answers(server.url)
            for hour in range(1, more_hours + 1):
                _show(feed, viewer, happened, hour * 2 * hour_s)
            last_mb = _held_mb()
    finally:
        tracemalloc.stop()
    windows = sum(isinstance(one, Snapshot) for one in happened)
    each_ms = 1e3 * shown_s / len(happened)
    growth = 100 * (last_mb - first_mb) / first_mb
    return Report(
        measures=(
            Measure(what="everything shown, as JSON", value=plain_kb, unit="kB"),
            Measure(what="the same, as it is sent", value=sent_kb, unit="kB", at_most=MOST_ANSWER_KB),
            Measure(what="time until it is there: median", value=answer_s, unit="s", at_most=MOST_ANSWER_S),
            Measure(what="taking in a window or event, and sending it", value=each_ms, unit="ms"),
            Measure(what="memory after the first", value=first_mb, unit="MB"),
            Measure(what=f"growth by {more_hours} more", value=growth, unit="%", at_most=MOST_GROWTH_PERCENT),
        ),
        notes=(
            f"{hour_s / 60:g} min of {len(_OPERATORS)} operators: {windows} windows and "
            f"{len(happened) - windows} events; memory by tracemalloc, which slows everything, too",
        ),
    )


def _hour(duration_s: float) -> Sequence[Snapshot | Event]:
    names = ("source", *_OPERATORS)
    part = OperatorModel(capacity=PowerLaw(per_instance_per_s=1_000), queue_records=10_000)
    model = EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == "source") for name in names), chain(*names)),
        operators=dict.fromkeys(_OPERATORS, part),
        sources={"source": SourceModel(load=Sine(mean=5_000, amplitude=4_000, period_s=duration_s / 4))},
        initial_plan=Plan(dict.fromkeys(_OPERATORS, 9)),
        noise=0.03,
        downtime_s=2.0,
    )
    found = simulate(model, create("ds2"), Knobs(interval_s=_INTERVAL_S), duration_s=duration_s)
    return sorted([*found.snapshots, *found.events], key=lambda one: one.at_s)


class _Viewer:
    """Reads the stream to its end in a thread, and forgets it."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}api/v1/stream"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._client = httpx.Client(timeout=_PATIENCE_S)
        self.frames = 0

    def __enter__(self) -> _Viewer:
        self._thread.start()
        self.await_frames(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def await_frames(self, count: int) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while self.frames < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.frames} of {count} updates came within {_PATIENCE_S:g} s")
            time.sleep(0.001)

    def _read(self) -> None:
        # it is closed in the middle of the stream, which has no end of its own
        with suppress(httpx.HTTPError), self._client.stream("GET", self._url) as answer:
            for piece in answer.iter_bytes():
                self.frames += piece.count(b"\nevent: ")


def _show(feed: Feed, viewer: _Viewer, happened: Sequence[Snapshot | Event], later_s: float) -> None:
    """As fast as the viewer reads, as one that does not is dropped; with times that go on."""
    for one in happened:
        seen = viewer.frames
        if isinstance(one, Snapshot):
            feed.snapshot(_later(one, later_s))
        else:
            feed.event(_later(one, later_s))
        viewer.await_frames(seen + 1)


def _later(one: Happened, later_s: float) -> Happened:
    return replace(one, at_s=one.at_s + later_s)


def _held_mb() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


def _answers(url: str) -> tuple[float, float, float]:
    """The size of everything that is shown, plain and as it is sent, and how long it takes."""
    times_s = []
    with httpx.Client(timeout=_PATIENCE_S) as client:
        for _ in range(_ASKED):
            began_s = time.perf_counter()
            answer = client.get(f"{url}api/v1/run")
            times_s.append(time.perf_counter() - began_s)
        return len(answer.content) / 1e3, answer.num_bytes_downloaded / 1e3, median(times_s)
