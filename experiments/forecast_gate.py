"""Is a forecast trusted no further than it has earned? On loads without a pattern, and when a season changes.

A policy that sizes by a forecast is the reactive one wherever the forecast is the last value. So what it may lose
on a load that cannot be forecast is what the forecast loses to the last value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from elastream.forecast.forecaster import Forecaster
from experiments.frame import Check, Progress, Report, experiment

Floats = NDArray[np.float64]
Random = np.random.Generator

SEEDS = 100
_OBSERVED = 480  # minutes of a load without a pattern
_MINUTES_AHEAD = (1, 5, 15)
_MOST_WORSE = 1.01

_DAY = 288  # rows of five minutes
_CHANGES_ON_DAY = 10
_DAYS = 14
_ROWS_AHEAD = (1, 3, 6, 12)
_NOT_WORSE = 1.005  # of the error of the last value, over a day


def brownian(random: Random, count: int) -> Floats:
    return np.abs(1000 + np.cumsum(random.normal(0, 20, count)))


def constant(random: Random, count: int) -> Floats:
    return np.maximum(0, 1000 + random.normal(0, 50, count))


def step(random: Random, count: int) -> Floats:
    rates = np.full(count, 1000.0)
    rates[random.integers(count // 4, 3 * count // 4) :] = random.uniform(300, 5000)
    return np.asarray(rates * np.exp(random.normal(0, 0.02, count)))


def bursts(random: Random, count: int) -> Floats:
    rates = np.full(count, 1000.0)
    for begin in random.integers(0, count, random.integers(3, 9)):
        rates[begin : begin + random.integers(3, 30)] *= random.uniform(1.5, 4)
    return np.asarray(rates * np.exp(random.normal(0, 0.02, count)))


PATTERNLESS: Mapping[str, Callable[[Random, int], Floats]] = {
    "Brownian": brownian,
    "constant with noise": constant,
    "a step": step,
    "bursts at random": bursts,
}


def daily(rows: Floats, *, peak_h: float = 14.0, height: float = 0.6) -> Floats:
    turns = (rows / _DAY - peak_h / 24) * 2 * np.pi
    return np.asarray(1000 * np.exp(height * np.cos(turns) + 0.2 * np.cos(2 * turns) + 0.15 * np.sin(6 * turns)))


def changed(kind: str, random: Random) -> Floats:
    """Days of one kind, then a change."""
    rows = np.arange(_DAYS * _DAY, dtype=float)
    day = slice(_CHANGES_ON_DAY * _DAY, (_CHANGES_ON_DAY + 1) * _DAY)
    rates = daily(rows)
    if kind == "clocks change":
        rates[day.start :] = daily(rows[day.start :] + _DAY / 24)
    elif kind == "a holiday":
        rates[day] = 0.6 * daily(rows[day], peak_h=18, height=0.2)
    else:
        rates[day.start :] = 3 * daily(rows[day.start :], peak_h=20, height=0.9)
    return np.asarray(rates * np.exp(random.normal(0, 0.02, len(rates))))


CHANGES = ("clocks change", "a holiday", "a launch")


def errors(rates: Floats, step_s: float, rows_ahead: Sequence[int], since: int = 0) -> Mapping[int, Floats]:
    """For each horizon two rows, NaN where nothing came due: of the forecast and of the last value."""
    found = {ahead: np.full((2, len(rates)), np.nan) for ahead in rows_ahead}
    forecaster = Forecaster()
    for row, rate in enumerate(rates):
        forecaster = forecaster.observed(row * step_s, float(rate))
        for ahead in rows_ahead:
            if since <= row + ahead < len(rates):
                then = rates[row + ahead]
                for place, said in enumerate((forecaster.forecast(ahead * step_s).median, rate)):
                    found[ahead][place, row + ahead] = 2 * abs(then - said) / (then + said)
    return found


def patternless(kind: str, seed: int) -> dict[int, float]:
    """The error of the forecast as a share of that of the last value, by the minutes ahead."""
    rates = PATTERNLESS[kind](np.random.default_rng(seed), _OBSERVED)
    found = errors(rates, 60.0, _MINUTES_AHEAD)
    return {ahead: _ratio(both) for ahead, both in found.items()}


def days_after(kind: str, seed: int = 0) -> dict[int, list[float]]:
    """The same for every day from the change on, by the rows ahead."""
    rates = changed(kind, np.random.default_rng(seed))
    found = errors(rates, 86_400 / _DAY, _ROWS_AHEAD, since=_CHANGES_ON_DAY * _DAY)
    days = range(_CHANGES_ON_DAY, _DAYS)
    return {a: [_ratio(both[:, day * _DAY : (day + 1) * _DAY]) for day in days] for a, both in found.items()}


def _ratio(both: Floats) -> float:
    ours, last_value = np.nansum(both, axis=1)
    return float(ours / last_value)


@experiment(
    "forecast-gate",
    paper="none; what prediction must not cost",
    question="Is a forecast of a load without a pattern, or of a season that changed, as good as the last value?",
)
def run(progress: Progress) -> Report:
    return judge(SEEDS, progress)


def judge(seeds: int, progress: Progress) -> Report:
    ratios: dict[str, list[dict[int, float]]] = {}
    for number, kind in enumerate(PATTERNLESS):
        ratios[kind] = []
        for seed in range(seeds):
            progress(f"{kind}, seed {seed}", (number + seed / seeds) / (len(PATTERNLESS) + 1))
            ratios[kind].append(patternless(kind, seed))
    days = {kind: days_after(kind) for kind in CHANGES}
    progress("done", 1.0)
    return Report(
        checks=(
            *(_patternless_check(kind, a, found) for kind, found in ratios.items() for a in _MINUTES_AHEAD),
            *(_change_check(kind, ahead, found) for kind, of in days.items() for ahead, found in of.items()),
        ),
        differs=(
            "Numbers are errors as a share of those of the last value: 1 is as good, less is better. Noise around "
            "a level has a pattern, too: its mean tells more than its last value.",
        ),
        data={"patternless": ratios, "changes": days},
    )


def _patternless_check(kind: str, ahead: int, found: Sequence[Mapping[int, float]]) -> Check:
    each = [one[ahead] for one in found]
    return Check(
        what=f"{kind}, {ahead} min ahead",
        ours=f"{mean(each):.4f} on average, {max(each):.4f} at worst of {len(each)} seeds",
        bound=f"at most {_MOST_WORSE}, every seed",
        holds=max(each) <= _MOST_WORSE,
    )


def _change_check(kind: str, ahead: int, days: Sequence[float]) -> Check:
    return Check(
        what=f"{kind}, {5 * ahead} min ahead",
        ours=", ".join(f"{day:.2f}" for day in days) + " (a day each)",
        bound="at most 1 from the second day on",
        holds=all(day <= _NOT_WORSE for day in days[1:]),
    )
