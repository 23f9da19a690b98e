"""The report as one HTML file: no network, no scripts, everything escaped that comes from the recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from elastream._version import __version__
from elastream.durations import text as duration_text
from elastream.options import settings_of
from elastream.report.learned_model import LearnedOperator
from elastream.report.story import Story, hours_text, summary
from elastream.report.what_if import ModelCheck, PolicyOutcome, WhatIf
from elastream.showing.views import ReasonView
from elastream.texts import number_text

# seconds since 1970: a clock that shows less began with the run, and what shows more shows no seconds
_WALL_CLOCK_S = (1e8, 2.5e11)
_OPEN = 12  # decisions whose reasons are shown at once
_SHOWN_COUNTS = (1, 2, 4, 8, 16, 32)


_VERDICTS = {
    "close": "The model repeats the recorded run closely, so this should hold (see below).",
    "rough": "The model repeats the recorded run roughly: trust large differences, not small ones (see below).",
    "poor": "The model does not repeat the recorded run well: take this as a guess (see below).",
    "unknown": "Whether the model repeats the recorded run could not be tried (see below).",
}


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything that the page is made of."""

    story: Story
    found: WhatIf | None
    why_no_model: str
    figures: Mapping[str, str]
    """SVG by name."""
    cost_per_instance_hour: float | None


def html(contents: Contents) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # an extra
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("elastream.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=lambda value: "—" if value is None else number_text(value),
        records=lambda count: "—" if count is None else f"{count:,}",
        percent=_percent,
        duration=duration_text,
        hours=_hours,
    )
    story = contents.story
    return environment.get_template("report.html.j2").render(
        story=story,
        summary=summary(story),
        began=_began(story),
        engine=story.header.engine if story.header else None,
        found=contents.found,
        why_no_model=contents.why_no_model,
        figures={name: Markup(svg) for name, svg in contents.figures.items()},
        price=contents.cost_per_instance_hour,
        open_decisions=len(story.decisions) <= _OPEN,
        grouped=_grouped,
        compared=_compared,
        trust=None if contents.found is None else trust_text(contents.found),
        verdict=None if contents.found is None else _VERDICTS[contents.found.check.trust],
        off=None if contents.found is None else off_text(contents.found.check),
        capacities=_capacities,
        shown_counts=_SHOWN_COUNTS,
        settings=None if contents.found is None else dict(_settings(contents.found)),
        version=__version__,
        used=hours_text(story.cost.instance_s),
    )


def _hours(seconds: float) -> str:
    """Three digits, also where the last is a zero: the numbers of a column are compared."""
    hours = seconds / 3600
    if hours < 0.1:
        return f"{hours:.2g}"
    return f"{hours:,.{3 if hours < 1 else 2 if hours < 10 else 1 if hours < 100 else 0}f}"


def _percent(share: float | None) -> str:
    if share is None:
        return "—"
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{share:.{digits}%}"


def _began(story: Story) -> str | None:
    began_s, (least_s, most_s) = story.timeline.began_s, _WALL_CLOCK_S
    return f"{datetime.fromtimestamp(began_s, UTC):%Y-%m-%d %H:%M} UTC" if least_s < began_s < most_s else None


def _grouped(reasons: tuple[ReasonView, ...]) -> list[tuple[str | None, list[str]]]:
    """The reasons by operator, those of the pipeline as a whole first."""
    groups: dict[str | None, list[str]] = {}
    for reason in reasons:
        groups.setdefault(reason.operator, []).append(reason.text)
    return sorted(groups.items(), key=lambda group: group[0] is not None)


def _compared(outcome: PolicyOutcome, recorded: PolicyOutcome) -> str:
    if not outcome.simulated or recorded.instance_s <= 0:
        return ""
    share = outcome.instance_s / recorded.instance_s - 1
    return "the same" if abs(share) < 0.005 else f"{share:+.0%}".replace("-", "−")


def trust_text(found: WhatIf) -> str:
    """How far the model can be trusted, by the recorded policy on it."""
    check = found.check
    if check.repeated is None or check.cost_off is None or check.instances_off is None:
        return f"The recorded policy could not be simulated on the model: {check.why_not}."
    more = "more" if check.cost_off > 0 else "less"
    cost = "as much as" if abs(check.cost_off) < 0.005 else f"{_percent(abs(check.cost_off))} {more} than"
    verdict = {
        "close": "the model repeats this run closely, and what it says of other policies should hold",
        "rough": "the model repeats this run roughly: trust large differences between policies, not small ones",
        "poor": "the model does not repeat this run well: take what it says of other policies as a guess",
    }[check.trust]
    assumed = "" if found.setup.known else " (with default settings, as the recording does not say them)"
    return (
        f"On the model, the recorded policy{assumed} uses {cost} it really did, and its parallelism is "
        f"{_percent(check.instances_off)} away from the recorded one on average: {verdict}."
    )


def off_text(check: ModelCheck) -> str:
    """How far what waits in the model is from what waited, with the recorded parallelism."""
    if not check.waiting_off_s:
        return "The recording does not say what waited, so that cannot be compared."
    name, off_s = max(check.waiting_off_s.items(), key=lambda item: item[1])
    if off_s < 0.05:
        return "With the recorded parallelism, as much waits in the model as was measured."
    return (
        f"With the recorded parallelism, what waits for {name} in the model differs from what was measured by "
        f"{duration_text(off_s)} of its input on average; for every other operator by less."
    )


def _capacities(operator: LearnedOperator) -> Iterator[str]:
    for count in _SHOWN_COUNTS:
        yield number_text(operator.capacity.total_per_s(count))


def _settings(found: WhatIf) -> Iterator[tuple[str, Any]]:
    yield "policy", found.setup.policy or "not known"
    yield from found.setup.options.items()
    yield from settings_of(found.setup.knobs).items()
