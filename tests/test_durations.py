"""Durations as people write and read them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.durations import seconds, text


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (0, 0.0),
        (90, 90.0),
        (1.5, 1.5),
        ("500 ms", 0.5),
        ("90 s", 90.0),
        ("90s", 90.0),
        ("  1.5  min ", 90.0),
        ("30min", 1_800.0),
        ("2 h", 7_200.0),
        ("1 d", 86_400.0),
        ("5 seconds", 5.0),  # as Spark writes them
        ("1 minute", 60.0),
        ("250 milliseconds", 0.25),
    ],
)
def test_a_number_is_seconds_and_a_text_has_a_unit(written: Any, found: float) -> None:
    assert seconds(written) == found


@pytest.mark.parametrize(
    "written", ["", "5", "s", "5 parsecs", "-5 s", "1e3 s", "1 h 30 min", "5 S", "ms 5", True, None, [1], {"s": 1}]
)
def test_anything_else_is_refused_with_the_units_there_are(written: Any) -> None:
    with pytest.raises(ValueError, match=r"\(ms, s, min, h, d\), found") as error:
        seconds(written)
    assert str(error.value).endswith(repr(written))


@pytest.mark.parametrize("written", [-1, -0.001, math.nan, math.inf, -math.inf, 10**400, "9" * 400 + " s"])
def test_a_duration_is_finite_and_not_negative(written: Any) -> None:
    with pytest.raises(ValueError, match="finite number of at least 0"):
        seconds(written)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
def test_whatever_is_written_is_a_duration_or_a_value_error(written: Any) -> None:
    try:
        found = seconds(written)
    except ValueError:
        return
    assert 0 <= found < math.inf


@pytest.mark.parametrize(
    ("duration_s", "shown"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (45, "45 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (150, "2.5 min"),
        (720, "12 min"),
        (3_600, "60 min"),
        (5_400, "90 min"),
        (7_200, "2 h"),
        (7_260, "2 h 1 min"),
        (9_000, "2 h 30 min"),
        (86_400, "24 h"),
    ],
)
def test_the_shortest_readable_form(duration_s: float, shown: str) -> None:
    assert text(duration_s) == shown


@given(st.floats(min_value=0, max_value=1e7))
def test_what_is_shown_is_near_to_what_is_meant(duration_s: float) -> None:
    shown = text(duration_s)
    hours, _, minutes = shown.partition(" h ")
    meant = seconds(f"{hours} h") + seconds(minutes) if minutes else _plain(shown)
    assert meant == pytest.approx(duration_s, rel=0.05)


def _plain(shown: str) -> float:
    number, unit = shown.split()
    return float(number) * seconds(f"1 {unit}")
