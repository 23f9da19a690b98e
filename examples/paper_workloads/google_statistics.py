"""The statistics of the SEEP thesis's query over a Google cluster (5.3.3), without Spark.

A machine's state is its running tasks with what each asked for. It tells its sums once for every interval of trace
time in which something happened to it; where nothing did, they are as before. The cluster's state is what every
machine last told. An interval is over when all events before its end are in, and that must not depend on the order
in which machines tell, on batches or on watermarks. Events are numbered without gaps, in order of time, so

    events told of up to interval k  ≤  events up to k  ≤  the least number that was told of a later interval

and where the first equals the last, nothing is missing.

Sums are exact before they are rounded (`fsum`), so that they do not depend on an order either. Percentiles lie on
the line between two machines, as NumPy and pandas have them; the library of the thesis has another definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, NamedTuple

import numpy as np

INTERVAL_S = 900
"""Of trace time between two results: 96 a day for every machine."""
PERCENTILES = {"median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("total", "average", *PERCENTILES)
NOW = "now"
"""The statistic of a single machine: what it has."""


class Sums(NamedTuple):
    tasks: float
    cpu: float
    memory: float
    disk: float


class Event(NamedTuple):
    number: int
    at_us: int
    job: int
    task: int
    runs: bool
    cpu: float
    memory: float
    disk: float


class MachineReport(NamedTuple):
    """What a machine tells of one interval: its sums after the last of its events so far."""

    machine: int
    interval: int
    first: int
    """The least of the numbers of these events."""
    last: int
    events: int
    sums: Sums


class Result(NamedTuple):
    at_s: int
    """Trace time: the end of an interval."""
    machine: int | None
    """None of the cluster as a whole."""
    statistic: str
    sums: Sums


@dataclass
class MachineState:
    running: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """What each task asks for: of the cores, the memory and the disk of a machine."""

    def take(
        self, machine: int, events: Iterable[Event], interval_s: float = INTERVAL_S
    ) -> Iterator[MachineReport]:
        """Apply events, which may come in any order, and tell of each interval that they are in."""
        by_interval: dict[int, list[Event]] = {}
        for event in sorted(events):
            by_interval.setdefault(int(event.at_us // (interval_s * 1e6)), []).append(event)
        for interval, its in by_interval.items():
            for event in its:
                self._apply(event)
            yield MachineReport(machine, interval, its[0].number, its[-1].number, len(its), self.sums())

    def sums(self) -> Sums:
        asked = list(zip(*self.running.values(), strict=True)) or [(), (), ()]
        return Sums(float(len(self.running)), *(fsum(values) for values in asked))

    def _apply(self, event: Event) -> None:
        task = f"{event.job}/{event.task}"
        if event.runs:  # also an update: the task then asks for something else
            self.running[task] = (event.cpu, event.memory, event.disk)
        else:
            self.running.pop(task, None)  # one that nobody saw begin has no part in the sums

    def to_text(self) -> str:
        return json.dumps(self.running)

    @classmethod
    def from_text(cls, text: str) -> MachineState:
        return cls({task: tuple(asked) for task, asked in json.loads(text).items()})


@dataclass
class ClusterState:
    sums: dict[int, Sums] = field(default_factory=dict)
    """Of each machine, at the end of the last interval that is over."""
    interval: int = 0
    """The first that is not over."""
    events: int = 0
    """In all intervals before it."""
    waiting: dict[int, dict[int, MachineReport]] = field(default_factory=dict)
    """What was told of intervals that are not over, by interval and machine: the newest, with the count of all."""

    def take(self, told: Iterable[MachineReport], interval_s: float = INTERVAL_S) -> Iterator[Result]:
        """The results of the intervals that are over with this, in order of time."""
        for one in told:
            machines = self.waiting.setdefault(one.interval, {})
            machines[one.machine] = _merged(machines.get(one.machine), one)
        while self._is_over():
            for machine, one in self.waiting.pop(self.interval, {}).items():
                self.sums[machine] = one.sums
                self.events += one.events
            self.interval += 1
            if self.sums:
                yield from results(round(self.interval * interval_s), self.sums)

    def _is_over(self) -> bool:
        told = sum(one.events for one in self.waiting.get(self.interval, {}).values())
        later = [machines.values() for interval, machines in self.waiting.items() if interval > self.interval]
        return bool(later) and self.events + told == min(one.first for its in later for one in its)

    def to_text(self) -> str:
        waiting = [one for machines in self.waiting.values() for one in machines.values()]
        rows = [(*one[:-1], *one.sums) for one in waiting]
        return json.dumps([list(self.sums.items()), self.interval, self.events, rows])

    @classmethod
    def from_text(cls, text: str) -> ClusterState:
        sums, interval, events, waiting = json.loads(text)
        found = cls({machine: Sums(*values) for machine, values in sums}, interval, events)
        for one in map(told_of, waiting):
            found.waiting.setdefault(one.interval, {})[one.machine] = one
        return found


def told_of(row: Sequence[Any]) -> MachineReport:
    """From its values in a row, whose numbers may be those of NumPy, which cannot be written as JSON."""
    machine, interval, first, last, events = map(int, row[:5])
    return MachineReport(machine, interval, first, last, events, Sums(*map(float, row[5:])))


def _merged(before: MachineReport | None, one: MachineReport) -> MachineReport:
    if before is None:
        return one
    newest = max(before, one, key=lambda each: each.last)
    return newest._replace(first=min(before.first, one.first), events=before.events + one.events)


def results(at_s: int, machines: Mapping[int, Sums]) -> Iterator[Result]:
    """Those of the cluster, and of every machine that was heard of."""
    columns: Sequence[tuple[float, ...]] = list(zip(*machines.values(), strict=True))
    totals = [fsum(column) for column in columns]
    yield Result(at_s, None, "total", Sums(*totals))
    yield Result(at_s, None, "average", Sums(*(total / len(machines) for total in totals)))
    found = np.percentile(np.array(columns), list(PERCENTILES.values()), axis=1)
    for statistic, values in zip(PERCENTILES, found, strict=True):
        yield Result(at_s, None, statistic, Sums(*map(float, values)))
    for machine, sums in machines.items():
        yield Result(at_s, machine, NOW, sums)
