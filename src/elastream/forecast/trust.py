"""How far a forecast is trusted: by what it gained over the last value, as measured on its own past."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elastream.forecast.history import Floats

_LEAST_JUDGED = 24  # forecasts, or as many as lie within four horizons: before that none is trusted
_RECENT = 24  # forecasts, or as many as lie within two horizons: by these trust is lost
_BEYOND = 1.5  # times the largest error before them: what happened is new, and what was learned is of another load
_MEMORY = 384.0  # forecasts, after which a gain counts a third
_ORDINARY, _MARGIN = 0.99, 1.5  # of the changes that were forecast; times that is still believed
_FEW = 3.0  # independent gains, of which the spread is not known well
_FROM, _UNTIL = 1.0, 2.5  # standard errors of the gain: not trusted, wholly trusted


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good the forecasts for one horizon were, and what that is worth."""

    horizon_s: float
    judged: int = 0
    """Forecasts that have come due."""
    error: float = math.nan
    """Of the forecasts, as a share of the rate: the mean of their absolute errors on a log scale."""
    last_value_error: float = math.nan
    """The same of the last value."""
    share: float = 0.0
    """Of the change that is forecast, how much is believed: with 0 the forecast is the last value."""
    beyond_level: float = 0.0
    """The same for who knows the level already, by the best of its averages: of a load that only scatters around
    one, its mean tells more than its last value, but not more than that."""
    most: float = 0.0
    """The largest change on a log scale that is believed: hardly any that were judged are larger."""

    def believed(self, change: float) -> float:
        return self.share * min(max(change, -self.most), self.most)


def score(
    horizon_s: float, slots: int, forecast: Floats, happened: Floats, levels: Sequence[Floats] = ()
) -> Score:
    """Of changes that were forecast so many slots ahead against those that happened, oldest first; and against
    those to each of several averages."""
    count = len(happened)
    if count < max(_LEAST_JUDGED, 4 * slots):
        return Score(horizon_s=horizon_s, judged=count)
    errors, last_value_errors = np.abs(happened - forecast), np.abs(happened)
    recent = max(_RECENT, 2 * slots)
    is_new = count > recent and errors[-recent:].max() > _BEYOND * errors[:-recent].max()
    share = 0.0 if is_new else _earned(last_value_errors - errors, slots, recent)
    level_errors = [np.abs(happened - level) for level in levels]
    return Score(
        horizon_s=horizon_s,
        judged=count,
        error=float(errors.mean()),
        last_value_error=float(last_value_errors.mean()),
        share=share,
        beyond_level=min([share, *(_earned(each - errors, slots, recent) for each in level_errors)])
        if share
        else 0.0,
        most=_MARGIN * float(np.quantile(np.abs(forecast), _ORDINARY)),
    )


def _earned(gains: Floats, slots: int, recent: int) -> float:
    """The share of trust: by all gains it is earned, by the newest it is lost."""
    earned = (_standard_errors(gains, slots) - _FROM) / (_UNTIL - _FROM)
    return _share(earned) * _share(2 + _standard_errors(gains[-recent:], slots))


def _standard_errors(gains: Floats, slots: int) -> float:
    """The mean in units of its standard error; forecasts whose horizons overlap count as one."""
    weights = np.exp(np.arange(1 - len(gains), 1) / _MEMORY)
    weights /= weights.sum()
    mean = float(weights @ gains)
    spread = math.sqrt(float(weights @ (gains - mean) ** 2))
    if spread <= 1e-12:
        return 0.0
    count = 1 / float(weights @ weights) / slots
    return mean / spread * count / math.sqrt(count + _FEW)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
