"""How fast the simulator of decentralized scaling is with 1,000 instances, and how that grows from 100.

Five operators whose load goes up and down by a fifth, so that there is scaling all the time. A change is told to
all instances of two operators, and the more instances there are the more change in a step: messages grow with the
square of the instances, and so must the time of a step. What can stay the same is the time of a message.
"""

from __future__ import annotations

from benchmarks.measure import Measure, Report, median_cpu_s
from elastream.arrivals.load import Sine
from elastream.dataflow import Dataflow, Operator
from elastream.testing import chain
from experiments.decentralized_simulator import Setup, Simulator

_OPERATORS = ("o1", "o2", "o3", "o4", "o5")
_CAPACITY = 500.0
_MOST_GROWTH_OF_A_MESSAGE = 10.0


def run(*, few: int = 100, many: int = 1_000, steps: int = 20, repeats: int = 3) -> Report:
    measures: list[Measure] = []
    per_step, per_message = [], []
    for instances in (few, many):
        spent_s = median_cpu_s(
            lambda simulator: _run(simulator, steps), prepare=lambda i=instances: _simulator(i), repeats=repeats
        )
        messages = _run(_simulator(instances), steps)
        per_step.append(spent_s / steps)
        per_message.append(spent_s / messages)
        measures += [
            Measure(what=f"{instances:,} instances, steps per second", value=steps / spent_s, unit="1/s"),
            Measure(what=f"{instances:,} instances, messages of a step", value=messages / steps, unit=""),
        ]
    times = many / few
    growth = (
        Measure(what=f"a step, {times:g} times the instances", value=per_step[1] / per_step[0], unit="times"),
        Measure(
            what=f"the time by a message, {times:g} times the instances",
            value=per_message[1] / per_message[0],
            unit="times",
            at_most=_MOST_GROWTH_OF_A_MESSAGE,
        ),
    )
    return Report(measures=(*measures, *growth))


def _simulator(instances: int) -> Simulator:
    each = instances // len(_OPERATORS)
    mean = each * _CAPACITY * 0.7
    nodes = (Operator(name=name, source=name == _OPERATORS[0]) for name in _OPERATORS)
    setup = Setup(
        dataflow=Dataflow.of(nodes, chain(*_OPERATORS)),
        loads=dict.fromkeys(_OPERATORS, Sine(mean=mean, amplitude=0.2 * mean, period_s=40.0)),
        instances=dict.fromkeys(_OPERATORS, each),
        capacity=_CAPACITY,
    )
    return Simulator(setup, seed=1)


def _run(simulator: Simulator, steps: int) -> int:
    for _ in range(steps):
        simulator.step()
    return sum(simulator.history().messages)
