"""Finding α, β and γ with a prior: what is usual stands in for what was not measured yet.

The paper fits as many parameters as there are measurements, so that three go through all of them, noise and all,
and with fewer β is 1 and delays cost nothing. Here every measurement moves all three, from what is usual of
streaming operators towards what this one does:

- β is 0.9 ± 0.1: instances help each other's work by a little less than their number.
- γ/α is 1.7 ± 1.7 for each second of delay: 300 ms cost half of what an instance does alone, or nothing, or all.

Both are wide beside the 2 % of a measurement, so that measurements which tell decide. They are weighted by their
errors, and the errors of all parameters are known from the first measurement on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from elastream.policies.mst.calibration import MISFIT, as_tuples
from elastream.policies.mst.mst_model import NOISE, MstModel, Sustained

_LEAST_BETA = 0.05

_MOST_ERROR = 0.25

_Vector = Any
"""numpy's arrays of floats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usual:
    beta: float = 0.9
    beta_std: float = 0.1
    cost: float = 1 / 0.6
    """γ/α: instances for each second of delay."""
    cost_std: float = 1 / 0.6


USUAL = Usual()


def calibrate_with_prior(points: Sequence[Sustained]) -> MstModel | None:
    """The model by the measurements, oldest first, and by what is usual; None where there are none."""
    return _calibrated(tuple(points)) if points else None


@lru_cache(maxsize=256)  # a policy asks in every window, and most of them bring no new measurement
def _calibrated(points: tuple[Sustained, ...]) -> MstModel:
    found, covariance, misfit = _fit(points)
    notes: tuple[str, ...] = ()
    if misfit > MISFIT:
        notes = (f"the measurements contradict each other (off by {misfit:.0%}), so only the newest counts",)
        points = points[-1:]
        found, covariance, _ = _fit(points)
    alpha, beta, cost = map(float, found)
    errors = [float(error) for error in np.sqrt(np.diag(covariance))]
    return MstModel(
        alpha_per_s=alpha,
        beta=beta,
        gamma=cost * alpha,
        alpha_std=errors[0],
        beta_std=errors[1],
        gamma_std=errors[2],
        fewest=min(point.instances for point in points),
        most=max(point.instances for point in points),
        largest_delay_s=max(point.delay_s for point in points),
        most_error=_MOST_ERROR,
        covariance=as_tuples(covariance),
        notes=notes,
    )


def _fit(points: Sequence[Sustained]) -> tuple[_Vector, _Vector, float]:
    """α, β and γ/α; the covariance of α, β and γ; the root mean square of the relative residuals,
    of which those of unsure measurements count less."""
    n = np.array([float(point.instances) for point in points])
    delay_s = np.array([point.delay_s for point in points])
    measured = np.array([point.records_per_s for point in points])
    std = np.array([point.relative_std for point in points])
    unit = float(np.mean(measured / n))  # near α, so that what is searched for is near 1

    def relative(searched: _Vector) -> _Vector:
        alpha, beta, cost = searched
        return alpha * unit * (n**beta - cost * delay_s) / measured - 1

    def errors(searched: _Vector) -> _Vector:
        _, beta, cost = searched
        unusual = [(beta - USUAL.beta) / USUAL.beta_std, (cost - USUAL.cost) / USUAL.cost_std]
        return np.concatenate([relative(searched) / std, unusual])

    from scipy.optimize import least_squares  # not for every agent beside an operator: it takes 40 MB

    bounds = ([1e-6, _LEAST_BETA, 0.0], [np.inf, 1.0, np.inf])
    start, x_scale = [1.0, USUAL.beta, USUAL.cost], [1.0, USUAL.beta_std, USUAL.cost_std]
    found = least_squares(errors, start, bounds=bounds, x_scale=x_scale)
    misfit = float(np.sqrt(np.mean((relative(found.x) * NOISE / std) ** 2)))
    scale = np.array([unit, 1.0, 1.0])
    parameters = found.x * scale
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * np.outer(scale, scale)
    return parameters, _of_gamma(covariance, parameters), misfit


def _of_gamma(covariance: _Vector, parameters: _Vector) -> _Vector:
    """With γ in the place of γ/α."""
    alpha, _, cost = parameters
    change = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [cost, 0.0, alpha]])
    return change @ covariance @ change.T
