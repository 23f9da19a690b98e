"""The forecaster: what a source's rate will be, as a distribution, from what it was.

A value: `observed` gives the next one, and nothing is changed in place. It keeps its history, a fit for each
horizon, and what it forecast lately, so that it can be judged by what then happened.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from elastream.forecast.history import LONGEST_S, Floats, History
from elastream.forecast.model import AVERAGES, HORIZONS, LEAST_ROWS, Basis, Fit, Rows, fitted, moving_average
from elastream.forecast.seasons import find_seasons
from elastream.forecast.trust import Score, score

JUDGED = 1024
"""Slots back to which forecasts are kept, to be judged."""
_UNREST, _QUIET = 0.05, 0.3  # weight of the newest move; of the mean move, in which nothing moved lately
_REFIT = 32  # a fit is made anew when the history has grown by such a part of its length


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What the rate will be at one time: its median, and any quantile."""

    horizon_s: float
    last: float
    """The rate as it is now."""
    median: float
    score: Score
    """How good forecasts for about this horizon were."""
    offset: float
    residuals: Floats
    """On a log scale, by how much the rate was above the median of such forecasts, sorted."""
    independent: float
    """How many of them do not overlap: of few, the highest are rarely the highest that there can be."""

    def quantile(self, share: float) -> float:
        """The rate that is not exceeded with this probability, of 0.5 and more."""
        if not len(self.residuals) or share <= 0.5:
            return self.median
        above = max(0.0, float(np.quantile(self.residuals, min(1.0, share * (1 + 1 / self.independent)))))
        # never below the median, by rounding neither
        return max(self.median, (self.median + self.offset) * math.exp(above) - self.offset)


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecaster:
    history: History = field(default_factory=History)
    fits: tuple[Fit | None, ...] = (None,) * len(HORIZONS)
    tried: tuple[float, ...] = (-math.inf,) * len(HORIZONS)
    """The number of the slot at which each was last fitted, or too little was known to do so."""
    seasons: tuple[int, ...] = ()
    """In slots, the most telling first."""
    made: Floats = field(default_factory=lambda: np.empty((len(HORIZONS), 0)))
    """The rates that were forecast from each of the newest slots, for each horizon."""

    @property
    def seasons_s(self) -> tuple[float, ...]:
        return tuple(season * (self.history.step_s or 0.0) for season in self.seasons)

    def observed(self, at_s: float, rate: float) -> Forecaster:
        """With one more rate, seen at this time."""
        history = self.history.observed(at_s, rate, max(self.seasons, default=0))
        if history is self.history:
            return self
        if not len(history):
            return replace(self, history=history)
        found = self._refitted(history)._forecast(self.history)
        return found._widened() if history.is_to_be_widened else found

    def warmed(self, rates: Iterable[tuple[float, float]]) -> Forecaster:
        """With all of a recording: times and rates, in order."""
        forecaster = self
        for at_s, rate in rates:
            forecaster = forecaster.observed(at_s, rate)
        return forecaster

    @staticmethod
    def begun_with(rates: Sequence[tuple[float, float]], now_s: float) -> Forecaster:
        """With a recording from before. One whose last rate is not of the last two weeks by this clock, as that of
        a trace or a simulation, is taken to have ended just now."""
        last_s = rates[-1][0] if rates else now_s
        moved_s = 0.0 if now_s - LONGEST_S <= last_s <= now_s else now_s - last_s
        return Forecaster().warmed((at_s + moved_s, rate) for at_s, rate in rates)

    def forecast(self, horizon_s: float) -> Forecast:
        """The rate so long after the newest one."""
        history = self.history
        slots = min(max(horizon_s, 0.0) / (history.step_s or math.inf), HORIZONS[-1])
        after = bisect_left(HORIZONS, slots)
        from_slots, start = self._trusted(after - 1) if after else (0, 0.0)
        to_slots, end = self._trusted(after)
        change = start + (end - start) * (slots - from_slots) / (to_slots - from_slots)
        found = self.scores[after]  # between two horizons the longer tells, which rather errs more
        median = max(0.0, (history.last + history.offset) * math.exp(change) - history.offset)
        return Forecast(
            horizon_s=horizon_s,
            last=history.last,
            median=median if change else history.last,
            score=replace(found, horizon_s=horizon_s),
            offset=history.offset,
            residuals=self._residuals(after, found.share),
            independent=found.judged / HORIZONS[after],
        )

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """Of each of the model's horizons."""
        step_s = self.history.step_s or 0.0
        return tuple(
            score(horizon * step_s, horizon, forecast, happened, [level[due] for level in self._levels])
            for horizon, (due, forecast, happened) in zip(HORIZONS, self._judged, strict=True)
        )

    def _trusted(self, index: int) -> tuple[int, float]:
        """The horizon in slots, and the change until then on a log scale, as far as it is trusted."""
        made = self.made[index, -1] if self.made.shape[1] else math.nan
        found, offset = self.scores[index], self.history.offset
        if not (found.share and math.isfinite(made)):
            return HORIZONS[index], 0.0
        return HORIZONS[index], found.believed(math.log((made + offset) / (self.history.last + offset)))

    @cached_property
    def _judged(self) -> tuple[tuple[Rows, Floats, Floats], ...]:
        """Of each horizon's forecasts that have come due: where they were made, the changes that they said, and
        those that were."""
        return tuple(map(self._judged_at, range(len(HORIZONS))))

    def _judged_at(self, index: int) -> tuple[Rows, Floats, Floats]:
        horizon, history, kept = HORIZONS[index], self.history, self._kept
        if kept <= horizon:
            return np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
        logs, seen = history.logs[-kept:], history.seen[-kept:]
        made = self.made[index, -kept:-horizon]
        due = np.isfinite(made) & seen[:-horizon] & seen[horizon:]
        then = logs[:-horizon][due]
        return np.flatnonzero(due), np.log(made[due] + history.offset) - then, logs[horizon:][due] - then

    @cached_property
    def _levels(self) -> tuple[Floats, ...]:
        """The changes to the averages of the rate, as of each slot that forecasts were made in."""
        logs, kept = self.history.logs, self._kept
        return tuple((moving_average(logs, weight) - logs)[-kept:] for weight in AVERAGES if kept)

    def _residuals(self, index: int, share: float) -> Floats:
        """As many as there would be with the present unrest: in restless times all errors are larger."""
        due, forecast, happened = self._judged[index]
        if not len(due):
            return forecast
        return np.sort((happened - share * forecast) / self._unrest[due] * self._unrest[-1])

    @cached_property
    def _unrest(self) -> Floats:
        """How much the rate moved from slot to slot lately, as of each slot that forecasts were made in."""
        kept = self._kept
        moves = np.abs(np.diff(self.history.logs[-kept - 1 :], prepend=self.history.logs[-kept - 1 :][:1]))[-kept:]
        return moving_average(moves, _UNREST) + _QUIET * float(moves.mean()) + 1e-9

    @property
    def _kept(self) -> int:
        return min(int(self.made.shape[1]), len(self.history))

    def _refitted(self, history: History) -> Forecaster:
        """The horizon whose fit is the oldest is fitted anew, where that is due: at most one at a time."""
        if len(history) < LEAST_ROWS or history.newest == self.history.newest:
            return replace(self, history=history)
        ages = [abs(history.newest - at) for at in self.tried]  # of the future where a clock was set back
        oldest = ages.index(max(ages))
        if ages[oldest] < max(len(HORIZONS), len(history) // _REFIT):
            return replace(self, history=history)
        seasons = self.seasons if oldest else find_seasons(history.logs, history.step_s or 1.0)
        fit = fitted(Basis(history.logs), history.seen, HORIZONS[oldest], seasons, self.fits[oldest])
        fits = (*self.fits[:oldest], fit, *self.fits[oldest + 1 :])
        tried = (*self.tried[:oldest], history.newest, *self.tried[oldest + 1 :])
        return replace(self, history=history, fits=fits, tried=tried, seasons=seasons)

    def _forecast(self, before: History) -> Forecaster:
        """With what it says now of each horizon; slots that were passed over have no forecast."""
        history = self.history
        basis = Basis(history.logs)
        made = np.full((len(HORIZONS), 1), np.nan)
        for index, fit in enumerate(self.fits):
            if fit is not None and fit.slots <= len(history):
                change = fit.change(basis, HORIZONS[index])
                made[index] = max(0.0, math.exp(history.logs[-1] + change) - history.offset)
        passed = history.newest - before.newest if len(before) else 1
        kept = self.made[:, : max(0, self.made.shape[1] + min(passed, 1) - 1)]  # less where a clock was set back
        unknown = np.full((len(HORIZONS), min(max(0, passed - 1), JUDGED)), np.nan)
        return replace(self, made=np.hstack((kept, unknown, made))[:, -JUDGED:])

    def _widened(self) -> Forecaster:
        """Twice as wide slots: a horizon is judged by what was forecast for that of twice as many slots."""
        history = self.history.widened()
        doubled = [int(np.argmin(np.abs(np.array(HORIZONS) - 2 * horizon))) for horizon in HORIZONS]
        odd = (self.history.newest + 1) % 2
        kept = self.made[:, : self.made.shape[1] - odd]
        made = kept[doubled][:, 1 - kept.shape[1] % 2 :: 2] if kept.shape[1] else kept
        seasons = tuple(dict.fromkeys(round(season / 2) for season in self.seasons if season > 2))
        return Forecaster(history=history, seasons=seasons, made=made[:, -len(history) :])
