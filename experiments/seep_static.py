"""Section 5.3.4 of the SEEP thesis on Spark: how the query over a Google cluster scales with one operator.

The events are replayed as fast as they are taken. A rule (Source Code 5.8) scales the operator for machines to n,
where it stays; from then on the time for so many events counts. Work is emulated: an event takes some time of an
instance without using a core, so that sixteen instances say something on two cores. The operator for the cluster
takes a share of that, the thesis's own: it stopped gaining at 96,985 events a second, 5.3 times what one instance
did.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from elastream.commands import plots
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.session import start_session
from elastream.errors import ElastreamError
from elastream.manager.events import Decided, Event
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import info
from elastream.policies.rules import RuleSet, percent, rule, rules, seconds
from elastream.showing import colours
from examples.paper_workloads.google_query import CLUSTER, MACHINES, google_query
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import cpu_by_instance, folder_for_a_run, tasks_of
from experiments.panels import new_panels

SIZES = (1, 2, 4, 8, 16)
THESIS_MINUTES = {1: 129.69, 2: 71.06, 4: 40.35, 8: 26.15, 16: 25.00}
"""Figure 5.22."""
THESIS_MEDIANS_PER_S = {1: 18_405, 2: 33_779, 4: 59_118, 8: 89_329, 16: 96_985}
"""Figure 5.26."""
MACHINE_COST_US = 40_000
CLUSTER_COST_US = round(MACHINE_COST_US * THESIS_MEDIANS_PER_S[1] / THESIS_MEDIANS_PER_S[16])
_BATCH_S = 4.0  # long, so that the fixed price of a batch is a small part of it
_EVENTS = {1: 1_500, 2: 2_500, 4: 3_500, 8: 4_500, 16: 4_500}
"""That are timed: about a minute of work for each size. The times are given for as many as one instance had."""
_QUEUE = 2_000
"""Records that may wait for an operator, as SEEP bounds its queues."""
_LOOK_S = 0.5
_PATIENCE_S = 240.0

_DIFFERS = (
    "Work is emulated by waiting, which uses no core, so the rule of 5.8 looks at the utilization (useful time) "
    "instead of CPU, and for 5 s instead of 30 s. The time counts from when the operator has its n instances: "
    "30 s are nothing in the two hours of the thesis, and much in our minute.",
    "What one instance can do (25 events a second) is what it was given; the thesis measured 18,405. Only the "
    "ratios compare. The limit of the operator for the cluster was given the thesis's ratio, so that it must come "
    "between 4 and 8; the question is whether the time stops falling there, and who is then busy.",
    "Where it computes, up to the cores of this machine, other operators and Python's workers need cores, too; "
    "the thesis gives every instance a machine of its own.",
    "Throughput is that of the batches of the operator for the cluster, each over the time since the one before; "
    "the thesis samples at its sink.",
    "Figure 5.27 has the processes of an operator. Here all are tasks of one process, and what is drawn is the "
    "time that a core computed for each task, from its batch to the next: next to none where work is emulated.",
)


Series = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Of what, of which operator: seconds since it was timed, and the value."""
_DRAWN = {
    "cpu_utilization": "CPU of an instance, % of a core",
    "heap_utilization": "heap of the process, %",
    "overdue": "records waiting for longer than a batch",
}
_SHARES = (50, 75, 90, 95)


