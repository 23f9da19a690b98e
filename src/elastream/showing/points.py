"""Windows as points of a chart, and how many of them become few.

Once there are too many, the older half of them is merged in pairs: the newest keep their detail, and the time that
a point stands for grows with its age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elastream.measurement.quantity import Combine
from elastream.showing import views
from elastream.showing.views import Health

_SOURCE_RATES = tuple(views.SourceColumns.model_fields)
_WORST = (Health.BEHIND, Health.STRAINED, Health.UNKNOWN, Health.OK)


Values = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorPoint:
    parallelism: int
    health: Health
    values: Values
    """Of each charted quantity, in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One window, or several that were merged."""

    at_s: float
    span_s: float
    achieved_share: float | None
    sources: Mapping[str, Values]
    """Of each rate of a source, in the order of its columns."""
    operators: Mapping[str, OperatorPoint]


def point_of(window: views.WindowView) -> Point:
    return Point(
        at_s=window.at_s,
        span_s=window.window_s,
        achieved_share=_short(window.achieved_share),
        sources={
            source.name: tuple(_short(getattr(source, rate)) for rate in _SOURCE_RATES)
            for source in window.sources
        },
        operators={
            operator.name: OperatorPoint(
                parallelism=operator.parallelism,
                health=operator.health,
                values=tuple(
                    getattr(operator, name) if how is Combine.SUM else _short(getattr(operator, name))
                    for name, how in views.CHARTED.items()  # sums are exact: they are added up
                ),
            )
            for operator in window.operators
            if operator.parallelism is not None
        },
    )


def _short(value: float | None) -> float | None:
    """Five digits: more than a chart can show, and a history of half the size."""
    return None if value is None else float(f"{value:.5g}")


def extended(points: Sequence[Point], newest: Point) -> list[Point]:
    """One more. Times rise: once the clock steps back, what stood at that time or later gives way."""
    return [*(point for point in points if point.at_s < newest.at_s), newest]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points: the older half in pairs, as often as is needed."""
    kept = list(points)
    while len(kept) > most:
        half = len(kept) // 4 * 2 or 2
        kept = [*(merged(a, b) for a, b in zip(kept[:half:2], kept[1:half:2], strict=True)), *kept[half:]]
    return kept


def merged(first: Point, second: Point) -> Point:
    spans = (first.span_s, second.span_s)
    return Point(
        at_s=second.at_s,
        span_s=first.span_s + second.span_s,
        achieved_share=_both(Combine.MEAN, spans, first.achieved_share, second.achieved_share),
        sources={
            name: tuple(
                _both(Combine.MEAN, spans, *rates)
                for rates in zip(first.sources.get(name, source), source, strict=True)
            )
            for name, source in second.sources.items()
        },
        operators={
            name: _merged_operator(spans, first.operators.get(name, operator), operator)
            for name, operator in second.operators.items()
        },
    )


def _merged_operator(spans: tuple[float, float], first: OperatorPoint, second: OperatorPoint) -> OperatorPoint:
    return OperatorPoint(
        parallelism=second.parallelism,
        health=min(first.health, second.health, key=_WORST.index),
        values=tuple(
            _both(how, spans, *values)
            for how, *values in zip(views.CHARTED.values(), first.values, second.values, strict=True)
        ),
    )


def _both(how: Combine, spans: tuple[float, float], *values: float | None) -> float | None:
    found = how.of(zip(values, spans, strict=True))
    return _short(found) if how is Combine.MEAN else found


def columns(points: Sequence[Point], sources: Iterable[str], operators: Iterable[str]) -> views.HistoryView:
    """One column for each number; what a window did not have is null there."""
    return views.HistoryView(
        at_s=tuple(point.at_s for point in points),
        span_s=tuple(point.span_s for point in points),
        achieved_share=tuple(point.achieved_share for point in points),
        sources={
            name: views.SourceColumns(**_columns(_SOURCE_RATES, [point.sources.get(name) for point in points]))
            for name in sources
        },
        operators={name: _of_operator([point.operators.get(name) for point in points]) for name in operators},
    )


def _of_operator(points: Sequence[OperatorPoint | None]) -> views.OperatorColumns:
    return views.OperatorColumns(
        parallelism=tuple(None if point is None else point.parallelism for point in points),
        health=tuple(None if point is None else point.health for point in points),
        **_columns(views.CHARTED, [None if point is None else point.values for point in points]),
    )


def _columns(names: Iterable[str], rows: Sequence[Values | None]) -> dict[str, Values]:
    return {name: tuple(None if row is None else row[index] for row in rows) for index, name in enumerate(names)}
