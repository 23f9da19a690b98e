"""What people know of the load that no history can tell: events, and periods in which nothing is to be changed.

A factor is that of the rate during the event to the rate before it, a floor is records per second. Both add what
the forecast lacks: the higher of the two counts, so that an event that was learned meanwhile is not counted twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from elastream.errors import InvalidInput

_DAY = dt.timedelta(days=1)
_LATEST_S = 2e11  # in the year 8307
_A_MONDAY = dt.date(2024, 1, 1)
_Interval = tuple[dt.datetime, dt.datetime]


@dataclass(frozen=True, kw_only=True)
class Period:
    """A stretch of local time that comes once or again and again."""

    name: str
    begins: dt.time
    lasts: dt.timedelta
    weekdays: tuple[int, ...] = ()
    """On which it begins, Monday is 0; empty where it is on a date."""
    date: dt.date | None = None
    line: int = 0
    """Of the file that it was read from."""

    def between(self, first: dt.date, last: dt.date) -> Iterator[_Interval]:
        """Those that begin on these days."""
        if self.date is not None:
            days = [self.date] if first <= self.date <= last else []
        else:
            span = (first + n * _DAY for n in range((last - first).days + 1))
            days = [day for day in span if day.weekday() in self.weekdays]
        for day in days:
            start = dt.datetime.combine(day, self.begins)
            yield start, start + self.lasts

    def holds(self, local: dt.datetime) -> bool:
        first = local.date() - self.lasts - _DAY
        return any(begin <= local < end for begin, end in self.between(first, local.date()))


@dataclass(frozen=True, kw_only=True)
class Event(Period):
    factor: float | None = None
    floor: float | None = None
    source: str | None = None
    """All of them where none is named."""


@dataclass(frozen=True, kw_only=True)
class Calendar:
    events: tuple[Event, ...] = ()
    excluded: tuple[Period, ...] = ()
    timezone: dt.tzinfo = dt.UTC

    def excluded_at(self, at_s: float) -> Period | None:
        """The period in which nothing is to be changed at this time."""
        local = self._local(at_s)
        return next((period for period in self.excluded if period.holds(local)), None)

    def events_at(self, at_s: float, source: str) -> tuple[Event, ...]:
        local = self._local(at_s)
        return tuple(e for e in self.events if e.source in (None, source) and e.holds(local))

    def expected(self, forecast: float, *, last: float, source: str, now_s: float, at_s: float) -> float:
        """A rate that is forecast for `at_s`, with what is known of that time; `last` is the rate now."""
        now, then = self.events_at(now_s, source), self.events_at(at_s, source)
        change = _factor(then) / _factor(now)
        if change > 1:
            forecast = max(forecast, last * change)
        elif change < 1 and _factor(then) < 1:  # the end of a rise is left to the forecast
            forecast = min(forecast, last * change)
        return max([forecast, *(event.floor for event in then if event.floor is not None)])

    def _local(self, at_s: float) -> dt.datetime:
        if not 0 <= at_s <= _LATEST_S:
            raise InvalidInput(f"a calendar needs seconds since 1970, found {at_s}")
        return dt.datetime.fromtimestamp(at_s, self.timezone).replace(tzinfo=None)


NO_CALENDAR = Calendar()


def _factor(events: Sequence[Event]) -> float:
    return next((event.factor for event in events if event.factor is not None), 1.0)


# Contradictions


def contradictions(calendar: Calendar) -> Iterator[tuple[Period, Period, str]]:
    """Pairs that cannot both be meant, with the reason."""
    periods = (*calendar.events, *calendar.excluded)
    for one, other in combinations(periods, 2):
        if one.name == other.name:
            yield one, other, "they have the same name"
    for period in periods:
        if _meet(period, period):
            yield period, period, "it has not ended when it begins again"
    for one, other in combinations(calendar.events, 2):
        if _factors_differ(one, other) and _meet(one, other):
            yield one, other, f"the factor is {one.factor:g} and {other.factor:g} at the same time"
    for event, excluded in product(calendar.events, calendar.excluded):
        if _covers(excluded, event):
            yield event, excluded, "nothing may be changed for as long as it lasts"


def _factors_differ(one: Event, other: Event) -> bool:
    alike = one.source == other.source or None in (one.source, other.source)
    return alike and None not in (one.factor, other.factor) and one.factor != other.factor


def _near(period: Period, other: Period) -> list[_Interval]:
    """All of a period that may meet another: where that has no date, in a week, as these are all alike."""
    if period.date is not None:
        return list(period.between(period.date, period.date))
    middle = other.date or _A_MONDAY
    reach = period.lasts + other.lasts + 7 * _DAY
    return list(period.between(middle - reach, middle + reach))


def _meet(one: Period, other: Period) -> bool:
    pairs = product(_near(one, other), _near(other, one))
    return any(a[0] < b[1] and b[0] < a[1] and not (one is other and a == b) for a, b in pairs)


def _covers(outer: Period, inner: Period) -> bool:
    """Whether `inner` lies within `outer` each time that it comes."""
    if inner.date is None and outer.date is not None:
        return False
    day = inner.date or _A_MONDAY
    each = inner.between(day, day + 6 * _DAY)
    around = _near(outer, inner)
    return all(any(a[0] <= begin and end <= a[1] for a in around) for begin, end in each)
