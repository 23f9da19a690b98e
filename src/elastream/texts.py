"""Names and other short texts of a run, which are shown in terminals, on pages and in pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from elastream.errors import InvalidInput

# Line breaks and tabs are fine. The rest neither XML can hold nor a terminal print, or is no character at all.
_NOT_SHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

MOST_NAME = 200
"""Characters of a name of an operator, a node or an instance: every window says it again to all that look."""


def check_name(name: str, place: str) -> None:
    """Refuse a name that is too long, or has a character that cannot be shown."""
    if len(name) > MOST_NAME:
        raise InvalidInput(f"{place}: a name has at most {MOST_NAME} characters, found {len(name):,}")
    check_shown(name, place)


def check_shown(text: str, place: str) -> None:
    """Refuse a text with a character that cannot be shown."""
    found = _NOT_SHOWN.search(text)
    if found is not None:
        raise InvalidInput(f"{place}: a text that can be shown was expected, found U+{ord(found[0]):04X} in it")


def rate_text(records_per_s: float) -> str:
    return f"{number_text(records_per_s)}/s"


def number_text(value: float) -> str:
    """Whole numbers with thousands separators from 100 up, three significant digits below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def listed_text(names: Sequence[str]) -> str:
    """As in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
