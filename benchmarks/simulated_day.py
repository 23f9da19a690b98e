"""How long a simulated day takes: one-second steps through a chain of five operators, with a DS2 manager.

An experiment runs dozens of days, so a day has to take seconds. What the manager adds is told, and the work of
one stage in one step is compared with one turn of a plain loop that does the same kind of arithmetic: what is
above that is the price of queues, counters and a history.
"""

from __future__ import annotations

from benchmarks.measure import Measure, Report, median_cpu_s
from elastream.arrivals.load import Sine
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SimulatedEngine, SourceModel
from elastream.engines.simulated.simulation import simulate
from elastream.manager.knobs import Knobs
from elastream.policies.catalog import create
from elastream.testing import chain

DAY_S = 86_400.0
MOST_S = 10.0
_OPERATORS = ("parse", "filter", "enrich", "join", "count")
_LOAD = Sine(mean=5_000, amplitude=4_000, period_s=DAY_S)


def run(*, duration_s: float = DAY_S, repeats: int = 3) -> Report:
    model, policy = _model(), create("ds2")
    stages = len(model.dataflow.order)
    managed_s = median_cpu_s(
        lambda model: simulate(model, policy, Knobs(), duration_s=duration_s),
        prepare=lambda: model,
        repeats=repeats,
    )
    alone_s = median_cpu_s(
        lambda engine: engine.wait(duration_s), prepare=lambda: SimulatedEngine(model), repeats=repeats
    )
    turns = int(duration_s / model.step_s) * stages
    loop_s = median_cpu_s(_plain_loop, prepare=lambda: turns, repeats=repeats)
    what = f"{duration_s / 3600:g} h in steps of {model.step_s:g} s through {stages} stages"
    return Report(
        measures=(
            Measure(what=f"{what}, with a manager", value=managed_s, unit="s", at_most=MOST_S),
            Measure(what=f"{what}, alone", value=alone_s, unit="s"),
            Measure(what="with a manager by alone", value=managed_s / alone_s, unit="times"),
            Measure(what="a stage's step by a turn of a plain loop", value=alone_s / loop_s, unit="times"),
        )
    )


def _model() -> EngineModel:
    names = ("source", *_OPERATORS)
    dataflow = Dataflow.of((Operator(name=name, source=name == "source") for name in names), chain(*names))
    part = OperatorModel(capacity=PowerLaw(per_instance_per_s=1_000), queue_records=10_000)
    return EngineModel(
        dataflow=dataflow,
        operators=dict.fromkeys(_OPERATORS, part),
        sources={"source": SourceModel(load=_LOAD)},
        initial_plan=Plan(dict.fromkeys(_OPERATORS, 9)),
        noise=0.03,
        downtime_s=10.0,
    )


def _plain_loop(turns: int) -> float:
    total, rate, dt_s = 0.0, 1_000.0, 1.0
    for turn in range(turns):
        wanted = rate * dt_s
        total += wanted if wanted < turn else turn
    return total
