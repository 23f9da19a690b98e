"""Durations as people write them: a number of seconds, or text with a unit such as `90 s` or `30 min`."""

from __future__ import annotations

import math
import re
from typing import Any

from elastream.errors import shown

_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_IN_WORDS = {"ms": "milliseconds?", "s": "seconds?", "min": "minutes?", "h": "hours?", "d": "days?"}  # as in Spark
_FOREVER_S = (
    1e15  # thirty million years; integers beyond what a float can hold are not worth an error of their own
)
_ANY_UNIT = "|".join(f"(?P<{unit}>{unit}|{words})" for unit, words in _IN_WORDS.items())
_DURATION = re.compile(rf"\s*(?P<number>\d+(?:\.\d+)?)\s*(?:{_ANY_UNIT})\s*")


def seconds(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value) if abs(value) < _FOREVER_S else math.inf
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        found = float(match["number"]) * next(_UNITS_S[unit] for unit in _UNITS_S if match[unit])
    else:
        units = ", ".join(_UNITS_S)
        raise ValueError(
            f'a duration is a number of seconds or text like "30 min" ({units}), found {shown(value)}'
        )
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"a duration is a finite number of at least 0, found {shown(value)}")
    return found


def text(duration_s: float) -> str:
    """The shortest readable form: 45 s, 12 min, 1 h 30 min."""
    if duration_s < 120:
        return f"{duration_s:.3g} s"
    minutes = round(duration_s / 60)
    if minutes < 120:
        return f"{minutes} min" if minutes * 60 == round(duration_s) else f"{duration_s / 60:.1f} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
