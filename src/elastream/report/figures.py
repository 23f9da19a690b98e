"""The pictures of a report, as SVG within the page and as PNG beside it.

In the page the colours are names that its style sheet defines, so that the same picture is readable on light, on
dark and on paper. Names of operators are text: they are never markup, and never formulas.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import fsum
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from elastream.measurement.flow import throughput
from elastream.report.story import Story
from elastream.report.timeline import ChartSeries, Stretch
from elastream.report.what_if import PolicyOutcome, WhatIf
from elastream.showing import colours

INK, SHADE = "#3b4148", "#9aa1ab"
COLOURS = colours.COLOURS[:6]
"""Readable for people who do not see all colours (Okabe and Ito 2008); then again, dashed."""
_LINES = ("-", "--", ":", "-.")
_MOST_POINTS = 1200
_HOURS_FROM_S = 3 * 3600.0
_MOST_MARKS = 25
_DIGIT = 0.01  # of the width
_MOST_NAMED = 12  # operators in a legend
_NAMES_IN_A_ROW = 5
_LONGEST_NAME = 28
_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"


def run_figure(story: Story, demand: ChartSeries | None) -> Any:
    """What came in and what was done with it, with how many instances, and what waited."""
    line = story.timeline
    panels = _Panels(line.duration_s, heights=(2.0, 2.3, 1.6))
    rates, instances, waiting = panels.axes
    through = line.series(lambda stretch: fsum(throughput(stretch.snapshot).values()))
    arriving = line.series(lambda stretch: stretch.records_per_s)
    panels.step(rates, through, color=COLOURS[0], linewidth=1.6, label="processed")
    panels.step(rates, arriving, color=INK, linestyle="--", linewidth=1.0, label="arriving")
    for name, series in story.foreseen.items():
        panels.plot(rates, series, color=COLOURS[1], linestyle=":", linewidth=1.0, label=name)
    _draw_instances(panels, instances, story)
    if demand is not None:
        panels.fill(instances, demand)
    for index, facts in enumerate(story.operators):
        backlog = line.series_at_ends(partial(_backlog, facts.name))
        panels.plot(waiting, backlog, **_style(index), linewidth=1.4)
    _label(rates, "records/s")
    _label(instances, "instances")
    _label(waiting, "records waiting")
    return panels.figure


def _count(operator: str, stretch: Stretch) -> int:
    return stretch.snapshot.plan[operator]


def _backlog(operator: str, stretch: Stretch) -> float | None:
    rates = stretch.snapshot.measurements.get(operator)
    return None if rates is None else rates.totals.backlog


def _draw_instances(panels: _Panels, axis: Any, story: Story) -> None:
    line = story.timeline
    names = [facts.name for facts in story.operators]
    for index, name in enumerate(names):
        counts = line.series(partial(_count, name))
        # the first ones thicker: operators that go hand in hand are then all seen
        width = min(1.6 + 1.4 * (len(names) - 1 - index), 5.8) if len(names) <= len(COLOURS) else 1.4
        panels.step(axis, counts, **_style(index), linewidth=width, label=_short(name))
    if len(names) > 1:
        total = line.series(lambda stretch: stretch.snapshot.plan.total)
        panels.step(axis, total, color=INK, linewidth=1.0, label="all together")
    marked = story.decisions if len(story.decisions) <= _MOST_MARKS else ()
    written_to_s = 0.0
    for number, told in enumerate(marked, start=1):
        axis.axvline(told.since_s / panels.unit_s, color=SHADE, linestyle=":", linewidth=1.0)
        if told.since_s < written_to_s:  # there is the number of the one before
            continue
        written_to_s = told.since_s + _DIGIT * len(str(number)) * line.duration_s
        axis.annotate(
            str(number),
            (told.since_s / panels.unit_s, 1.0),
            xytext=(2, -1),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize="small",
        )


def what_if_figure(story: Story, found: WhatIf) -> Any:
    """The instances of every policy in a row of its own, before what the load needed."""
    rows: list[PolicyOutcome] = [found.recorded, *found.others]
    panels = _Panels(story.timeline.duration_s, heights=(0.95,) * len(rows))
    top = 1.15 * max(max(found.demand.values), max(found.recorded.instances.values))
    for index, (axis, outcome) in enumerate(zip(panels.axes, rows, strict=True)):
        panels.fill(axis, found.demand)
        colour = INK if not outcome.simulated else COLOURS[(index - 1) % len(COLOURS)]
        panels.step(axis, outcome.instances, color=colour, linewidth=1.6)
        axis.set_ylim(0, top)
        axis.set_ylabel("instances", fontsize="small")
        name = f"{outcome.name} (simulated)" if outcome.simulated else f"{outcome.name} (measured)"
        beyond = max(outcome.instances.values)
        if beyond > top:
            name += f", up to {beyond:.0f}"
        axis.set_title(name, loc="left", fontsize="small", pad=2)
    return panels.figure


def check_figure(story: Story, found: WhatIf) -> Any:
    """The model beside what was measured: the recorded parallelism on it, and the recorded policy."""
    panels = _Panels(story.timeline.duration_s, heights=(1.8, 1.6))
    instances, waiting = panels.axes
    measured = {"color": INK, "linewidth": 2.4, "label": "measured"}
    played = {"color": COLOURS[2], "linewidth": 1.5, "label": "model, recorded parallelism"}
    again = {"color": COLOURS[1], "linewidth": 1.5, "label": "model, same policy"}
    panels.step(instances, found.recorded.instances, **measured)
    panels.plot(waiting, found.recorded.waiting, **measured)
    panels.plot(waiting, found.check.played_waiting, **played)
    if (repeated := found.check.repeated) is not None:
        panels.step(instances, repeated.instances, **again)
        panels.plot(waiting, repeated.waiting, **again)
    _label(instances, "instances")
    _label(waiting, "records waiting")
    return panels.figure


# What they share


@contextmanager
def styled() -> Iterator[None]:
    """Text as text, in one ink; ids that do not depend on chance."""
    import matplotlib  # slow to import, and most commands draw nothing

    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    settings: dict[str, Any] = {
        **dict.fromkeys(inked, INK),
        "svg.fonttype": "none",
        "svg.hashsalt": "report",
        "text.parse_math": False,
        "axes.unicode_minus": True,
        "font.size": 9.5,
    }
    with matplotlib.rc_context(cast(Any, settings)):
        yield


class _Panels:
    """Axes below each other, over the time of the run."""

    def __init__(self, duration_s: float, *, heights: Sequence[float]) -> None:
        from matplotlib.figure import Figure

        self._duration_s = duration_s
        self.unit_s, unit = (3600.0, "hours") if duration_s >= _HOURS_FROM_S else (60.0, "minutes")
        self.figure: Any = Figure(figsize=(8.6, sum(heights) + 0.5), layout="constrained")
        self.figure.patch.set_alpha(0)
        rows = self.figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        self.axes: Sequence[Any] = list(rows[:, 0])
        for axis in self.axes:
            axis.patch.set_alpha(0)
            axis.grid(alpha=0.2)
            axis.spines[["top", "right"]].set_visible(False)
        self.axes[-1].set_xlabel(unit)
        self.axes[-1].set_xlim(0, duration_s / self.unit_s)

    def step(self, axis: Any, series: ChartSeries, **style: Any) -> None:
        axis.step(*self._steps(series), where="post", **style)

    def fill(self, axis: Any, series: ChartSeries) -> None:
        style = {"color": SHADE, "alpha": 0.35, "linewidth": 0, "label": "needed in all, by the model"}
        axis.fill_between(*self._steps(series), step="post", **style)

    def plot(self, axis: Any, series: ChartSeries, **style: Any) -> None:
        times_s, values = _thinned(series.times_s, series.values)
        axis.plot([t / self.unit_s for t in times_s], values, **style)

    def _steps(self, series: ChartSeries) -> tuple[list[float], list[float]]:
        """Only where the value changes, and the last one until the end of the run."""
        changes = [
            (time_s, value)
            for number, (time_s, value) in enumerate(zip(series.times_s, series.values, strict=True))
            if number == 0 or value != series.values[number - 1]
        ]
        times_s, values = _thinned([time_s for time_s, _ in changes], [value for _, value in changes])
        return [t / self.unit_s for t in (*times_s, self._duration_s)], [*values, values[-1]]


def _label(axis: Any, text: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_ylabel(text)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}")
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        shown = handles[:_MOST_NAMED]
        axis.legend(
            shown,
            labels[: len(shown)],
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=_NAMES_IN_A_ROW,
            frameon=False,
            fontsize="small",
            borderaxespad=0.2,
        )


def _style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": _LINES[index // len(COLOURS) % len(_LINES)],
    }


def _short(name: str) -> str:
    """For a legend, which leaves out names that begin with an underscore, and has only so much room."""
    cut = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return f" {cut}" if cut.startswith("_") else cut


def _thinned(times_s: Sequence[float], values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Downsampled: each point is the highest of those that it stands for, as a peak is what is looked for."""
    every = max(1, -(-len(values) // _MOST_POINTS))
    starts = range(0, len(values), every)
    return [times_s[start] for start in starts], [max(values[start : start + every]) for start in starts]


# As files


def as_png(figure: Any, path: Path) -> None:
    figure.patch.set_alpha(1)
    figure.savefig(path, dpi=120, facecolor="white")
    figure.patch.set_alpha(0)


def as_svg(figure: Any, name: str) -> str:
    """For a page: without a size of its own, its ids its own, its colours those of the style sheet."""
    written = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(written, format="svg", metadata=nothing)
    root = ElementTree.fromstring(written.getvalue())
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _for_page(key, value, name))
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _for_page(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    value = re.sub(r"url\(#", f"url(#{name}-", value)
    for number, colour in enumerate((INK, SHADE, *COLOURS)):
        value = value.replace(colour, "currentColor" if colour == INK else f"var(--c{number})")
    return value
