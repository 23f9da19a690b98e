"""By how much the rate will have changed, on a log scale: one robust ridge regression for each horizon.

The features are changes, too, so that nothing depends on the level: how the rate changed up to now (lags), how far
it is from its own moving averages, and for each season how it changed from this time on in earlier cycles, and how
far it is from what is usual at this time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from elastream.forecast.history import Flags, Floats

HORIZONS = (1, 2, 3, 6, 12, 24, 48, 96, 192)
"""In slots; what lies between two is interpolated."""
LEAST_ROWS = 64
_MOST_ROWS = 4096
_LAGS = np.arange(1, 13)
AVERAGES = (0.5, 0.2, 0.05, 0.01)  # weight of the newest value
_CYCLE_WEIGHT = 0.3  # of the newest cycle in what is usual at a time of the season
_USUAL_LAGS = np.arange(12)
_RIDGE = 1.0
_OUTLIER = 1.0  # robust standard deviations, from where a residual counts less (Huber)
_ITERATIONS = 5  # of a first fit; later ones begin with the weights of the one before

Rows = NDArray[np.int64]


class Basis:
    """What the features of all horizons are made of, computed once for a history."""

    def __init__(self, logs: Floats) -> None:
        self.logs = logs
        self.averages = [moving_average(logs, weight) for weight in AVERAGES]
        self._usual: dict[int, Floats] = {}

    def usual(self, season: int) -> Floats:
        """What is usual at each slot's time of the season, as of that slot."""
        if season not in self._usual:
            self._usual[season] = _usual(self.logs, season)
        return self._usual[season]

    def features(self, rows: Rows, horizon: int, seasons: tuple[int, ...]) -> Floats:
        """A row of features for each slot that is forecast from."""
        now = self.logs[rows][:, None]
        parts = [now - self.logs[rows[:, None] - _LAGS]]
        parts += [now - average[rows][:, None] for average in self.averages]
        for season in seasons:
            usual = self.usual(season)
            before = usual[rows - season][:, None]
            ahead = rows + horizon - season * -(-horizon // season)  # the last such time that is known
            around = np.minimum(ahead[:, None] + np.arange(-1, 2), rows[:, None])
            recent = rows[:, None] - _USUAL_LAGS
            parts += [usual[around] - before, (self.logs[ahead] - self.logs[rows - season])[:, None]]
            parts += [self.logs[recent] - usual[recent - season]]
        return np.hstack([*parts, np.ones((len(rows), 1))])


def features_with(seasons: int) -> int:
    """How many features a row has."""
    return len(_LAGS) + len(AVERAGES) + seasons * (4 + len(_USUAL_LAGS)) + 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The regression for one horizon."""

    seasons: tuple[int, ...]
    weights: Floats
    least: float
    most: float
    """The changes that it has seen, beyond which it does not go."""

    @property
    def slots(self) -> int:
        """How many a history must have to be looked at."""
        return max(map(_first_row, self.seasons), default=len(_LAGS)) + 1

    def change(self, basis: Basis, horizon: int) -> float:
        newest = np.array([len(basis.logs) - 1])
        found = float((basis.features(newest, horizon, self.seasons) @ self.weights)[0])
        return min(max(found, self.least), self.most)


def fitted(basis: Basis, seen: Flags, horizon: int, seasons: tuple[int, ...], before: Fit | None) -> Fit | None:
    """The fit to what is known; None where that is too little."""
    usable = _usable(len(basis.logs), horizon, seasons)
    rows = _rows(seen, horizon, usable)
    if len(rows) < LEAST_ROWS:
        return None
    features = basis.features(rows, horizon, usable)
    changes = basis.logs[rows + horizon] - basis.logs[rows]
    start = before.weights if before is not None and before.seasons == usable else None
    weights = _robust_ridge(features, changes, _RIDGE * horizon, start)
    return Fit(seasons=usable, weights=weights, least=float(changes.min()), most=float(changes.max()))


def _usable(slots: int, horizon: int, seasons: tuple[int, ...]) -> tuple[int, ...]:
    """Seasons of which enough was seen to learn how much they tell at this horizon."""
    return tuple(s for s in seasons if slots - _first_row(s) - horizon >= max(LEAST_ROWS, s // 4))


def _first_row(season: int) -> int:
    """The first slot that has all that its features look back at."""
    return max(len(_LAGS), season + len(_USUAL_LAGS))


def _rows(seen: Flags, horizon: int, seasons: tuple[int, ...]) -> Rows:
    first = max(map(_first_row, seasons), default=len(_LAGS))
    rows = np.arange(first, len(seen) - horizon)
    return rows[seen[rows] & seen[rows + horizon]][-_MOST_ROWS:]


def _robust_ridge(features: Floats, changes: Floats, ridge: float, start: Floats | None) -> Floats:
    """Least squares in which outliers count less, by iteratively reweighted rows.

    `ridge` grows with the horizon: as many errors in a row share what caused them, and count as one.
    """
    scale = np.sqrt((features**2).mean(axis=0)) + 1e-9
    scaled = features / scale
    found = start * scale if start is not None else np.zeros(len(scale))
    for number in range(1 if start is not None else _ITERATIONS):
        residuals = np.abs(changes - scaled @ found)
        spread = 1.4826 * float(np.median(residuals)) * _OUTLIER + 1e-12
        first = number == 0 and start is None
        weighted = scaled * np.where(first, 1.0, np.minimum(1.0, spread / np.maximum(residuals, 1e-12)))[:, None]
        found = np.linalg.solve(weighted.T @ scaled + ridge * np.eye(len(scale)), weighted.T @ changes)
    return np.asarray(found / scale)


def moving_average(logs: Floats, weight: float) -> Floats:
    smoothed, _ = lfilter([weight], [1.0, weight - 1.0], logs, zi=[(1.0 - weight) * logs[0]])
    return np.asarray(smoothed)


def _usual(logs: Floats, season: int) -> Floats:
    cycles = -(-len(logs) // season)
    table = np.concatenate((logs, np.full(cycles * season - len(logs), logs[-1]))).reshape(cycles, season)
    weight = _CYCLE_WEIGHT
    smoothed, _ = lfilter([weight], [1.0, weight - 1.0], table, axis=0, zi=(1.0 - weight) * table[:1])
    return np.asarray(smoothed).reshape(-1)[: len(logs)]
