"""Finding α, β and γ from measurements at saturation (Gesscale IV-C): the more were made, the more is fitted.

One measurement gives α; two in different configurations α and γ; three or more all of them. That is the most that
is fitted: what the measurements cannot tell apart keeps its default. Where no delay was ever seen, γ stays 0 and
three give α and β; where all had the same number of instances, β stays 1. Measurements that no such curve comes
near to contradict each other, and then only the newest counts. Every such step down is noted in the model.

Least squares over relative residuals, as a measurement of twice the rate is off by twice as much, with α > 0,
0.1 ≤ β ≤ 1 and γ ≥ 0. The standard errors are those of the linearized problem; with no measurement to spare the
scatter is not known, and the 2 % of the paper is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Flag, auto
from functools import lru_cache
from typing import Any

import numpy as np

from elastream.policies.mst.mst_model import NOISE, MstModel, Sustained

_LEAST_BETA = 0.1
_FLAT_BETA = 0.11  # the search ends a little within its bounds; so flat, more instances do nothing
MISFIT = 0.15
"""Root mean square of the relative residuals, from which on measurements contradict each other."""
_SAME_DIRECTION = 1e-3  # of unit vectors: what less than this tells apart is noise

_Vector = Any
"""numpy's arrays of floats."""


class _Parameter(Flag):
    ALPHA = auto()
    GAMMA = auto()
    BETA = auto()


_NAMES = {_Parameter.BETA: "β", _Parameter.GAMMA: "γ"}


def calibrate(points: Sequence[Sustained]) -> MstModel | None:
    """The model through the measurements, oldest first; None where there are none."""
    return _calibrated(tuple(points)) if points else None


@lru_cache(maxsize=256)  # a policy asks in every window, and most of them bring no new measurement
def _calibrated(points: tuple[Sustained, ...]) -> MstModel:
    allowed = _allowed(points)
    fitted, notes = _told_apart(points, allowed)
    parameters, jacobian, misfit = _fit(points, fitted)
    if fitted & ~_Parameter.ALPHA and (misfit > MISFIT or parameters[1] < _FLAT_BETA):
        newest = points[-1]
        note = f"the measurements contradict each other (off by {misfit:.0%}), so only the newest counts"
        return _model([newest], _Parameter.ALPHA, *_fit([newest], _Parameter.ALPHA), notes=(note,))
    return _model(points, fitted, parameters, jacobian, misfit, notes=notes)


def calibrate_proportional(points: Sequence[Sustained]) -> MstModel | None:
    """Equation 2 alone, which knows nothing of delays."""
    return _model(points, _Parameter.ALPHA, *_fit(points, _Parameter.ALPHA)) if points else None


def _allowed(points: Sequence[Sustained]) -> _Parameter:
    configurations = len({(point.instances, point.delay_s) for point in points})
    if configurations == 1:
        return _Parameter.ALPHA
    return (
        _Parameter.ALPHA | _Parameter.GAMMA
        if configurations == 2
        else _Parameter.ALPHA | _Parameter.GAMMA | _Parameter.BETA
    )


def _told_apart(points: Sequence[Sustained], allowed: _Parameter) -> tuple[_Parameter, tuple[str, ...]]:
    """The parameters that the measurements determine, and why not the others that so many would allow."""
    if len(points) > 1 and allowed == _Parameter.ALPHA:
        return allowed, ("all measurements are of one configuration, so only α is fitted",)
    fitted, notes = allowed, []
    lacking = {
        _Parameter.GAMMA: "no delay was measured" if not any(p.delay_s for p in points) else None,
        _Parameter.BETA: "all have the same instances" if len({p.instances for p in points}) == 1 else None,
    }
    for parameter, why in lacking.items():
        if parameter in allowed and why:
            fitted &= ~parameter
            notes.append(f"{why}, so {_NAMES[parameter]} keeps its default")
    for parameter in (_Parameter.BETA, _Parameter.GAMMA):
        if parameter in fitted and not _independent(points, fitted):
            fitted &= ~parameter
            notes.append(f"the measurements do not tell {_NAMES[parameter]} apart, so it keeps its default")
    return fitted, tuple(notes)


