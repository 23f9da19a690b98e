"""The pictures of a report, as SVG within the page and as PNG beside it.

In the page the colours are names that its style sheet defines, so that the same picture is readable on light, on
dark and on paper. Names of operators are text: they are never markup, and never formulas.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import fsum
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from elastream.measurement.flow import throughput
from elastream.report.story import Story
from elastream.report.what_if import PolicyOutcome, Series, WhatIf
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


def run_figure(story: Story, demand: Series | None) -> Any:
    """What came in and what was done with it, with how many instances, and what waited."""
    line = story.timeline
    figure, (rates, instances, waiting) = _figure(3, heights=(2.0, 2.3, 1.6))
    unit_s, unit = _unit(line.duration_s)
    arriving = Series(
        times_s=tuple(s.begin_s for s in line.stretches), values=tuple(s.records_per_s for s in line.stretches)
    )
    through = Series(
        times_s=arriving.times_s, values=tuple(fsum(throughput(s.snapshot).values()) for s in line.stretches)
    )
    _step(rates, through, line.duration_s, unit_s, color=COLOURS[0], linewidth=1.6, label="processed")
    _step(rates, arriving, line.duration_s, unit_s, color=INK, linestyle="--", linewidth=1.0, label="arriving")
    _draw_instances(instances, story, unit_s)
    if demand is not None:
        _fill(instances, demand, line.duration_s, unit_s)
    _draw_waiting(waiting, story, unit_s)
    _label(rates, "records/s")
    _label(instances, "instances")
    _label(waiting, "records waiting")
    waiting.set_xlabel(unit)
    waiting.set_xlim(0, line.duration_s / unit_s)
    return figure


def _draw_instances(axis: Any, story: Story, unit_s: float) -> None:
    line = story.timeline
    names = [facts.name for facts in story.operators]
    for index, name in enumerate(names):
        counts = Series(
            times_s=tuple(s.begin_s for s in line.stretches),
            values=tuple(float(s.snapshot.plan[name]) for s in line.stretches),
        )
        # the first ones thicker: operators that go hand in hand are then all seen
        width = min(1.6 + 1.4 * (len(names) - 1 - index), 5.8) if len(names) <= len(COLOURS) else 1.4
        _step(axis, counts, line.duration_s, unit_s, **_style(index), linewidth=width, label=_short(name))
    if len(names) > 1:
        total = Series(
            times_s=tuple(s.begin_s for s in line.stretches),
            values=tuple(float(s.snapshot.plan.total) for s in line.stretches),
        )
        _step(axis, total, line.duration_s, unit_s, color=INK, linewidth=1.0, label="all together")
    marked = story.decisions if len(story.decisions) <= _MOST_MARKS else ()
    written_to_s = 0.0
    for number, told in enumerate(marked, start=1):
        axis.axvline(told.since_s / unit_s, color=SHADE, linestyle=":", linewidth=1.0)
        if told.since_s < written_to_s:  # there is the number of the one before
            continue
        written_to_s = told.since_s + _DIGIT * len(str(number)) * line.duration_s
        axis.annotate(
            str(number),
            (told.since_s / unit_s, 1.0),
            xytext=(2, -1),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize="small",
        )


def _draw_waiting(axis: Any, story: Story, unit_s: float) -> None:
    for index, facts in enumerate(story.operators):
        points = [
            (s.end_s, rates.totals.backlog)
            for s in story.timeline.stretches
            if (rates := s.snapshot.measurements.get(facts.name)) is not None and rates.totals.backlog is not None
        ]
        times_s, values = _thinned([t for t, _ in points], [value for _, value in points])
        axis.plot([t / unit_s for t in times_s], values, **_style(index), linewidth=1.4)


def what_if_figure(story: Story, found: WhatIf) -> Any:
    """The instances of every policy in a row of its own, before what the load needed."""
    rows: list[PolicyOutcome] = [found.recorded, *found.others]
    duration_s = story.timeline.duration_s
    unit_s, unit = _unit(duration_s)
    figure, axes = _figure(len(rows), heights=(0.95,) * len(rows))
    top = 1.15 * max(max(found.demand.values), max(found.recorded.instances.values))
    for index, (axis, outcome) in enumerate(zip(axes, rows, strict=True)):
        _fill(axis, found.demand, duration_s, unit_s)
        colour = INK if not outcome.simulated else COLOURS[(index - 1) % len(COLOURS)]
        _step(axis, outcome.instances, duration_s, unit_s, color=colour, linewidth=1.6)
        axis.set_ylim(0, top)
        axis.set_xlim(0, duration_s / unit_s)
        axis.set_ylabel("instances", fontsize="small")
        name = f"{outcome.name} (simulated)" if outcome.simulated else f"{outcome.name} (measured)"
        beyond = max(outcome.instances.values)
        if beyond > top:
            name += f", up to {beyond:.0f}"
        axis.set_title(name, loc="left", fontsize="small", pad=2)
    axes[-1].set_xlabel(unit)
    return figure


def check_figure(story: Story, found: WhatIf) -> Any:
    """The model beside what was measured: the recorded parallelism on it, and the recorded policy."""
    duration_s = story.timeline.duration_s
    unit_s, unit = _unit(duration_s)
    figure, (instances, waiting) = _figure(2, heights=(1.8, 1.6))
    measured, repeated = found.recorded, found.check.repeated
    _step(instances, measured.instances, duration_s, unit_s, color=INK, linewidth=2.4, label="measured")
    _plot(waiting, measured.waiting, unit_s, color=INK, linewidth=2.4, label="measured")
    played = {"color": COLOURS[2], "linewidth": 1.5, "label": "model, recorded parallelism"}
    _plot(waiting, found.check.played_waiting, unit_s, **played)
    if repeated is not None:
        again = {"color": COLOURS[1], "linewidth": 1.5, "label": "model, same policy"}
        _step(instances, repeated.instances, duration_s, unit_s, **again)
        _plot(waiting, repeated.waiting, unit_s, **again)
    _label(instances, "instances")
    _label(waiting, "records waiting")
    waiting.set_xlim(0, duration_s / unit_s)
    waiting.set_xlabel(unit)
    return figure


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


def _figure(rows: int, *, heights: Sequence[float]) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, sum(heights) + 0.5), layout="constrained")
    figure.patch.set_alpha(0)
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    for axis in axes:
        axis.patch.set_alpha(0)
        axis.grid(alpha=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


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


def _unit(duration_s: float) -> tuple[float, str]:
    return (3600.0, "hours") if duration_s >= _HOURS_FROM_S else (60.0, "minutes")


def _style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": _LINES[index // len(COLOURS) % len(_LINES)],
    }


def _short(name: str) -> str:
    """For a legend, which leaves out names that begin with an underscore, and has only so much room."""
    cut = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return f" {cut}" if cut.startswith("_") else cut


def _step(axis: Any, series: Series, duration_s: float, unit_s: float, **style: Any) -> None:
    times_s, values = _changes(series)
    axis.step([t / unit_s for t in (*times_s, duration_s)], [*values, values[-1]], where="post", **style)


def _fill(axis: Any, series: Series, duration_s: float, unit_s: float) -> None:
    times_s, values = _changes(series)
    axis.fill_between(
        [t / unit_s for t in (*times_s, duration_s)],
        [*values, values[-1]],
        step="post",
        color=SHADE,
        alpha=0.35,
        linewidth=0,
        label="needed in all, by the model",
    )


def _plot(axis: Any, series: Series, unit_s: float, **style: Any) -> None:
    times_s, values = _thinned(series.times_s, series.values)
    axis.plot([t / unit_s for t in times_s], values, **style)


def _changes(series: Series) -> tuple[Sequence[float], Sequence[float]]:
    """Only where the value changes, and at most so many points."""
    kept = [
        index
        for index in range(len(series.values))
        if index == 0 or series.values[index] != series.values[index - 1]
    ]
    return _thinned([series.times_s[i] for i in kept], [series.values[i] for i in kept])


def _thinned(times_s: Sequence[float], values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """At most so many points, each the highest of those that it stands for: a peak is what is looked for."""
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
