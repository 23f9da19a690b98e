"""Windows as points of a chart, and how many of them become few.

Once there are too many, the older half of them is merged in pairs: the newest keep their detail, and the time that
a point stands for grows with its age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from elastream.showing import views
from elastream.showing.views import Health

_WORST = (Health.BEHIND, Health.STRAINED, Health.UNKNOWN, Health.OK)


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorPoint:
    parallelism: int
    observed_per_s: float | None
    true_per_s: float | None
    required_per_s: float | None
    utilization: float | None
    backlog: float | None
    latency_s: float | None
    records_late: float | None
    health: Health


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePoint:
    offered_per_s: float | None
    achieved_per_s: float | None
    processed_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One window, or several that were merged."""

    at_s: float
    span_s: float
    achieved_share: float | None
    sources: Mapping[str, SourcePoint]
    operators: Mapping[str, OperatorPoint]


def point_of(window: views.WindowView) -> Point:
    return Point(
        at_s=window.at_s,
        span_s=window.window_s,
        achieved_share=_short(window.achieved_share),
        sources={
            source.name: SourcePoint(
                offered_per_s=_short(source.offered_per_s),
                achieved_per_s=_short(source.achieved_per_s),
                processed_per_s=_short(source.processed_per_s),
            )
            for source in window.sources
        },
        operators={
            operator.name: OperatorPoint(
                parallelism=operator.parallelism,
                observed_per_s=_short(operator.observed_per_s),
                true_per_s=_short(operator.true_per_s),
                required_per_s=_short(operator.required_per_s),
                utilization=_short(operator.utilization),
                backlog=_short(operator.backlog),
                latency_s=_short(operator.latency_s),
                records_late=operator.records_late,  # exact: they are added up
                health=operator.health,
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
        achieved_share=_mean(spans, first.achieved_share, second.achieved_share),
        sources={
            name: _merged_source(spans, first.sources.get(name, source), source)
            for name, source in second.sources.items()
        },
        operators={
            name: _merged_operator(spans, first.operators.get(name, operator), operator)
            for name, operator in second.operators.items()
        },
    )


def _merged_source(spans: tuple[float, float], first: SourcePoint, second: SourcePoint) -> SourcePoint:
    return SourcePoint(
        offered_per_s=_mean(spans, first.offered_per_s, second.offered_per_s),
        achieved_per_s=_mean(spans, first.achieved_per_s, second.achieved_per_s),
        processed_per_s=_mean(spans, first.processed_per_s, second.processed_per_s),
    )


def _merged_operator(spans: tuple[float, float], first: OperatorPoint, second: OperatorPoint) -> OperatorPoint:
    return OperatorPoint(
        parallelism=second.parallelism,
        observed_per_s=_mean(spans, first.observed_per_s, second.observed_per_s),
        true_per_s=_mean(spans, first.true_per_s, second.true_per_s),
        required_per_s=_mean(spans, first.required_per_s, second.required_per_s),
        utilization=_mean(spans, first.utilization, second.utilization),
        backlog=_highest(first.backlog, second.backlog),
        latency_s=_highest(first.latency_s, second.latency_s),
        records_late=_sum(first.records_late, second.records_late),
        health=min(first.health, second.health, key=_WORST.index),
    )


def _mean(spans: tuple[float, float], first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    total = sum(spans)
    return _short((first * spans[0] + second * spans[1]) / total if total > 0 else (first + second) / 2)


def _highest(first: float | None, second: float | None) -> float | None:
    return max((value for value in (first, second) if value is not None), default=None)


def _sum(first: float | None, second: float | None) -> float | None:
    return (first or 0.0) + (second or 0.0) if first is not None or second is not None else None


def columns(points: Sequence[Point], sources: Iterable[str], operators: Iterable[str]) -> views.HistoryView:
    """One column for each number; what a window did not have is null there."""
    return views.HistoryView(
        at_s=tuple(point.at_s for point in points),
        span_s=tuple(point.span_s for point in points),
        achieved_share=tuple(point.achieved_share for point in points),
        sources={
            name: views.SourceColumns(**_columns(SourcePoint, [point.sources.get(name) for point in points]))
            for name in sources
        },
        operators={
            name: views.OperatorColumns(**_columns(OperatorPoint, [point.operators.get(name) for point in points]))
            for name in operators
        },
    )


def _columns(kind: type[SourcePoint | OperatorPoint], rows: Sequence[object | None]) -> dict[str, tuple[Any, ...]]:
    return {
        field.name: tuple(None if row is None else getattr(row, field.name) for row in rows)
        for field in fields(kind)
    }
