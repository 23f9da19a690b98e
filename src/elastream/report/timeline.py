"""The windows of a recording, laid end to end on a clock that begins with 0.

The time of an action lies between two windows and belongs to the one after it. A longer time without windows, in
which nobody watched, is left out.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from elastream.measurement import Snapshot

_LONGEST_PAUSE_S = 120.0
_LONGEST_PAUSE = 3.0  # windows


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A span of time with one plan and one load."""

    begin_s: float
    lasts_s: float
    snapshot: Snapshot

    @property
    def end_s(self) -> float:
        return self.begin_s + self.lasts_s

    @property
    def records_per_s(self) -> float:
        """That arrived at all sources together."""
        return sum(self.snapshot.source_rates.values())

    @property
    def waiting(self) -> float | None:
        """Records that waited anywhere when it ended; None where nothing was measured of that."""
        known = [
            rates.totals.backlog
            for rates in self.snapshot.measurements.values()
            if rates.totals.backlog is not None
        ]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True)
class ChartSeries:
    """A quantity over the time of the run, in seconds since it began."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    stretches: tuple[Stretch, ...]
    unwatched_s: float = 0.0
    """Time between windows that is left out."""
    other_graph: int = 0
    """Windows before the first of these in which the pipeline had other operators; they are left out."""

    @property
    def began_s(self) -> float:
        """By the clock of the recording."""
        first = self.stretches[0]
        return first.snapshot.at_s - first.lasts_s

    @property
    def duration_s(self) -> float:
        return self.stretches[-1].end_s

    @cached_property
    def _ends_at_s(self) -> list[float]:
        return [stretch.snapshot.at_s for stretch in self.stretches]

    def since(self, at_s: float) -> float:
        """A time of the recording by this clock; what happens between two windows happens as the first ends."""
        number = min(bisect.bisect_left(self._ends_at_s, at_s), len(self.stretches) - 1)
        stretch = self.stretches[number]
        return min(stretch.end_s, max(stretch.begin_s, stretch.end_s - (stretch.snapshot.at_s - at_s)))

    def series(self, value: Callable[[Stretch], float]) -> ChartSeries:
        """What each stretch has, from its beginning on."""
        begins_s = tuple(stretch.begin_s for stretch in self.stretches)
        return ChartSeries(times_s=begins_s, values=tuple(float(value(stretch)) for stretch in self.stretches))

    def series_at_ends(self, value: Callable[[Stretch], float | None]) -> ChartSeries:
        """What is seen as each stretch ends; those of which it is not known are left out."""
        found = [(stretch.end_s, value(stretch)) for stretch in self.stretches]
        known = [(end_s, seen) for end_s, seen in found if seen is not None]
        return ChartSeries(times_s=tuple(end_s for end_s, _ in known), values=tuple(seen for _, seen in known))

    def at(self, since_s: float) -> Stretch:
        """The stretch that a moment lies in; the last one for those after it."""
        number = bisect.bisect_right(self.stretches, since_s, key=lambda stretch: stretch.begin_s)
        return self.stretches[max(0, number - 1)]


def timeline(snapshots: Sequence[Snapshot]) -> Timeline:
    """Of the windows since the pipeline last got other operators."""
    same = _same_graph(snapshots)
    stretches: list[Stretch] = []
    unwatched_s = now_s = 0.0
    for index, snapshot in enumerate(same):
        window_s = snapshot.window_s
        lasts_s = window_s
        if index:
            passed_s = snapshot.at_s - same[index - 1].at_s
            paused = passed_s - window_s > max(_LONGEST_PAUSE_S, _LONGEST_PAUSE * window_s)
            unwatched_s += passed_s - window_s if paused else 0.0
            lasts_s = window_s if paused and window_s > 0 else passed_s
        if lasts_s > 0:
            stretches.append(Stretch(begin_s=now_s, lasts_s=lasts_s, snapshot=snapshot))
            now_s += lasts_s
    if not stretches:  # one window without readings: it has no length of its own
        stretches.append(Stretch(begin_s=0.0, lasts_s=1.0, snapshot=same[-1]))
    return Timeline(stretches=tuple(stretches), unwatched_s=unwatched_s, other_graph=len(snapshots) - len(same))


def _same_graph(snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
    graph = _graph(snapshots[-1])
    for number in range(len(snapshots), 0, -1):
        if _graph(snapshots[number - 1]) != graph:
            return snapshots[number:]
    return snapshots


def _graph(snapshot: Snapshot) -> tuple[object, ...]:
    """Without bounds, which may change while it runs."""
    flow = snapshot.dataflow
    return frozenset(flow.order), frozenset(flow.channels), frozenset(flow.sources)
