"""The manager's knobs: when to ask the policy, when to believe it, when to act, when to take it back.

How much is needed is the policy's affair, and so are the knobs that shape it (target utilization, tolerance,
catch-up time); bounds belong to the operators. `elastream policies` shows both kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elastream.forecast import NO_CALENDAR, Calendar
from elastream.forecast.calendar_format import read_calendar
from elastream.options import check_bounds, option


@dataclass(frozen=True, kw_only=True)
class Knobs:
    interval_s: float = option(
        30.0, "how often readings become a snapshot and the policy is asked", unit="s", least=0.001
    )
    warm_up_intervals: int = option(
        1, "intervals ignored after the start and after each action", unit="intervals", least=0
    )
    activation_intervals: int = option(
        1, "proposals in a row that are combined before one is acted on", unit="intervals", least=1
    )
    activation_by: Literal["median", "max"] = option("median", "how they are combined: median or max")
    minimum_change: int = option(1, "smaller changes of an operator are left alone", unit="instances", least=1)
    minimum_change_share: float = option(
        0.0,
        "the same as a share of its parallelism; a scale-up of a pipeline that falls behind is never too small",
        unit="share",
        least=0,
        most=1,
    )
    scale_down_delay_s: float | None = option(
        None, "a scale-down takes the highest need seen during this time; none is ten intervals", unit="s", least=0
    )
    target_rate_ratio: float = option(
        0.95,
        "ask for more when this share of the rate is not achieved although the model says it should; 0 is off",
        unit="share",
        least=0,
        most=1,
    )
    rollback_drop: float | None = option(
        0.1,
        "go back when the achieved rate fell by this share after an action; none is off",
        unit="share",
        least=0,
    )
    rollback_intervals: int = option(
        2, "in so many intervals in a row: a single stall proves nothing", unit="intervals", least=1
    )
    decision_limit: int = option(
        3, "after this many actions in a row that gained almost nothing, stop and say why", unit="actions", least=1
    )
    least_gain: float = option(
        0.1,
        "an action gained almost nothing when it gained less than this share of what was expected",
        least=0,
        most=1,
    )
    load_change: float = option(
        0.2,
        "a change of the load by this share makes a fresh start after a rollback or after giving up",
        unit="share",
        least=0.001,
    )
    dry_run: bool = option(False, "everything but the act")
    calendar: str = option("", "a file with events that are known ahead, and when nothing is to be changed")
    known_ahead: Calendar = NO_CALENDAR
    """What stands in that file."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.calendar and self.known_ahead is NO_CALENDAR:
            object.__setattr__(self, "known_ahead", read_calendar(Path(self.calendar)))

    @property
    def scale_down_after_s(self) -> float:
        return 10 * self.interval_s if self.scale_down_delay_s is None else self.scale_down_delay_s
