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

    @property
    def holds(self) -> bool:
        return self.at_most is None or self.value <= self.at_most


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    name: str
    question: str
    run: Callable[[], tuple[Measure, ...]]


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
