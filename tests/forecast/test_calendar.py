"""The calendar: when events are, what they make of a forecast, and what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.forecast.calendar import Calendar
from elastream.forecast.calendar_format import parse_calendar, read_calendar

BERLIN = ZoneInfo("Europe/Berlin")
TEXT = """\
timezone: Europe/Berlin
events:
  - {name: work begins, every: weekday, at: "09:00", for: 2 h, factor: 1.5}
  - {name: Black Friday, date: 2026-11-27, floor: 5000}
  - {name: import, every: day, at: 23:30, for: 1 h, floor: 2000, source: orders}
excluded:
  - {name: closing of the books, every: [friday, saturday], at: "17:00", for: 4 h}
"""


@pytest.fixture
def calendar() -> Calendar:
    return parse_calendar(TEXT, "calendar.yaml")


def at_s(day: int, hour: int, minute: int = 0, *, month: int = 11) -> float:
    """In November 2026, in Berlin; the 16th is a Monday."""
    return dt.datetime(2026, month, day, hour, minute, tzinfo=BERLIN).timestamp()


def names(calendar: Calendar, time_s: float, source: str = "orders") -> list[str]:
    return [event.name for event in calendar.events_at(time_s, source)]


def test_events_are_when_they_are(calendar: Calendar) -> None:
    assert names(calendar, at_s(16, 8, 59)) == []
    assert names(calendar, at_s(16, 9)) == ["work begins"]
    assert names(calendar, at_s(16, 11)) == []
    assert names(calendar, at_s(15, 10)) == []  # a Sunday
    assert names(calendar, at_s(27, 12)) == ["Black Friday"]
    assert names(calendar, at_s(17, 0, 15)) == ["import"]  # since before midnight
    assert names(calendar, at_s(17, 0, 15), source="clicks") == []


def test_times_are_local_in_summer_and_in_winter(calendar: Calendar) -> None:
    for month in (1, 7):
        day = next(d for d in range(1, 8) if dt.date(2026, month, d).weekday() == 0)
        assert names(calendar, at_s(day, 9, month=month)) == ["work begins"]


def test_an_event_raises_what_is_expected_before_it_begins(calendar: Calendar) -> None:
    before, within = at_s(16, 8, 50), at_s(16, 9, 5)
    told = {"last": 100.0, "source": "orders"}
    assert calendar.expected(110, now_s=before, at_s=within, **told) == 150
    assert calendar.expected(170, now_s=before, at_s=within, **told) == 170  # the forecast knows it, too
    assert calendar.expected(110, now_s=within, at_s=within + 60, **told) == 110  # the rate has it already
    assert calendar.expected(110, now_s=before, at_s=before + 60, **told) == 110
    assert calendar.expected(110, now_s=before, at_s=at_s(27, 5), **told) == 5000


def test_a_factor_below_one_lowers_it() -> None:
    holiday = parse_calendar("events: [{name: holiday, date: 2026-12-25, factor: 0.4}]", "c")
    eve_s = dt.datetime(2026, 12, 24, 23, 59, tzinfo=dt.UTC).timestamp()
    assert holiday.expected(100, last=90, source="s", now_s=eve_s, at_s=eve_s + 300) == pytest.approx(36)


def test_excluded_periods_are_named(calendar: Calendar) -> None:
    found = calendar.excluded_at(at_s(20, 18))
    assert found is not None
    assert found.name == "closing of the books"
    assert calendar.excluded_at(at_s(20, 21)) is None
    assert Calendar().excluded_at(0.0) is None


EVENT = "  - {{name: new, {}}}\nexcluded:"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('every: monday, at: "10:00", for: 3 h, factor: 2', r"line 3: 'work begins' contradicts 'new' of line 6"),
        ('date: 2026-11-16, at: "10:30", for: 1 min, factor: 2', "the factor is 1.5 and 2 at the same time"),
        (
            'every: friday, at: "18:00", for: 1 h, floor: 9',
            "line 6: 'new' contradicts 'closing of the books' of line 8",
        ),
        ('every: day, at: "18:00", for: 25 h, floor: 9', "line 6: .* it has not ended when it begins again"),
        (
            "every: dya, floor: 9",
            r"line 6: events\[3\].every: a day was expected, found 'dya' \(did you mean 'day'",
        ),
        ("every: day", "a factor or a floor must be given"),
        ("floor: 9", "either every or date must be given, found none"),
        ("every: day, date: 2026-01-01, floor: 9", "found both"),
        ('every: day, at: "09:00", floor: 9', "for is missing"),
        ('every: day, at: "25:00", for: 1 h, floor: 9', "a time of day like .* found '25:00'"),
        ("every: day, for: 0 s, floor: 9", "for: more than 0"),
        ("every: day, factor: 0", "greater than 0"),
        ("every: day, floor: .nan", "line 6"),
        ("every: day, flor: 9", r"unknown key 'flor' \(did you mean 'floor'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_lines(entry: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_calendar(TEXT.replace("excluded:", EVENT.format(entry)), "calendar.yaml")


@pytest.mark.parametrize(
    "entry",
    [
        'every: sunday, at: "10:00", for: 3 h, factor: 2',
        'every: monday, at: "11:00", for: 3 h, factor: 2',
        'every: monday, at: "10:00", for: 3 h, factor: 1.5',
        'date: 2026-11-15, at: "10:00", for: 1 h, factor: 2',
        'every: day, at: "18:00", for: 1 h, floor: 9',
    ],
)
def test_what_does_not_meet_does_not_contradict(entry: str) -> None:
    assert len(parse_calendar(TEXT.replace("excluded:", EVENT.format(entry)), "c").events) == 4


def test_two_of_one_name_are_refused_with_both_lines() -> None:
    text = "events:\n  - {name: a, every: day, floor: 1}\n  - {name: a, every: friday, floor: 1}\n"
    with pytest.raises(InvalidInput, match="c: line 2: 'a' contradicts 'a' of line 3: they have the same name"):
        parse_calendar(text, "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a", "a calendar is a mapping"), ("timezone: Mars", "line 1: timezone"), ("a: [", "YAML")],
)
def test_what_is_no_calendar_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "calendar.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=rf"calendar\.yaml: .*{message}"):
        read_calendar(file)


def read_or_refused(text: str) -> Calendar | str:
    try:
        return parse_calendar(text, "calendar.yaml")
    except InvalidInput as error:
        return str(error)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2000),
    st.floats(),
    st.dates(),
    st.sampled_from(["day", "friday", "09:00", "30 min", "400 d", "UTC", "", "x"]),
)
VALUES = LEAVES | st.lists(LEAVES, max_size=2)
KEYS = st.sampled_from(["name", "every", "date", "at", "for", "factor", "floor", "source", "x"])
ENTRIES = st.dictionaries(KEYS, VALUES, max_size=6)
GOOD = st.fixed_dictionaries(
    {
        "name": st.text("abc", min_size=1),
        "at": st.times().map(lambda time: time.isoformat()),
        "for": st.integers(1, 10**7),
        "floor": st.floats(0, 1e6),
    },
    optional={"factor": st.floats(0.1, 9)},
).flatmap(
    lambda entry: st.one_of(
        st.dates(dt.date(1970, 1, 1), dt.date(8000, 1, 1)).map(lambda date: entry | {"date": date}),
        st.sampled_from(["day", "weekend", "monday"]).map(lambda every: entry | {"every": every}),
    )
)


@given(st.lists(ENTRIES | GOOD, max_size=3), VALUES | st.lists(ENTRIES, max_size=2), st.floats(0, 1e11))
def test_whatever_stands_in_a_file_is_read_or_refused(
    events: list[dict[str, object]], excluded: object, time_s: float
) -> None:
    text = yaml.safe_dump({"events": events, **({} if excluded is None else {"excluded": excluded})})
    match read_or_refused(text):
        case Calendar() as calendar:
            assert calendar.expected(1.0, last=1.0, source="s", now_s=time_s, at_s=time_s) >= 1.0
            calendar.excluded_at(time_s)
        case str(message):
            assert message.startswith("calendar.yaml: ")


@pytest.mark.parametrize("time_s", [-1.0, 1e18, float("nan")])
def test_a_time_that_is_none_is_refused(calendar: Calendar, time_s: float) -> None:
    with pytest.raises(InvalidInput, match="seconds since 1970"):
        calendar.excluded_at(time_s)


@given(st.floats(0, 4e9), st.floats(0, 1e6))
def test_a_floor_is_never_undercut_and_no_event_changes_nothing(time_s: float, rate: float) -> None:
    calendar = parse_calendar(TEXT, "c")
    found = calendar.expected(rate, last=rate, source="orders", now_s=time_s, at_s=time_s)
    floors = [event.floor or 0.0 for event in calendar.events_at(time_s, "orders")]
    assert found == max([rate, *floors])
