"""Sections 5.2.2, 5.2.3 and 5.2.6 of the SEEP thesis on Spark: the same rules, the same rates, a real engine.

Rules, rates and peaks are those of `seep_cases.py`, which `seep-simulated` has too. Before each case the pipeline
runs for a while with hardly any load, as the first batches of a query take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elastream.commands import plots
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.pipeline import Pipeline
from elastream.policies.rules import RuleSet
from elastream.showing import colours
from elastream.workloads.generator import SCHEMA
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import SparkRun, folder_for_a_run, run_on_spark
from experiments.panels import new_panels
from experiments.seep_cases import BASE_PER_S, OPERATOR, PEAK_PER_S, PERIOD_S, TROUGH_S, above_300, out_and_in
from experiments.workloads.paced import paced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE, _SINK = "source", "LoggingSink"
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
    "5.2.6: the operator can do just the base rate, so what is left when it is scaled in stays until the next "
    "peak. What a batch costs besides its records is not taken from its rate (`experiments/workloads/paced.py`).",
    "Rules take the average of the instances; the plot shows the queue of the operator as a whole.",
)


@dataclass(frozen=True, kw_only=True)
class _Case:
    section: str
    rules: RuleSet
    rate_per_s: float
    """Of an instance."""
    load: tuple[tuple[float, float], ...]
    """From when on how many records a second."""
    duration_s: float


def _cases() -> tuple[_Case, ...]:
    constant = ((0.0, BASE_PER_S),)
    begins_s = [TROUGH_S + number * PERIOD_S for number in range(_PEAKS)]
    peaks = [turn for at in begins_s for turn in ((at, PEAK_PER_S), (at + PERIOD_S - TROUGH_S, BASE_PER_S))]
    return (
        _Case(
            section="5.2.2", rules=above_300(OPERATOR, by=1, most=2), rate_per_s=5, load=constant, duration_s=200
        ),
        _Case(
            section="5.2.3", rules=above_300(OPERATOR, by=2, most=3), rate_per_s=5, load=constant, duration_s=240
        ),
        _Case(
            section="5.2.6",
            rules=out_and_in(guard_s=None),
            rate_per_s=BASE_PER_S,
            load=(*constant, *peaks),
            duration_s=TROUGH_S + _PEAKS * PERIOD_S,
        ),
    )


@experiment(
    "seep-spark",
    paper="SEEP scaling framework (Rouaux), sections 5.2.2, 5.2.3 and 5.2.6",
    question="Do the rules of the simulated cases do the same to a pipeline on Spark?",
    minutes=14,
)
def run(progress: Progress) -> Report:
    cases, found = _cases(), {}
    for number, case in enumerate(cases):
        progress(case.section, number / len(cases))
        found[case.section] = _run(case)
    progress("done", 1.0)
    return Report(
        checks=tuple(_checks(found)),
        differs=_DIFFERS,
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


def _run(case: _Case) -> Found:
    with folder_for_a_run() as folder:
        pipeline = _pipeline(case, folder)
        warm = [[0.0, _WARM_UP_PER_S], *([_WARM_UP_S + at, rate] for at, rate in case.load)]
        duration_s = _WARM_UP_S + case.duration_s
        run = run_on_spark(
            pipeline, case.rules, folder, operator=OPERATOR, duration_s=duration_s, load={"steps": warm}
        )
        kept = [ms for table in FileChannel(folder / _SINK).tables() for ms in table["created_ms"].to_pylist()]
        written = FileChannel(folder / "run" / "channels" / _SOURCE).log.head().records
    # the first record was due one second after the generator began, and is written with the tick after that
    began_s = min(kept) / 1000 - 1 / _WARM_UP_PER_S - _TICK_S / 2 + _WARM_UP_S
    shifted = SparkRun(operator=OPERATOR, snapshots=run.snapshots, events=run.events, began_s=began_s)
    return Found(run=shifted, written=written, kept=len(kept))


def _pipeline(case: _Case, folder: Path) -> Pipeline:
    pipeline = Pipeline(f"seep-{case.section}")
    pipeline.feed(_SOURCE, schema=SCHEMA)

    @pipeline.operator(reads=_SOURCE, max_parallelism=3)
    def SimpleStatelessOperator(source: DataFrame) -> DataFrame:  # noqa: N802 - as the rules name it
        return paced(source, case.rate_per_s, folder / "clocks")

    pipeline.keep(_SINK, reads=OPERATOR, folder=folder / _SINK)
    return pipeline


# What is compared


def _checks(found: dict[str, Found]) -> Iterator[Check]:
    yield from _one_more(found["5.2.2"])
    yield from _two_more(found["5.2.3"])
    yield from _long_peaks(found["5.2.6"])


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
    highest_s, highest = max(found.queue, key=lambda point: point[1])
    empty_s = next((at_s for at_s, queued in found.queue if at_s > highest_s and queued < 1), None)
    yield Check(
        what="5.2.3: the queue",
        ours=f"up to {highest:.0f} records, gone at {_seconds(empty_s)}",
        paper="is progressively emptied",
        bound="drains",
        holds=empty_s is not None,
    )


def _long_peaks(found: Found) -> Iterator[Check]:
    crossed_s = first_above([point for point in found.queue if point[0] >= TROUGH_S], 100)
    yield Check(
        what="5.2.6: into a peak, the queue exceeds 100 after",
        ours=_seconds(None if crossed_s is None else crossed_s - TROUGH_S),
        paper="roughly 10 s",
    )
    count = followed([(change.at_s, change.before, change.after) for change in found.run.changes])
    yield Check(
        what="5.2.6: peaks followed out and in",
        ours=f"{count} of {_PEAKS}: {', '.join(map(str, found.run.changes)) or 'no action'}",
        paper="every one, 1 → 3 → 1",
        bound="every one",
        holds=count == _PEAKS,
    )


def _acts_once(section: str, found: Found, *, sizes: tuple[int, int], paper: str) -> Check:
    changes = found.run.changes
    crossed_s = first_above(found.queue, 300)
    right = [(change.before, change.after) for change in changes] == [sizes]
    return Check(
        what=f"{section}: acts",
        ours=", ".join(map(str, changes)) or "no action",
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


def followed(changes: Sequence[tuple[float, int, int]]) -> int:
    """Peaks with one scale-out from 1 to 3 after they began and, before the next began, one scale-in to 1."""
    count = 0
    for number in range(_PEAKS):
        begins_s = TROUGH_S + number * PERIOD_S
        its = [(before, after) for at_s, before, after in changes if begins_s <= at_s < begins_s + PERIOD_S]
        count += its == [(1, 3), (3, 1)]
    return count


def _seconds(at_s: float | None) -> str:
    return "never" if at_s is None else f"{at_s:.0f} s"


# What is left behind


def _as_json(found: Found) -> dict[str, Any]:
    return {"written": found.written, "kept": found.kept, **found.run.as_json("overdue", "backlog", "latency_s")}


def _plot(found: dict[str, Found], file: Path) -> None:
    title = "Rules on the length of a queue, on Spark (SEEP scaling framework, 5.2.2, 5.2.3 and 5.2.6)"
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
