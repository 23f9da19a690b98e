"""What a batch costs: the capacity model of an operator that works in micro-batches.

A batch has a fixed cost (planning, starting tasks, committing state) beside the cost of its records. Over the
last batches fit, with non-negative least squares,

    busy seconds of a batch = f₀ · tasks + f₁ · state partitions + c · records

where an outlier (a collection of garbage, a disk that stalled) weighs less the larger its residual is.
1/c is the true rate of a slot. With F = f₀·p + f₁·N the fixed busy seconds of a batch, h the driver's time for a
batch, b the balance (mean task time over the longest) and T the longest batch that the latency target allows, a
rate λ needs

    p · b · (T − h)  ≥  F + c · λ · T

which is DS2's λ / true rate where the fixed costs vanish.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elastream.errors import InvalidInput
from elastream.measurement.amounts import check_amount

_ROOM = 2.0  # times what is fixed: the least that a batch may take
_LEAST = 1e-12  # what is less than that is rounding, and must not be divided by


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCost:
    """The fitted costs of an operator; a curve from instances to records per second and back."""

    per_record_s: float
    per_task_s: float
    """f₀."""
    per_state_partition_s: float
    """f₁."""
    state_partitions: int
    driver_s: float
    """h."""
    balance: float
    """b, at most 1."""
    longest_batch_s: float
    """T."""

    def __post_init__(self) -> None:
        for name in ("per_record_s", "longest_batch_s", "balance"):
            check_amount(f"batch cost: {name}", getattr(self, name))
            if getattr(self, name) < _LEAST:
                raise InvalidInput(f"batch cost: {name} must be above 0, found {getattr(self, name)}")
        for name in ("per_task_s", "per_state_partition_s", "driver_s", "state_partitions"):
            check_amount(f"batch cost: {name}", getattr(self, name))
        if self.balance > 1:
            raise InvalidInput(f"batch cost: balance must be at most 1, found {self.balance}")

    @property
    def most_busy(self) -> float:
        """The share of the time that instances work in the longest batches: the rest is the driver's, and that of
        tasks that wait for the longest one."""
        return max(0.0, self.balance * (1 - self.driver_s / self.longest_batch_s))

    @property
    def fixed_s(self) -> float:
        """What a batch takes at least, whatever its size."""
        return self.driver_s + self.per_task_s / self.balance

    def with_room(self) -> BatchCost:
        """With at least as much time for the records of a batch as what is fixed takes: else there is no batch."""
        return replace(self, longest_batch_s=max(self.longest_batch_s, _ROOM * self.fixed_s))

    @property
    def _per_instance_s(self) -> float:
        """The seconds of a batch that each further instance adds for records."""
        return self.balance * (self.longest_batch_s - self.driver_s) - self.per_task_s

    @property
    def _for_state_s(self) -> float:
        return self.per_state_partition_s * self.state_partitions

    def capacity(self, instances: float) -> float:
        """Records per second that so many instances sustain; 0 where the fixed costs leave no time."""
        seconds = instances * self._per_instance_s - self._for_state_s
        return max(0.0, seconds) / (self.per_record_s * self.longest_batch_s)

    def needed(self, records_per_s: float) -> float:
        """Instances for a rate; infinite where a batch is all fixed cost."""
        if self._per_instance_s <= 0:
            return math.inf
        return (
            self.per_record_s * records_per_s * self.longest_batch_s + self._for_state_s
        ) / self._per_instance_s

    def __str__(self) -> str:
        costs = {
            "a record costs": self.per_record_s,
            "a task": self.per_task_s,
            "the state of a batch": self._for_state_s,
            "the driver": self.driver_s,
        }
        told = ", ".join(f"{what} {_time(cost_s)}" for what, cost_s in costs.items() if cost_s >= _LEAST)
        return f"{told}, and a batch may take {self.longest_batch_s:g} s"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.3g} ms" if seconds >= 0.001 else f"{1e6 * seconds:.3g} µs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What one batch of an operator did."""

    records: float
    busy_s: float
    """Of all its tasks together."""
    tasks: int
    driver_s: float
    balance: float | None = None
    """Mean task time over the longest; not known of every batch, as asking costs requests."""
    state_partitions: int | None = None
    """As many as there are now, where not given: a state may have been moved since."""


