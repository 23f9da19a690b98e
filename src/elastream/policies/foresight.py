"""What the sources are expected to bring while a size lasts, and what that is worth: sizing by a forecast.

One knob has both prices, `short_costs`: what a missing instance costs, where an idle one costs 1.

    quantile = short_costs / (1 + short_costs)     there one more idle instance costs as much as it saves
    price    = short_costs · 2 · action            in seconds of all instances: what an action changes stands still
                                                   for so long, and is late for about as long again

How much must be ready is the highest such quantile until the decision after this one is in force. How long a new
size is meant to last follows from the price: the time over which the action, and what is ready before it is
needed, cost least per second. Instances are given back where that, over this time, saves more than to go and to
come back costs.

Where a forecast has earned a share of trust, that share of it counts; where none, nothing is foreseen, and the
proposal is the reactive policy's. What a calendar says needs no trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from elastream.durations import text as duration_text
from elastream.forecast import Calendar, Forecaster
from elastream.measurement import Snapshot
from elastream.policies.knowledge import Knowledge
from elastream.policies.outlook import Outlook
from elastream.policies.proposal import Reason, ReasonKind
from elastream.texts import rate_text

_LATE = 2.0  # times the length of an action, for which what it stops is late
_THERE_AND_BACK = 2.0  # actions
_DECISIONS = 2.0  # until the one after this is in force: each an interval and an action
_TELLING = 0.01  # of the rate: less is told to nobody


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """Of one source, in records per second."""

    soon_per_s: float
    """To be ready for until the decision after this one is in force."""
    later_per_s: float
    """The same for as long as a new size is meant to last."""
    at_most_per_s: float
    """What it will hardly exceed for so long."""
    lasts_s: float
    outlook: Outlook
    events: tuple[str, ...] = ()
    """Of the calendar, that are about to be."""


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """Of all sources of which anything is foreseen."""

    sources: Mapping[str, Foreseen] = field(default_factory=dict)
    price_s: float = 0.0
    quantile: float = 0.5
    outlooks: tuple[Outlook, ...] = ()

    @property
    def trusted(self) -> float:
        """How much of the forecasts counts, of the source where it is least."""
        return min((one.trusted for one in self.outlooks), default=0.0)

    def reserve(self, error: float) -> float:
        """The share to be ready with beyond what is foreseen, where what an instance can do is known with this
        relative standard error: the same quantile of that. The reactive policy's reserve has room for it."""
        return self.trusted * NormalDist().inv_cdf(self.quantile) * error

    def sized(self, current: int, wanted: int, later: int, *, grows: bool = False) -> int:
        """What is wanted now, or what will do for as long as a size should last: one larger step up, and nothing
        down that is needed again. Where the pipeline `grows` anyway, what is needed later comes with it."""
        if wanted > current or (grows and later > current):
            return max(wanted, later)
        return min(current, max(wanted, later))

    def least_saving(self, current: int) -> int:
        """The instances that a step down must save to pay for itself and for the way back."""
        lasts_s = min(one.lasts_s for one in self.sources.values())
        return 1 + math.floor(_THERE_AND_BACK * self.price_s * current / lasts_s)

    def reasons(self, rates: Mapping[str, float]) -> list[Reason]:
        return [
            Reason(kind=ReasonKind.FORESEEN, text=_text(one, rates[name]))
            for name, one in self.sources.items()
            if name in rates and (one.events or abs(one.soon_per_s - rates[name]) > _TELLING * rates[name])
        ]


NOTHING_FORESEEN = Foresight()


def foresee(
    snapshot: Snapshot,
    knowledge: Knowledge,
    ready_per_s: Mapping[str, float],
    *,
    short_costs: float | None,
    used: float = 1.0,
) -> Foresight:
    """`ready_per_s` is what the reactive policy makes ready for; without a price only the calendar counts.

    `used` is the share of the capacity that is meant to be used: its reserve is for what nobody foresees, so what
    is foreseen needs none.
    """
    calendar = knowledge.calendar
    if short_costs is None and not calendar.events:
        return NOTHING_FORESEEN
    interval_s = knowledge.interval_s or snapshot.window_s
    lead_s = _DECISIONS * (interval_s + knowledge.action_s)
    price_s = 0.0 if short_costs is None else short_costs * _LATE * knowledge.action_s
    quantile = 0.5 if short_costs is None else short_costs / (1 + short_costs)
    found: dict[str, Foreseen] = {}
    outlooks = []
    for name, ready in ready_per_s.items():
        forecaster = knowledge.forecasters.get(name, _NEW) if short_costs is not None else _NEW
        seen = _Source(
            name=name,
            forecaster=forecaster,
            calendar=calendar,
            now_s=snapshot.at_s,
            rate=snapshot.source_rates[name],
            quantile=quantile,
            used=used,
        )
        one = seen.foreseen(ready, lead_s, price_s)
        if short_costs is not None:
            outlooks.append(one.outlook)
        if one.outlook.trusted or one.soon_per_s > ready:
            found[name] = one
    return Foresight(sources=found, price_s=price_s, quantile=quantile, outlooks=tuple(outlooks))


