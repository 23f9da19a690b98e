"""Pictures of runs, as PNG files: input against throughput, parallelism as steps, backlog."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastream.engines.simulated.simulation import Simulation
from elastream.extras import missing
from elastream.showing.colours import COLOURS
from elastream.showing.views import HistoryView

_MOST_POINTS = 2000


def new_figure(rows: int, *, title: str, width: float = 9.0, height: float = 2.4) -> tuple[Any, Sequence[Any]]:
    """A figure with panels below each other that share their time axis."""
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    figure = Figure(figsize=(width, height * rows + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    figure.suptitle(title)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def told(plot: Path | None) -> str:
    """Where a plot is, or what to install for one."""
    if plot is not None:
        return f"plot: {plot}"
    return "no plot" if (lacks := missing("plot")) is None else f"no plot: {lacks}"


def plot_simulations(runs: Mapping[str, Simulation], path: Path, *, title: str) -> Path | None:
    """One run or several beside each other: what came in, what was processed, with how many, what waited.

    A plot is a by-product: where matplotlib is not installed there is none.
    """
    if missing("plot"):
        return None
    figure, (rates, instances, backlog) = new_figure(3, title=title)
    first = next(iter(runs.values()))
    minutes, arriving = _thinned(first, _total(first.history.arriving_per_s))
    rates.plot(minutes, arriving, color="0.4", linestyle="--", linewidth=1.2, label="arriving")
    for (label, run), colour in zip(runs.items(), _cycle(len(runs)), strict=True):
        rates.plot(*_thinned(run, _total(run.history.emitted_per_s)), color=colour, linewidth=1.0, label=label)
        backlog.plot(*_thinned(run, _waiting(run)), color=colour, linewidth=1.0, label=label)
    _plot_instances(instances, runs)
    _label(rates, instances, backlog)
    save(figure, path)
    return path


def plot_run(history: HistoryView, path: Path, *, title: str) -> Path | None:
    """What came in, what was processed, with how many instances, what waited."""
    if missing("plot"):
        return None
    figure, (rates, instances, backlog) = new_figure(3, title=title)
    began_s = history.at_s[0] - history.span_s[0]
    minutes = [(at_s - began_s) / 60 for at_s in history.at_s]
    offered = [source.offered_per_s for source in history.sources.values()]
    arriving = [sum(rate or 0.0 for rate in at_once) for at_once in zip(*offered, strict=True)]
    rates.plot(minutes, arriving, color="0.4", linestyle="--", linewidth=1.2, label="arriving")
    count = len(history.operators)
    for index, (colour, (name, operator)) in enumerate(zip(_cycle(count), history.operators.items(), strict=True)):
        measured = [i for i, rate in enumerate(operator.observed_per_s) if rate is not None]
        times = [minutes[i] for i in measured]
        processed, waiting = operator.observed_per_s, operator.backlog
        rates.plot(times, [processed[i] for i in measured], color=colour, linewidth=1.2, label=name)
        backlog.plot(times, [waiting[i] or 0.0 for i in measured], color=colour, linewidth=1.2, label=name)
        # the first ones thicker: operators that go hand in hand are then all seen
        width = min(1.6 + 1.6 * (count - 1 - index), 6.4)
        counts = [math.nan if n is None else n for n in operator.parallelism]
        instances.step(minutes, counts, where="post", color=colour, linewidth=width, label=name)
    _label(rates, instances, backlog)
    save(figure, path)
    return path


def _label(rates: Any, instances: Any, backlog: Any) -> None:
    rates.set_ylabel("records per second")
    instances.set_ylabel("instances")
    backlog.set_ylabel("records waiting")
    backlog.set_xlabel("minutes")
    for axis in (rates, instances):
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    for axis in (rates, instances, backlog):
        axis.set_ylim(bottom=0)


def _plot_instances(axis: Any, runs: Mapping[str, Simulation]) -> None:
    """Of a single run every operator; of several the total."""
    if len(runs) == 1:
        run = next(iter(runs.values()))
        names = run.model.dataflow.scalable
        for name, colour in zip(names, _cycle(len(names)), strict=True):
            axis.step(*steps(run, (name,)), where="post", color=colour, linewidth=1.6, label=name)
        for decision in run.decisions:
            axis.axvline(decision.at_s / 60, color="0.6", linestyle=":", linewidth=0.8)
        return
    for (label, run), colour in zip(runs.items(), _cycle(len(runs)), strict=True):
        names = run.model.dataflow.scalable
        axis.step(*steps(run, names), where="post", color=colour, linewidth=1.4, label=label)


def steps(run: Simulation, names: Sequence[str]) -> tuple[list[float], list[int]]:
    """Minutes and instances of some operators together, for a step plot."""
    changes = [(t, sum(plan[name] for name in names)) for t, plan in run.history.plans if t <= run.duration_s]
    changes.append((run.duration_s, changes[-1][1]))
    return [t / 60 for t, _ in changes], [total for _, total in changes]


def _total(series: Mapping[str, Sequence[float]]) -> list[float]:
    return [sum(values) for values in zip(*series.values(), strict=True)]


def _waiting(run: Simulation) -> list[float]:
    return [a + b for a, b in zip(run.history.source_backlog, run.history.queued, strict=True)]


def _thinned(run: Simulation, values: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most so many points, each the mean of those that it stands for."""
    within = sum(t <= run.duration_s for t in run.history.times_s)
    every = max(1, within // _MOST_POINTS)
    chunks = [values[i : i + every] for i in range(0, within, every)]
    minutes = [run.history.times_s[i] / 60 for i in range(0, within, every)]
    return minutes, [sum(chunk) / len(chunk) for chunk in chunks]


def _cycle(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]