@dataclass(frozen=True, kw_only=True)
class Timed:
    size: int
    took_s: float
    events: int
    rates_per_s: tuple[float, ...]
    """Of batches, at the end of the pipeline."""
    machines_busy: float
    """Useful time as a share, of an instance."""
    cluster_busy: float
    path: str
    """What the rule did."""
    series: Series = field(default_factory=dict)
    cpu_by_instance: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Of the operator for machines: seconds, and what a core computed for it until its next batch, in percent."""
    computes: bool = False

    @property
    def per_s(self) -> float:
        return self.events / self.took_s

    def percentile_per_s(self, percentile: float) -> float:
        return float(np.percentile(self.rates_per_s, percentile))


def scaling_rule(size: int) -> RuleSet:
    """Source Code 5.8: at once to its size, where it stays; one instance is there without a rule."""
    if size == 1:
        return rules()
    return rules(
        rule(f"Utilization is above 10% for 5 seconds, to {size}")
        .scale_out(MACHINES)
        .by_a_factor_of(size)
        .never_above(size)
        .when("utilization")
        .above(percent(10))
        .for_at_least(seconds(5))
    )


@experiment(
    "seep-static",
    paper="SEEP scaling framework (Rouaux), section 5.3.4, figures 5.19 to 5.28",
    question="How far does the query scale with one operator, before another is the bottleneck?",
    minutes=14,
)
def run(progress: Progress) -> Report:
    found = {}
    computed_sizes = [size for size in SIZES if size <= (os.cpu_count() or 1)]
    for number, size in enumerate(SIZES):
        progress(f"n = {size}", number / (len(SIZES) + len(computed_sizes)))
        found[size] = measure(size)
    computed = {}
    for number, size in enumerate(computed_sizes, start=len(SIZES)):
        progress(f"n = {size}, computed", number / (len(SIZES) + len(computed_sizes)))
        computed[size] = measure(size, computes=True)
    progress("done", 1.0)
    return Report(
        checks=(*_checks(found), *_computed(computed)),
        differs=_DIFFERS,
        data={str(size): _as_json(one) for size, one in found.items()}
        | {f"{size}, computed": _as_json(one) for size, one in computed.items()},
        plot=partial(_plot, found),
    )


def measure(size: int, *, computes: bool = False) -> Timed:
    """Run the query as fast as it goes, let the rule scale it, and time what follows."""
    with folder_for_a_run() as folder:
        spark = start_session(
            "seep-static", master="local[32]", settings={"spark.ui.port": "0"}, log=folder / "spark.log"
        )
        pipeline = google_query(
            folder / "results",
            most_instances=max(SIZES),
            machine_cost_us=MACHINE_COST_US,
            cluster_cost_us=CLUSTER_COST_US,
            computes=computes,
        )
        engine = SparkEngine(
            pipeline,
            spark,
            folder / "run",
            batch_interval_s=0.5,
            longest_batch_s=_BATCH_S,
            channel_bound=_QUEUE,
        )
        # what machines tell and the cluster takes: a row for several events, which says how many
        told = FileChannel(folder / "run" / "channels" / MACHINES)
        try:
            engine.start()
            path = _scale(engine, told, size)
            began_s = time.time()
            timed = _time(engine, told, size, path)
            context = spark.sparkContext
            tasks = tasks_of(MACHINES, RestApi(context.uiWebUrl or "", context.applicationId))
            return replace(timed, computes=computes, cpu_by_instance=cpu_by_instance(tasks, size, began_s))
        finally:
            engine.stop()
            spark.stop()


def _scale(engine: SparkEngine, told: FileChannel, size: int) -> str:
    """Under the manager, until the rule has done what it can."""
    events: list[Event] = []
    manager = Manager(
        engine=engine,
        policy=Rules(rules=scaling_rule(size)),
        knobs=build(Knobs, info("rules").knobs, place="rules"),
        clock=WallClock(),
        on_event=events.append,
    )

    def is_there() -> bool:
        return engine.plan()[MACHINES] == size and told.log.acknowledged(CLUSTER).record > 0

    manager.run(until_s=time.time() + _PATIENCE_S, stopped=is_there)
    if engine.plan()[MACHINES] != size:
        raise ElastreamError(f"the rule did not bring {MACHINES!r} to {size} within {_PATIENCE_S:g} s")
    changes = [str(event.decision) for event in events if isinstance(event, Decided)]
    return ", ".join(changes) or "no action"


def _time(engine: SparkEngine, told: FileChannel, size: int, path: str) -> Timed:
    _next_batch(told, time.time() + _PATIENCE_S)  # the first one of a new size starts its Python workers
    done = told.log.acknowledged(CLUSTER)
    engine.measure()
    points, counted, snapshots = [(time.time(), 0)], 0, []
    deadline_s = time.time() + _PATIENCE_S
    while counted < _EVENTS[size] and time.time() < deadline_s:
        at_s, before = _next_batch(told, deadline_s), done
        done = told.log.acknowledged(CLUSTER)
        counted += _events_between(told, before, done)
        points.append((at_s, counted))
        snapshots.append(engine.measure())  # it also deletes what is done, which is counted by now
    return Timed(
        size=size,
        took_s=points[-1][0] - points[0][0],
        events=counted,
        rates_per_s=tuple((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(points)),
        machines_busy=_busy(snapshots, MACHINES),
        cluster_busy=_busy(snapshots, CLUSTER),
        path=path,
        series=_series(snapshots, points[0][0]),
    )


def _busy(snapshots: Sequence[Snapshot], name: str) -> float:
    """Useful time of its instances, as a share of theirs."""
    measured = [(one.measurements[name].totals, one.plan[name]) for one in snapshots]
    return sum(one.useful_s for one, _ in measured) / sum(one.window_s * count for one, count in measured)


def _series(snapshots: Sequence[Snapshot], began_s: float) -> Series:
    """A share as a percentage; of heap only what was told."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {what: {} for what in _DRAWN}
    for snapshot in snapshots:
        for what, by_name in found.items():
            for name in (MACHINES, CLUSTER):
                value = getattr(snapshot.measurements[name].totals, what)
                if value is not None:
                    scale = 100 if what.endswith("utilization") else 1
                    by_name.setdefault(name, []).append(
                        (round(snapshot.at_s - began_s, 1), round(scale * value, 3))
                    )
    return found


