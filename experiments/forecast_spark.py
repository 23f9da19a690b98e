"""A recorded day on Spark, sped up, with and without forecasts: are instances there before the load is?

The day is the last weekday of the bundled week of New York's taxis, whose mornings double within an hour.
`ds2-forecast` begins with the rates of the four days before it; `ds2` at the same utilization is what it is where
it trusts no forecast. They run in alternating order, so that a machine that gets busier favours neither.

What a record costs is emulated, by a wait in the JVM that needs no core.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from elastream.arrivals.load import Trace, bundled_trace
from elastream.commands import plots
from elastream.engines.spark.beside import started_beside
from elastream.engines.spark.kind import Spark
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.run import PipelineFile, records_at
from elastream.measurement import Snapshot
from elastream.policies.catalog import create
from elastream.showing.colours import COLOURS
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import SparkRun, folder_for_a_run, managed
from experiments.panels import new_panels
from experiments.workloads.uneven_keys import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRACE = "nyc_taxi"
PAIRS = 2
REACTING, AHEAD = "ds2", "ds2-forecast"
_SETTINGS: Mapping[str, Mapping[str, str]] = {REACTING: {"target_utilization": "0.7"}, AHEAD: {}}
_ROOT = Path(__file__).parent.parent
_DAY = 4  # those before it are working days, too
_DAY_S = 86_400.0
_SPEED = 288.0  # a day takes five minutes
_INTERVAL_S = 5.0
_PEAK_PER_S = 600.0
_RECORD_MS = 10
_MOST = 24
_SLOTS = 32
_SOURCE, _OPERATOR = "records", "work"
_SETTLED_S = 20.0  # how the run begins is the same for both
_BEHIND_S = 3.0  # of what arrives: more waiting than that, with a batch each second, is behind
_LESS_BEHIND = 0.5


@dataclass(frozen=True, kw_only=True)
class Day:
    """A day of it as it is played, in seconds and records per second."""

    load: Trace
    lasts_s: float
    before: Sequence[tuple[float, float]]
    """What was before it, by the interval in which it is measured."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """What a policy made of the day."""

    behind: float
    """The share of the windows in which more waited than arrives in three seconds."""
    instance_s: float
    actions: int
    most_waiting: float

    @staticmethod
    def of(run: SparkRun) -> Live:
        windows = [one for one in run.snapshots if one.at_s - run.began_s > _SETTLED_S]
        return Live(
            behind=fmean(_waiting(one) > _BEHIND_S * _rate(one) for one in windows),
            instance_s=math.fsum(one.plan[_OPERATOR] * one.window_s for one in windows),
            actions=len(run.changes),
            most_waiting=max(map(_waiting, windows)),
        )


def _waiting(snapshot: Snapshot) -> float:
    measured = snapshot.measurements.get(_OPERATOR)
    return 0.0 if measured is None else measured.totals.backlog or 0.0


def _rate(snapshot: Snapshot) -> float:
    return snapshot.source_rates[_SOURCE]


@experiment(
    "forecast-spark",
    paper="none; what prediction is for, live",
    question="On Spark, over a sped-up day, are instances there before the load is, at no more cost?",
    minutes=6 * 2 * PAIRS,
)
def run(progress: Progress) -> Report:
    return report_of(the_day(), PAIRS, progress)


def report_of(day: Day, pairs: int, progress: Progress) -> Report:
    runs: list[dict[str, SparkRun]] = []
    for number in range(pairs):
        order = (REACTING, AHEAD) if number % 2 else (AHEAD, REACTING)
        runs.append({})
        for place, policy in enumerate(order):
            progress(f"pair {number + 1}: {policy}", (2 * number + place) / (2 * pairs))
            runs[-1][policy] = played(day, policy)
    progress("done", 1.0)
    return Report(
        checks=tuple(check for number, pair in enumerate(runs) for check in checks_of(number + 1, pair)),
        differs=(
            f"A day takes {day.lasts_s / 60:.1f} minutes, so {_INTERVAL_S:g} s between two decisions are "
            f"{_INTERVAL_S * _SPEED / 60:.0f} minutes of it, and a rise is as steep.",
            f"A record costs {_RECORD_MS} ms of waiting, emulated. The first {_SETTLED_S:g} s are not counted.",
            "ds2-forecast begins with the rates of the days before, as a run with --learn-from does.",
        ),
        data={f"pair {n + 1}": {p: _as_json(one) for p, one in pair.items()} for n, pair in enumerate(runs)},
        plot=partial(_plot, runs[-1]),
    )


def the_day() -> Day:
    week = bundled_trace(TRACE)
    begin_s, scale = _DAY * _DAY_S, _PEAK_PER_S / max(week.records_per_s)
    times_s = tuple(at_s - begin_s for at_s in week.times_s if at_s >= begin_s)
    past = replace(week, speed=_SPEED, scale=scale)
    windows = range(1, round(begin_s / _SPEED / _INTERVAL_S) + 1)
    return Day(
        load=Trace(times_s=times_s, records_per_s=week.records_per_s[-len(times_s) :], speed=_SPEED, scale=scale),
        lasts_s=_DAY_S / _SPEED,
        before=[(_INTERVAL_S * n, past.rate_at(_INTERVAL_S * (n - 0.5))) for n in windows],
    )


def played(day: Day, policy: str) -> SparkRun:
    with folder_for_a_run() as folder:
        trace = folder / "day.csv"
        with trace.open("w", encoding="utf-8", newline="") as file:
            rows = zip(day.load.times_s, day.load.records_per_s, strict=True)
            csv.writer(file).writerows([("time_s", "records_per_s"), *rows])
        load = {"trace": str(trace), "speed": day.load.speed, "scale": day.load.scale}
        records = records_at(load, "experiments.workloads.uneven_keys:uneven")
        return managed(
            PipelineFile(pipeline=_pipeline(day.load.rate_at(0.0)), generator=started_beside(_ROOT, records)),
            policy,
            create(policy, _SETTINGS[policy]),
            folder,
            operator=_OPERATOR,
            duration_s=day.lasts_s,
            interval_s=_INTERVAL_S,
            options=Spark(master=f"local[{_SLOTS}]", batch_interval_s=1.0, longest_batch_s=1.0),
            recorded={_SOURCE: day.before} if policy == AHEAD else {},
        )


def _pipeline(first_per_s: float) -> Pipeline:
    pipeline = Pipeline("a-day")
    pipeline.feed(_SOURCE, schema=SCHEMA)
    enough = math.ceil(first_per_s * _RECORD_MS / 1000 / 0.6)

    def work(records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return records.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {_RECORD_MS}L) != ''"))

    pipeline.operator(reads=_SOURCE, parallelism=enough, max_parallelism=_MOST)(work)
    return pipeline


def checks_of(number: int, pair: Mapping[str, SparkRun]) -> tuple[Check, ...]:
    reacting, ahead = Live.of(pair[REACTING]), Live.of(pair[AHEAD])
    return (
        Check(
            what=f"pair {number}: time behind",
            ours=f"{ahead.behind:.1%} (reacting: {reacting.behind:.1%})",
            bound=f"at most {_LESS_BEHIND} of it",
            holds=ahead.behind <= _LESS_BEHIND * reacting.behind,
        ),
        Check(
            what=f"pair {number}: instance seconds",
            ours=f"{ahead.instance_s:,.0f} (reacting: {reacting.instance_s:,.0f})",
            bound="no more",
            holds=ahead.instance_s <= reacting.instance_s,
        ),
        Check(
            what=f"pair {number}: actions; records that waited, at the most",
            ours=f"{ahead.actions}; {ahead.most_waiting:,.0f} "
            f"(reacting: {reacting.actions}; {reacting.most_waiting:,.0f})",
        ),
    )


def _as_json(run: SparkRun) -> dict[str, object]:
    rates = [[round(one.at_s - run.began_s, 1), _rate(one)] for one in run.snapshots]
    return {**run.as_json("backlog", "records_in"), "arriving_per_s": rates}


def _plot(pair: Mapping[str, SparkRun], file: Path) -> None:
    title = f"A day of {TRACE} in {60 * 24 / _SPEED:g} minutes (Spark; cost emulated)"
    figure, axes = new_panels(2, 2, title=title, width=4.4, height=2.2, sharex=True, sharey="row")
    for column, (policy, run) in enumerate(sorted(pair.items())):
        times_s = [one.at_s - run.began_s for one in run.snapshots]
        sizes, waits = axes[:, column]
        need = [_rate(one) * _RECORD_MS / 1000 for one in run.snapshots]
        sizes.plot(times_s, need, color="0.5", linestyle="--", linewidth=1.0, label="busy at this rate")
        sizes.step(
            times_s, [size for _, size in run.sizes], where="post", color=COLOURS[column], label="instances"
        )
        sizes.set_title(policy)
        sizes.legend(frameon=False, fontsize="small")
        waits.plot(times_s, [_waiting(one) for one in run.snapshots], color=COLOURS[column])
        waits.set_xlabel("seconds")
    axes[1, 0].set_ylabel("records waiting")
    plots.save(figure, file)
