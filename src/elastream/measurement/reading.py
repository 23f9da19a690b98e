"""A reading: what one instance of an operator did in one window of observed time, or several together.

Useful time (DS2 §3.2) is the time spent on deserializing, processing and serializing; waiting for input or
for room in the output is not useful. An engine measures at the grain that it has: one with lasting instances
gives a reading of each, one whose tasks come and go gives one of all together, with how the tasks differed.
What an engine cannot measure is `None`, never a made-up zero.

The rates are equations 1 to 4 of DS2:

    (1) true processing rate  = records in  / useful time      (3) observed processing rate = records in  / window
    (2) true output rate      = records out / useful time      (4) observed output rate     = records out / window
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from operator import attrgetter
from typing import Annotated, Any

from elastream.errors import InvalidInput
from elastream.measurement.amounts import MOST_AMOUNT, check_amount
from elastream.measurement.quantity import Combine, Quantity, declared_in
from elastream.measurement.tasks import TaskSpread

_CLOCK_SLACK = 1e-6  # a share of the window: two clocks that measured the same span may differ by rounding
_CLOCK_TICK_S = 1e-9  # less than that is the rounding of a clock, and no time at all
_MAPPING = (dict, Mapping)  # nearly all are the first, and to ask for the second is slow


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Every number is the total of the instances, but for those that are combined otherwise."""

    operator: str
    instance: int = 0
    """Which one; the first, where it is of several."""
    instances: int = 1
    """How many it is of."""
    window_s: Annotated[float, Quantity("how long was observed", instances=Combine.LARGEST)]
    useful_s: Annotated[float, Quantity("the time of useful work")]
    records_in: Annotated[float, Quantity("records that the operator took in", counter="records")]
    records_out: float | Mapping[str, float]
    """To every downstream operator alike, or one count for each."""
    records_late: Annotated[
        float | None,
        Quantity(
            "records dropped because they came behind the watermark, at least as many; null without event time",
            windows=Combine.SUM,
            counter="late_records",
        ),
    ] = None
    """Spark counts where its state operator drops them: in an aggregate, records of a group in a batch are one."""
    backlog: Annotated[
        float | None,
        Quantity(
            "records that waited for it when the window ended", windows=Combine.LARGEST, gauge="backlog_records"
        ),
    ] = None
    overdue: Annotated[float | None, Quantity("of the backlog, what waited for longer than a batch may take")] = (
        None
    )
    """Of engines that work in batches, where the newest records always wait."""
    wait_in_s: Annotated[float | None, Quantity("the time of waiting for input")] = None
    wait_out_s: Annotated[float | None, Quantity("the time held back by the operators after it: backpressure")] = (
        None
    )
    wait_core_s: Annotated[float | None, Quantity("the time ready to work, while every core was in use")] = None
    latency_s: Annotated[
        float | None,
        Quantity(
            "how long a record waits and is worked on",
            instances=Combine.LARGEST,
            windows=Combine.LARGEST,
            gauge="latency_seconds",
        ),
    ] = None
    cpu_utilization: Annotated[
        float | None,
        Quantity("share of a core that it computed on", instances=Combine.MEAN, gauge="cpu_utilization_ratio"),
    ] = None
    memory_utilization: Annotated[
        float | None, Quantity("share of its memory that is in use", instances=Combine.MEAN)
    ] = None
    heap_utilization: Annotated[
        float | None,
        Quantity(
            "share of the heap in use, of the process that it runs in",
            instances=Combine.MEAN,
            gauge="heap_utilization_ratio",
        ),
    ] = None
    state_size: Annotated[float | None, Quantity("bytes of state that it keeps", gauge="state_bytes")] = None
    tasks: TaskSpread | None = None
    """How its newest batch was spread over tasks, where tasks are no lasting instances."""
    metrics: Mapping[str, float] | None = None
    """What an agent read, by the name and in the unit of `policies/rules/metrics.py`. Where it is given, rules
    look at nothing else: a zero among the fields above may then mean that nobody measured it."""

    def __post_init__(self) -> None:
        if not (0 <= self.instance <= MOST_AMOUNT and 1 <= self.instances <= MOST_AMOUNT):  # nor is NaN
            self._refuse_instances()
        for field, value in zip(QUANTITIES, _amounts(self), strict=True):
            if value is not None and not 0 <= value <= MOST_AMOUNT:  # most are right, and there are many
                self._check(field, value)
        if isinstance(self.records_out, _MAPPING):
            for consumer, count in self.records_out.items():
                self._check(f"records_out to {consumer!r}", count)
        else:
            self._check("records_out", self.records_out)
        for metric, value in (self.metrics or {}).items():
            self._check(f"metrics[{metric!r}]", value)
        if self.window_s < _CLOCK_TICK_S:
            raise InvalidInput(f"{self._name}: window_s must be above 0, found {self.window_s}")
        if self.useful_s > self.window_s * self.instances * (1 + _CLOCK_SLACK):
            of = "window_s" if self.instances == 1 else f"{self.instances} times window_s"
            raise InvalidInput(f"{self._name}: useful_s ({self.useful_s:g}) is above {of} ({self.window_s:g})")

    @property
    def _name(self) -> str:
        which = f"instance {self.instance}" if self.instances == 1 else f"{self.instances} instances"
        return f"reading of {self.operator!r} {which}"

    def _refuse_instances(self) -> None:
        for field, least in (("instance", 0), ("instances", 1)):
            value = getattr(self, field)
            if not least <= value <= MOST_AMOUNT:
                expected = f"at most {MOST_AMOUNT:g}" if value > MOST_AMOUNT else f"at least {least}"
                raise InvalidInput(f"reading of {self.operator!r}: {field} must be {expected}, found {value}")

    def _check(self, field: str, value: float) -> None:
        if not 0 <= value <= MOST_AMOUNT:
            check_amount(f"{self._name}: {field}", value)

    @property
    def has_useful_time(self) -> bool:
        """Without it there is no true rate."""
        return self.useful_s >= _CLOCK_TICK_S

    @property
    def true_per_s(self) -> float | None:
        """(1), of all its instances together."""
        return self._true(self.records_in)

    @property
    def observed_per_s(self) -> float:
        """(3)."""
        return self.records_in / self.window_s

    @property
    def utilization(self) -> float:
        return self.share(self.useful_s)

    def true_output_per_s(self, consumer: str) -> float | None:
        """(2), of all its instances together."""
        return self._true(self.records_out_to(consumer))

    def observed_output_per_s(self, consumer: str) -> float:
        """(4)."""
        return self.records_out_to(consumer) / self.window_s

    def _true(self, records: float) -> float | None:
        return self.instances * records / self.useful_s if self.has_useful_time else None

    def share(self, spent_s: float) -> float:
        """A time of all its instances as a share of the window, on their mean."""
        return spent_s / (self.instances * self.window_s)

    def records_out_to(self, consumer: str) -> float:
        if isinstance(self.records_out, _MAPPING):
            return self.records_out.get(consumer, 0.0)
        return self.records_out

    @property
    def mean(self) -> Reading:
        """That of one instance, had they all done the same."""
        if self.instances == 1:
            return self
        totals = {
            name: value / self.instances
            for name, quantity in QUANTITIES.items()
            if quantity.instances is Combine.SUM and (value := getattr(self, name)) is not None
        }
        out = self.records_out
        each: float | dict[str, float] = (
            {consumer: count / self.instances for consumer, count in out.items()}
            if isinstance(out, _MAPPING)
            else out / self.instances
        )
        return replace(self, instances=1, records_out=each, **totals)


