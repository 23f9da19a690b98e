"""A simulated model of a recorded pipeline, from what its windows say.

- **What an operator can do** with n instances: by what its batches cost, where the engine told that (Spark); else
  by the curve through the capacities at which it was seen, and where it was seen with one number of instances
  only, in proportion to that.
- **Records out for each record in**: the totals of the run.
- **The load**: what arrived at each source in each window.
- **An action** takes between the shortest and the longest time that one took, and only what it changes stands
  still.
- **Queues** are without bound, unless an operator was seen to hold those before it back: then what waited for it
  at most is what there was room for.
- **Measurements** scatter as they did from one window to the next like it.

It is as good as the windows are: what never happened in them is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from elastream.arrivals.load import Steps
from elastream.dataflow import Dataflow, Operator
from elastream.dataflow.state_partitions import effective_instances
from elastream.engines.simulated import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.events import Acted, Event
from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.thresholds import HELD_BACK
from elastream.policies.curve import Curve, Linear, learn
from elastream.policies.knowledge import NOTHING_KNOWN, CapacityPoint, Knowledge
from elastream.report.timeline import Stretch, Timeline

_LEAST_SHARE = 0.01  # of what an instance does by the price of a record: doing nothing could not be measured
_ALIKE = 0.1  # the relative difference up to which two windows count as alike
_MOST_NOISE = 0.3
_MOST_STEPS = 20_000
_LEAST_STEP = 0.05  # of a window


class CannotSimulateError(ElastreamError):
    """The recording does not tell enough for a model."""


@dataclass(frozen=True, slots=True)
class LearnedCapacity:
    """A curve that was learned, as the capacity of an operator whose partitions may be shared unevenly."""

    curve: Curve
    partitions: int | None

    def total_per_s(self, n: int) -> float:
        if not isinstance(self.curve, BatchCost):
            return self.curve.capacity(n)
        # the price of a batch is known for even instances: the simulation will take away what is uneven
        even = effective_instances(n, self.partitions)
        least = _LEAST_SHARE * self.curve.balance / self.curve.per_record_s * even
        return max(self.curve.capacity(even), least) * n / even


@dataclass(frozen=True, kw_only=True)
class LearnedOperator:
    name: str
    capacity: LearnedCapacity
    how: str
    """What it was learned from, as text."""
    selectivity: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class LearnedModel:
    engine: EngineModel
    operators: tuple[LearnedOperator, ...]
    duration_s: float
    window_s: float
    """The usual length of a window: the interval of the manager, where nobody says it."""


def learn_model(line: Timeline, events: Sequence[Event]) -> LearnedModel:
    last = line.stretches[-1].snapshot
    if not last.dataflow.scalable:
        raise CannotSimulateError("there is nothing to scale: all that it has are sources")
    snapshots = [stretch.snapshot for stretch in line.stretches]
    window_s = median(s.window_s for s in snapshots)
    operators = tuple(_operator(snapshots, name) for name in last.dataflow.scalable)
    step_s = max(line.duration_s / _MOST_STEPS, _LEAST_STEP * window_s) or 1.0
    try:
        engine = EngineModel(
            dataflow=_with_room(last.dataflow, snapshots),
            operators={
                found.name: OperatorModel(
                    capacity=found.capacity,
                    selectivity=found.selectivity or 1.0,
                    queue_records=_queue(snapshots, found.name),
                )
                for found in operators
            },
            sources={name: _source(line.stretches, name) for name in last.dataflow.sources},
            initial_plan=snapshots[0].plan,
            step_s=min(step_s, window_s) if window_s else step_s,
            noise=noise(snapshots),
            downtime_s=_downtime_s(events),
            downtime_scope=DowntimeScope.OPERATOR,
            nodes=last.nodes,
        )
    except InvalidInput as error:
        raise CannotSimulateError(f"no model can be made of this recording: {error}") from None
    return LearnedModel(engine=engine, operators=operators, duration_s=line.duration_s, window_s=window_s)


# What an operator can do


def _operator(snapshots: Sequence[Snapshot], name: str) -> LearnedOperator:
    curve, how = _curve(snapshots, name)
    flow = snapshots[-1].dataflow
    return LearnedOperator(
        name=name,
        capacity=LearnedCapacity(curve, flow[name].state_partitions),
        how=how,
        selectivity={consumer: _selectivity(snapshots, name, consumer) for consumer in flow.downstream(name)},
    )


def _curve(snapshots: Sequence[Snapshot], name: str) -> tuple[Curve, str]:
    costs = [snapshot.batch_costs[name] for snapshot in snapshots if name in snapshot.batch_costs]
    if costs:
        return costs[-1], f"what a batch costs: {costs[-1]}"
    points = _points(snapshots, name)
    if not points:
        raise CannotSimulateError(f"no complete window tells what {name!r} can do: it has no useful time in any")
    curve = learn(points)
    if curve is not None:
        seen = ", ".join(f"{n:g}" for n, _ in curve.points)
        return curve, f"the curve through what it did with {seen} instances, above them {curve.law}"
    point = max(points, key=lambda point: (point.saturated, point.windows))
    return (
        Linear(point.true_per_s / point.parallelism),
        f"what it did with {point.parallelism} instance{'' if point.parallelism == 1 else 's'}, in proportion",
    )


def _points(snapshots: Sequence[Snapshot], name: str) -> tuple[CapacityPoint, ...]:
    """What was learned of an operator, as if its state were shared evenly, which the simulation sees to."""
    known = Knowledge()
    for snapshot in snapshots:
        if not snapshot.gaps:
            known = known.with_snapshot(snapshot)
    if known is NOTHING_KNOWN or not known.of(name):
        return ()
    partitions = snapshots[-1].dataflow[name].state_partitions
    return tuple(
        replace(p, true_per_s=p.true_per_s * p.parallelism / effective_instances(p.parallelism, partitions))
        if p.saturated
        else p
        for p in known.of(name)
    )


def _selectivity(snapshots: Sequence[Snapshot], producer: str, consumer: str) -> float:
    """Records to a consumer for each record in, over the run; a source that counts one of them passes on all."""
    totals = [s.measurements[producer].totals for s in snapshots if producer in s.measurements]
    taken = math.fsum(total.records_in for total in totals)
    put = math.fsum(total.records_out_to(consumer) for total in totals)
    if snapshots[-1].dataflow[producer].source and not (taken and put):
        return 1.0
    return put / taken if taken else 0.0


# Sources, queues, actions, noise


def _source(stretches: Sequence[Stretch], name: str) -> SourceModel:
    snapshots = [stretch.snapshot for stretch in stretches]
    consumers = snapshots[-1].dataflow.downstream(name)
    return SourceModel(
        load=Steps(steps=tuple((s.begin_s, s.snapshot.source_rates[name]) for s in stretches)),
        selectivity={consumer: _selectivity(snapshots, name, consumer) for consumer in consumers},
    )


def _queue(snapshots: Sequence[Snapshot], name: str) -> float:
    before = snapshots[-1].dataflow.upstream(name)
    held = [s for s in snapshots if any(_wait_out(s, producer) > HELD_BACK for producer in before)]
    waited = [s.measurements[name].totals.backlog or 0.0 for s in held if name in s.measurements]
    return max(waited) / len(before) if any(waited) else math.inf


def _wait_out(snapshot: Snapshot, name: str) -> float:
    rates = snapshot.measurements.get(name)
    return 0.0 if rates is None else rates.wait_out_share or 0.0


def _downtime_s(events: Sequence[Event]) -> tuple[float, float]:
    took_s = [e.outcome.took_s for e in events if isinstance(e, Acted) and e.outcome.succeeded]
    return (min(took_s), max(took_s)) if took_s else (0.0, 0.0)


def noise(snapshots: Sequence[Snapshot]) -> float:
    """The relative standard deviation of a measured true rate: from one window to the next that is like it.

    The difference of two has √2 times the deviation of one; its median is 0.6745 of its standard deviation.
    """
    differences = [
        abs(a - b) / ((a + b) / 2)
        for before, after in pairwise(snapshots)
        for a, b in _alike(before, after)
        if a > 0 and b > 0
    ]
    if len(differences) < 3:
        return 0.0
    return min(_MOST_NOISE, median(differences) / (0.6745 * math.sqrt(2)))


def _alike(before: Snapshot, after: Snapshot) -> Iterator[tuple[float, float]]:
    """The true rates of the operators that had as many instances and about as much to do in both windows."""
    for name in after.dataflow.scalable:
        first, second = before.measurements.get(name), after.measurements.get(name)
        if first is None or second is None or before.plan.get(name) != after.plan[name]:
            continue
        done = first.observed_per_s, second.observed_per_s
        if max(done) * (1 - _ALIKE) <= min(done):
            yield first.true_per_instance or 0.0, second.true_per_instance or 0.0


def _with_room(flow: Dataflow, snapshots: Sequence[Snapshot]) -> Dataflow:
    """With bounds that let every plan of the recording be: they may have been others when it was in force."""
    return Dataflow.of(
        (_wide_enough(flow[name], [s.plan[name] for s in snapshots if name in s.plan]) for name in flow.order),
        [(channel.producer, channel.consumer) for channel in flow.channels],
    )


def _wide_enough(operator: Operator, counts: Sequence[int]) -> Operator:
    if operator.source:
        return operator
    most = operator.max_parallelism
    return replace(
        operator,
        min_parallelism=min([operator.min_parallelism, *counts]),
        max_parallelism=None if most is None else max([most, *counts]),
    )
