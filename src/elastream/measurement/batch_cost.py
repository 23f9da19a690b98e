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

Where the batches had different numbers of tasks it shows whether these get in each other's way: whether a record
costs c · p^γ busy seconds with p tasks. The c above is then that of p, and λ needs more than in proportion.
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

MOST_CONTENTION = 0.8
"""More is taken for noise: then nothing would be gained by growing."""
_BISECTIONS = 50
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
    contention: float = 0.0
    """γ, less its standard error: with n times as many tasks a record costs n^γ times as much."""
    tasks: int = 1
    """With so many it costs `per_record_s`."""
    reach: float = 1.0
    """The most tasks that were seen over the fewest: from `tasks` γ is trusted for so many times as many."""

    def __post_init__(self) -> None:
        if not 0 <= self.contention <= MOST_CONTENTION:
            raise InvalidInput(f"batch cost: contention must be 0 to {MOST_CONTENTION:g}, found {self.contention}")
        for name in ("tasks", "reach"):
            if not 1 <= getattr(self, name) < math.inf:
                raise InvalidInput(f"batch cost: {name} must be at least 1, found {getattr(self, name)}")
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
    def for_state_s(self) -> float:
        """Busy seconds of a batch that its state takes, whatever comes in: opening, reading, committing it."""
        return self.per_state_partition_s * self.state_partitions

    def state_share(self, records_per_s: float) -> float:
        """The share of the state in the work of a batch, at this rate."""
        for_records_s = self.per_record_s * records_per_s * self.longest_batch_s
        return self.for_state_s / (self.for_state_s + for_records_s) if self.for_state_s > 0 else 0.0

    def capacity(self, instances: float) -> float:
        """Records per second that so many instances sustain; 0 where the fixed costs leave no time."""
        seconds = instances * self._per_instance_s - self.for_state_s
        return max(0.0, seconds) / (self.per_record_s * self._dearer(instances) * self.longest_batch_s)

    def needed(self, records_per_s: float) -> float:
        """Instances for a rate; infinite where a batch is all fixed cost."""
        if self._per_instance_s <= 0:
            return math.inf
        for_records_s = self.per_record_s * records_per_s * self.longest_batch_s
        low, high = 0.0, (for_records_s * self._dearer(math.inf) + self.for_state_s) / self._per_instance_s
        for _ in range(_BISECTIONS if self.contention > 0 else 0):
            middle = (low + high) / 2
            enough = middle * self._per_instance_s >= for_records_s * self._dearer(middle) + self.for_state_s
            low, high = (low, middle) if enough else (middle, high)
        return high

    @property
    def linear(self) -> BatchCost:
        """As if tasks were never in each other's way."""
        return replace(self, contention=0.0)

    def _dearer(self, instances: float) -> float:
        """How many times as much a record costs with so many, as far as γ is trusted up and down."""
        times = min(max(instances / self.tasks, 1 / self.reach), self.reach)
        return float(times**self.contention)

    def __str__(self) -> str:
        costs = {
            "a record costs": self.per_record_s,
            "a task": self.per_task_s,
            "the state of a batch": self.for_state_s,
            "the driver": self.driver_s,
        }
        told = ", ".join(f"{what} {_time(cost_s)}" for what, cost_s in costs.items() if cost_s >= _LEAST)
        if self.contention > 0:
            told += f", {2**self.contention - 1:.0%} more a record with twice the {self.tasks} tasks of now"
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
    ones of a quiet time outlive many large ones, though not for ever; and so it is with numbers of tasks."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], deque[int]] = {}
        self._batches: dict[int, Batch] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        self._count += 1
        self._batches[self._count] = batch
        size = round(math.log2(1 + batch.records))
        for alike, most in ((("size", size), _KEPT_OF_A_SIZE), (("tasks", batch.tasks), _KEPT_OF_TASKS)):
            self._kept.setdefault(alike, deque(maxlen=most)).append(self._count)
        kept = {number for numbers in self._kept.values() for number in numbers}
        recent = self._count - _FORGOTTEN_AFTER
        self._batches = {n: found for n, found in self._batches.items() if n in kept and n > recent}

    def replace_newest(self, batch: Batch) -> None:
        """The newest batch again, with something that was learned of it later."""
        if self._count in self._batches:
            self._batches[self._count] = batch

    def batches(self) -> tuple[Batch, ...]:
        return tuple(self._batches.values())

    def __len__(self) -> int:
        return len(self._batches)


