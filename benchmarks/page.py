"""The page of a run in a real browser: how fast a recording opens, and what an hour of updates leaves behind.

The pipeline has ten operators and an hour of windows, simulated, with all events. A recording is opened several
times, each time in a tab that knows nothing. Then the hours are pushed as fast as the page draws them, window by
window, with the garbage collected before memory is read.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.browser import Browser, missing_browser
from benchmarks.measure import Measure, Report
from elastream.arrivals.load import Sine
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SourceModel
from elastream.engines.simulated.simulation import simulate
from elastream.errors import ElastreamError
from elastream.manager.events import Event
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.policies.catalog import create
from elastream.showing.views import ConfigurationView
from elastream.testing import chain
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.server import Server

HOUR_S = 3600.0
MOST_MS = 1_000.0
MOST_TASK_MS = 100.0
MOST_GROWTH = 1.1
_OPERATORS = tuple(f"operator-{number}" for number in range(1, 11))
_INTERVAL_S = 10.0
_MEGABYTE = 1e6
_AHEAD = 8  # updates that are on their way at once; the server drops viewers that fall far behind

Happened = Snapshot | Event


def run(*, opened: int = 7, hours: int = 5, duration_s: float = HOUR_S) -> Report:
    if missing := missing_browser():
        raise ElastreamError(missing)
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder), traced=True) as browser:
        opening = _open(browser, story(duration_s), opened)
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        following = follow(browser, hours=hours, duration_s=duration_s)
    return Report(
        measures=(*opening, *following),
        notes=(
            f"{len(_OPERATORS)} operators, {duration_s / _INTERVAL_S:.0f} windows an hour; {opened} times opened, "
            f"{hours} hours followed",
            "processor time is that of the page's main thread: the clock adds what else the machine does",
        ),
    )


def story(duration_s: float) -> list[Happened]:
    """All that a run tells of, in its order."""
    run = simulate(
        _model(), create("ds2"), Knobs(interval_s=_INTERVAL_S, activation_intervals=2), duration_s=duration_s
    )
    told: list[Happened] = [*run.snapshots, *run.events]
    return sorted(told, key=lambda happened: happened.at_s)


def _model() -> EngineModel:
    names = ("source", *_OPERATORS)
    dataflow = Dataflow.of((Operator(name=name, source=name == "source") for name in names), chain(*names))
    part = OperatorModel(capacity=PowerLaw(per_instance_per_s=1_000), queue_records=10_000)
    return EngineModel(
        dataflow=dataflow,
        operators=dict.fromkeys(_OPERATORS, part),
        sources={"source": SourceModel(load=Sine(mean=5_000, amplitude=4_000, period_s=HOUR_S / 4))},
        initial_plan=Plan(dict.fromkeys(_OPERATORS, 2)),
        noise=0.03,
        downtime_s=3.0,
    )


def _served(feed: Feed) -> Server:
    shown = ConfigurationView(pipeline="page", shown="recording", policy=None, options=(), knobs=(), acts=False)
    return Server(feed, shown, Address(port=0))


def _put(feed: Feed, happened: Happened) -> None:
    if isinstance(happened, Snapshot):
        feed.snapshot(happened)
    else:
        feed.event(happened)


def _open(browser: Browser, told: list[Happened], times: int) -> list[Measure]:
    feed = Feed("page")
    for happened in told:
        _put(feed, happened)
    feed.end()
    drawn_ms, longest_ms, all_ms = [], [], []
    with _served(feed) as server:
        browser.open("about:blank")
        for _ in range(times):
            browser.open(server.url)
            drawn_ms.append(browser.wait_until_drawn())
            time.sleep(1.0)  # what comes after counts, too
            tasks_ms = browser.leave_and_tell_tasks()
            longest_ms.append(max(tasks_ms))
            all_ms.append(sum(tasks_ms))
    size = len(feed.history.view().model_dump_json())
    return [
        Measure(
            what="a recording: from the link to all drawn, on the clock",
            value=median(drawn_ms),
            unit="ms",
            at_most=MOST_MS,
        ),
        Measure(what="its tasks together, processor time", value=median(all_ms), unit="ms", at_most=MOST_MS),
        Measure(
            what="its longest task, processor time", value=median(longest_ms), unit="ms", at_most=MOST_TASK_MS
        ),
        Measure(what="the longest of all times", value=max(longest_ms), unit="ms", at_most=MOST_TASK_MS),
        Measure(what="the recording as it is sent, not compressed", value=size / 1e3, unit="kB"),
    ]


def follow(browser: Browser, *, hours: int, duration_s: float = HOUR_S) -> list[Measure]:
    """The hours follow each other in the run's own time; what is kept is bounded, so the last adds nothing."""
    feed = Feed("page")
    heaps, elements, sent = [], [], 0
    told = story(hours * duration_s)
    with _served(feed) as server:
        browser.open(server.url)
        for hour in range(hours):
            for happened in told:
                if not hour * duration_s < happened.at_s <= (hour + 1) * duration_s:
                    continue
                _put(feed, happened)
                sent += 1
                if sent % _AHEAD == 0:
                    _wait_until_seen(browser, sent)
            _wait_until_seen(browser, sent)
            heaps.append(browser.heap_bytes())
            elements.append(browser.elements())
    return [
        *(
            Measure(what=f"heap after hour {hour}", value=heap / _MEGABYTE, unit="MB")
            for hour, heap in enumerate(heaps, start=1)
        ),
        Measure(what="the last by the one before", value=heaps[-1] / heaps[-2], unit="times", at_most=MOST_GROWTH),
        Measure(what="elements of the page after the first hour", value=elements[0], unit="nodes"),
        Measure(what="elements of the page after the last", value=elements[-1], unit="nodes"),
    ]


def _wait_until_seen(browser: Browser, updates: int) -> None:
    """Until the page has drawn so many; an update's id ends with its number."""
    drawn = "return Number(document.documentElement.dataset.drawn?.split('-').at(-1) ?? 0)"
    browser.wait(lambda: browser.run(drawn) >= updates, f"update {updates} is drawn")