def _next_batch(told: FileChannel, deadline_s: float) -> float:
    """When the cluster was done with some more."""
    before = told.log.acknowledged(CLUSTER).record
    while told.log.acknowledged(CLUSTER).record == before and time.time() < deadline_s:
        time.sleep(_LOOK_S)
    return time.time()


def _events_between(told: FileChannel, start: StreamPosition, end: StreamPosition) -> int:
    """That the cluster has dealt with: every row of its input says of how many events it tells."""
    total = 0
    for commit in told.log.commits(start, end):
        at = commit.before
        for segment in commit.segments:
            counts = pq.read_table(told.log.folder / segment.path, columns=["events"])["events"].to_pylist()
            total += sum(counts[max(0, start.record - at) : max(0, end.record - at)])
            at += segment.records
    return total


# What is compared


def _checks(found: Mapping[int, Timed]) -> Iterator[Check]:
    one, thesis_one = found[SIZES[0]], THESIS_MINUTES[SIZES[0]]
    events = _EVENTS[SIZES[0]]
    for size, timed in found.items():
        speed_up, thesis = timed.per_s / one.per_s, thesis_one / THESIS_MINUTES[size]
        yield Check(
            what=f"n = {size}: time for {events:,} events, speed-up, efficiency",
            ours=f"{events / timed.per_s:.1f} s, {speed_up:.2f}, {speed_up / size:.2f}",
            paper=f"{THESIS_MINUTES[size]:.1f} min (all), {thesis:.2f}, {thesis / size:.2f}",
        )
        yield Check(
            what=f"n = {size}: throughput, median, 75th, 90th and 95th percentile",
            ours=", ".join(f"{timed.percentile_per_s(share):.0f}" for share in _SHARES) + " events/s",
            paper=f"{THESIS_MEDIANS_PER_S[size]:,} events/s (median)",
        )
    yield from _bounds(found)


