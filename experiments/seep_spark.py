"""Sections 5.2.2 to 5.2.7 of the SEEP thesis on Spark: the same rules, the same rates, a real engine.

Rules, rates and peaks are those of `seep_cases.py`, which `seep-simulated` has too. Before each case the pipeline
runs for a while with hardly any load, as the first batches of a query take seconds. Cases run beside each other,
each with a Spark of its own: what their records cost is mostly waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elastream.commands import plots
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.pipeline import Pipeline
from elastream.showing import colours
from elastream.workloads.generator import SCHEMA
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import SparkRun, folder_for_a_run, run_on_spark
from experiments.panels import new_panels
from experiments.seep_cases import (
    FIRST,
    PEAK_S,
    PERIOD_S,
    SECOND,
    SINK,
    SOURCE,
    TROUGH_S,
    Case,
    cases,
    followed,
)
from experiments.workloads.paced import paced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTERVAL_S = 5.0
_PEAKS_INTERVAL_S = 1.0  # within a peak of 20 s the queue needs 10 to be long, and the rule 5 to have seen it
_BATCH_S, _PEAKS_BATCH_S = 1.0, 0.5  # what is younger than a batch, or in one, is no queue
_GUARD_S = 300.0
_WARM_UP_S = 30.0
_WARM_UP_PER_S = 1.0
_PEAKS = 3
_TICK_S = 0.25  # of the generator
_SETTLED_S = 15.0  # after an action: three readings, in which batches of the new size have begun

_DIFFERS = (
    "The queue length is what has waited for longer than a batch (1 s) and is in none. By arithmetic it crosses "
    "300 at 62.5 s, as the records of that second and of the batch under way are left out; the whole backlog does "
    "at 60 s.",
    "A rule acts at the first reading at which it is seen to have held. Readings come every 5 s, and later on a "
    "busy machine, so 30 s above 300 are seen after 30 to 36 s. The thesis has 92 s (5.2.2) and 90 s (5.2.3).",
    "Rules take the average of the instances; the plot shows the queue of the operator as a whole.",
)
_DIFFERS_IN_PEAKS = (
    "Fewer peaks than simulated: five short ones, three long ones, and with a guard time six. Readings come every "
    "second, batches twice a second.",
    "The operator can do just the base rate, so what is left when it is scaled in stays until the next peak. What "
    "a batch costs besides its records is not taken from its rate (`experiments/workloads/paced.py`).",
    "The queue length is what has waited for longer than a batch (0.5 s) and is in none. By arithmetic it exceeds "
    "100 at 11.5 s into a peak, as the records of that half second and of the batch under way are left out; all "
    "that waits does at 10 s.",
)


_PAPER = "SEEP scaling framework (Rouaux)"


def on_spark(section: str) -> Case:
    """As it is simulated; those with many peaks with fewer of them."""
    found = {case.section: case for case in cases()}[section]
    shorter_s = {
        "5.2.2": 200.0,
        "5.2.5": TROUGH_S + 5 * PERIOD_S,
        "5.2.6": TROUGH_S + _PEAKS * PERIOD_S,
        "5.2.7": TROUGH_S + PEAK_S + _GUARD_S + 20.0,  # its first scale-in comes after the guard time
    }
    return replace(found, duration_s=shorter_s.get(section, found.duration_s))


@experiment(
    "seep-spark",
    paper=f"{_PAPER}, sections 5.2.2 to 5.2.4",
    question="Do the rules of the simulated cases do the same to a pipeline on Spark?",
    minutes=6,
)
def constant_load(progress: Progress) -> Report:
    checks = {"5.2.2": _one_more, "5.2.3": _two_more, "5.2.4": _two_operators}
    return _report(checks, _DIFFERS, progress)


@experiment(
    "seep-spark-peaks",
    paper=f"{_PAPER}, sections 5.2.5 to 5.2.7",
    question="Do rules follow peaks on Spark that last, and no others, and not too often with a guard time?",
    minutes=9,
)
def peaks(progress: Progress) -> Report:
    checks = {"5.2.5": _short_peaks, "5.2.6": _long_peaks, "5.2.7": _hysteresis}
    return _report(checks, _DIFFERS_IN_PEAKS, progress)


def _report(
    checks: Mapping[str, Callable[[Found], Iterator[Check]]], differs: tuple[str, ...], progress: Progress
) -> Report:
    progress(", ".join(checks), 0.0)
    with ProcessPoolExecutor(len(checks), mp_context=get_context("spawn")) as processes:
        found = dict(zip(checks, processes.map(_run_section, checks), strict=True))
    progress("done", 1.0)
    return Report(
        checks=tuple(check for section, of_case in checks.items() for check in of_case(found[section])),
        differs=differs,
        data={section: _as_json(one) for section, one in found.items()},
        plot=partial(_plot, found),
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    run: SparkRun
    written: int
    """Records that the generator wrote."""
    kept: int
    """Records that came out at the end."""

    @property
    def queue(self) -> list[tuple[float, float]]:
        return self.run.series("overdue")

    def of(self, operator: str) -> Found:
        return replace(self, run=replace(self.run, operator=operator))


def _run_section(section: str) -> Found:
    return run_case(on_spark(section))


def run_case(case: Case) -> Found:
    with folder_for_a_run() as folder:
        pipeline = _pipeline(case, folder)
        warm = [[0.0, _WARM_UP_PER_S], *([_WARM_UP_S + at, rate] for at, rate in case.load)]
        duration_s = _WARM_UP_S + case.duration_s
        run = run_on_spark(
            pipeline,
            case.rules,
            folder,
            operator=list(case.rates_per_s)[-1],
            duration_s=duration_s,
            load={"steps": warm},
            interval_s=_PEAKS_INTERVAL_S if len(case.load) > 1 else _INTERVAL_S,
            batch_s=_PEAKS_BATCH_S if len(case.load) > 1 else _BATCH_S,
        )
        kept = [ms for table in FileChannel(folder / SINK).tables() for ms in table["created_ms"].to_pylist()]
        written = FileChannel(folder / "run" / "channels" / SOURCE).log.head().records
    # the first record was due one second after the generator began, and is written with the tick after that
    began_s = min(kept) / 1000 - 1 / _WARM_UP_PER_S - _TICK_S / 2 + _WARM_UP_S
    return Found(run=replace(run, began_s=began_s), written=written, kept=len(kept))


def _pipeline(case: Case, folder: Path) -> Pipeline:
    pipeline = Pipeline(f"seep-{case.section}")
    pipeline.feed(SOURCE, schema=SCHEMA)
    before = SOURCE
    for name, rate_per_s in case.rates_per_s.items():
        pipeline.operator(reads=before, max_parallelism=3)(
            _paced_operator(name, rate_per_s, folder / f"{name}-clocks")
        )
        before = name
    pipeline.keep(SINK, reads=before, folder=folder / SINK)
    return pipeline


def _paced_operator(name: str, rate_per_s: float, clocks: Path) -> Callable[[DataFrame], DataFrame]:
    def operator(records: DataFrame) -> DataFrame:
        return paced(records, rate_per_s, clocks)

    operator.__name__ = name
    return operator


# What is compared


def _one_more(found: Found) -> Iterator[Check]:
    crossed_s = first_above(found.queue, 300)
    yield Check(
        what="5.2.2: the queue crosses 300 at",
        ours=_seconds(crossed_s),
        paper="about 60 s",
        bound="55 to 70 s",
        holds=crossed_s is not None and 55 <= crossed_s <= 70,
    )
    yield _acts_once("5.2.2", found, sizes=(1, 2), paper="1 → 2 at about 92 s")
    levels = _after_the_action(found)
    slope_per_s = slope(levels)
    lowest, highest = min((v for _, v in levels), default=0.0), max((v for _, v in levels), default=0.0)
    yield Check(
        what="5.2.2: the queue afterwards",
        ours=f"{lowest:.0f} to {highest:.0f} records, {slope_per_s:+.2f} a second",
        paper="does not grow further",
        bound="level: by less than 1 a second, where it grew by 5",
        holds=abs(slope_per_s) < 1,
    )


def _two_more(found: Found) -> Iterator[Check]:
    yield _acts_once("5.2.3", found, sizes=(1, 3), paper="1 → 3 at around 90 s")
    yield _drains("5.2.3", found)


def _two_operators(found: Found) -> Iterator[Check]:
    first, second = found.of(FIRST), found.of(SECOND)
    yield Check(
        what="5.2.4: the operator that keeps up",
        ours=_path(first),
        paper="does not scale",
        bound="does not scale",
        holds=not first.run.changes,
    )
    yield _acts_once("5.2.4", second, sizes=(1, 3), paper="1 → 3 at approximately 90 s")
    yield _drains("5.2.4", second)


def _drains(section: str, found: Found) -> Check:
    highest_s, highest = max(found.queue, key=lambda point: point[1])
    empty_s = next((at_s for at_s, queued in found.queue if at_s > highest_s and queued < 1), None)
    return Check(
        what=f"{section}: the queue",
        ours=f"up to {highest:.0f} records, gone at {_seconds(empty_s)}",
        paper="is progressively emptied",
        bound="drains",
        holds=empty_s is not None,
    )


def _short_peaks(found: Found) -> Iterator[Check]:
    after_s = TROUGH_S + PERIOD_S / 2
    left = next((queued for at_s, queued in found.queue if at_s >= after_s), 0.0)
    yield Check(
        what="5.2.5: the queue after the first peak, of 5 s", ours=f"{left:.0f} records", paper="50 records"
    )
    highest = max(queued for _, queued in found.queue)
    yield Check(
        what=f"5.2.5: actions, the queue never above {highest:.0f}",
        ours=_path(found),
        paper="none",
        bound="none, although something queues up",
        holds=not found.run.changes and highest > 0,
    )


def _long_peaks(found: Found) -> Iterator[Check]:
    crossed_s = first_above([point for point in found.queue if point[0] >= TROUGH_S], 100)
    yield Check(
        what="5.2.6: into a peak, the queue exceeds 100 after",
        ours=_seconds(None if crossed_s is None else crossed_s - TROUGH_S),
        paper="roughly 10 s",
    )
    count = followed([(change.at_s, change.before, change.after) for change in found.run.changes], _PEAKS)
    yield Check(
        what="5.2.6: peaks followed, out within the peak and in before the next",
        ours=f"{count} of {_PEAKS}: {_path(found)}",
        paper="every one, 1 → 3 → 1",
        bound="every one",
        holds=count == _PEAKS,
    )


def _hysteresis(found: Found) -> Iterator[Check]:
    changes = found.run.changes
    out_s = changes[0].at_s if changes else float("inf")
    within = [change for change in changes if change.at_s < out_s + _GUARD_S]
    yield Check(
        what="5.2.7: within the guard time of 5 min",
        ours=", ".join(map(str, within)) or "no action",
        paper="1 → 3, and no scale-in",
        bound="1 → 3 once, within the first peak, and no scale-in",
        holds=[(change.before, change.after) for change in within] == [(1, 3)] and out_s <= TROUGH_S + PEAK_S,
    )
    later = [change for change in changes if change.at_s >= out_s + _GUARD_S and change.after < change.before]
    yield Check(
        what="5.2.7: the first scale-in after it",
        ours=f"{later[0].at_s - out_s:.0f} s after the scale-out" if later else "none",
        paper="not shown",
        bound="comes",
        holds=bool(later),
    )


def _path(found: Found) -> str:
    return ", ".join(map(str, found.run.changes)) or "no action"


def _acts_once(section: str, found: Found, *, sizes: tuple[int, int], paper: str) -> Check:
    changes = found.run.changes
    crossed_s = first_above(found.queue, 300)
    right = [(change.before, change.after) for change in changes] == [sizes]
    return Check(
        what=f"{section}: acts",
        ours=_path(found),
        paper=paper,
        bound="once, 30 to 45 s after the queue crossed 300",
        holds=right and crossed_s is not None and 30 <= changes[0].at_s - crossed_s <= 45,
    )


def _after_the_action(found: Found) -> list[tuple[float, float]]:
    acted_s = min((change.at_s for change in found.run.changes), default=float("inf"))
    return [point for point in found.queue if point[0] >= acted_s + _SETTLED_S]


def first_above(series: Sequence[tuple[float, float]], bound: float) -> float | None:
    """On the straight line between the last reading that was not and the first that was."""
    before = (series[0][0], 0.0) if series else (0.0, 0.0)
    for at_s, value in series:
        if value > bound:
            share = (bound - before[1]) / (value - before[1])
            return before[0] + share * (at_s - before[0])
        before = (at_s, value)
    return None


def slope(series: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through all points; infinite where there are too few."""
    if len(series) < 3:
        return float("inf")
    points = np.array(series)
    return float(np.polyfit(points[:, 0], points[:, 1], 1)[0])


