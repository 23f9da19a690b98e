"""What a batch of a query costs, learned over its batches: how long one of so many rows takes on n cores.

The driver's time is fixed. The time for which the tasks of a stage hold slots is fitted over the batches,

    slot seconds of a stage = a + c · rows          a, c ≥ 0

where an outlier weighs less the larger its residual is (Huber). How many tasks a stage has, how evenly they share
the time, and which stages it waits for are those of the newest batches. `schedule.py` makes a duration of these.

A stage takes a little longer than its tasks keep the cores busy: tasks are sent out and their results come
back. That `overhead_s` is what batches took beyond the schedule, on the median.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.schedule import BatchPlan, StagePlan, finish_s, spread

LEAST_BATCHES = 3
_NEWEST = 5  # batches of which tasks, balance and order of the stages are taken
_ROUNDS = 20
_DEVIATION = 1.4826  # standard deviations of normal residuals for their median absolute value
_HUBER = 1.345 * _DEVIATION
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    fixed_s: float
    """a, of all tasks together."""
    per_row_s: float
    """c."""
    tasks: int
    follows_cores: bool
    """It has as many tasks as there are cores, whatever their number."""
    shape: tuple[float, ...]
    """How long its tasks take, from the shortest to the longest, as multiples of their mean."""
    after: tuple[int, ...]
    cpu_share: float
    """Of the time of its tasks, what the JVM computed."""
    reads_shuffle: bool
    writes_shuffle: bool

    def slot_s(self, rows: float) -> float:
        return self.fixed_s + self.per_row_s * rows

    def plan(self, rows: float, cores: int) -> StagePlan:
        tasks = max(1, cores) if self.follows_cores else self.tasks
        return StagePlan(tasks_s=spread(self.slot_s(rows), tasks, self.shape), after=self.after)

    @property
    def imbalance(self) -> float:
        """The longest task over the mean one."""
        tasks_s = spread(1.0, self.tasks, self.shape)
        return max(tasks_s) * len(tasks_s) if tasks_s else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryModel:
    stages: tuple[StageCost, ...]
    driver_s: float
    overhead_s: float
    """Beyond what the schedule of its tasks takes."""
    scatter: float
    """Standard deviation of the relative residual of a batch's duration, robustly."""
    batches: int
    """From so many."""
    rows: tuple[float, float]
    """The least and the most rows of those."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Of the driver's time, on the median."""

    def plan(self, rows: float, cores: int) -> BatchPlan:
        return BatchPlan(
            driver_s=self.driver_s + self.overhead_s,
            stages=tuple(stage.plan(rows, cores) for stage in self.stages),
        )

    def duration_s(self, rows: float, cores: int) -> float:
        """Of a batch that has the cores to itself."""
        return finish_s([self.plan(rows, cores)], cores)[0]

    def slot_s(self, rows: float) -> float:
        return sum(stage.slot_s(rows) for stage in self.stages)


def fit(batches: Sequence[BatchRun], *, splits_by_cores: bool = False) -> QueryModel | None:
    """None while too few batches with rows are alike.

    A stage that reads a source and has as many tasks as there are cores may have them by chance. It is taken to
    follow the cores where it did so at two sizes, or where the source is known to do so (`splits_by_cores`).
    """
    alike = _alike([batch for batch in batches if batch.rows > 0 and batch.stages])
    if len(alike) < LEAST_BATCHES:
        return None
    rows = np.array([batch.rows for batch in alike], dtype=float)
    stages = tuple(
        _stage([batch.stages[index] for batch in alike], alike, rows, splits_by_cores, after)
        for index, after in enumerate(alike[-1].after)
    )
    driver_s = median(batch.driver_s for batch in alike)
    bare = QueryModel(
        stages=stages,
        driver_s=driver_s,
        overhead_s=0.0,
        scatter=0.0,
        batches=len(alike),
        rows=(float(rows.min()), float(rows.max())),
        parts_s=_parts(alike),
    )
    return _with_residuals(bare, alike)


def _alike(batches: Sequence[BatchRun]) -> list[BatchRun]:
    """Those with as many stages as most of the newest: the others had less to do, or a plan of another day."""
    usual = Counter(len(batch.stages) for batch in batches[-_NEWEST:]).most_common(1)
    return [batch for batch in batches if usual and len(batch.stages) == usual[0][0]]


def _stage(
    runs: Sequence[StageRun],
    batches: Sequence[BatchRun],
    rows: NDArray[np.float64],
    splits_by_cores: bool,
    after: tuple[int, ...],
) -> StageCost:
    fixed_s, per_row_s = _line(rows, np.array([run.slot_s for run in runs], dtype=float))
    newest, told = runs[-_NEWEST:], [run for run in runs if run.quantiles_s and run.slot_s > 0]
    slots_s = sum(run.slot_s for run in newest)
    follows = all(run.tasks in _splits(batch.cores) for run, batch in zip(runs, batches, strict=True))
    several = len({batch.cores for batch in batches}) > 1
    return StageCost(
        fixed_s=fixed_s,
        per_row_s=per_row_s,
        tasks=round(median(run.tasks for run in newest)),
        follows_cores=follows and (splits_by_cores or several) and not runs[-1].reads_shuffle,
        shape=_mean_shape(told[-_NEWEST:]),
        after=after,
        cpu_share=min(1.0, sum(run.cpu_s for run in newest) / slots_s) if slots_s > 0 else 1.0,
        reads_shuffle=runs[-1].reads_shuffle,
        writes_shuffle=runs[-1].writes_shuffle,
    )


def _splits(cores: int) -> tuple[int, int]:
    """On a cluster Spark takes its cores to be two at least, when it splits what it reads."""
    return cores, max(2, cores)


def _mean_shape(told: Sequence[StageRun]) -> tuple[float, ...]:
    """Each batch counts alike, however long it was."""
    shapes = [tuple(one * run.tasks / run.slot_s for one in run.quantiles_s) for run in told]
    return tuple(sum(column) / len(shapes) for column in zip(*shapes, strict=True))


def _line(rows: NDArray[np.float64], slots_s: NDArray[np.float64]) -> tuple[float, float]:
    """a and c. Where rows hardly vary nobody can tell one from the other: then all of it is theirs."""
    from scipy.optimize import nnls  # as in `measurement/batch_cost.py`: 40 MB that not everybody needs

    if np.ptp(rows) < _VARIES * float(rows.max()):
        return 0.0, float(np.median(slots_s / rows))
    most = float(rows.max())
    terms = np.column_stack([np.ones_like(rows), rows / most])
    weights = np.ones_like(slots_s)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        solution = nnls(terms * root[:, np.newaxis], slots_s * root)[0]
        residuals = np.abs(slots_s - terms @ solution)
        usual = max(_HUBER * float(np.median(residuals)), _LEAST)
        before, weights = weights, usual / np.maximum(residuals, usual)
        if np.allclose(before, weights, rtol=0.001):
            break
    return float(solution[0]), float(solution[1] / most)


_VARIES = 0.1  # of the largest batch


def _parts(batches: Sequence[BatchRun]) -> dict[str, float]:
    names = {name for batch in batches for name in batch.parts_s}
    return {name: median(batch.parts_s.get(name, 0.0) for batch in batches) for name in sorted(names)}


def _with_residuals(bare: QueryModel, batches: Sequence[BatchRun]) -> QueryModel:
    """How far the batches lie from the schedule: on the median its overhead, and around that its scatter."""
    scheduled = [bare.duration_s(batch.rows, max(1, batch.cores)) for batch in batches]
    beyond = [batch.duration_s - found for batch, found in zip(batches, scheduled, strict=True)]
    overhead_s = max(0.0, median(beyond))
    relative = [
        abs(batch.duration_s / max(found + overhead_s, _LEAST) - 1)
        for batch, found in zip(batches, scheduled, strict=True)
    ]
    return replace(bare, overhead_s=overhead_s, scatter=_DEVIATION * median(relative))
