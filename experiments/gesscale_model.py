"""How well Gesscale's performance model predicts, by how many measurements it was calibrated from.

The operators are made up, so that the truth is known: α, β and γ drawn at random, on eight nodes with delays of up
to 300 ms. Each is measured once with 1 to 6 instances, on nodes at random, and every measurement is off by 2 %
noise. A model from the first one, two, three and more of them then predicts other sets of nodes for 1 to 6
instances, as far as their delay is not above the largest that was measured. The paper claims less than 2 % error
from three measurements on.

Three are too few to tell three parameters and the noise apart, so two things help: a prior (`mst/prior.py`), and
which three they are. Those that teach most are found before anything is measured, from the delays alone: of all
threes of sizes, on near and on far nodes, the one after which the mean variance of the predictions is lowest. The
operator of the testbed itself (`fog_testbed.py`) is measured in the same way, once for each seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import numpy as np

from elastream.commands import plots
from elastream.nodes import NodePool
from elastream.nodes.choice import closest
from elastream.policies.mst.calibration import calibrate
from elastream.policies.mst.mst_model import NOISE, MstModel, Sustained
from elastream.policies.mst.prior import USUAL, calibrate_with_prior
from elastream.showing import colours
from experiments.fog_testbed import LARGEST_DELAY_S, FogTestbed, far_apart
from experiments.frame import Check, Progress, Report, experiment
from experiments.panels import new_panels

OPERATORS = 200
_NOISE = 0.02
_MOST = 6
_COUNTS = (1, 2, 3, 4, 6)
_ORDER = (1, 3, 6, 2, 4, 5)  # instances: the range is seen early
_ASKED = 10  # sets of nodes for each number of instances
_BOUND = 0.02


@dataclass(frozen=True, kw_only=True)
class _Truth:
    alpha_per_s: float
    beta: float
    gamma: float

    def mst_per_s(self, instances: int, delay_s: float) -> float:
        return self.alpha_per_s * math.pow(instances, self.beta) - self.gamma * delay_s


_TESTBED = _Truth(
    alpha_per_s=FogTestbed().alpha_per_s,
    beta=FogTestbed().beta,
    gamma=FogTestbed().largest_delay_costs * FogTestbed().alpha_per_s / LARGEST_DELAY_S,
)


@dataclass(frozen=True, kw_only=True)
class _Found:
    truth: _Truth
    points: Sequence[Sustained]
    models: Mapping[int, MstModel]
    errors: Mapping[int, float]
    """The mean relative error of the predictions, by how many measurements the model is from, as published."""
    with_prior: Mapping[int, float]
    """The same of the model with a prior."""
    chosen: float
    """The same of three measurements that were chosen, with the prior."""


@experiment(
    "gesscale-model",
    paper="Gesscale, section IV-C",
    question="How far off is what the model predicts, calibrated from one, two, three and more measurements?",
)
def run(progress: Progress) -> Report:
    return report(progress, operators=OPERATORS)


def report(progress: Progress, *, operators: int) -> Report:
    rng = random.Random("operators")
    found = []
    for number in range(operators):
        progress(f"operator {number + 1}", number / operators)
        found.append(_calibrated(_drawn(rng), far_apart(number), rng))
    testbed = [_calibrated(_TESTBED, far_apart(number), rng) for number in range(operators)]
    progress("done", 1.0)
    return Report(
        checks=(*_error_checks(found), *_prior_checks(found, testbed), *_parameter_checks(found)),
        differs=_DIFFERS,
        data={
            "operators": [
                {
                    **asdict(one.truth),
                    **{f"error_from_{count}": error for count, error in one.errors.items()},
                    **{f"error_with_prior_from_{count}": error for count, error in one.with_prior.items()},
                    "error_from_3_chosen": one.chosen,
                }
                for one in found
            ],
            "testbed": [one.chosen for one in testbed],
        },
        plot=partial(_plot, found),
    )


_DIFFERS = (
    "The operators are made up, and the form of the model is right for them; the paper measured real ones.",
    "The measurements come in the order 1, 3, 6, 2, 4, 5 instances. An operator that is scaled up one by one is "
    "seen at 1, 2 and 3 first, and the model then refuses to predict beyond twice of that.",
    "Sets of nodes are drawn at random, so that delays do not grow in step with instances. Where they do, β and "
    "γ are harder to tell apart, and what lies off that line is predicted worse.",
    "From one and two measurements the model knows nothing of how instances work side by side (β = 1). From three "
    "it goes through all of them, noise and all, and three at random may say little about the delays.",
)


def _drawn(rng: random.Random) -> _Truth:
    """300 ms cost from nothing up to what one instance does."""
    alpha = 10 ** rng.uniform(1, 5)
    gamma = rng.uniform(0, 1) * alpha / LARGEST_DELAY_S
    return _Truth(alpha_per_s=alpha, beta=rng.uniform(0.6, 1.0), gamma=gamma)


def _calibrated(truth: _Truth, pool: NodePool, rng: random.Random) -> _Found:
    points = [_measured(truth, n, _some_delay_s(pool, n, rng), rng) for n in _ORDER]
    largest_s = max(point.delay_s for point in points)
    asked = [(n, _some_delay_s(pool, n, rng)) for n in _ORDER for _ in range(_ASKED)]
    within = [(n, delay_s) for n, delay_s in asked if delay_s <= largest_s]
    models = {count: model for count in _COUNTS if (model := calibrate(points[:count])) is not None}
    with_prior = {count: calibrate_with_prior(points[:count]) for count in _COUNTS}
    telling = [_measured(truth, n, delay_s, rng) for n, delay_s in _most_telling(pool, asked)]
    return _Found(
        truth=truth,
        points=points,
        models=models,
        errors={count: _error(model, truth, within) for count, model in models.items()},
        with_prior={count: _error(model, truth, within) for count, model in with_prior.items()},
        chosen=_error(calibrate_with_prior(telling), truth, within),
    )


def _error(model: MstModel | None, truth: _Truth, asked: Sequence[tuple[int, float]]) -> float:
    assert model is not None  # there are measurements
    return fmean(abs(model.mst_per_s(*at) / truth.mst_per_s(*at) - 1) for at in asked)


def _most_telling(pool: NodePool, asked: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Three sizes and delays after which what is asked is predicted best, by the usual operator."""
    near = {n: pool.largest_delay_s(closest(pool, n)) for n in _ORDER}
    far = {n: pool.largest_delay_s(_farthest(pool, n)) for n in _ORDER}
    candidates = list(dict.fromkeys([*near.items(), *far.items()]))
    told, wanted = _gradients(candidates), _gradients(asked)
    prior = np.diag([0.0, USUAL.beta_std**-2, USUAL.cost_std**-2])

    def variance(three: tuple[int, ...]) -> float:
        rows = told[list(three)] / NOISE
        covariance = np.linalg.inv(rows.T @ rows + prior)
        return float(np.einsum("ij,jk,ik->i", wanted, covariance, wanted).mean())

    return [candidates[i] for i in min(combinations(range(len(candidates)), 3), key=variance)]