def _seconds(at_s: float | None) -> str:
    return "never" if at_s is None else f"{at_s:.0f} s"


# What is left behind


def _as_json(found: Found) -> dict[str, Any]:
    return {"written": found.written, "kept": found.kept, **found.run.as_json("overdue", "backlog", "latency_s")}


def _plot(found: dict[str, Found], file: Path) -> None:
    title = f"Rules on the length of a queue, on Spark (SEEP scaling framework, {min(found)} to {max(found)})"
    figure, axes = new_panels(1, len(found), title=title, width=4.6, height=3.2)
    for (section, one), axis in zip(found.items(), axes.flat, strict=True):
        axis.plot(*zip(*one.queue, strict=True), color=colours.COLOURS[0], linewidth=1.2)
        axis.set_title(section, fontsize="medium")
        axis.set_xlabel("seconds (steps, right: instances)")
        axis.set_ylim(bottom=0)
        sizes = axis.twinx()
        sizes.spines[["top"]].set_visible(False)
        sizes.step(*zip(*one.run.sizes, strict=True), where="post", color=colours.COLOURS[1], linewidth=1.6)
        sizes.set_ylim(0, 4)
        sizes.set_yticks(range(5))
    axes[0][0].set_ylabel("records waiting for longer than a batch")
    plots.save(figure, file)
