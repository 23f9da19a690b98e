"""A reading: what one instance of one operator did in one window of observed time.

Useful time (DS2 §3.2) is the time spent on deserializing, processing and serializing; waiting for input or
for room in the output is not useful. What an engine cannot measure is `None`, never a made-up zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastream.errors import InvalidInput
from elastream.measurement.thresholds import MOST_AMOUNT

_CLOCK_SLACK = 1e-6  # a share of the window: two clocks that measured the same span may differ by rounding
_CLOCK_TICK_S = 1e-9  # less than that is the rounding of a clock, and no time at all


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    operator: str
    instance: int = 0
    window_s: float
    useful_s: float
    records_in: float
    records_out: float | Mapping[str, float]
    """To every downstream operator alike, or one count for each."""
    records_late: float | None = None
    """Records that came behind the watermark and were dropped, where the engine knows of event time.

    Spark counts where its state operator drops them: in an aggregate, records of a group in a batch are one.
    """
    backlog: float | None = None
    """Records that waited for this instance when the window ended."""
    overdue: float | None = None
    """Of the backlog, what no batch had taken although it waited for longer than one may take; of engines that
    work in batches, where the newest records always wait."""
    wait_in_s: float | None = None
    wait_out_s: float | None = None
    """Held back by the operators after it: backpressure."""
    wait_core_s: float | None = None
    """Ready to work, while every core was in use."""
    latency_s: float | None = None
    cpu_utilization: float | None = None
    memory_utilization: float | None = None
    heap_utilization: float | None = None
    """Of the heap of the process that it runs in."""
    state_size: float | None = None
    """Bytes of state that it keeps."""
    metrics: Mapping[str, float] | None = None
    """What an agent read, by the name and in the unit of `policies/rules/metrics.py`. Where it is given, rules
    look at nothing else: a zero among the fields above may then mean that nobody measured it."""

    def __post_init__(self) -> None:
        if self.instance < 0:
            raise InvalidInput(f"reading of {self.operator!r}: instance must be at least 0, found {self.instance}")
        for field in ("window_s", "useful_s", "records_in"):
            self._check(field, getattr(self, field))
        for field in _MEASURED_BY_SOME:
            if getattr(self, field) is not None:
                self._check(field, getattr(self, field))
        if isinstance(self.records_out, Mapping):
            for consumer, count in self.records_out.items():
                self._check(f"records_out to {consumer!r}", count)
        else:
            self._check("records_out", self.records_out)
        for metric, value in (self.metrics or {}).items():
            self._check(f"metrics[{metric!r}]", value)
        if self.window_s < _CLOCK_TICK_S:
            raise InvalidInput(f"{self._name}: window_s must be above 0, found {self.window_s}")
        if self.useful_s > self.window_s * (1 + _CLOCK_SLACK):
            raise InvalidInput(f"{self._name}: useful_s ({self.useful_s:g}) is above window_s ({self.window_s:g})")

    @property
    def _name(self) -> str:
        return f"reading of {self.operator!r} instance {self.instance}"

    def _check(self, field: str, value: float) -> None:
        if not 0 <= value <= MOST_AMOUNT:  # most are right, and there are many: no text for those
            check_amount(f"{self._name}: {field}", value)

    @property
    def has_useful_time(self) -> bool:
        return self.useful_s >= _CLOCK_TICK_S

    def records_out_to(self, consumer: str) -> float:
        if isinstance(self.records_out, Mapping):
            return self.records_out.get(consumer, 0.0)
        return self.records_out


def check_amount(what: str, value: float) -> None:
    """Refuse what cannot be a count, a duration or a rate."""
    if not value >= 0:  # nor is NaN
        raise InvalidInput(f"{what} must be a number of at least 0, found {value}")
    if value > MOST_AMOUNT:
        raise InvalidInput(f"{what} must be at most {MOST_AMOUNT:g}, found {value}")


_MEASURED_BY_SOME = (
    "records_late",
    "backlog",
    "overdue",
    "wait_in_s",
    "wait_out_s",
    "wait_core_s",
    "latency_s",
    "cpu_utilization",
    "memory_utilization",
    "heap_utilization",
    "state_size",
)
