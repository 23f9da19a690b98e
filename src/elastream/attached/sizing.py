"""The fewest executors with which every batch ends within its latency, and what waits is worked off.

A query that is triggered every I seconds and may take L for a batch gets the rows of max(I, L) seconds. Its batch
must end within L, less some room: a share for what is not known, and twice the scatter that was seen. Batches of
several queries are taken to begin at the same time, as those with the same interval do: then their needs add up as
far as they do not fit beside each other.

A source that limits a batch to R rows (maxOffsetsPerTrigger, maxFilesPerTrigger) is asked for the rate instead: a
batch must end within R / rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elastream.attached.load import QueryLoad
from elastream.attached.schedule import BatchPlan, finish_s

_MOST_SCATTER = 0.25  # beyond that the scatter is that of something else, and more cores do not help
_SCATTERS = 2.0  # standard deviations that a batch may be longer than usual
_WORTH = 0.02  # of the time to spare: what more executors must gain where they cannot keep the latency


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """How a load is sized."""

    target_utilization: float = 0.8
    """Of the latency that a batch is meant to use."""
    catch_up_s: float = 60.0
    """Within which what waits is to be gone."""
    ahead_s: float = 0.0
    """How long executors take to come: a load that grows is sized for that time."""
    more: Mapping[str, float] | None = None
    """By how much more than the model says a query was found to need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryPlan:
    """What one query is sized for."""

    name: str
    rows: float
    """Of a batch."""
    rows_per_s: float
    """With what waits."""
    allowed_s: float
    """The longest that a batch may take."""
    usable_s: float
    """The same, less the room for noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    executors: int
    predicted_s: Mapping[str, float]
    """How long a batch of each query takes then."""
    late: tuple[str, ...]
    """Queries that do not keep their latency with it."""
    useful: int
    """The most executors that would still shorten a batch."""


def planned(load: QueryLoad, wanted: Wanted, *, steady: bool = False) -> QueryPlan:
    """`steady` leaves out what waits and what is only coming."""
    rate = load.rows_per_s * (wanted.more or {}).get(load.name, 1.0)
    if not steady:
        rate += max(0.0, load.growth_per_s2) * wanted.ahead_s + (load.waiting or 0.0) / wanted.catch_up_s
    rows, allowed_s = rate * load.between_s, load.latency_s
    if load.limit_rows is not None and rows > load.limit_rows:
        rows = load.limit_rows
        allowed_s = min(allowed_s, rows / rate)
    scatter = min(_MOST_SCATTER, load.model.scatter if load.model else 0.0)
    usable_s = allowed_s * min(wanted.target_utilization, 1 / (1 + _SCATTERS * scatter))
    return QueryPlan(name=load.name, rows=rows, rows_per_s=rate, allowed_s=allowed_s, usable_s=usable_s)


def fewest(
    loads: Sequence[QueryLoad], wanted: Wanted, *, cores: int, least: int, most: int, steady: bool = False
) -> Size:
    """`cores` are those of an executor. Every load must have a model."""
    plans = [planned(load, wanted, steady=steady) for load in loads]
    durations: dict[int, tuple[float, ...]] = {}

    def at(executors: int) -> tuple[float, ...]:
        if executors not in durations:
            durations[executors] = finish_s(batches(loads, plans, executors * cores), executors * cores)
        return durations[executors]

    def keeps(executors: int) -> bool:
        return all(found <= plan.usable_s for found, plan in zip(at(executors), plans, strict=True))

    best_s = sum(at(most))
    useful = _smallest(lambda executors: sum(at(executors)) <= best_s * (1 + _WORTH), least, most)
    chosen = _smallest(keeps, least, useful)  # more than are useful do not keep it either
    return Size(
        executors=chosen,
        predicted_s={plan.name: found for plan, found in zip(plans, at(chosen), strict=True)},
        late=tuple(plan.name for plan, found in zip(plans, at(chosen), strict=True) if found > plan.allowed_s),
        useful=useful,
    )


def batches(loads: Sequence[QueryLoad], plans: Sequence[QueryPlan], cores: int) -> list[BatchPlan]:
    found = []
    for load, plan in zip(loads, plans, strict=True):
        assert load.model is not None, f"{load.name} has no model yet"
        found.append(load.model.plan(plan.rows, cores))
    return found


def _smallest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The smallest that fits, or the most. More cores may delay a batch in theory (Graham's anomalies): by too
    little to matter here, so a bisection finds it."""
    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low
