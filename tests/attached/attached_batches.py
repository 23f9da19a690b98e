"""Batches of queries whose costs are known, for tests: they run on as many cores as they are told."""

from __future__ import annotations

from collections.abc import Sequence

from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.load import QueryLoad
from elastream.attached.model import QueryModel, fit
from elastream.attached.schedule import BatchPlan, StagePlan, finish_s, spread


def ran(
    number: int,
    rows: float,
    cores: int,
    *,
    tasks: Sequence[int] = (8, 4),
    fixed_s: float = 0.2,
    per_row_s: float = 0.001,
    driver_s: float = 0.5,
    shape: tuple[float, ...] = (),
    cpu: float = 0.9,
    noise: float = 1.0,
) -> BatchRun:
    """A source stage and shuffles after it, each of which costs the same."""
    stages: list[StageRun] = []
    begin_s = 1000.0 * number + driver_s
    for index, count in enumerate(tasks):
        work_s = (fixed_s + per_row_s * rows) * noise
        plan = BatchPlan(driver_s=0.0, stages=(StagePlan(tasks_s=spread(work_s, count, shape)),))
        end_s = begin_s + finish_s([plan], cores)[0]
        stages.append(
            StageRun(
                tasks=count,
                slot_s=work_s,
                submitted_s=begin_s,
                completed_s=end_s,
                cpu_s=cpu * work_s,
                reads_shuffle=index > 0,
                writes_shuffle=index < len(tasks) - 1,
                quantiles_s=tuple(one * work_s / count for one in shape),
            )
        )
        begin_s = end_s
    return BatchRun(
        batch=number,
        started_s=1000.0 * number,
        duration_s=begin_s - 1000.0 * number,
        rows=rows,
        cores=cores,
        stages=tuple(stages),
        parts_s={"queryPlanning": driver_s / 2, "walCommit": driver_s / 4},
    )


def model_of(rows: Sequence[float] = (1000, 2000, 4000, 8000), cores: int = 4, **costs: object) -> QueryModel:
    found = fit([ran(number, count, cores, **costs) for number, count in enumerate(rows)])  # type: ignore[arg-type]
    assert found is not None
    return found


def load_of(name: str = "counts", *, rate: float = 1000.0, latency_s: float = 10.0, **more: object) -> QueryLoad:
    costs = {
        key: more.pop(key)
        for key in tuple(more)
        if key in ("tasks", "fixed_s", "per_row_s", "driver_s", "shape", "cpu")
    }
    return QueryLoad(
        name=name,
        rows_per_s=rate,
        latency_s=latency_s,
        model=model_of(**costs),  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )
