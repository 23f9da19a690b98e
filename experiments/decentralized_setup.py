"""What the experiments on decentralized scaling share: the papers' pipeline of five operators, and their loads."""

from __future__ import annotations

from collections.abc import Mapping

from elastream.arrivals.load import Brownian, Load
from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.protocol.decision import ScalingPolicy
from elastream.testing import chain
from experiments.decentralized_simulator import Setup, Who

PAPER = "Belkhiria and Tedeschi 2019; Belkhiria's thesis"
OPERATORS = ("o1", "o2", "o3", "o4", "o5")
CAPACITY = 500.0
STEPS = 200
SEEDS = 50
STATED_STEP = 250.0
"""Records by which the load moves in a step (standard deviation). The paper does not say; the one step of its load
that it names goes from 1,104 to 1,351."""


def pipeline(*operators: str) -> Dataflow:
    nodes = (Operator(name=name, source=name == operators[0]) for name in operators)
    return Dataflow.of(nodes, chain(*operators))


def five_operators(
    loads: Mapping[str, Load], *, instances: int, who: Who = Who.EVERYBODY, policy: ScalingPolicy | None = None
) -> Setup:
    return Setup(
        dataflow=pipeline(*OPERATORS),
        loads=loads,
        instances=dict.fromkeys(OPERATORS, instances),
        capacity=CAPACITY,
        policy=policy or ScalingPolicy(),
        who=who,
    )


def brownian(*, instances: int, step: float, seed: int) -> Mapping[str, Load]:
    """Every operator's load walks on its own, from what its first instances carry at their target."""
    start = instances * CAPACITY * ScalingPolicy().target_load
    return {
        operator: Brownian(start=start, step_std=step, step_s=1.0, seed=seed * len(OPERATORS) + number)
        for number, operator in enumerate(OPERATORS)
    }
