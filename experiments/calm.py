"""Calm by default: what `ds2` does with its default settings where nothing happens, and where something seems to.

A day of constant load with noise: five operators whose needs lie anywhere, many of them just above or below a
whole number. And three hours of windows that fire, of many lengths, that tumble or slide, at some phase, looked at
in short and long intervals; then the load doubles. All of it is simulated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from statistics import fmean

from elastream.arrivals.load import Constant, Load, Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.policies.catalog import create
from experiments.frame import Check, Progress, Report, experiment

_RATE = 1_000.0
_HOUR_S = 3600.0
_NOISES = (0.01, 0.03, 0.1)
_MOST_LATER_ACTIONS = 3
_MOST_SHORT = 0.01  # of the time
_WINDOWS_S = (5.0, 7.0, 20.0, 29.0, 31.0, 45.0, 50.0, 60.0, 75.0, 90.0, 120.0, 200.0, 300.0, 600.0)
_SLIDES = (1, 4)  # windows that a record is in
_WATCHED_HOURS = 2.0  # after the first
_MOST_AN_HOUR = 2
_FOLLOWED_WITHIN = 2  # intervals
_NEED_OF_EACH = 4.5
_DOWNTIME_S = 2.0
_INTERVAL_S = 30.0
_INTERVALS_S = (10.0, _INTERVAL_S, 60.0)


@dataclass(frozen=True, kw_only=True)
class _Day:
    noise: float
    seed: int
    later: Sequence[str]
    """The actions after the first hour."""
    short: float
    """The share of the time in which some operator had too few instances."""


@dataclass(frozen=True, kw_only=True)
class _Fired:
    what: str
    interval_s: float
    settled: Sequence[str]
    """The actions at constant load, after the first hour."""
    followed_s: float
    """From when the load doubled until there was enough for it."""
    within_s: float
    """Until then that is to be."""


@experiment(
    "calm",
    paper="beyond the papers",
    question="Does ds2, with its default settings, leave alone what does not change?",
    minutes=20,
)
def run(progress: Progress) -> Report:
    return calm(progress, seeds=10, hours=24.0, windows=list(product(_WINDOWS_S, _SLIDES, _INTERVALS_S)))


def calm(progress: Progress, *, seeds: int, hours: float, windows: Sequence[tuple[float, int, float]]) -> Report:
    """`windows`: how long, in how many parts, looked at how often."""
    total, done = len(_NOISES) * seeds + len(windows), 0
    days = []
    for noise in _NOISES:
        for seed in range(seeds):
            progress(f"constant load, {noise:.0%} noise, seed {seed}", done / total)
            days.append(_day(noise, seed, hours))
            done += 1
    fired = []
    for window_s, parts, interval_s in windows:
        progress(f"windows of {window_s:g} s, looked at every {interval_s:g} s", done / total)
        fired.append(_fired(window_s, parts, interval_s))
        done += 1
    return Report(
        checks=(*_day_checks(days), *_window_checks(fired)),
        data={
            "days": [{"noise": d.noise, "seed": d.seed, "later": list(d.later), "short": d.short} for d in days],
            "windows": [asdict(one) for one in fired],
        },
    )


# A day of noise


def needs_of(seed: int) -> Sequence[float]:
    """Of five operators: anywhere, or a little above or below a whole number."""
    rng = random.Random(f"needs {seed}")
    return [
        rng.uniform(0.3, 40) if rng.random() < 0.5 else rng.randint(1, 40) + rng.choice([-0.1, -0.02, 0.02, 0.1])
        for _ in range(5)
    ]


def _day(noise: float, seed: int, hours: float) -> _Day:
    needs = {f"operator {number}": need for number, need in enumerate(needs_of(seed), 1)}
    models = {n: OperatorModel(capacity=PowerLaw(per_instance_per_s=_RATE / need)) for n, need in needs.items()}
    load = Constant(records_per_s=_RATE)
    run = _simulated(_pipeline(models, load=load, noise=noise, seed=seed, step_s=10.0), hours)
    later = [str(decision) for decision in run.decisions if decision.at_s > _HOUR_S]
    return _Day(noise=noise, seed=seed, later=later, short=_short(run, needs))


def _short(run: Simulation, needs: Mapping[str, float]) -> float:
    """The first minutes, in which nothing can be known yet, left out."""
    plans = [*run.history.plans, (run.duration_s, None)]
    short_s = sum(
        min(after_s, run.duration_s) - at_s
        for (at_s, plan), (after_s, _) in pairwise(plans)
        if plan is not None and at_s > 0 and any(plan[name] < need * (1 - 1e-9) for name, need in needs.items())
    )
    return short_s / run.duration_s


def _day_checks(days: Sequence[_Day]) -> Iterable[Check]:
    for noise in _NOISES:
        found = [day for day in days if day.noise == noise]
        most = max(len(day.later) for day in found)
        yield Check(
            what=f"{noise:.0%} noise, {len(found)} days: most actions after the first hour",
            ours=f"{most}, {sum(len(day.later) for day in found) / len(found):.1f} on average",
            bound=f"at most {_MOST_LATER_ACTIONS}",
            holds=most <= _MOST_LATER_ACTIONS,
        )
        longest = max(day.short for day in found)
        yield Check(
            what=f"{noise:.0%} noise: the most time with too few instances somewhere",
            ours=f"{longest:.2%}",
            bound=f"at most {_MOST_SHORT:.0%}",
            holds=longest <= _MOST_SHORT,
        )


# Windows


def _fired(window_s: float, parts: int, interval_s: float) -> _Fired:
    """Half of the work of the first operator is done when its window fires, in so many parts. Its phase, the
    noise, and when the load doubles are drawn."""
    slide_s = window_s / parts
    rng = random.Random(f"windows {window_s:g} {parts} {interval_s:g}")
    count = OperatorModel(
        capacity=PowerLaw(per_instance_per_s=2 * _RATE / _NEED_OF_EACH),
        selectivity=0.5,
        window_s=window_s,
        slide_s=slide_s,
        phase_s=rng.uniform(0, slide_s),
        fire_cost_s_per_record=_NEED_OF_EACH / _RATE / 2,
    )
    sink = OperatorModel(capacity=PowerLaw(per_instance_per_s=_RATE / 2 / _NEED_OF_EACH))
    step_s = (1 + _WATCHED_HOURS) * _HOUR_S + rng.uniform(0, interval_s)
    load = Steps(steps=((0, _RATE), (step_s, 2 * _RATE)))
    noise = rng.choice(_NOISES)
    operators = {"count": count, "sink": sink}
    model = _pipeline(operators, load=load, noise=noise, seed=rng.randrange(1000), step_s=1.0)
    run = _simulated(model, 1.25 + _WATCHED_HOURS, interval_s=interval_s)
    later = ((at_s, min(plan.values())) for at_s, plan in run.history.plans if at_s > step_s)
    enough_at_s = next((at_s for at_s, least in later if least >= 2 * _NEED_OF_EACH), math.inf)
    every = "" if parts == 1 else f" every {slide_s:g} s"
    return _Fired(
        what=f"{window_s:g} s{every}, {noise:.0%} noise",
        interval_s=interval_s,
        settled=[str(decision) for decision in run.decisions if _HOUR_S < decision.at_s < step_s],
        followed_s=enough_at_s - step_s,
        within_s=slide_s + _FOLLOWED_WITHIN * interval_s + _DOWNTIME_S,
    )


def _window_checks(fired: Sequence[_Fired]) -> Iterable[Check]:
    for interval_s in sorted({one.interval_s for one in fired}):
        found = [one for one in fired if one.interval_s == interval_s]
        busiest = max(found, key=lambda one: len(one.settled))
        usual = fmean(len(one.settled) for one in found) / _WATCHED_HOURS
        an_hour = len(busiest.settled) / _WATCHED_HOURS
        yield Check(
            what=f"{len(found)} kinds of windows, looked at every {interval_s:g} s: most actions an hour",
            ours=f"{an_hour:g} ({busiest.what}), {usual:.2f} on average",
            bound=f"at most {_MOST_AN_HOUR}",
            holds=an_hour <= _MOST_AN_HOUR,
        )
        latest = max(found, key=lambda one: one.followed_s - one.within_s)
        late = [one for one in found if one.followed_s > one.within_s]
        yield Check(
            what="the load doubles: all of it is followed, at the latest",
            ours=f"after {latest.followed_s:.0f} of {latest.within_s:.0f} s ({latest.what}); late in {len(late)}",
            bound=f"within {_FOLLOWED_WITHIN} intervals of a firing, and the action",
            holds=not late,
        )


def _pipeline(
    operators: Mapping[str, OperatorModel], *, load: Load, noise: float, seed: int, step_s: float
) -> EngineModel:
    names = ("source", *operators)
    return EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == "source") for name in names), pairwise(names)),
        sources={"source": SourceModel(load=load)},
        operators=operators,
        initial_plan=Plan(dict.fromkeys(operators, 1)),
        step_s=step_s,
        noise=noise,
        seed=seed,
        downtime_s=_DOWNTIME_S,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def _simulated(model: EngineModel, hours: float, *, interval_s: float = _INTERVAL_S) -> Simulation:
    return simulate(model, create("ds2"), Knobs(interval_s=interval_s), duration_s=hours * _HOUR_S)
