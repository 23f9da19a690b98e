"""Small models that the tests of the simulated engine build on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from elastream.arrivals.load import Constant
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SimulatedEngine, SourceModel
from elastream.manager.decision import Decision


def linear(per_instance_per_s: float, **options: Any) -> OperatorModel:
    return OperatorModel(capacity=PowerLaw(per_instance_per_s=per_instance_per_s), **options)


def steady(records_per_s: float, **options: Any) -> SourceModel:
    return SourceModel(load=Constant(records_per_s=records_per_s), **options)


def chain(
    source: SourceModel, operators: Mapping[str, OperatorModel], plan: Mapping[str, int], **options: Any
) -> EngineModel:
    """`source` → the operators, one after the other."""
    names = ["source", *operators]
    declared = [Operator(name="source", source=True), *(Operator(name=name) for name in operators)]
    return EngineModel(
        dataflow=Dataflow.of(declared, pairwise(names)),
        sources={"source": source},
        operators=operators,
        initial_plan=Plan(dict(plan)),
        **options,
    )


def to(engine: SimulatedEngine, **changes: int) -> Decision:
    """A decision to change some operators of what runs now."""
    before = engine.plan()
    return Decision(number=1, at_s=engine.now(), before=before, after=before.with_changes(changes))