_KEPT_OF_TASKS = 6
_KEPT_OF_A_SIZE = 10
_FORGOTTEN_AFTER = 300
LEAST_BATCHES = 4


def fit(batches: Sequence[Batch], *, state_partitions: int, longest_batch_s: float) -> BatchCost | None:
    """The costs that explain the batches best; None while too few of them had records."""
    with_records = [batch for batch in batches if batch.records > 0 and batch.tasks > 0]
    if len(with_records) < LEAST_BATCHES:
        return None
    contention = _contention(with_records, state_partitions)
    tasks = with_records[-1].tasks
    per_task_s, per_partition_s, per_record_s = _costs(with_records, state_partitions, contention).prices
    per_record_s *= tasks**contention
    if per_record_s < _LEAST:
        # The batches were all alike, or the fixed cost hid that of the records: then all of it is theirs,
        # as plain DS2 would have it.
        per_task_s = per_partition_s = contention = 0.0
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
        contention=contention,
        tasks=tasks,
        reach=_range_of_tasks(with_records),
    )


def _range_of_tasks(batches: Sequence[Batch]) -> float:
    return max(batch.tasks for batch in batches) / min(batch.tasks for batch in batches)


def _contention(batches: Sequence[Batch], state_partitions: int) -> float:
    """γ, less its standard error: 0 where it is not sure, or where the numbers of tasks tell nothing of it."""
    if _range_of_tasks(batches) < _TELLING_TASKS or len(batches) <= _PARAMETERS:
        return 0.0
    from scipy.optimize import minimize_scalar

    def misfit(gamma: float) -> float:
        return _costs(batches, state_partitions, gamma).misfit

    near = min(_CONTENTIONS, key=misfit)
    bounds = max(0.0, near - _APART), min(MOST_CONTENTION, near + _APART)
    best = float(minimize_scalar(misfit, bounds=bounds, method="bounded", options={"xatol": _FINE}).x)
    left = misfit(best)
    gained, by_chance = misfit(0.0) - left, left / (len(batches) - _PARAMETERS)
    return best * (1 - math.sqrt(by_chance / gained)) if gained > _SURE**2 * by_chance else 0.0


_TELLING_TASKS = 1.5  # times as many in some batches as in others
_PARAMETERS = 4
_APART, _FINE = 0.1, 0.001
_CONTENTIONS = tuple(_APART * step for step in range(9))
_SURE = 3.0  # standard errors


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prices:
    prices: tuple[float, float, float]
    misfit: float
    """The sum of the squares of what they leave unexplained, were that normal."""


def _costs(batches: Sequence[Batch], state_partitions: int, contention: float) -> _Prices:
    """f₀, f₁ and c. What does not vary over the batches cannot be told from the rest, and is 0."""
    from scipy.optimize import nnls  # not for every agent beside an operator: it takes 40 MB

    tasks = np.array([batch.tasks for batch in batches], dtype=float)
    records = np.array([batch.records for batch in batches], dtype=float)
    busy = np.array([batch.busy_s for batch in batches], dtype=float)
    fixed = tasks if np.ptp(tasks) > 0 or state_partitions == 0 else np.zeros_like(tasks)
    partitions = [state_partitions if b.state_partitions is None else b.state_partitions for b in batches]
    state = np.array(partitions, dtype=float)
    terms = np.column_stack([fixed, state, records * tasks**contention])
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-12)  # columns of one size, or the solver sees only records
    terms /= scale
    weights = np.ones_like(busy)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        solution = nnls(terms * root[:, np.newaxis], busy * root)[0]
        before, weights = weights, _weights(np.abs(busy - terms @ solution))
        if np.allclose(before, weights, rtol=0.001):
            break
    per_task_s, per_partition_s, per_record_s = map(float, solution / scale)
    return _Prices(
        prices=(per_task_s, per_partition_s, per_record_s),
        # by the mean absolute residual: with the weights, those that do not fit would count for nothing
        misfit=float(math.pi / 2 * len(busy) * np.mean(np.abs(busy - terms @ solution)) ** 2),
    )


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
