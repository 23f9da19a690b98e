"""The right answer: the least parallelism that sustains given source rates by the model's true capacities.

A policy only sees readings; this looks at the model itself, and experiments measure policies against it. Where
instances run on nodes, those are taken that are nearest to each other.

Capacity need not grow with the number of instances, but the highest capacity *up to* n instances does, and the
first n at which it reaches a rate is the first whose own capacity reaches it. So a search is a bisection in that
curve, which is computed as far as it was needed and kept for the next question.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache

from elastream.dataflow import Plan
from elastream.engines.simulated.engine_model import EngineModel

_ROUNDING = 1e-9  # by how much, relatively, a capacity may miss a rate and still count as equal
_MOST_SEARCHED = 10_000  # for operators without a bound, whose capacity may never reach what is asked of them


class Ideal:
    """Answers for one model. Asking for many rates is cheap: a capacity is computed only once."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._capacity = cache(lambda name, n: model.best_instances(name, n).sustained_per_s)
        self._curves = {name: _Curve(model, name) for name in model.dataflow.scalable}

    def required_per_s(self, source_rates: Mapping[str, float]) -> Mapping[str, float]:
        """Records per second that reach each source and operator when everything before it keeps up."""
        model = self._model
        required: dict[str, float] = {}
        for name in model.dataflow.order:
            if model.dataflow[name].source:
                required[name] = source_rates[name]
            else:
                producers = model.dataflow.upstream(name)
                required[name] = math.fsum(required[p] * model.selectivity(p, name) for p in producers)
        return required

    def sustains(self, plan: Mapping[str, int], source_rates: Mapping[str, float]) -> bool:
        """Whether a pipeline with this plan keeps up with the sources for ever."""
        required = self.required_per_s(source_rates)
        for name, source in self._model.sources.items():
            if not _enough(source.max_rate_per_s, required[name]):
                return False
        if self._model.shared_workers:
            return _enough(1.0, self._utilization(plan, required))
        return all(_enough(self._capacity(name, n), required[name]) for name, n in plan.items())

    def least_plan(self, source_rates: Mapping[str, float]) -> Plan:
        """The least parallelism of every operator that sustains the rates.

        An operator that cannot sustain them within its bounds gets the parallelism at which it can do most, and
        one that is fixed keeps the parallelism that it has.
        """
        required = self.required_per_s(source_rates)
        if self._model.shared_workers:
            return self._least_workers(required)
        return Plan({name: curve.least(required[name]) for name, curve in self._curves.items()})

    def _least_workers(self, required: Mapping[str, float]) -> Plan:
        """The first number of workers with time enough for all operators; else the one that lacks least."""
        least = max(curve.least_n for curve in self._curves.values())
        most = min(curve.most_n for curve in self._curves.values())
        best, best_utilization = least, math.inf
        for n in range(least, most + 1):
            utilization = self._utilization(dict.fromkeys(self._curves, n), required)
            if utilization < best_utilization * (1 - _ROUNDING):
                best, best_utilization = n, utilization
            if _enough(1.0, utilization):
                break
        return Plan(dict.fromkeys(self._curves, best))

    def _utilization(self, plan: Mapping[str, int], required: Mapping[str, float]) -> float:
        """The share of the workers' time that all operators together need."""
        return math.fsum(_share(required[name], self._capacity(name, n)) for name, n in plan.items())


class _Curve:
    """The highest capacity of an operator with at most n instances, from its least parallelism upwards."""

    def __init__(self, model: EngineModel, name: str) -> None:
        operator = model.dataflow[name]
        self._model = model
        self._name = name
        fixed = model.initial_plan[name] if operator.fixed else None
        self.least_n = fixed or operator.min_parallelism
        most = min(model.most_instances(name), max(operator.min_parallelism, _MOST_SEARCHED))
        self.most_n = fixed or int(most)
        self._highest_per_s: list[float] = []

    def least(self, required_per_s: float) -> int:
        """The first n whose capacity is enough; where none is, the first with the highest capacity."""
        highest = self._highest_per_s
        while not highest or not _enough(highest[-1], required_per_s):
            n = self.least_n + len(highest)
            if n > self.most_n:
                break
            capacity = self._model.best_instances(self._name, n).sustained_per_s
            highest.append(max(capacity, highest[-1]) if highest else capacity)
        reached = min(required_per_s, highest[-1]) / (1 + _ROUNDING)
        return self.least_n + bisect_left(highest, reached)


def _enough(capacity: float, required: float) -> bool:
    return capacity * (1 + _ROUNDING) >= required


def _share(required: float, capacity: float) -> float:
    if required == 0:
        return 0.0
    return required / capacity if capacity > 0 else math.inf