def _farthest(pool: NodePool, count: int) -> tuple[str, ...]:
    """Nodes with the largest delay that there is, and any others beside them."""
    if count == 1:
        return pool.names[:1]
    pair = [pool.names[i] for i in np.unravel_index(int(pool.matrix.argmax()), pool.matrix.shape)]
    return (*pair, *[name for name in pool.names if name not in pair][: count - 2])


def _gradients(configurations: Sequence[tuple[int, float]]) -> Any:
    """Of the logarithm of what the usual operator sustains, by ln α, β and γ/α."""
    n, delay_s = (np.array(column, dtype=float) for column in zip(*configurations, strict=True))
    power = n**USUAL.beta
    said = power - USUAL.cost * delay_s
    return np.column_stack([np.ones(len(n)), power * np.log(n) / said, -delay_s / said])


def _some_delay_s(pool: NodePool, instances: int, rng: random.Random) -> float:
    return pool.largest_delay_s(rng.sample(pool.names, instances))


def _measured(truth: _Truth, instances: int, delay_s: float, rng: random.Random) -> Sustained:
    rate = truth.mst_per_s(instances, delay_s) * max(0.5, rng.gauss(1, _NOISE))
    return Sustained(instances=instances, delay_s=delay_s, records_per_s=rate)


def _error_checks(found: Sequence[_Found]) -> list[Check]:
    checks = []
    for count in _COUNTS:
        errors = [one.errors[count] for one in found]
        *_, ninth = quantiles(errors, n=10)
        last = count == _MOST
        checks.append(
            Check(
                what=f"mean error from {count} measurement{'s' if count > 1 else ''}",
                ours=f"{fmean(errors):.2%} (nine in ten operators: at most {ninth:.1%})",
                paper="less than 2 %" if count >= 3 else "—",
                bound=f"under {_BOUND:.0%}" if last else "",
                holds=not last or fmean(errors) < _BOUND,
            )
        )
    return checks


