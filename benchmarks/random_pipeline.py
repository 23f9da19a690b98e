"""A seeded random pipeline of any size, and a snapshot of it that could have been measured."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Reading, Snapshot

_SOURCES = 8
_MOST_INPUTS = 3
_NEAR = 200  # an operator reads from some of so many before it: the graph is deep as well as wide
_SOURCE_PER_S = 1000.0
_WINDOW_S = 60.0


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The records per second through each operator, and which part of them goes to each consumer."""

    flow_per_s: list[float]
    parts: list[dict[int, float]]


def random_snapshot(*, operators: int, instances: int, bottlenecks: int = 0, seed: int = 0) -> Snapshot:
    """A pipeline that is asked for twice of what it processed.

    Everything has to grow, which the bottlenecks cannot. What an operator processes it divides among its
    consumers, so that no rate explodes or vanishes with the depth of the graph.
    """
    rng = random.Random(seed)
    shape = _random_shape(operators, rng)
    bounded = frozenset(rng.sample(range(_SOURCES, operators), bottlenecks))
    dataflow = Dataflow.of(
        (
            Operator(name=_name(i), source=i < _SOURCES, max_parallelism=instances if i in bounded else None)
            for i in range(operators)
        ),
        ((_name(i), _name(consumer)) for i, parts in enumerate(shape.parts) for consumer in parts),
    )
    return Snapshot(
        dataflow=dataflow,
        plan=Plan(dict.fromkeys(dataflow.scalable, instances)),
        source_rates=dict.fromkeys(dataflow.sources, 2 * _SOURCE_PER_S),
        readings=tuple(_readings(shape, instances, rng)),
    )


def _name(index: int) -> str:
    return f"operator-{index}"


def _random_shape(operators: int, rng: random.Random) -> _Shape:
    parts: list[dict[int, float]] = [{} for _ in range(operators)]
    for i in range(_SOURCES, operators):
        before = range(max(0, i - _NEAR), i)
        for producer in rng.sample(before, rng.randint(1, _MOST_INPUTS)):
            parts[producer][i] = rng.uniform(0.5, 1.5)
    flow_per_s = [_SOURCE_PER_S if i < _SOURCES else 0.0 for i in range(operators)]
    for i, weights in enumerate(parts):
        total = math.fsum(weights.values())
        for consumer, weight in weights.items():
            weights[consumer] = weight / total
            flow_per_s[consumer] += flow_per_s[i] * weights[consumer]
    return _Shape(flow_per_s=flow_per_s, parts=parts)


def _readings(shape: _Shape, instances: int, rng: random.Random) -> Iterator[Reading]:
    for i, parts in enumerate(shape.parts):
        records = shape.flow_per_s[i] * _WINDOW_S / instances
        busy = rng.uniform(0.6, 0.9)
        for instance in range(instances):
            yield Reading(
                operator=_name(i),
                instance=instance,
                window_s=_WINDOW_S,
                useful_s=_WINDOW_S * busy * rng.uniform(0.97, 1.03),
                records_in=records,
                records_out={_name(consumer): records * part for consumer, part in parts.items()},
                backlog=0.0,
                wait_out_s=0.0,
            )
