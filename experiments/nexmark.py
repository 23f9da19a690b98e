"""The shapes of the Nexmark queries as models of the simulated engine.

DS2 does not say what a record costs. An experiment says how many instances an operator needs for given source
rates, and the cost follows from that. In a window, to put out a result is as much work as to set a record aside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from elastream.arrivals.load import Constant, Load
from elastream.dataflow import Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import EngineModel, OperatorModel, SourceModel
from experiments.workloads.nexmark_shapes import Shape, ShapeOperator


def pipeline(
    shape: Shape,
    *,
    source_rates: Mapping[str, float],
    needs: Mapping[str, float],
    exponents: Mapping[str, float],
    start: int,
    loads: Mapping[str, Load] | None = None,
    max_parallelism: int | None = None,
) -> EngineModel:
    """A query whose operators all start with `start` instances.

    `needs` says how many instances, as a real number, each operator needs for the source rates, and `exponents`
    how its capacity grows with their number. The load is constant unless other loads are given. Channels hold any
    number of records, so that what a window puts out at once does not hold it back.
    """
    required = shape.required_per_s(source_rates)
    loads = loads or {name: Constant(records_per_s=rate) for name, rate in source_rates.items()}
    return EngineModel(
        dataflow=shape.dataflow(max_parallelism),
        operators={
            o.name: _operator_model(o, required[o.name], needs[o.name], exponents[o.name]) for o in shape.operators
        },
        sources={name: SourceModel(load=loads[name]) for name in shape.sources},
        initial_plan=Plan({operator.name: start for operator in shape.operators}),
    )


def _operator_model(
    operator: ShapeOperator, required_per_s: float, needed: float, exponent: float
) -> OperatorModel:
    fire_weight = operator.selectivity if operator.window_s is not None else 0.0
    alone_per_s = required_per_s * (1 + fire_weight) / math.pow(needed, exponent)
    return OperatorModel(
        capacity=PowerLaw(per_instance_per_s=alone_per_s, exponent=exponent),
        selectivity=operator.selectivity,
        window_s=operator.window_s,
        fire_cost_s_per_record=fire_weight / alone_per_s,
    )
