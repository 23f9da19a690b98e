"""A measurement: what is known of one operator for one window, at the grain that its engine measures.

    (5) (6) an operator's true rates are the sums over its instances (DS2 §3.2)

An instance without useful time has no true rate: it is left out of the sums and of the average, so that an
idle instance neither lowers nor raises what its siblings were seen to be able to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from elastream.dataflow.state_partitions import effective_instances
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.quantity import Combine, computed
from elastream.measurement.reading import Reading, together

_SKEWED = 1.5  # times the even share
_BY_CHANCE = 4.0  # standard deviations by which the fullest of evenly fed instances may stand out


def stands_out(most: float, even: float) -> bool:
    """Whether one that got so many records got more than chance explains, where an even share is `even`."""
    return most >= _SKEWED * even and most >= even + _BY_CHANCE * math.sqrt(even)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Sums are exact, so the order of the readings does not matter."""

    operator: str
    readings: tuple[Reading, ...]
    """One of each instance, or one of all together; there is at least one."""
    consumers: tuple[str, ...] = ()
    """The operators after it."""
    batch_cost: BatchCost | None = None
    """What a batch and a record cost, of an operator that works in micro-batches."""
    partitions: int | None = None
    """Of its state: where they cannot be shared evenly, its fullest instance has one more than others."""

    @cached_property
    def totals(self) -> Reading:
        """All instances together."""
        return together(self.readings)

    @property
    def instances(self) -> int:
        """How many reported."""
        return self.totals.instances

    @cached_property
    def useful_instances(self) -> int:
        """How many of those had useful time, and so a true rate."""
        return sum(reading.instances for reading in self.readings if reading.has_useful_time)

    @computed(
        "records processed per second of the window", windows=Combine.MEAN, gauge="observed_records_per_second"
    )
    def observed_per_s(self) -> float:
        return fsum(reading.observed_per_s for reading in self.readings)

    @computed(
        "records per second that all instances together could process, by their useful time",
        windows=Combine.MEAN,
        gauge="true_records_per_second",
    )
    def true_per_s(self) -> float | None:
        return Combine.SUM.of((reading.true_per_s, 1.0) for reading in self.readings)

    @property
    def true_per_instance(self) -> float | None:
        """The average true processing rate of an instance, the divisor of equation 7."""
        return None if self.true_per_s is None else self.true_per_s / self.useful_instances

    @cached_property
    def true_output_per_s(self) -> Mapping[str, float]:
        """To each consumer."""
        return {c: fsum(r.true_output_per_s(c) or 0.0 for r in self.readings) for c in self.consumers}

    @cached_property
    def observed_output_per_s(self) -> Mapping[str, float]:
        return {c: fsum(r.observed_output_per_s(c) for r in self.readings) for c in self.consumers}

    def selectivity(self, consumer: str) -> float | None:
        """Records out to one downstream operator for each record in (the ratio in equation 8).

        The counts tell it as well where the work was too quick to be timed; None where there was no work.
        """
        if self.true_per_s:
            return self.true_output_per_s[consumer] / self.true_per_s
        if self.observed_per_s:
            return self.observed_output_per_s[consumer] / self.observed_per_s
        return None

    @computed("the mean share of the window that was useful time", windows=Combine.MEAN, gauge="utilization_ratio")
    def utilization(self) -> float:
        return fsum(r.instances * r.utilization for r in self.readings) / self.instances

    @cached_property
    def wait_out_share(self) -> float | None:
        """The largest share of the window that an instance was held back by the operators after it."""
        return Combine.LARGEST.of(
            (None if r.wait_out_s is None else r.share(r.wait_out_s), 1.0) for r in self.readings
        )

    @computed("of the time that it wanted a core, the share in which it had none", gauge="core_wait_ratio")
    def wait_core_share(self) -> float | None:
        waited_s = self.totals.wait_core_s
        if waited_s is None:
            return None
        wanted_s = waited_s + self.totals.useful_s
        return waited_s / wanted_s if wanted_s > 0 else 0.0

    @computed("mean busy time of its tasks or instances over the longest; 1 is even", gauge="balance_ratio")
    def balance(self) -> float | None:
        if self.batch_cost is not None:
            return self.batch_cost.balance
        longest = max(reading.utilization for reading in self.readings)
        return self.utilization / longest if longest > 0 else None

    @computed("the share of the records that its largest task or instance took", gauge="largest_share_ratio")
    def largest_share(self) -> float | None:
        if self.totals.tasks is not None:
            return self.totals.tasks.largest_share
        total = self.totals.records_in
        if total <= 0 or any(reading.instances > 1 for reading in self.readings):
            return None
        return max(reading.records_in for reading in self.readings) / total

    @cached_property
    def hottest_key(self) -> float | None:
        """The share of the records that one key must have for the largest task to stand out as it does: 0 where it
        does not, None where that cannot be seen.

        A key of share h on a task that has an even part e of the others: the task has h + (1 − h) e.
        """
        tasks = self.instances if self.totals.tasks is None else self.totals.tasks.tasks
        if self.largest_share is None or tasks < 2 or self.totals.records_in <= 0:
            return None
        total = self.totals.records_in if self.totals.tasks is None else self.totals.tasks.records_total
        if not stands_out(self.largest_share * total, total * self.even_share(max(2, min(tasks, self.instances)))):
            return 0.0
        even = self.even_share(tasks)
        return (self.largest_share - even) / (1 - even)

    def even_share(self, tasks: int) -> float:
        """The share of the records that the fullest of so many tasks or instances has where keys are even."""
        return 1 / effective_instances(tasks, self.partitions)

    @computed(
        "records of its largest task or instance over the mean of all; 1 is even",
        windows=Combine.LARGEST,
        gauge="skew_ratio",
    )
    def skew(self) -> float | None:
        if self.largest_share is None:
            return None
        return self.largest_share * (self.instances if self.totals.tasks is None else self.totals.tasks.tasks)
