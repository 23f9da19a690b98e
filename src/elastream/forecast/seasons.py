"""Which periods a series repeats itself with: found, not told.

At several scales the series is reduced to its changes (the mean of some slots less that of as many before them), and
these are correlated with themselves. Changes, since levels that drift resemble themselves at every lag. A period is a
lag at which the changes come again; of a lag and its multiples the smallest that does nearly as well.
"""

from __future__ import annotations

import numpy as np

from elastream.forecast.history import Floats

_SCALES = (1, 3, 12, 48)  # slots
_MOST = 3
_LEAST_PERIOD = 6  # slots; less is for the lags
_LEAST_CORRELATION = 0.2
_SIGNIFICANT = 5.0  # standard errors, as many lags are looked at
_NEARLY = 0.85  # of the best correlation: then the shorter lag is the period
_CYCLES = 1.4  # of a period that must have been seen


def find_seasons(logs: Floats) -> tuple[int, ...]:
    """The periods in slots, the most telling first."""
    found: dict[int, float] = {}
    for scale in _SCALES:
        for period, correlation in _at_scale(logs, scale):
            alike = [other for other in found if abs(other - period) <= max(scale, other // 20)]
            if not alike:
                found[period] = correlation
    return tuple(sorted(found, key=lambda period: -found[period])[:_MOST])


def _at_scale(logs: Floats, scale: int) -> list[tuple[int, float]]:
    longest = int(len(logs) / _CYCLES)
    shortest = max(_LEAST_PERIOD, 4 * scale)
    if longest <= 2 * shortest:
        return []
    sums = np.concatenate(([0.0], np.cumsum(logs)))
    means = (sums[scale:] - sums[:-scale]) / scale
    correlations = _autocorrelation(_without_outliers(means[scale:] - means[:-scale]))[: longest + 1]
    pairs = (len(logs) - np.arange(len(correlations))) / scale
    telling = correlations > np.maximum(_LEAST_CORRELATION, _SIGNIFICANT / np.sqrt(pairs))
    peaks = [
        lag
        for lag in range(shortest, len(correlations) - 1)
        if telling[lag] and correlations[lag] == correlations[max(shortest, lag - scale) : lag + scale + 1].max()
    ]
    if not peaks:
        return []
    best = max(peaks, key=lambda lag: correlations[lag])
    period = next(lag for lag in peaks if correlations[lag] >= _NEARLY * correlations[best])
    return [(lag, float(correlations[lag])) for lag in dict.fromkeys((period, best))]


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
