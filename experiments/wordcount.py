"""The word count that DS2 was evaluated with: sentences → FlatMap, which splits them → Count.

Shared by the experiments that repeat sections 4.2, 5.2 and 5.3 of DS2 (Kalavri et al., OSDI 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import Capacity
from elastream.engines.simulated.engine_model import EngineModel, OperatorModel, SourceModel
from elastream.engines.simulated.simulation import Simulation

SOURCE, FLATMAP, COUNT = "sentences", "flatmap", "count"

# §5.2: 1M sentences a minute, FlatMap does 100K of them an instance, Count 1M words an instance
LOAD_PER_S = 1_000_000 / 60
FLATMAP_PER_S = 100_000 / 60
COUNT_PER_S = 1_000_000 / 60
WORDS_PER_SENTENCE = 20.0

Pair = tuple[int, int]
"""Instances of FlatMap and of Count."""


def word_count(
    *,
    source: SourceModel,
    flatmap: Capacity,
    count: Capacity,
    start: Pair,
    sentences_queued: float,
    words_queued: float,
    downtime_s: float | tuple[float, float],
    hot_share: float | None = None,
) -> EngineModel:
    """The pipeline on an engine that stops the whole job for an action, as Heron and Flink do."""
    names = (SOURCE, FLATMAP, COUNT)
    return EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == SOURCE) for name in names), pairwise(names)),
        sources={SOURCE: source},
        operators={
            FLATMAP: OperatorModel(
                capacity=flatmap, selectivity=WORDS_PER_SENTENCE, queue_records=sentences_queued
            ),
            COUNT: OperatorModel(capacity=count, hot_share=hot_share, queue_records=words_queued),
        },
        initial_plan=plan_of(start),
        downtime_s=downtime_s,
    )


def plan_of(pair: Pair) -> Plan:
    return Plan({FLATMAP: pair[0], COUNT: pair[1]})


def pair_of(plan: Plan) -> Pair:
    return plan[FLATMAP], plan[COUNT]


def path_text(plans: Sequence[Pair]) -> str:
    """As the paper writes it: 10/5 → 14/7 are instances of FlatMap and Count, before and after an action."""
    return " → ".join(f"{flatmap}/{count}" for flatmap, count in plans)


def path(run: Simulation, *, from_s: float = 0.0, to_s: float = math.inf) -> list[Pair]:
    """The plans that were in force in a stretch of a run, one after the other."""
    later = [pair_of(plan) for t, plan in run.history.plans if from_s < t <= to_s]
    return [pair_of(run.plan_at(from_s)), *later]


def settled_s(run: Simulation) -> float:
    """From when the last plan was in force."""
    return run.history.plans[-1][0]


def binned(run: Simulation, samples: Iterable[float], *, every_s: int) -> tuple[list[float], list[float]]:
    """The middle of each stretch of a run, in minutes, and the mean of a rate over the stretch."""
    # the last stretch may end with a short step in which the source fills a whole queue: a burst that is none
    stretches = int(run.duration_s) // every_s - 1
    amounts, lasted_s, before_s = [0.0] * stretches, [0.0] * stretches, 0.0
    for t_s, sample in zip(run.history.times_s, samples, strict=True):
        number = math.ceil(t_s / every_s) - 1  # a sample is taken at the end of its step
        if number < stretches:
            amounts[number] += sample * (t_s - before_s)
            lasted_s[number] += t_s - before_s
        before_s = t_s
    minutes = [(number + 0.5) * every_s / 60 for number in range(stretches)]
    return minutes, [amount / lasts_s for amount, lasts_s in zip(amounts, lasted_s, strict=True)]


def sentences_per_s(run: Simulation, *, every_s: int) -> tuple[list[float], list[float]]:
    """What the pipeline took in over time: the observed source rate of the paper's figures 1 and 7."""
    return binned(run, run.history.emitted_per_s[SOURCE], every_s=every_s)


def actions_as_json(run: Simulation) -> list[dict[str, float]]:
    """When each action was decided, from when it was in force, and what it led to."""
    return [
        {"decided_s": decision.at_s, "in_force_s": in_force_s, **plan}
        for decision, (in_force_s, plan) in zip(run.decisions, run.history.plans[1:], strict=True)
    ]


def finish(axes: Sequence[Any], run: Simulation) -> None:
    """What all panels over the time of a run have in common; the legends stand beside them."""
    axes[-1].set_xlabel("minutes")
    for axis in axes:
        axis.set_xlim(0, run.duration_s / 60)
        axis.set_ylim(bottom=0)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
