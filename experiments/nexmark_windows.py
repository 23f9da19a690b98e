"""Q5 and Q11 of Nexmark with windows that are longer than the interval of the policy, simulated.

Such an operator takes in evenly and puts out all at once, in one interval of many: a policy that follows single
intervals grows when a window fires and shrinks when it is over. Operators of Spark wait in channels that hold
whatever has come, and so they do here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product

from elastream.engines.simulated.engine_model import DowntimeScope
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.policies.catalog import create
from experiments.frame import Check, Progress, Report, experiment
from experiments.nexmark import pipeline
from experiments.workloads.nexmark_shapes import BIDS, Q5, Q11, Shape

_RATES = {Q5.name: 500e3, Q11.name: 1e6}  # of the DS2 paper for Flink, table 3
_WINDOWS_S = (35.0, 60.0, 120.0, 300.0)
_STARTS = (1, 36)
_SEEDS = 3
_NOISE = 0.03
_LASTS_S = 3600.0
_MOST_TURNS = 1


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the operator with the window had one after the other, and what it needs by arithmetic."""

    need: float
    sizes: Sequence[int]

    @property
    def turns(self) -> int:
        """How often it went up after having gone down, or down after up."""
        moves = [after - before for before, after in pairwise(self.sizes)]
        return sum(before * after < 0 for before, after in pairwise(moves))

    def __str__(self) -> str:
        return f"{'→'.join(map(str, self.sizes))} of {self.need:.1f}"


@experiment(
    "nexmark-windows",
    paper="DS2, section 5.4: Q5 and Q11 are sized in at most three steps",
    question="Do Q5 and Q11 with windows longer than the interval keep their size?",
    minutes=1,
)
def run(progress: Progress) -> Report:
    return windows(progress, windows_s=_WINDOWS_S, seeds=_SEEDS)


def windows(progress: Progress, *, windows_s: Sequence[float], seeds: int) -> Report:
    cases = list(product((Q5, Q11), windows_s, _STARTS))
    checks, data = [], {}
    for number, (shape, window_s, start) in enumerate(cases):
        what = f"{shape.name}, windows of {window_s:g} s, from {start}"
        progress(what, number / len(cases))
        found = [sizes(shape, window_s, start, seed) for seed in range(seeds)]
        data[what] = [list(one.sizes) for one in found]
        checks.append(
            Check(
                what=what,
                ours="; ".join(map(str, found)),
                bound="one turn: what worked off the backlog is given back",
                holds=all(one.turns <= _MOST_TURNS for one in found),
            )
        )
    return Report(checks=tuple(checks), data=data)


def sizes(shape: Shape, window_s: float, start: int, seed: int) -> Sizes:
    """With an interval of 30 s and all other defaults of `ds2`, for an hour of constant load."""
    drawn = random.Random(f"{shape.name} {seed}")
    needs = {
        o.name: drawn.uniform(6, 28) if o.name == shape.main else drawn.uniform(0.3, 3) for o in shape.operators
    }
    firing = replace(
        shape,
        operators=tuple(replace(o, window_s=window_s if o.window_s else None) for o in shape.operators),
    )
    model = pipeline(
        firing,
        source_rates={BIDS: _RATES[shape.name]},
        needs=needs,
        exponents=dict.fromkeys(needs, 1.0),
        start=start,
        max_parallelism=36,
    )
    model = replace(model, noise=_NOISE, seed=seed, downtime_s=2.0, downtime_scope=DowntimeScope.OPERATOR)
    run = simulate(model, create("ds2"), Knobs(), duration_s=_LASTS_S)
    return Sizes(need=needs[shape.main], sizes=_of_main(run, shape))


def _of_main(run: Simulation, shape: Shape) -> Sequence[int]:
    return [size for size, _ in groupby(plan[shape.main] for _, plan in run.history.plans)]