def _bounds(found: Mapping[int, Timed]) -> Iterator[Check]:
    speed_ups = {size: timed.per_s / found[1].per_s for size, timed in found.items()}
    grows = speed_ups[1] < speed_ups[2] < speed_ups[4] < speed_ups[8]
    yield Check(
        what="up to n = 8",
        ours=" → ".join(f"{speed_ups[size]:.2f}" for size in SIZES[:4]),
        paper="1.00 → 1.83 → 3.21 → 4.96",
        bound="faster with every step",
        holds=grows,
    )
    yield Check(
        what="from n = 8 to n = 16: faster by",
        ours=f"{100 * (speed_ups[16] / speed_ups[8] - 1):.0f} %",
        paper="5 %",
        bound="at most 20 %",
        holds=speed_ups[16] / speed_ups[8] <= 1.2,
    )
    few, many = found[SIZES[0]], found[SIZES[-1]]
    busy = [f"{one.machines_busy:.0%}, {one.cluster_busy:.0%}" for one in (few, many)]
    yield Check(
        what=f"busy at n = 1 and n = {many.size}: machines (an instance), cluster",
        ours=" and ".join(busy),
        paper="50 %, 10 % of CPU at n = 1; the bottleneck moves to the cluster's operator",
        bound="machines more at n = 1, the cluster more at n = 16",
        holds=few.machines_busy > few.cluster_busy and many.cluster_busy > many.machines_busy,
    )


def _computed(found: Mapping[int, Timed]) -> Iterator[Check]:
    for size, timed in found.items():
        speed_up, thesis = timed.per_s / found[1].per_s, THESIS_MINUTES[1] / THESIS_MINUTES[size]
        yield Check(
            what=f"n = {size}, computed: throughput, speed-up, efficiency, on {os.cpu_count()} cores",
            ours=f"{timed.per_s:.1f} events/s, {speed_up:.2f}, {speed_up / size:.2f}",
            paper=f"{THESIS_MEDIANS_PER_S[size]:,} events/s, {thesis:.2f}, {thesis / size:.2f}",
        )


# What is left behind


def _as_json(timed: Timed) -> dict[str, Any]:
    return {**asdict(timed), "per_s": timed.per_s}


def _plot(found: Mapping[int, Timed], file: Path) -> None:
    title = "A Google cluster, scaled statically (5.3.4; figures 5.19 to 5.21, 5.23 to 5.25, 5.27, 5.28)"
    figure, axes = new_panels(2, 4, title=title, width=4.4)
    ours = [found[size].per_s / found[SIZES[0]].per_s for size in SIZES]
    thesis = [THESIS_MINUTES[SIZES[0]] / THESIS_MINUTES[size] for size in SIZES]
    for axis, divide, title in zip(axes[0][:2], (False, True), ("speed-up", "efficiency"), strict=True):
        for values, label, colour in (
            (ours, "Spark", colours.COLOURS[0]),
            (thesis, "SEEP (thesis)", colours.COLOURS[1]),
        ):
            shown = [value / size if divide else value for value, size in zip(values, SIZES, strict=True)]
            axis.plot(SIZES, shown, marker="o", color=colour, label=label)
        axis.plot(SIZES, [1] * len(SIZES) if divide else SIZES, color="0.7", linewidth=1, label="linear")
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel("instances")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize="small")
    throughput, by_instance = axes[0][2], axes[0][3]
    for share, colour in zip(_SHARES, colours.COLOURS, strict=False):
        values = [found[size].percentile_per_s(share) for size in SIZES]
        throughput.plot(SIZES, values, marker="o", color=colour, label=f"{share} %")
    throughput.set_title("events/s, percentiles of batches (5.25)", fontsize="medium")
    for number, points in sorted(found[8].cpu_by_instance.items()):
        by_instance.plot(*zip(*points, strict=True), linewidth=0.8, label=str(number))
    by_instance.set_title("n = 8: CPU of each instance, % of a core (5.27)", fontsize="medium")
    for axis, label in ((throughput, "instances"), (by_instance, "seconds")):
        axis.set_xlabel(label)
        axis.set_ylim(bottom=0)
        if axis.lines:
            axis.legend(fontsize="small", ncols=2)
    panels = [(1, "cpu_utilization"), (1, "heap_utilization"), (1, "overdue"), (8, "cpu_utilization")]
    for axis, (size, what) in zip(axes[1], panels, strict=True):
        for (name, points), colour in zip(found[size].series.get(what, {}).items(), colours.COLOURS, strict=False):
            axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, label=name)
        axis.set_title(f"n = {size}: {_DRAWN[what]}", fontsize="medium")
        axis.set_xlabel("seconds")
        axis.set_ylim(bottom=0)
        if axis.lines:
            axis.legend(fontsize="small")
    plots.save(figure, file)