QUANTITIES = declared_in(Reading)
_amounts: Callable[[Reading], tuple[float | None, ...]] = attrgetter(*QUANTITIES)


def together(readings: Sequence[Reading]) -> Reading:
    """One reading of all instances of an operator; there must be at least one, each of other instances."""
    if len(readings) == 1:
        return readings[0]
    weights = [reading.instances for reading in readings]
    amounts = zip(*map(_amounts, readings), strict=True)
    combined: dict[str, Any] = {
        name: quantity.instances.of(zip(values, weights, strict=True))
        for (name, quantity), values in zip(QUANTITIES.items(), amounts, strict=True)
    }
    for name, value in combined.items():
        combined[name] = None if value is None else min(value, MOST_AMOUNT)
    return Reading(
        operator=readings[0].operator,
        instance=min(reading.instance for reading in readings),
        instances=sum(reading.instances for reading in readings),
        records_out=_records_out(readings),
        metrics=_metrics(readings),
        **combined,
    )


def _records_out(readings: Sequence[Reading]) -> float | Mapping[str, float]:
    """By consumer, as soon as one of them counted so; one that did not put out as many to each."""
    consumers = dict.fromkeys(c for r in readings if isinstance(r.records_out, _MAPPING) for c in r.records_out)
    if not consumers:
        return min(MOST_AMOUNT, fsum(r.records_out for r in readings if not isinstance(r.records_out, _MAPPING)))
    return {c: min(MOST_AMOUNT, fsum(r.records_out_to(c) for r in readings)) for c in consumers}


def _metrics(readings: Sequence[Reading]) -> Mapping[str, float] | None:
    """Of each metric the mean of the instances whose agent read it."""
    told = [reading.metrics for reading in readings if reading.metrics is not None]
    names = sorted({name for metrics in told for name in metrics})
    means = {name: Combine.MEAN.of((metrics.get(name), 1.0) for metrics in told) for name in names}
    return {name: mean for name, mean in means.items() if mean is not None} if told else None