def _independent(points: Sequence[Sustained], fitted: _Parameter) -> bool:
    columns = _jacobian(np.array([1.0, 1.0, 0.0]), points)[:, _columns(fitted)]
    lengths = np.linalg.norm(columns, axis=0)
    if len(points) < columns.shape[1] or not lengths.all():
        return False
    return bool(np.linalg.matrix_rank(columns / lengths, tol=_SAME_DIRECTION) == columns.shape[1])


def _columns(fitted: _Parameter) -> list[int]:
    """Of the parameters α, β and γ, in this order."""
    return [i for i, p in enumerate((_Parameter.ALPHA, _Parameter.BETA, _Parameter.GAMMA)) if p in fitted]


def _jacobian(parameters: _Vector, points: Sequence[Sustained]) -> _Vector:
    """Of the relative residuals."""
    alpha, beta, _ = parameters
    n, delay_s, measured = _arrays(points)
    power = n**beta
    return np.column_stack([power, alpha * power * np.log(n), -delay_s]) / measured[:, None]


def _fit(points: Sequence[Sustained], fitted: _Parameter) -> tuple[_Vector, _Vector, float]:
    """The parameters, the Jacobian of those that were fitted, and the root mean square relative residual."""
    n, delay_s, measured = _arrays(points)
    unit = float(np.mean(measured / n))  # near α, so that what is searched for is near 1
    slowest_s = float(delay_s.max()) or 1.0
    free = _columns(fitted)
    scale = np.array([unit, 1.0, unit / slowest_s])
    parameters = np.array([1.0, 1.0, 0.0])

    def errors(searched: _Vector) -> _Vector:
        alpha, beta, gamma = _filled(parameters, free, searched) * scale
        return (alpha * n**beta - gamma * delay_s) / measured - 1

    lower = np.array([1e-6, _LEAST_BETA, 0.0])[free]
    upper = np.array([np.inf, 1.0, np.inf])[free]
    start = np.array([1.0, 0.9, 0.1])[free]
    from scipy.optimize import least_squares  # not for every agent beside an operator: it takes 40 MB

    found = least_squares(errors, start, bounds=(lower, upper), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    parameters = _filled(parameters, free, found.x) * scale
    misfit = float(np.sqrt(np.mean(found.fun**2)))
    return parameters, _jacobian(parameters, points)[:, free], misfit


def _filled(parameters: _Vector, free: list[int], values: _Vector) -> _Vector:
    filled = parameters.copy()
    filled[free] = values
    return filled


def _arrays(points: Sequence[Sustained]) -> tuple[_Vector, _Vector, _Vector]:
    return (
        np.array([float(point.instances) for point in points]),
        np.array([point.delay_s for point in points]),
        np.array([point.records_per_s for point in points]),
    )


def _model(
    points: Sequence[Sustained],
    fitted: _Parameter,
    parameters: _Vector,
    jacobian: _Vector,
    misfit: float,
    *,
    notes: tuple[str, ...] = (),
) -> MstModel:
    columns, fitted_covariance = _columns(fitted), _covariance(jacobian, misfit)
    errors = dict(zip(columns, map(float, np.sqrt(np.diag(fitted_covariance))), strict=True))
    covariance = np.zeros((3, 3))
    covariance[np.ix_(columns, columns)] = fitted_covariance
    return MstModel(
        alpha_per_s=float(parameters[0]),
        beta=float(parameters[1]),
        gamma=float(parameters[2]),
        alpha_std=errors[0],
        beta_std=errors.get(1),
        gamma_std=errors.get(2),
        fewest=min(point.instances for point in points),
        most=max(point.instances for point in points),
        largest_delay_s=max(point.delay_s for point in points),
        covariance=as_tuples(covariance),
        notes=notes,
    )


def _covariance(jacobian: _Vector, misfit: float) -> _Vector:
    measurements, parameters = jacobian.shape
    to_spare = measurements - parameters
    scatter = misfit * np.sqrt(measurements / to_spare) if to_spare > 0 else 0.0
    return np.linalg.pinv(jacobian.T @ jacobian) * max(scatter, NOISE) ** 2


def as_tuples(matrix: _Vector) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(entry) for entry in row) for row in matrix)
