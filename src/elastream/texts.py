"""Names and other short texts of a run, which are shown in terminals, on pages and in pictures."""

from __future__ import annotations

import re

from elastream.errors import InvalidInput

# Line breaks and tabs are fine. The rest neither XML can hold nor a terminal print, or is no character at all.
_NOT_SHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


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
