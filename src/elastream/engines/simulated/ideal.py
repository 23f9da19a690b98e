"""The right answer: the least parallelism that sustains given source rates by the model's true capacities.

A policy only sees readings; this looks at the model itself. Experiments measure policies against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from elastream.dataflow import Plan
from elastream.engines.simulated.model import EngineModel

_ROUNDING = 1e-9  # by how much, relatively, a capacity may miss a rate and still count as equal
_MOST_SEARCHED = 10_000  # for operators without a bound, whose capacity may never reach what is asked of them


def required_per_s(model: EngineModel, source_rates: Mapping[str, float]) -> Mapping[str, float]:
    """Records per second that reach each source and operator when everything before it keeps up."""
    required: dict[str, float] = {}
    for name in model.dataflow.order:
        if model.dataflow[name].source:
            required[name] = source_rates[name]
        else:
            producers = model.dataflow.upstream(name)
            required[name] = math.fsum(required[p] * model.selectivity(p, name) for p in producers)
    return required


def sustains(model: EngineModel, plan: Mapping[str, int], source_rates: Mapping[str, float]) -> bool:
    """Whether a pipeline with this plan keeps up with the sources for ever."""
    required = required_per_s(model, source_rates)
    for name, source in model.sources.items():
        if not _enough(source.max_rate_per_s, required[name]):
            return False
    if model.shared_workers:
        return _enough(1.0, math.fsum(_utilization(model, name, n, required[name]) for name, n in plan.items()))
    return all(_enough(_capacity(model, name, n), required[name]) for name, n in plan.items())


def least_plan(model: EngineModel, source_rates: Mapping[str, float]) -> Plan:
    """The least parallelism of every operator that sustains the rates.

    An operator that cannot sustain them within its bounds gets the parallelism at which it can do most.
    """
    required = required_per_s(model, source_rates)
    names = model.dataflow.scalable
    if model.shared_workers:
        workers = _least_workers(model, required)
        return Plan(dict.fromkeys(names, workers))
    return Plan({name: _least_instances(model, name, required[name]) for name in names})


def _least_instances(model: EngineModel, name: str, required: float) -> int:
    operator = model.dataflow[name]
    most = int(min(operator.most, max(_MOST_SEARCHED, operator.min_parallelism)))
    if operator.fixed:
        return model.initial_plan[name]
    return _least(operator.min_parallelism, most, required, lambda n: _capacity(model, name, n))


def _least_workers(model: EngineModel, required: Mapping[str, float]) -> int:
    """Workers have enough time when the shares of it that all operators need come to at most one."""
    operators = [model.dataflow[name] for name in model.dataflow.scalable]
    least = max(operator.min_parallelism for operator in operators)
    most = int(min(_MOST_SEARCHED, *(operator.most for operator in operators)))

    def sustained_share(n: int) -> float:
        used = math.fsum(_utilization(model, operator.name, n, required[operator.name]) for operator in operators)
        return 1 / used if used > 0 else math.inf

    return _least(least, most, 1.0, sustained_share)


def _least(least: int, most: int, required: float, capacity: Callable[[int], float]) -> int:
    """The first n whose capacity is enough; where none is, the first with the highest capacity."""
    best, best_capacity = least, -1.0
    # one by one, as capacity need not grow with n: halving could miss the peak
    for n in range(least, most + 1):
        found = capacity(n)
        if _enough(found, required):
            return n
        if found > best_capacity * (1 + _ROUNDING):
            best, best_capacity = n, found
    return best


def _enough(capacity: float, required: float) -> bool:
    return capacity * (1 + _ROUNDING) >= required


def _capacity(model: EngineModel, name: str, n: int) -> float:
    return model.instances(name, n).sustained_per_s


def _utilization(model: EngineModel, name: str, n: int, required: float) -> float:
    """The share of the workers' time that an operator needs."""
    if required == 0:
        return 0.0
    capacity = _capacity(model, name, n)
    return required / capacity if capacity > 0 else math.inf
