"""Which periods a series repeats itself with: found, not told.

At several scales the series is reduced to its changes (the mean of some slots less that of as many before them),
and these are correlated with themselves. Changes, since levels that drift resemble themselves at every lag. A
period is a lag at which the changes come again; of a lag and its multiples the smallest that does nearly as well.
"""

from __future__ import annotations

import numpy as np

from elastream.forecast.history import Floats

_SCALES = (48, 12, 3, 1)  # slots; the coarsest first, as noise hides long periods at the finer ones
_MOST = 3
_LEAST_PERIOD = 6  # slots; less is for the lags
_LEAST_CORRELATION = 0.2
_SIGNIFICANT = 5.0  # standard errors, as many lags are looked at
_EXPECTED = 2.5  # the same for a day and a week, which are no surprise
_NEARLY = 0.8  # of the best correlation: then the shorter lag is the period
_BETTER = 1.05  # times the correlation of the period: then a multiple tells more
_CYCLES = 1.4  # of a period that must have been seen; twice as many of a multiple of it
_DAY_S = 86_400.0
_EXACT = 0.01  # of a day: as near a lag is expected to tell
_ALIKE = 0.03  # of a day: a lag as near to whole days is that
_FINER = 0.02  # of a period: by as much a finer scale may correct it
_SAME = 0.06  # of a period: another as near is the same


def find_seasons(logs: Floats, step_s: float) -> tuple[int, ...]:
    """The periods in slots, the most telling first."""
    found: dict[int, float] = {}
    for scale in _SCALES:
        for lag, correlation in _at_scale(logs, scale, step_s):
            period = _whole_days(lag, step_s) or lag
            same = next((other for other in found if abs(other - period) <= max(1, _SAME * other)), None)
            if same is None:
                found[period] = correlation
            elif abs(same - period) <= _FINER * same:  # what a finer scale tells is more exact
                found[period] = found.pop(same)
    return tuple(sorted(found, key=lambda period: -found[period])[:_MOST])


def _whole_days(lag: int, step_s: float) -> int:
    """The whole days that a lag is near to, in slots; 0 where it is not."""
    days = round(lag * step_s / _DAY_S)
    return round(days * _DAY_S / step_s) if abs(lag * step_s - days * _DAY_S) <= _ALIKE * _DAY_S else 0


def _is_week(lag: int, step_s: float) -> bool:
    return abs(lag * step_s - 7 * _DAY_S) <= _ALIKE * _DAY_S


def _at_scale(logs: Floats, scale: int, step_s: float) -> list[tuple[int, float]]:
    """The shortest period, and a multiple of it that tells more, as a week does of working days."""
    longest = int(len(logs) / _CYCLES)
    shortest = max(_LEAST_PERIOD, 4 * scale)
    if longest <= 2 * shortest:
        return []
    sums = np.concatenate(([0.0], np.cumsum(logs)))
    means = (sums[scale:] - sums[:-scale]) / scale
    correlations = _autocorrelation(_without_outliers(means[scale:] - means[:-scale]))[: longest + 1]
    pairs = (len(logs) - np.arange(len(correlations))) / scale
    needed = np.maximum(_LEAST_CORRELATION, _SIGNIFICANT / np.sqrt(pairs))
    for days in (1, 7):
        day, near = days * _DAY_S / step_s, _EXACT * _DAY_S / step_s
        expected = slice(round(day - near), round(day + near) + 1)
        needed[expected] *= _EXPECTED / _SIGNIFICANT
    peaks = _peaks(correlations, needed, scale, shortest)
    if not peaks:
        return []
    best = max(peaks, key=lambda lag: correlations[lag])
    period = next(lag for lag in peaks if correlations[lag] >= _NEARLY * correlations[best])
    known = [lag for lag in peaks if 2 * lag * _CYCLES <= len(logs) or _is_week(lag, step_s)]
    multiple = max(known, key=lambda lag: correlations[lag], default=period)
    if correlations[multiple] < _BETTER * correlations[period]:
        multiple = period
    return [(lag, float(correlations[lag])) for lag in dict.fromkeys((period, multiple))]


def _peaks(correlations: Floats, needed: Floats, scale: int, shortest: int) -> list[int]:
    telling = np.flatnonzero(correlations[shortest:-1] > needed[shortest:-1]) + shortest
    return [
        int(lag)
        for lag in telling
        if correlations[lag] >= correlations[max(1, lag - scale) : lag + scale + 1].max()
    ]


def _without_outliers(changes: Floats) -> Floats:
    """One jump would resemble itself at no lag, and outweigh all else."""
    centred = changes - np.median(changes)
    most = 4 * 1.4826 * float(np.median(np.abs(centred))) or float(np.abs(centred).max())
    return np.clip(centred, -most, most)


def _autocorrelation(values: Floats) -> Floats:
    count = len(values)
    spectrum = np.fft.rfft(values, 2 * count)
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[:count]
    if sums[0] <= 0:
        return np.zeros(count)
    return np.asarray(sums / sums[0] * count / np.maximum(count - np.arange(count), 1))
