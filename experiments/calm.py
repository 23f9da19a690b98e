"""Calm by default: what `ds2` does with its default settings where nothing happens, and where something seems to.

A day of constant load with noise: five operators whose needs lie anywhere, many of them just above or below a
whole number. And three hours of windows that fire, of many lengths. A simulation.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastream.arrivals.load import Constant
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
_MOST_AN_HOUR = 2
_NEED_OF_EACH = 4.5


@dataclass(frozen=True, kw_only=True)
class _Day:
    noise: float
    seed: int
    later: Sequence[str]
    """The actions after the first hour."""
    short: float
    """The share of the time in which some operator had too few instances."""


@experiment(
    "calm",
    paper="beyond the papers",
    question="Does ds2, with its default settings, leave alone what does not change?",
    minutes=20,
)
def run(progress: Progress) -> Report:
    return calm(progress, seeds=10, hours=24.0, windows_s=_WINDOWS_S)


def calm(progress: Progress, *, seeds: int, hours: float, windows_s: Sequence[float]) -> Report:
    total, done = len(_NOISES) * seeds + len(windows_s), 0
    days = []
    for noise in _NOISES:
        for seed in range(seeds):
            progress(f"constant load, {noise:.0%} noise, seed {seed}", done / total)
            days.append(_day(noise, seed, hours))
            done += 1
    fired = {}
    for window_s in windows_s:
        progress(f"windows of {window_s:g} s", done / total)
        fired[window_s] = _settled_actions(_simulated(_windowed(window_s), 3.0), 3.0)
        done += 1
    return Report(
        checks=(*_day_checks(days), *_window_checks(fired)),
        data={
            "days": [{"noise": d.noise, "seed": d.seed, "later": list(d.later), "short": d.short} for d in days],
            "windows": {f"{window_s:g}": list(actions) for window_s, actions in fired.items()},
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
    run = _simulated(_pipeline(models, noise=noise, seed=seed, step_s=10.0), hours)
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


def _windowed(window_s: float) -> EngineModel:
    """Half of the work of the first operator is done when its window fires."""
    count = OperatorModel(
        capacity=PowerLaw(per_instance_per_s=2 * _RATE / _NEED_OF_EACH),
        selectivity=0.5,
        window_s=window_s,
        fire_cost_s_per_record=_NEED_OF_EACH / _RATE / 2,
    )
    sink = OperatorModel(capacity=PowerLaw(per_instance_per_s=_RATE / 2 / _NEED_OF_EACH))
    return _pipeline({"count": count, "sink": sink}, noise=0.02, seed=0, step_s=1.0)


def _settled_actions(run: Simulation, hours: float) -> Sequence[str]:
    return [str(decision) for decision in run.decisions if _HOUR_S < decision.at_s <= hours * _HOUR_S]


def _window_checks(fired: Mapping[float, Sequence[str]]) -> Iterable[Check]:
    for window_s, actions in fired.items():
        an_hour = len(actions) / 2
        yield Check(
            what=f"windows of {window_s:g} s: actions an hour, after the first",
            ours=f"{an_hour:g}",
            bound=f"at most {_MOST_AN_HOUR}",
            holds=an_hour <= _MOST_AN_HOUR,
        )


def _pipeline(operators: Mapping[str, OperatorModel], *, noise: float, seed: int, step_s: float) -> EngineModel:
    names = ("source", *operators)
    return EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == "source") for name in names), pairwise(names)),
        sources={"source": SourceModel(load=Constant(records_per_s=_RATE))},
        operators=operators,
        initial_plan=Plan(dict.fromkeys(operators, 1)),
        step_s=step_s,
        noise=noise,
        seed=seed,
        downtime_s=2.0,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def _simulated(model: EngineModel, hours: float) -> Simulation:
    return simulate(model, create("ds2"), Knobs(), duration_s=hours * _HOUR_S)
