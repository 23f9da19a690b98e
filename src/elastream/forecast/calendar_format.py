"""A calendar as people write it.

timezone: Europe/Berlin            # UTC where it is not given
events:
  - {name: work begins, every: weekday, at: "09:00", for: 2 h, factor: 1.5}
  - {name: Black Friday, date: 2026-11-27, floor: 5000}           # the whole day
  - {name: import, every: day, at: "02:00", for: 30 min, floor: 2000, source: orders}
excluded:
  - {name: closing of the books, every: friday, at: "17:00", for: 4 h}
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from elastream.errors import InvalidInput, nearest, shown
from elastream.forecast.calendar import Calendar, Event, Period, contradictions
from elastream.formats import Duration, Lines, Strict, read_text, read_yaml, what, where

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {
    **{name: (number,) for number, name in enumerate(_WEEKDAYS)},
    "day": tuple(range(7)),
    "weekday": tuple(range(5)),
    "weekend": (5, 6),
}
_MOST_DAYS = 366


def _time(value: Any) -> dt.time:
    """YAML takes 09:00 for a text, and 17:00 without quotes for a number of minutes."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60:
        return dt.time(value // 60, value % 60)
    try:
        return dt.time.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f'a time of day like "09:00" was expected, found {shown(value)}') from None


def _weekdays(value: Any) -> tuple[int, ...]:
    names = value if isinstance(value, list) and value else [value]
    for name in names:
        if not isinstance(name, str) or name not in _DAYS:
            raise ValueError(f"a day was expected, found {shown(name)}{nearest(str(name), _DAYS)}")
    return tuple(sorted({day for name in names for day in _DAYS[name]}))


class PeriodEntry(Strict):
    name: str = Field(min_length=1)
    every: Annotated[Any, BeforeValidator(_weekdays)] = None
    date: dt.date | None = Field(default=None, ge=dt.date(1970, 1, 1), le=dt.date(8000, 1, 1))
    at: Annotated[dt.time, BeforeValidator(_time)] | None = None
    for_: Duration | None = Field(default=None, alias="for")

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in data if isinstance(data, dict) else ():
            if key not in known:
                raise ValueError(f"unknown key {shown(key)}{nearest(str(key), known)}")
        return data

    @model_validator(mode="after")
    def _when(self) -> PeriodEntry:
        if (self.every is None) == (self.date is None):
            found = "none" if self.date is None else "both"
            raise ValueError(f"either every or date must be given, found {found}")
        if self.at is not None and self.for_ is None:
            raise ValueError("for is missing: how long does it last from then on?")
        if not 0 < self.lasts_s <= _MOST_DAYS * 86_400:
            raise ValueError(f"for: more than 0 and at most {_MOST_DAYS} d was expected, found {self.for_:g} s")
        return self

    @property
    def lasts_s(self) -> float:
        return 86_400.0 if self.for_ is None else self.for_

    def when(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "begins": self.at or dt.time(),
            "lasts": dt.timedelta(seconds=self.lasts_s),
            "weekdays": self.every or (),
            "date": self.date,
        }


class EventEntry(PeriodEntry):
    factor: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    floor: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    source: str | None = None

    @model_validator(mode="after")
    def _something(self) -> EventEntry:
        if self.factor is None and self.floor is None:
            raise ValueError("a factor or a floor must be given, found none")
        return self


class CalendarEntry(Strict):
    timezone: str = "UTC"
    events: list[EventEntry] = Field(default_factory=list)
    excluded: list[PeriodEntry] = Field(default_factory=list)


def read_calendar(path: Path) -> Calendar:
    """Read a calendar; every error names the file and the line."""
    return parse_calendar(read_text(path), str(path))


def parse_calendar(text: str, place: str) -> Calendar:
    data = read_yaml(text, place)
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: a calendar is a mapping with events or excluded, found {shown(data)}")
    lines = Lines(text)
    try:
        entry = CalendarEntry.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        line = lines.of(first["loc"])
        raise InvalidInput(f"{place}: line {line}: {where(first['loc'])}{what(first)}") from None
    calendar = Calendar(
        events=tuple(
            Event(**e.when(), factor=e.factor, floor=e.floor, source=e.source, line=lines.of(("events", n)) or 0)
            for n, e in enumerate(entry.events)
        ),
        excluded=tuple(
            Period(**e.when(), line=lines.of(("excluded", n)) or 0) for n, e in enumerate(entry.excluded)
        ),
        timezone=_timezone(entry.timezone, f"{place}: line {lines.of(('timezone',))}"),
    )
    for one, other, why in contradictions(calendar):
        raise InvalidInput(
            f"{place}: line {one.line}: {one.name!r} contradicts {other.name!r} of line {other.line}: {why}"
        )
    return calendar


def _timezone(name: str, place: str) -> dt.tzinfo:
    try:
        return dt.UTC if name == "UTC" else ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidInput(
            f"{place}: timezone: a name like Europe/Berlin was expected, found {shown(name)}"
        ) from None