def _prior_checks(found: Sequence[_Found], testbed: Sequence[_Found]) -> list[Check]:
    rows = [
        Check(
            what=f"with the prior, mean error from {count} measurement{'s' if count > 1 else ''}",
            ours=f"{fmean(one.with_prior[count] for one in found):.2%}",
        )
        for count in _COUNTS
    ]
    for where, ones in (("on made-up operators", found), ("on the testbed's", testbed)):
        error = fmean(one.chosen for one in ones)
        rows.append(
            Check(
                what=f"mean error from 3 that were chosen, with the prior, {where}",
                ours=f"{error:.2%}",
                paper="less than 2 %",
                bound=f"under {_BOUND:.0%}",
                holds=error < _BOUND,
            )
        )
    return rows


def _parameter_checks(found: Sequence[_Found]) -> list[Check]:
    """Whether the standard errors can be believed: of normal errors 95 % are within two."""
    within: dict[str, list[bool]] = {"α": [], "β": [], "γ": []}
    for one in found:
        model, truth = one.models[_MOST], one.truth
        for name, value, true, error in (
            ("α", model.alpha_per_s, truth.alpha_per_s, model.alpha_std),
            ("β", model.beta, truth.beta, model.beta_std),
            ("γ", model.gamma, truth.gamma, model.gamma_std),
        ):
            within[name].append(error is not None and abs(value - true) <= 2 * error)
    shares = {name: fmean(map(float, hits)) for name, hits in within.items()}
    return [
        Check(
            what="true parameters within two standard errors, from 6",
            ours=", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
            bound="at least 80 % each",
            holds=min(shares.values()) >= 0.8,
        )
    ]


def _plot(found: Sequence[_Found], file: Path) -> None:
    title = "Gesscale's model from noisy measurements of operators that are known"
    figure, ((errors, example),) = new_panels(1, 2, title=title, width=4.6, height=3.4)
    errors.boxplot([[100 * one.errors[count] for one in found] for count in _COUNTS], showfliers=False)
    errors.set_xticks(range(1, len(_COUNTS) + 1), [str(count) for count in _COUNTS])
    errors.axhline(100 * _BOUND, color="0.4", linestyle="--", linewidth=1.0)
    errors.set_xlabel("measurements")
    errors.set_ylabel("mean error, % (dashed: 2 %)")
    _plot_example(example, found[0])
    plots.save(figure, file)


def _plot_example(axis: Any, one: _Found) -> None:
    """What was measured against what each model says of it."""
    measured = [point.records_per_s for point in one.points]
    axis.axline((0, 0), slope=1, color="0.4", linestyle="--", linewidth=1.0)
    for count, colour in zip((1, 2, 3, 6), colours.COLOURS, strict=False):
        predicted = [one.models[count].mst_per_s(point.instances, point.delay_s) for point in one.points]
        axis.plot(measured, predicted, "o", color=colour, markersize=5, label=f"from {count}")
    axis.set_xlabel("measured, records/s (one operator)")
    axis.set_ylabel("predicted")
    axis.legend(frameon=False, fontsize="small")
