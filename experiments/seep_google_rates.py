"""Section 5.3.1 of the SEEP thesis: how many events a Google cluster has, job events beside task events, in
figures 5.13 to 5.15; and the tasks that run, as figure 5.32 has them.

The extract of the trace's task events lasts an hour and a half, and GOOGLE_TRACE may name its whole first part;
the jobs are those of the whole month. What lies beyond the first part is not here, so figure 5.15 has 83 minutes
and not a month. Figure 5.33 has the tasks that run, averaged over 24 hours, and there are 1.5: the average of the
jobs that were submitted is drawn instead, as it shows the same month.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from elastream.commands import plots
from elastream.showing import colours
from examples.paper_workloads.google_trace import EXTRACT, read_task_events
from experiments.frame import Check, Progress, Report, experiment
from experiments.panels import new_panels
from experiments.workloads.google_with_pandas import expected_results

JOBS = EXTRACT.with_name("jobs_per_minute.csv.gz")
_BEGINS_MIN = 10
"""What ran before the trace's period has time 0, and the period begins ten minutes after that."""
_DAY_MIN = 24 * 60
_SHARES = (50, 75, 90, 95)
_THESIS_JOBS, _THESIS_TASKS = 1_186_101, 144_328_173
_THESIS_JOBS_PER_S = (0.42, 0.60, 0.80, 0.95)
_THESIS_TASKS_PER_S = (31.6, 62.8, 116.1, 179.5)
_EVERY_S = 300  # of the tasks that run

_DIFFERS = (
    "Job events are submissions here; the thesis counts 1.78 times as many events, other kinds among them, so its "
    "rates are higher by about as much.",
    "Task events are those of the first 83 minutes, all kinds, on one machine in 25 unless GOOGLE_TRACE names the "
    "trace's first part; the thesis has a month of all machines. Rates are means over a minute.",
    "Figure 5.33 averages the tasks that run over 24 hours, which are not in the first part. Drawn is the average "
    "of the job submissions, which are those of the whole month: it need not fall as the tasks do.",
)


@experiment(
    "seep-google-rates",
    paper="SEEP scaling framework (Rouaux), sections 5.3.1 and 5.3.6, figures 5.13 to 5.15 and 5.32",
    question="How many events has the cluster whose trace is replayed, and how unevenly do they come?",
)
def run(progress: Progress) -> Report:
    trace = Path(os.environ.get("GOOGLE_TRACE", EXTRACT))
    progress("reading", 0.0)
    jobs = pd.read_csv(JOBS)["jobs"].to_numpy()[_BEGINS_MIN:]
    tasks = task_events_per_minute(trace)
    progress("counting the tasks that run", 0.3)
    results = expected_results(trace, _EVERY_S)
    running = results[results["statistic"] == "total"]
    times_s, counts = running["at_s"].to_numpy(), running["tasks"].to_numpy()
    progress("done", 1.0)
    return Report(
        checks=tuple(_checks(jobs, tasks, counts, whole=trace != EXTRACT)),
        differs=_DIFFERS,
        data={
            "jobs_per_minute": jobs.tolist(),
            "task_events_per_minute": tasks.tolist(),
            "running": [[int(at_s), float(count)] for at_s, count in zip(times_s, counts, strict=True)],
        },
        plot=partial(_plot, jobs, tasks, times_s, counts),
    )


def task_events_per_minute(trace: Path) -> np.ndarray:
    """Of whole minutes, from the beginning of the trace's period."""
    at_us = read_task_events(trace)["at_us"].to_numpy()
    minutes = at_us[at_us > 0] // 60_000_000 - _BEGINS_MIN
    return np.bincount(minutes)[:-1]


def averaged_over_a_day(per_minute: np.ndarray) -> np.ndarray:
    """Of the 24 hours up to each minute, from the end of the first day on."""
    sums = np.cumsum(np.insert(per_minute.astype(float), 0, 0.0))
    return np.asarray((sums[_DAY_MIN:] - sums[:-_DAY_MIN]) / _DAY_MIN)


def _checks(jobs: np.ndarray, tasks: np.ndarray, running: np.ndarray, *, whole: bool) -> Iterator[Check]:
    yield Check(
        what="job events in the month", ours=f"{jobs.sum():,} (submissions)", paper=f"{_THESIS_JOBS:,} (all kinds)"
    )
    yield _rates("job events", jobs, _THESIS_JOBS_PER_S)
    daily = averaged_over_a_day(jobs) / 60
    yield Check(
        what="jobs a second, averaged over 24 hours: first, least, most, last",
        ours=f"{daily[0]:.2f}, {daily.min():.2f}, {daily.max():.2f}, {daily[-1]:.2f} (submissions)",
        paper="tasks that run, from well above 100,000 to roughly 40,000",
    )
    machines = "all machines" if whole else "one machine in 25"
    yield Check(
        what=f"task events after time 0, {machines}",
        ours=f"{tasks.sum():,} in {len(tasks)} min",
        paper=f"{_THESIS_TASKS:,} in a month",
    )
    yield _rates("task events", tasks, _THESIS_TASKS_PER_S)
    yield Check(
        what=f"tasks that run at first and last, {machines}",
        ours=f"{running[0]:,.0f} and {running[-1]:,.0f}",
        paper="well above 100,000 at first, roughly 40,000 after a month",
    )


def _rates(what: str, per_minute: np.ndarray, thesis: Sequence[float]) -> Check:
    def told(rates: Sequence[float]) -> str:
        shape = ", ".join(f"{rate / rates[0]:.2f}" for rate in rates[1:])
        return f"{', '.join(f'{rate:.2f}' for rate in rates)} (to the median: {shape})"

    ours = [float(rate) for rate in np.percentile(per_minute / 60, _SHARES)]
    return Check(what=f"{what} a second: median, 75th, 90th, 95th percentile", ours=told(ours), paper=told(thesis))


def _plot(jobs: np.ndarray, tasks: np.ndarray, times_s: np.ndarray, running: np.ndarray, file: Path) -> None:
    figure, axes = new_panels(1, 3, title="Events of a Google cluster (5.3.1, 5.3.6)", width=4.6, height=3.0)
    days = np.arange(len(jobs)) / _DAY_MIN
    panels = (
        ("job submissions a second (5.14)", "days", days, jobs / 60),
        ("task events a second (5.15, its beginning)", "minutes", np.arange(len(tasks)), tasks / 60),
        ("running tasks (5.32, its beginning)", "minutes", times_s / 60 - _BEGINS_MIN, running),
    )
    for axis, (title, unit, at, values) in zip(axes.flat, panels, strict=True):
        axis.plot(at, values, color=colours.COLOURS[0], linewidth=0.6 if unit == "days" else 1.2)
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel(unit)
        axis.set_ylim(bottom=0)
    average = averaged_over_a_day(jobs) / 60
    axes[0][0].plot(days[-len(average) :], average, color=colours.COLOURS[1], label="24 hours (as 5.33)")
    axes[0][0].legend(fontsize="small")
    plots.save(figure, file)
