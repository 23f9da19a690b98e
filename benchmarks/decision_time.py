"""How long a DS2 decision takes, and how that grows with the pipeline.

The paper's model is one traversal of the graph; ten times the graph should take about ten times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.measure import Measure, Report, median_cpu_s
from benchmarks.random_pipeline import random_snapshot
from elastream.measurement import Snapshot
from elastream.measurement.snapshot_format import snapshot_from_json, snapshot_to_json
from elastream.policies.catalog import create

MOST_GROWTH = 12.0  # for ten times as much: linear, and some room for caches that are too small
_INSTANCES = 10
_BOTTLENECKS = 10


def run(*, operators: int = 1_000, repeats: int = 5) -> Report:
    """From so many operators to ten times as many."""
    sizes = (operators, 10 * operators)
    free = {size: random_snapshot(operators=size, instances=_INSTANCES) for size in sizes}
    bounded = {
        size: random_snapshot(operators=size, instances=_INSTANCES, bottlenecks=_BOTTLENECKS) for size in sizes
    }
    return Report(
        measures=(
            *_growth("a DS2 decision", free, _decision_s, repeats),
            *_growth(f"a DS2 decision with {_BOTTLENECKS} bottlenecks", bounded, _decision_s, repeats),
            *_growth("reading the snapshot from its JSON", free, _reading_s, repeats),
        )
    )


def _growth(
    what: str, snapshots: dict[int, Snapshot], time_s: Callable[[Snapshot, int], float], repeats: int
) -> tuple[Measure, ...]:
    found_s = {size: time_s(snapshot, repeats) for size, snapshot in snapshots.items()}
    (small, small_s), (large, large_s) = found_s.items()
    each = [
        Measure(
            what=f"{what}: {size:,} operators, {len(snapshots[size].readings):,} readings", value=value_s, unit="s"
        )
        for size, value_s in found_s.items()
    ]
    growth = Measure(
        what=f"{what}: growth from {small:,} to {large:,}",
        value=large_s / small_s,
        unit="times",
        at_most=MOST_GROWTH,
    )
    return (*each, growth)


def _decision_s(snapshot: Snapshot, repeats: int) -> float:
    # the same rates again make a new snapshot, which has not computed its rates yet
    return median_cpu_s(
        create("ds2"), prepare=lambda: snapshot.at_source_rates(snapshot.source_rates), repeats=repeats
    )


def _reading_s(snapshot: Snapshot, repeats: int) -> float:
    text = json.dumps(snapshot_to_json(snapshot))
    return median_cpu_s(
        lambda text: snapshot_from_json(json.loads(text), place="snapshot"),
        prepare=lambda: text,
        repeats=repeats,
    )
