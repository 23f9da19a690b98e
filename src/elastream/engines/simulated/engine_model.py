"""What a simulated engine is a model of: the operators' real capacities, the load, and the price of an action.

A policy sees none of this. It sees readings, and the experiments compare what it makes of them with what the
model says is right (`ideal.py`).

Instances share an operator's records, and the one that is saturated first limits them all: when its queue is
full the operators before it must wait, whoever else is idle. With sᵢ the share of the records that instance i
gets and cᵢ its rate, n instances therefore process min over i of cᵢ / sᵢ. That is the total capacity where
the shares are even and the rates equal, and less with key skew, with a straggler, or where the partitions of the
keyed state do not divide evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from elastream.arrivals.load import Load
from elastream.checked import NOT_NEGATIVE, Checked, Limit, NotNegative, Numbers, Positive, Share
from elastream.dataflow import Dataflow, Plan
from elastream.engines.simulated.capacity import Capacity, at_delay
from elastream.errors import InvalidInput, nearest
from elastream.nodes import NodePool
from elastream.nodes.choice import closest


class DowntimeScope(StrEnum):
    """What stands still while an action is carried out."""

    JOB = "job"
    """Everything is stopped and started again, as on Flink and Heron."""
    OPERATOR = "operator"
    """Only the operators that change, as on Spark, where the channels between them are durable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorModel(Checked):
    capacity: Capacity
    selectivity: float | Mapping[str, float] = 1.0
    """Records out for each record in: to every downstream operator alike, or one number for each."""
    hot_share: Share | None = None
    """Key skew: the share of all records that goes to one instance; the others get even parts of the rest."""
    slow_instance: Share = 1.0
    """A straggler: one instance runs at this share of the speed of the others."""
    not_parallel: bool = False
    """All records go to one instance, however many there are."""
    window_s: Positive | None = None
    """Records are set aside until the window fires; only then is there output."""
    slide_s: Positive | None = None
    """From one window to the next, where they slide: each of a record's windows has its part of the output and of
    the cost of firing."""
    phase_s: NotNegative = 0.0
    """When a window fires first; after that once in every window or slide."""
    fire_cost_s_per_record: NotNegative = 0.0
    """What an instance that runs alone spends on each record that was set aside, when the window fires."""
    queue_records: Limit = math.inf
    """The most records that wait on each of its input channels. A queue holds at least what the operator works
    off in a step: a smaller one would throttle it by the length of the step, which is not part of the model."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        _check_selectivity(self.selectivity)
        if self.fire_cost_s_per_record and self.window_s is None:
            raise InvalidInput("fire_cost_s_per_record needs a window_s: without a window nothing fires")
        if self.slide_s is not None and not self.slide_s <= (self.window_s or 0.0):
            raise InvalidInput(f"slide_s must be at most the window_s, found {self.slide_s} and {self.window_s}")

    @property
    def windows(self) -> int:
        """That a record is in."""
        return 1 if self.slide_s is None or self.window_s is None else round(self.window_s / self.slide_s)

    @property
    def fire_weight(self) -> float:
        """How much more work it is to fire a record that was set aside than to set it aside."""
        return self.fire_cost_s_per_record * self.capacity.total_per_s(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceModel(Checked):
    """A durable source: records that it cannot emit stay in its backlog and are replayed later."""

    load: Load
    max_rate_per_s: Limit = math.inf
    """How fast it emits at most, when it replays a backlog."""
    replay_speed: Annotated[float, Numbers("at least 1, or infinite", lambda value: value >= 1)] = math.inf
    """How many times faster than they came the records of a backlog are replayed at most: with 1 they keep their
    pace, and what was held up once stays late."""
    selectivity: float | Mapping[str, float] = 1.0
    """To every downstream operator alike, or the part of its records that each one reads."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        _check_selectivity(self.selectivity)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceSet:
    """The n instances of an operator: what each of them gets of the records, and how fast it is."""

    model: OperatorModel
    n: int
    state_partitions: int | None = None

    def share(self, instance: int) -> float:
        """The share of the operator's records that an instance gets; the first is the one with hot keys."""
        if self.model.not_parallel:
            return float(instance == 0)
        even, first = self._even_share(instance), self._even_share(0)
        hot = self.model.hot_share
        if hot is None or hot <= first:
            return even
        return hot if instance == 0 else even * (1 - hot) / (1 - first)

    def rate_per_s(self, instance: int) -> float:
        """Records per second of an instance that is always busy; the last is the one that may be slow."""
        working = 1 if self.model.not_parallel else self.n
        rate = self.model.capacity.total_per_s(working) / working
        return rate * self.model.slow_instance if instance == working - 1 else rate

    @property
    def effective_per_s(self) -> float:
        """Records per second of all of them together, when the first of them is saturated."""
        # none gets more than the first, and none is slower than the last: one of the two is the limit
        candidates = {0, 0 if self.model.not_parallel else self.n - 1}
        return min(self.rate_per_s(i) / self.share(i) for i in candidates if self.share(i) > 0)

    @property
    def sustained_per_s(self) -> float:
        """The mean over many windows: what is set aside must also be fired."""
        return self.effective_per_s / (1 + self.model.fire_weight)

    def _even_share(self, instance: int) -> float:
        partitions = self.state_partitions
        if partitions is None:
            return 1 / self.n
        return (partitions // self.n + (instance < partitions % self.n)) / partitions


@dataclass(frozen=True, kw_only=True)
class EngineModel(Checked):
    dataflow: Dataflow
    operators: Mapping[str, OperatorModel]
    sources: Mapping[str, SourceModel]
    initial_plan: Plan
    """The parallelism of every operator that is not a source."""
    step_s: Positive = 1.0
    noise: NotNegative = 0.0
    """The relative standard deviation of measured useful time: once for each operator and window, and once
    more for each instance and window."""
    seed: int = 0
    downtime_s: float | tuple[float, float] = 0.0
    """How long an action takes, or the least and the most it takes."""
    downtime_scope: DowntimeScope = DowntimeScope.JOB
    shared_workers: bool = False
    """Every worker runs every operator, as on Timely: all have the same parallelism, the number of workers, and
    an operator's capacity is what it would be if the workers did nothing else."""
    nodes: NodePool | None = None
    """Where instances run; the delays between them lower the capacity of a power law by its `delay_cost`."""
    initial_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For operators whose first nodes are not for the engine to choose."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        _check_names("operators", self.operators, self.dataflow.scalable)
        _check_names("sources", self.sources, self.dataflow.sources)
        for name in self.dataflow.order:
            ratios = self._ratios(name)
            if isinstance(ratios, Mapping):
                _check_names(f"selectivity of {name!r}", ratios, self.dataflow.downstream(name))
        least_s, most_s = self.downtime_range_s
        NOT_NEGATIVE.check("downtime_s", least_s)
        NOT_NEGATIVE.check("downtime_s", most_s)
        if least_s > most_s:
            raise InvalidInput(f"downtime_s must be (least, most), found ({least_s:g}, {most_s:g})")
        self.check_plan(self.initial_plan)
        self._check_nodes()

    @property
    def downtime_range_s(self) -> tuple[float, float]:
        return self.downtime_s if isinstance(self.downtime_s, tuple) else (self.downtime_s, self.downtime_s)

    def instances(
        self, operator: str, n: int, *, nodes: tuple[str, ...] | None = None, fed_from: tuple[str, ...] = ()
    ) -> InstanceSet:
        """On these nodes; without nodes with the delay that the operator's own capacity has."""
        part = self.operators[operator]
        if self.nodes is not None and nodes is not None:
            part = replace(part, capacity=at_delay(part.capacity, self.nodes.largest_delay_s(nodes, fed_from)))
        return InstanceSet(model=part, n=n, state_partitions=self.dataflow[operator].state_partitions)

    def best_instances(self, operator: str, n: int) -> InstanceSet:
        """On the nodes that are nearest to each other, as if no other operator needed them."""
        return self.instances(operator, n, nodes=None if self.nodes is None else closest(self.nodes, n))

    def most_instances(self, operator: str) -> float:
        """Of an operator, by its bounds and by the slots of all nodes."""
        slots = math.inf if self.nodes is None else sum(node.slots for node in self.nodes.nodes)
        return min(self.dataflow[operator].most, slots)

    def selectivity(self, producer: str, consumer: str) -> float:
        """Records on the channel for each record that its producer processes."""
        part: OperatorModel | SourceModel = (self.sources if producer in self.sources else self.operators)[
            producer
        ]
        return part.selectivity[consumer] if isinstance(part.selectivity, Mapping) else part.selectivity

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan that does not fit the dataflow, or that is outside an operator's bounds."""
        _check_names("plan", plan, self.dataflow.scalable)
        for name, n in plan.items():
            operator = self.dataflow[name]
            if not operator.min_parallelism <= n <= operator.most:
                most = "any number of" if math.isinf(operator.most) else f"{operator.most:g}"
                bounds = f"{operator.min_parallelism} to {most}"
                raise InvalidInput(f"plan: {name!r} may have {bounds} instances, found {n}")
        if self.shared_workers and len(set(plan.values())) > 1:
            raise InvalidInput(f"plan: with shared workers all operators have the same parallelism, found {plan}")

    def _check_nodes(self) -> None:
        for name, nodes in self.initial_nodes.items():
            if self.nodes is None:
                raise InvalidInput(f"initial_nodes: {name!r} runs on nodes, but there are none")
            _check_names("initial_nodes", {name: nodes}, self.dataflow.scalable, complete=False)
            if len(nodes) != self.initial_plan[name]:
                found = f"{self.initial_plan[name]} instances, but {len(nodes)} nodes"
                raise InvalidInput(f"initial_nodes: {name!r} has {found}")
            self.nodes.places(nodes)

    def _ratios(self, name: str) -> float | Mapping[str, float]:
        return self.sources[name].selectivity if name in self.sources else self.operators[name].selectivity


def _check_selectivity(selectivity: float | Mapping[str, float]) -> None:
    for ratio in selectivity.values() if isinstance(selectivity, Mapping) else (selectivity,):
        NOT_NEGATIVE.check("selectivity", ratio)


def _check_names(
    place: str, found: Mapping[str, object], expected: tuple[str, ...], *, complete: bool = True
) -> None:
    for name in found:
        if name not in expected:
            raise InvalidInput(f"{place}: {name!r} does not belong here{nearest(name, expected)}")
    for name in expected:
        if complete and name not in found:
            raise InvalidInput(f"{place}: {name!r} is missing")
