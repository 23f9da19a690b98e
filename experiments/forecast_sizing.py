"""Sizing by a forecast beside reacting: on recorded load, on load without a pattern, and when a season changes.

The pipeline, its noise and its actions are those of `policies-compare`. One setting for all: `ds2-forecast` as it
is. The bundled traces begin cold: a day of them holds no season that could be known. Of the five series a day of
their test split is run, by a forecaster that has seen what came before; so are the seasons that change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from elastream.arrivals.load import Load, Trace, bundled_traces
from elastream.engines.simulated.simulation import simulate
from elastream.forecast import Forecaster
from elastream.manager.knobs import Knobs
from elastream.measurement.elasticity import Elasticity
from elastream.policies.catalog import create
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from experiments.forecast_gate import CHANGES, PATTERNLESS, changed
from experiments.forecast_series import FIVE, read_series
from experiments.frame import Check, Progress, Report, experiment
from experiments.policies_compare import PEAK_PER_S, SOURCE, duration_of, model_for, model_of

SEEDS = 100
_DAY_S = 86_400.0
_TESTED_ROWS = 402  # the shortest test split
_ROW_S = 300.0
_AT_07, _AT_08, _AHEAD = "ds2 at 0.7", "ds2 at 0.8", "ds2-forecast"
_SETUPS = {
    _AT_07: ("ds2", {"target_utilization": 0.7}),
    _AT_08: ("ds2", {"target_utilization": 0.8}),
    _AHEAD: ("ds2-forecast", {}),
}
_COST, _ACTIONS = 0.85, 0.5  # of those at 0.7
_ALIKE = 1.01
_LEAST_SHORT = 0.0005  # of the time: differences below it are a window in a day
_PATTERNLESS_S = 4 * 3600.0
_CHANGES_ON_DAY, _DAYS = 10, 3


@dataclass(frozen=True, kw_only=True)
class Played:
    """A load, and what a forecaster has seen before it begins."""

    load: Load
    duration_s: float
    known: Knowledge = NOTHING_KNOWN
    interval_s: float = 30.0


def run_with(played: Played, setup: str) -> Elasticity:
    policy, options = _SETUPS[setup]
    found = simulate(
        model_for(played.load),
        create(policy, options),
        Knobs(interval_s=played.interval_s),
        duration_s=played.duration_s,
        knowledge=played.known if setup == _AHEAD else NOTHING_KNOWN,
    )
    return found.elasticity


def trace(name: str) -> Played:
    return Played(load=model_of(name).sources[SOURCE].load, duration_s=duration_of(name))


def series(name: str) -> Played:
    """The first day of the last rows, which all published splits test on."""
    found = read_series(name)
    return _after(found.times_s, found.messages, len(found.messages) - _TESTED_ROWS, _DAY_S)


def season_after(kind: str, day: int) -> Played:
    """A day of it, the change being on day 0."""
    rates = changed(kind, np.random.default_rng(0)).tolist()
    times_s = [_ROW_S * row for row in range(len(rates))]
    return _after(times_s, rates, round((_CHANGES_ON_DAY + day) * _DAY_S / _ROW_S), _DAY_S, interval_s=_ROW_S / 5)


def _after(
    times_s: Sequence[float], rates: Sequence[float], first: int, lasts_s: float, *, interval_s: float = 30.0
) -> Played:
    scale, begin_s = PEAK_PER_S / max(rates), times_s[first]
    before = ((times_s[i] - begin_s, scale * rates[i]) for i in range(first))
    load = Trace(
        times_s=tuple(time_s - begin_s for time_s in times_s[first:]),
        records_per_s=tuple(rates[first:]),
        scale=scale,
    )
    known = Knowledge(forecasters={SOURCE: Forecaster().warmed(before)})
    return Played(load=load, duration_s=lasts_s, known=known, interval_s=interval_s)


def patternless(kind: str, seed: int) -> Played:
    minutes = round(_PATTERNLESS_S / 60)
    rates = PATTERNLESS[kind](np.random.default_rng(seed), minutes)
    load = Trace(
        times_s=tuple(60.0 * minute for minute in range(minutes)),
        records_per_s=tuple(rates.tolist()),
        scale=PEAK_PER_S / 2 / float(rates.mean()),
    )
    return Played(load=load, duration_s=_PATTERNLESS_S, interval_s=60.0)


@experiment(
    "forecast-sizing",
    paper="none; what prediction is for, and what it must not cost",
    question="Is sizing by a forecast cheaper and calmer than reacting, and never worse?",
)
def run(progress: Progress) -> Report:
    return compare((*FIVE, *bundled_traces()), progress, seeds=SEEDS, changes=CHANGES)


def compare(
    names: Sequence[str],
    progress: Progress,
    *,
    seeds: int = 0,
    changes: Sequence[str] = (),
    longest_s: float = _DAY_S,
) -> Report:
    found: dict[str, dict[str, Elasticity]] = {}
    for number, name in enumerate(names):
        played = series(name) if name in FIVE else trace(name)
        played = replace(played, duration_s=min(played.duration_s, longest_s))
        found[name] = {}
        for setup in _SETUPS:
            progress(f"{name}: {setup}", number / (len(names) + 2))
            found[name][setup] = run_with(played, setup)
    without: dict[str, dict[str, list[Elasticity]]] = {}
    for kind, seed in product(PATTERNLESS if seeds else (), range(seeds)):
        progress(f"{kind}, seed {seed}", len(names) / (len(names) + 2))
        both = without.setdefault(kind, {_AT_07: [], _AHEAD: []})
        for setup, runs in both.items():
            runs.append(run_with(patternless(kind, seed), setup))
    after = {
        kind: [
            {setup: run_with(season_after(kind, day), setup) for setup in (_AT_07, _AHEAD)} for day in range(_DAYS)
        ]
        for kind in changes
    }
    progress("done", 1.0)
    return Report(
        checks=(
            *(check for name, runs in found.items() for check in _checks(name, runs)),
            *(check for kind, runs in without.items() for check in _alike(kind, runs)),
            *(_recovers(kind, days) for kind, days in after.items()),
        ),
        differs=_NOTES,
        data={name: {setup: _told(one) for setup, one in runs.items()} for name, runs in found.items()},
    )


def _told(found: Elasticity) -> Mapping[str, float]:
    return {"short": found.timeshare_under, "cost": found.cost, "actions": found.reconfigurations}


def _text(found: Elasticity) -> str:
    return f"short {found.timeshare_under:.2%}, cost {found.cost:,.0f}, {found.reconfigurations} actions"


def _checks(name: str, runs: Mapping[str, Elasticity]) -> tuple[Check, ...]:
    at_07, at_08, ahead = runs[_AT_07], runs[_AT_08], runs[_AHEAD]
    return (
        Check(
            what=f"{name}: beside 0.7",
            ours=f"{_text(ahead)}; reacting: {_text(at_07)}",
            bound=f"no more time short, cost {_COST} of it, actions {_ACTIONS}",
            holds=ahead.timeshare_under <= at_07.timeshare_under
            and ahead.cost <= _COST * at_07.cost
            and ahead.reconfigurations <= _ACTIONS * at_07.reconfigurations,
        ),
        Check(
            what=f"{name}: beside 0.8",
            ours=f"reacting: {_text(at_08)}",
            bound="less time short at no more cost",
            holds=ahead.timeshare_under <= at_08.timeshare_under and ahead.cost <= at_08.cost,
        ),
    )


def _alike(kind: str, runs: Mapping[str, Sequence[Elasticity]]) -> tuple[Check, ...]:
    """Not worse by more than one in a hundred, over all seeds and on the worst of them."""
    pairs = list(zip(runs[_AHEAD], runs[_AT_07], strict=True))
    costs = [ahead.cost / reacting.cost for ahead, reacting in pairs]
    short = [ahead.timeshare_under - reacting.timeshare_under for ahead, reacting in pairs]
    return (
        Check(
            what=f"{kind}: cost beside 0.7",
            ours=f"{np.mean(costs):.3f} on average, {max(costs):.3f} at worst of {len(pairs)} seeds",
            bound=f"at most {_ALIKE}, every seed",
            holds=max(costs) <= _ALIKE,
        ),
        Check(
            what=f"{kind}: time short beside 0.7",
            ours=f"{np.mean(short):+.3%} of the time on average, {max(short):+.2%} at worst",
            bound="at most 1 % of the time more, every seed",
            holds=max(short) <= _ALIKE - 1,
        ),
    )


def _recovers(kind: str, days: Sequence[Mapping[str, Elasticity]]) -> Check:
    return Check(
        what=f"{kind}, by day: beside 0.7",
        ours="; ".join(f"{_text(day[_AHEAD])} ({_text(day[_AT_07])})" for day in days),
        bound="no more time short and no more cost from the second day on",
        holds=all(
            day[_AHEAD].timeshare_under <= day[_AT_07].timeshare_under + _LEAST_SHORT
            and day[_AHEAD].cost <= _ALIKE * day[_AT_07].cost
            for day in days[1:]
        ),
    )


_NOTES = (
    "ds2 is that of today: it works off what waits, is calm, and has room for a load that moves. At 0.7 and 0.8 "
    "that comes on top of the reserve, so it is dearer, and short for less, than it was without.",
    "Time short is when any operator has fewer instances than the load of that moment needs; cost is instance "
    "minutes. The five series are recorded every five minutes and run in real time.",
)