class BatchMemory:
    """Recent batches, chosen so that they differ: of batches that are all alike nobody can tell the cost of a
    record from that of a batch. Of each size (by powers of two) only the newest few are kept, so that the small
    ones of a quiet time outlive many large ones, though not for ever."""

    def __init__(self) -> None:
        self._by_size: dict[int, deque[tuple[int, Batch]]] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        self._count += 1
        same_size = self._by_size.setdefault(round(math.log2(1 + batch.records)), deque(maxlen=_KEPT_OF_A_SIZE))
        same_size.append((self._count, batch))

    def replace_newest(self, batch: Batch) -> None:
        """The newest batch again, with something that was learned of it later."""
        for kept in self._by_size.values():
            if kept and kept[-1][0] == self._count:
                kept[-1] = (self._count, batch)

    def batches(self) -> tuple[Batch, ...]:
        known = [
            item for kept in self._by_size.values() for item in kept if item[0] > self._count - _FORGOTTEN_AFTER
        ]
        return tuple(batch for _, batch in sorted(known, key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self.batches())


_KEPT_OF_A_SIZE = 10
_FORGOTTEN_AFTER = 300
LEAST_BATCHES = 4


def fit(batches: Sequence[Batch], *, state_partitions: int, longest_batch_s: float) -> BatchCost | None:
    """The costs that explain the batches best; None while too few of them had records."""
    with_records = [batch for batch in batches if batch.records > 0 and batch.tasks > 0]
    if len(with_records) < LEAST_BATCHES:
        return None
    per_task_s, per_partition_s, per_record_s = _costs(with_records, state_partitions)
    if per_record_s < _LEAST:
        # The batches were all alike, or the fixed cost hid that of the records: then all of it is theirs,
        # as plain DS2 would have it.
        per_task_s = per_partition_s = 0.0
        per_record_s = sum(b.busy_s for b in with_records) / sum(b.records for b in with_records)
    if per_record_s < _LEAST:
        return None
    return BatchCost(
        per_record_s=per_record_s,
        per_task_s=per_task_s,
        per_state_partition_s=per_partition_s,
        state_partitions=state_partitions,
        driver_s=float(np.median([batch.driver_s for batch in with_records])),
        balance=_balance(with_records),
        longest_batch_s=longest_batch_s,
    )


def _costs(batches: Sequence[Batch], state_partitions: int) -> tuple[float, float, float]:
    """f₀, f₁ and c. What does not vary over the batches cannot be told from the rest, and is 0."""
    from scipy.optimize import nnls  # not for every agent beside an operator: it takes 40 MB

    tasks = np.array([batch.tasks for batch in batches], dtype=float)
    records = np.array([batch.records for batch in batches], dtype=float)
    busy = np.array([batch.busy_s for batch in batches], dtype=float)
    fixed = tasks if np.ptp(tasks) > 0 or state_partitions == 0 else np.zeros_like(tasks)
    partitions = [state_partitions if b.state_partitions is None else b.state_partitions for b in batches]
    state = np.array(partitions, dtype=float)
    terms = np.column_stack([fixed, state, records])
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-12)  # columns of one size, or the solver sees only records
    terms /= scale
    weights = np.ones_like(busy)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        solution = nnls(terms * root[:, np.newaxis], busy * root)[0]
        before, weights = weights, _weights(np.abs(busy - terms @ solution))
        if np.allclose(before, weights, rtol=0.001):
            break
    found = solution / scale
    return float(found[0]), float(found[1]), float(found[2])


_ROUNDS = 20
_DEVIATION = (
    1.4826  # standard deviations of normal residuals for their median absolute value, which few cannot move
)
_HUBER = 1.345 * _DEVIATION  # Huber's own choice: little is lost where there is no outlier


def _weights(residuals_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Huber's: 1 for a batch with a usual residual, less the larger it is.

    Plain least squares follow a single batch that stalled, and until many of its size have come: to far too few
    instances, or far too many. A cost that has really changed is still learned: its batches are soon the many.
    """
    usual_s = max(_HUBER * float(np.median(residuals_s)), _LEAST)
    return usual_s / np.maximum(residuals_s, usual_s)


def _balance(batches: Sequence[Batch]) -> float:
    shares = [batch.balance for batch in batches if batch.balance is not None and batch.balance >= _LEAST]
    return min(1.0, float(np.median(shares))) if shares else 1.0
