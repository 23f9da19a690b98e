"""What was read earlier and came only now, as from an agent that had no connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LateReading:
    """Of the instances of one operator at one time that came together: of each metric a value for each."""

    operator: str
    age_s: float
    """Before the end of the window with which it came."""
    values: Mapping[str, Mapping[int, float]]
