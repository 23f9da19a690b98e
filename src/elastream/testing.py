"""Builders for tests: a snapshot in a few lines, for this package's tests and for those of new policies.

snapshot_of(
    edges=chain("source", "map", "sink"),
    source_rates={"source": 1_000},
    readings=[*alike("map", instances=2, records_per_s=400), *alike("sink", useful_share=0.5)],
)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Reading, Snapshot


def chain(*names: str) -> list[tuple[str, str]]:
    """The edges of a pipeline in which each operator reads the one before it."""
    return list(pairwise(names))


def alike(
    operator: str,
    *,
    instances: int = 1,
    window_s: float = 60.0,
    records_per_s: float = 100.0,
    useful_share: float = 1.0,
    selectivity: float | Mapping[str, float] = 1.0,
    backlog: float | None = None,
    wait_out_share: float | None = None,
    cpu_utilization: float | None = None,
) -> list[Reading]:
    """Readings of instances that all did the same; every number is that of one instance."""
    records_in = records_per_s * window_s
    if isinstance(selectivity, Mapping):
        records_out: float | dict[str, float] = {name: ratio * records_in for name, ratio in selectivity.items()}
    else:
        records_out = selectivity * records_in
    return [
        Reading(
            operator=operator,
            instance=instance,
            window_s=window_s,
            useful_s=useful_share * window_s,
            records_in=records_in,
            records_out=records_out,
            backlog=backlog,
            wait_out_s=None if wait_out_share is None else wait_out_share * window_s,
            cpu_utilization=cpu_utilization,
        )
        for instance in range(instances)
    ]


def snapshot_of(
    *,
    edges: Iterable[tuple[str, str]],
    source_rates: Mapping[str, float],
    readings: Iterable[Reading] = (),
    operators: Iterable[Operator] = (),
    parallelism: Mapping[str, int] | None = None,
) -> Snapshot:
    """A snapshot of the graph that the edges draw; the sources are those that have a rate.

    `operators` are only those that differ from the default. An operator has the parallelism that is given, or
    as many instances as it has readings, or one.
    """
    edges, readings = list(edges), tuple(readings)
    given = {operator.name: operator for operator in operators}
    names = dict.fromkeys([*source_rates, *(name for edge in edges for name in edge)])
    dataflow = Dataflow.of(
        (given.get(name, Operator(name=name, source=name in source_rates)) for name in names), edges
    )
    reported = Counter(reading.operator for reading in readings)
    plan = {name: max(1, reported[name]) for name in dataflow.scalable} | dict(parallelism or {})
    return Snapshot(dataflow=dataflow, plan=Plan(plan), source_rates=source_rates, readings=readings)
