"""What is remembered of one query, from its progress and its stages: batches, what arrives, what waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from elastream.attached.batch import BatchRun
from elastream.attached.from_spark import epoch_s, splits_by_cores, waiting_rows
from elastream.attached.load import QueryLoad, latency_of
from elastream.attached.model import fit
from elastream.measurement.whole_job import EndedBatch

_KEPT = 60  # batches
_FITTED = 20  # of those: the first of a run are slow until the JVM has compiled what they do
_CUT_OFF = 3  # batches in a row that left rows at the source: then something limits them
_RECENT_S = 60.0  # of what arrives, the trend is taken over


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """Rows that a batch took, and those that the source had left."""

    started_s: float
    rows: float
    left: float | None


@dataclass
class QueryWatch:
    """One run of a query."""

    name: str
    run: str
    interval_s: float = 0.0
    asked_latency_s: float | None = None
    left_alone: str | None = None
    splits_by_cores: bool = False
    arrivals: deque[Arrival] = field(default_factory=lambda: deque(maxlen=_KEPT))
    batches: deque[BatchRun] = field(default_factory=lambda: deque(maxlen=_KEPT))
    newest: int = -1
    """The newest batch whose progress is known."""
    ended: list[EndedBatch] = field(default_factory=list)
    """Batches since somebody took them: a policy may count every one."""
    _untold: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Progress of batches whose stages are not known yet."""

    def progressed(self, entries: Iterable[Mapping[str, Any]]) -> None:
        for entry in entries:
            number = int(entry["batchId"])
            if number <= self.newest or "addBatch" not in entry.get("durationMs", {}):
                continue  # a look that found nothing to do has the number of the batch after it
            self.newest = number
            self.splits_by_cores = splits_by_cores(entry)
            # the first one of a run starts Python workers and opens state: seconds that say nothing
            if self.arrivals or number > 0:
                self._untold[number] = entry
            self.arrivals.append(
                Arrival(
                    started_s=epoch_s(entry["timestamp"]),
                    rows=float(entry["numInputRows"]),
                    left=waiting_rows(entry),
                )
            )
            took_s = float(entry["durationMs"].get("triggerExecution", 0)) / 1000
            self.ended.append(EndedBatch(query=self.name, took_s=took_s, interval_s=self.interval_s))
        del self.ended[:-_KEPT]
        for number in sorted(self._untold)[:-_KEPT]:
            del self._untold[number]

    def take_ended(self) -> tuple[EndedBatch, ...]:
        taken, self.ended = tuple(self.ended), []
        return taken

    def untold(self) -> Mapping[int, Mapping[str, Any]]:
        return dict(self._untold)

    def learn(self, batch: BatchRun) -> None:
        self._untold.pop(batch.batch, None)
        self.batches.append(batch)

    def forget(self, number: int) -> None:
        """A batch that says nothing."""
        self._untold.pop(number, None)

    @property
    def latency_s(self) -> float:
        return latency_of(self.asked_latency_s, self.interval_s)

    @property
    def waiting(self) -> float | None:
        """Beyond what one batch takes: that of the newest, as it does not grow while nobody looks."""
        return self.arrivals[-1].left if self.arrivals else None

    @property
    def limit_rows(self) -> float | None:
        recent = list(self.arrivals)[-_CUT_OFF:]
        if len(recent) < _CUT_OFF or not all(arrival.left and arrival.rows for arrival in recent):
            return None
        return median(arrival.rows for arrival in recent)

    def rates(self, since_s: float | None = None) -> list[tuple[float, float, float]]:
        """For each batch: when it began, the rows each second that arrived before it, and those that it took."""
        found = []
        kept = list(self.arrivals)
        for before, now in pairwise(kept):
            span_s = now.started_s - before.started_s
            if span_s <= 0 or (since_s is not None and now.started_s < since_s):
                continue
            grown = (now.left or 0.0) - (before.left or 0.0)
            found.append((now.started_s, max(0.0, (now.rows + grown) / span_s), now.rows / span_s))
        return found

    def arriving_per_s(self) -> float:
        """Over the newest half minute, or the newest two batches where they are longer apart."""
        return _mean_rate(self.rates(), self.arrivals[-1].started_s - _RECENT_S / 2 if self.arrivals else 0.0, 1)

    def taken_per_s(self) -> float:
        return _mean_rate(self.rates(), self.arrivals[-1].started_s - _RECENT_S / 2 if self.arrivals else 0.0, 2)

    def growth_per_s2(self) -> float:
        """By how much more rows arrive each second, by a line through the last minute; 0 where it is noise."""
        rates = self.rates(self.arrivals[-1].started_s - _RECENT_S) if self.arrivals else []
        if len(rates) < 4:
            return 0.0
        at_s = np.array([rate[0] for rate in rates]) - rates[0][0]
        per_s = np.array([rate[1] for rate in rates])
        (slope, _), covariance = np.polyfit(at_s, per_s, 1, cov=True)
        return float(slope) if abs(slope) > 2 * float(np.sqrt(covariance[0, 0])) else 0.0

    def load(self) -> QueryLoad:
        return QueryLoad(
            name=self.name,
            rows_per_s=self.arriving_per_s(),
            latency_s=self.latency_s,
            interval_s=self.interval_s,
            growth_per_s2=self.growth_per_s2(),
            waiting=self.waiting,
            limit_rows=self.limit_rows,
            model=fit(list(self.batches)[-_FITTED:], splits_by_cores=self.splits_by_cores),
        )


def _mean_rate(rates: list[tuple[float, float, float]], since_s: float, which: int) -> float:
    recent = [rate for rate in rates if rate[0] >= since_s][-_KEPT:] or rates[-2:]
    if not recent:
        return 0.0
    return float(np.mean([rate[which] for rate in recent]))
