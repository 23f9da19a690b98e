"""The live run of the thesis (4.3.2, Figure 4.8): taxi rides through instances that scale themselves on Spark.

Every instance is a process with its own Spark. One that duplicates is killed during the scale-out, and one that
leaves during the scale-in. It takes about ten minutes on two cores that do nothing else.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastream.commands import plots
from elastream.errors import ElastreamError
from elastream.showing import colours
from experiments.frame import Check, Progress, Report, experiment

_SCALES = "inZone"
_STRETCHES = ((200.0, 150.0, (5, 5)), (500.0, 210.0, (11, 13)), (120.0, 180.0, (3, 3)))
"""Rides per second, for how many seconds, and the least and most instances that are right."""
_PERIOD_S = 20.0
_LOOK_S = 0.5
_START_PATIENCE_S = 600.0
_DRAIN_PATIENCE_S = 300.0
_PIPELINE = """
from pathlib import Path
from examples.paper_workloads.taxi_zones import taxi_zones

pipeline = taxi_zones(kept=Path({kept!r}))
records = "examples.paper_workloads.taxi_zone_rides:table"
load = {load!r}
"""
_DIFFERS = (
    "A decision every 20 s, not every 10: a batch of a predecessor takes 2 s, and a load is measured over several "
    "of them. All instances decide at the same times of the clock, as in the simulations.",
    "Stretches of 150, 210 and 180 s in place of 300. The thesis has 16 cores for every instance, here all "
    "instances share two: a ride costs inZone 12 ms of waiting, not of computing.",
    "Records are shared by the predecessor among the inboxes of the instances that it knows (Figure 4.5), not "
    "among the partitions of one topic: what instances receive is even, and no rebalancing stops them.",
    "A new instance receives its share before its Spark is up, and works that off later: its send rate first is 0 "
    "and then higher than the others'.",
)


@dataclass(frozen=True, kw_only=True)
class _Moment:
    at_s: float
    instances: int
    fed: int


@dataclass(kw_only=True)
class _Story:
    """What was seen from outside while it ran."""

    moments: list[_Moment] = field(default_factory=list)
    killed: dict[str, str] = field(default_factory=dict)
    """Who, when it was scaling out, and when in."""
    began_s: float = 0.0
    seen: set[str] = field(default_factory=set)
    """The instances at the last look."""


@dataclass(frozen=True, kw_only=True)
class _Result:
    story: _Story
    events: Sequence[Mapping[str, Any]]
    metrics: Sequence[Mapping[str, Any]]
    expected: Sequence[int]
    found: Sequence[int]

    @property
    def missing(self) -> int:
        return len(set(self.expected) - set(self.found))

    @property
    def repeated(self) -> int:
        return len(self.found) - len(set(self.found))

    def count_at_the_end(self, stretch: int) -> int:
        """The count that held for the longest part of the last third of a stretch."""
        ends_s = sum(lasts_s for _, lasts_s, _ in _STRETCHES[: stretch + 1])
        begins_s = ends_s - _STRETCHES[stretch][1] / 3
        seen = [moment.instances for moment in self.story.moments if begins_s <= moment.at_s < ends_s]
        return max(set(seen), key=seen.count)


@experiment(
    "decentralized-taxi-spark",
    paper="Belkhiria's thesis, §4.3.2, Figure 4.8",
    question="Do instances on Spark that decide for themselves follow the load, and is every ride counted once?",
    minutes=12,
)
def run(tell: Progress) -> Report:
    with tempfile.TemporaryDirectory(prefix="elastream-taxi-") as scratch:
        result = _run(Path(scratch), tell)
    return Report(
        checks=(*_count_checks(result), *_record_checks(result)),
        differs=_DIFFERS,
        data=_as_data(result),
        plot=partial(_plot, result),
    )


def _run(folder: Path, tell: Progress) -> _Result:
    # not above: the list of experiments does not need Spark
    from elastream.decentralized.spark.events import all_events, all_metrics
    from elastream.decentralized.spark.launch import feeding, run_folder, start, stop
    from elastream.decentralized.spark.settings import RunSettings
    from elastream.engines.spark.channels.files import FileChannel
    from elastream.engines.spark.run import read_pipeline
    from examples.paper_workloads.taxi_zone_rides import in_zone
    from examples.paper_workloads.taxi_zones import CAPACITY_PER_S

    file, kept, where = folder / "taxi.py", FileChannel(folder / "kept"), run_folder(folder / "run", "taxi")
    file.write_text(_PIPELINE.format(kept=str(kept.log.folder), load={"steps": _steps()}), encoding="utf-8")
    found = read_pipeline(file)
    start(where, found, RunSettings(pipeline=file, capacities={_SCALES: CAPACITY_PER_S}, period_s=_PERIOD_S))
    story = _Story()
    try:
        tell("starting; it takes about ten minutes", 0.0)
        _wait(lambda: _all_run(where), _START_PATIENCE_S, "the first instances do not start")
        with feeding(where, found):
            _watch(where, story, tell)
        fed = FileChannel(where.feed("rides")).log.head().records
        expected = in_zone(range(fed))
        tell("draining", 0.95)
        _wait(lambda: kept.log.head().records >= len(expected), _DRAIN_PATIENCE_S, "rides are missing", fail=False)
    finally:
        stop(where)
    numbers = sorted(number for table in kept.tables() for number in table["id"].to_pylist())
    events, metrics = all_events(where), all_metrics(where)
    return _Result(story=story, events=events, metrics=metrics, expected=expected, found=numbers)


def _steps() -> list[list[float]]:
    begins_s = [sum(lasts_s for _, lasts_s, _ in _STRETCHES[:number]) for number in range(len(_STRETCHES))]
    return [[begin_s, rate] for begin_s, (rate, _, _) in zip(begins_s, _STRETCHES, strict=True)]


def _all_run(run: Any) -> bool:
    from elastream.decentralized.spark.events import read_events

    folders = run.instances()
    return len(folders) >= 4 and all(
        any(event["event"] == "data job" for event in read_events(folder.events)) for folder in folders
    )


def _watch(run: Any, story: _Story, tell: Progress) -> None:
    from elastream.decentralized.spark.overview import counts, look
    from elastream.engines.spark.channels.files import FileChannel

    feed, lasts_s = FileChannel(run.feed("rides")), sum(lasts_s for _, lasts_s, _ in _STRETCHES)
    story.began_s = time.time()
    while (at_s := time.time() - story.began_s) < lasts_s:
        views = look(run)
        instances = counts(views).get(_SCALES, 0)
        story.moments.append(_Moment(at_s=at_s, instances=instances, fed=feed.log.head().records))
        _kill_where_due(run, views, story, at_s)
        tell(f"{instances} instances of {_SCALES}, {os.getloadavg()[0]:.0f} processes want a core", at_s / lasts_s)
        time.sleep(_LOOK_S)


def _kill_where_due(run: Any, views: Sequence[Any], story: _Story, at_s: float) -> None:
    """The one that duplicates as the load rises, as soon as its copy is there; and the first one that leaves."""
    from elastream.decentralized.protocol.instance import InstancePhase

    first_s, second_s = _STRETCHES[0][1], _STRETCHES[0][1] + _STRETCHES[1][1]
    mine = [view for view in views if view.operator == _SCALES]
    if at_s < first_s:
        _new_instances(run, story)
    elif "out" not in story.killed:
        for address in _new_instances(run, story):
            if _kill(run, parent := address.rpartition(".")[0]):
                story.killed["out"] = parent
                return
    if at_s > second_s and "in" not in story.killed:
        for view in mine:
            if view.phase in (InstancePhase.LEAVING, InstancePhase.DRAINING) and _kill(run, view.address):
                story.killed["in"] = view.address
                return


def _new_instances(run: Any, story: _Story) -> list[str]:
    """Those that were not there at the last look: a folder comes before its process."""
    found = {folder.me for folder in run.instances()}
    new, story.seen = sorted(found - story.seen), found
    return new


def _kill(run: Any, address: str) -> bool:
    from elastream.decentralized.spark.folders import read_whole

    endpoint = read_whole(run.instance(address).endpoint)
    if endpoint is None:
        return False
    try:
        os.kill(endpoint["pid"], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _wait(true: Callable[[], bool], patience_s: float, what: str, *, fail: bool = True) -> None:
    deadline_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline_s:
            if fail:
                raise ElastreamError(f"{what} in {patience_s:.0f} s")
            return
        time.sleep(_LOOK_S)


# What is made of it


def _count_checks(result: _Result) -> list[Check]:
    checks = []
    for number, (rate, _, (least, most)) in enumerate(_STRETCHES):
        count = result.count_at_the_end(number)
        right = f"{least}" if least == most else f"{least} to {most}"
        checks.append(
            Check(
                what=f"instances of {_SCALES} at {rate:g} rides/s",
                ours=str(count),
                paper="follows" if number else "about 5",
                bound=right,
                holds=least <= count <= most,
            )
        )
    return checks


def _record_checks(result: _Result) -> list[Check]:
    back = {event["instance"]: event["incarnation"] for event in result.events if event["event"] == "began"}
    killed = result.story.killed
    came_back = {address for address in killed.values() if back.get(address, 0) > 1}
    return [
        Check(
            what="rides counted",
            ours=f"{len(result.found):,} of {len(result.expected):,}, {result.missing} missing, "
            f"{result.repeated} twice",
            bound="each once",
            holds=list(result.found) == list(result.expected),
        ),
        Check(
            what="killed with SIGKILL, and back",
            ours=", ".join(f"{who} while scaling {when}" for when, who in killed.items()) or "nobody",
            bound="one while scaling out, one while scaling in",
            holds=set(killed) == {"out", "in"} and came_back == set(killed.values()),
        ),
    ]


def _as_data(result: _Result) -> dict[str, Any]:
    story = result.story
    return {
        "period_s": _PERIOD_S,
        "instances": [[round(moment.at_s, 1), moment.instances] for moment in story.moments[::2]],
        "fed": [[round(moment.at_s, 1), moment.fed] for moment in story.moments[::10]],
        "killed": story.killed,
        "decisions": [
            {"at_s": round(event["at_s"] - story.began_s, 1), **{k: v for k, v in event.items() if k != "at_s"}}
            for event in result.events
            if event["event"] == "decided" and event["action"] != "Stay"
        ],
        "refused": [event["why"] for event in result.events if event["event"] == "refused"],
    }


def _plot(result: _Result, file: Path) -> None:
    figure, (sent, fed, instances) = plots.new_figure(
        3, title="Taxi rides through instances that scale themselves on Spark (the thesis, Figure 4.8)"
    )
    for address, series in _send_rates(result).items():
        sent.plot(*zip(*series, strict=True), linewidth=0.8, label=address)
    moments = result.story.moments[::10]
    rates = [(b.at_s, (b.fed - a.fed) / (b.at_s - a.at_s)) for a, b in pairwise(moments)]
    if rates:
        fed.plot(*zip(*rates, strict=True), color=colours.COLOURS[0])
    instances.step(
        [moment.at_s for moment in result.story.moments],
        [moment.instances for moment in result.story.moments],
        where="post",
        color=colours.COLOURS[1],
    )
    sent.set_ylabel("processed by each\ninstance, rides/s")
    fed.set_ylabel("input, rides/s")
    instances.set_ylabel(f"instances of\n{_SCALES}")
    instances.set_xlabel("seconds")
    plots.save(figure, file)


def _send_rates(result: _Result) -> dict[str, list[tuple[float, float]]]:
    """Of each instance, records processed per second between two of its own measurements."""
    found: dict[str, list[tuple[float, float]]] = {}
    last: dict[str, tuple[float, int]] = {}
    for event in result.metrics:
        address = str(event["instance"])
        if not address.startswith(f"{_SCALES}/"):
            continue
        at_s, processed = event["at_s"] - result.story.began_s, int(event["processed"])
        if address in last and at_s > last[address][0] + 5:
            before_s, before = last[address]
            found.setdefault(address, []).append((at_s, max(0, processed - before) / (at_s - before_s)))
        if address not in last or at_s > last[address][0] + 5:
            last[address] = (at_s, processed)
    return {address: series for address, series in found.items() if series}
