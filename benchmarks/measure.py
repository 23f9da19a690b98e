"""What every benchmark gives, and how it takes the time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Prepared = TypeVar("Prepared")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One thing that was measured. Without a bound it is only shown."""

    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    between: tuple[float, float] | None = None
    """The interval in which the value lies with 95 % certainty, where it was estimated."""

    @property
    def holds(self) -> bool:
        # written so that a value that is no number holds nothing
        not_above = self.at_most is None or self.value <= self.at_most
        not_below = self.at_least is None or self.value >= self.at_least
        return not_above and not_below


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was measured, and what a reader has to know to understand it: conditions, and numbers of others."""

    measures: tuple[Measure, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    name: str
    question: str
    run: Callable[[], Report]
    quick: Callable[[], Report]
    """The same over less: it shows that the program works, and its numbers mean little."""
    minutes: float = 1.0
    """About how long it runs."""


def median_cpu_s(work: Callable[[Prepared], object], *, prepare: Callable[[], Prepared], repeats: int) -> float:
    """The median processor time of some work, each time on something freshly prepared.

    Processor time, as what else the machine does is not ours; fresh, as snapshots keep what they computed; and
    without the garbage collector, as in timeit: it visits everything that is alive, not only what the work made.
    """
    times_s = []
    for _ in range(repeats):
        prepared = prepare()
        gc.collect()
        gc.disable()
        try:
            begin_s = time.process_time()
            work(prepared)
            times_s.append(time.process_time() - begin_s)
        finally:
            gc.enable()
    return median(times_s)