_NEW = Forecaster()


@dataclass(frozen=True, kw_only=True)
class _Ahead:
    in_s: float
    expected: float
    at_most: float


@dataclass(frozen=True, kw_only=True)
class _Source:
    name: str
    forecaster: Forecaster
    calendar: Calendar
    now_s: float
    rate: float
    quantile: float
    used: float

    def foreseen(self, ready: float, lead_s: float, price_s: float) -> Foreseen:
        first, trusted = self.forecaster.forecast(lead_s).score, self._trusted(lead_s)
        soon = self._ahead(lead_s)
        road = [soon, *map(self._ahead, self._trusted_horizons(lead_s))] if trusted else [soon]
        last = _lasting(road, self.rate, price_s)
        later = max(one.at_most for one in road[: last + 1])
        events = self.calendar.events_at(self.now_s + lead_s, self.name) if self.calendar.events else ()
        known = self.calendar.expected(ready, **self._when(lead_s)) if events else 0.0
        return Foreseen(
            soon_per_s=max(known, ready + trusted * (self.used * soon.at_most - ready)),
            later_per_s=max(known, ready + trusted * (self.used * later - ready)),
            at_most_per_s=later,
            lasts_s=road[last].in_s,
            outlook=Outlook(
                source=self.name,
                ahead_s=lead_s,
                expected_per_s=soon.expected,
                at_most_per_s=soon.at_most,
                trusted=trusted,
                error=_known(first.error),
                last_value_error=_known(first.last_value_error),
            ),
            events=tuple(event.name for event in events) if known > ready else (),
        )

    def _when(self, in_s: float) -> dict[str, Any]:
        return {"last": self.rate, "source": self.name, "now_s": self.now_s, "at_s": self.now_s + in_s}

    def _trusted(self, lead_s: float) -> float:
        """As the best horizon but one: over the next moment the last value is hard to beat, whatever may come
        later, and of many horizons one will have been lucky. To know the level, as reacting does, is nothing."""
        shares = sorted(one.beyond_level for one in self.forecaster.scores if one.horizon_s >= lead_s)
        return shares[-2] if len(shares) > 1 else self.forecaster.forecast(lead_s).score.beyond_level

    def _trusted_horizons(self, beyond_s: float) -> list[float]:
        """Those of the model, up to the last that has earned any trust."""
        last_s = max((one.horizon_s for one in self.forecaster.scores if one.beyond_level), default=0.0)
        return [one.horizon_s for one in self.forecaster.scores if beyond_s < one.horizon_s <= last_s]

    def _ahead(self, in_s: float) -> _Ahead:
        said = self.forecaster.forecast(in_s)
        if self.forecaster.history.step_s is None:  # it has not begun
            expected = at_most = self.rate
        else:
            expected, at_most = said.median, said.quantile(self.quantile)
        if self.calendar.events:
            expected = self.calendar.expected(expected, **self._when(in_s))
            at_most = self.calendar.expected(at_most, **self._when(in_s))
        return _Ahead(in_s=in_s, expected=expected, at_most=at_most)


def _known(error: float) -> float | None:
    return None if math.isnan(error) else error


def _text(found: Foreseen, rate: float) -> str:
    outlook = found.outlook
    if found.events:
        names = ", ".join(found.events)
        return f"{outlook.source} is expected to reach {rate_text(found.soon_per_s)}: {names} (calendar)"
    ahead = duration_text(outlook.ahead_s)
    right = "" if outlook.error is None else f" (such forecasts were right within {outlook.error:.0%})"
    return (
        f"{outlook.source} is expected at {rate_text(outlook.expected_per_s)} in {ahead}{right}, and hardly above "
        f"{rate_text(found.at_most_per_s)} for {duration_text(found.lasts_s)}"
    )


def _lasting(road: Sequence[_Ahead], rate: float, price_s: float) -> int:
    """Up to which place the price of one action and what is ready before it is needed cost least per second."""
    best, least, peak, needed = 0, math.inf, 0.0, 0.0
    before = replace(road[0], in_s=0.0)
    for place, one in enumerate(road):
        peak = max(peak, one.at_most)
        needed += (one.in_s - before.in_s) * (before.at_most + one.at_most) / 2
        before = one
        cost = (price_s * rate + peak * one.in_s - needed) / one.in_s
        if cost <= least:
            best, least = place, cost
    return best
