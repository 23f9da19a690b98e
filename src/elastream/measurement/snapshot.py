"""A snapshot: everything that is known about the pipeline for one window, and whether anything is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from elastream.dataflow import Dataflow, Plan
from elastream.errors import InvalidInput, nearest
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.rates import OperatorRates, operator_rates
from elastream.measurement.reading import Reading, check_amount
from elastream.nodes import NodePool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    dataflow: Dataflow
    plan: Plan
    """The parallelism that was in force, for every operator that is not a source."""
    source_rates: Mapping[str, float]
    """Records per second that arrive at each source, whether or not the pipeline keeps up with them."""
    readings: tuple[Reading, ...]
    at_s: float = 0.0
    """When the window ended."""
    gaps: tuple[str, ...] = ()
    """What the engine knows that it failed to measure."""
    notes: tuple[str, ...] = ()
    """What whoever runs the pipeline should know, though it spoils no measurement: records that were dropped as
    late, an idle input that holds a watermark back."""
    batch_costs: Mapping[str, BatchCost] = field(default_factory=dict)
    """For operators that work in micro-batches: what a batch and a record cost."""
    nodes: NodePool | None = None
    """The nodes that there are, where the engine knows of nodes."""
    placement: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The nodes that an operator's instances run on, one for each."""
    executors: tuple[ExecutorReading, ...] = ()
    """The processes that run the tasks, where the engine knows of them."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.at_s):
            raise InvalidInput(f"at_s must be a number, found {self.at_s}")
        self._check_plan()
        self._check_source_rates()
        self._check_readings()
        self._check_placement()
        self._check_executors()

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[Reading, ...]]:
        """The readings of each operator that has any."""
        found: dict[str, list[Reading]] = {}
        for reading in self.readings:
            found.setdefault(reading.operator, []).append(reading)
        return {name: tuple(readings) for name, readings in found.items()}

    @cached_property
    def rates(self) -> Mapping[str, OperatorRates]:
        """The rates of each operator that has readings."""
        return {
            name: operator_rates(readings, self.dataflow.downstream(name))
            for name, readings in self.by_operator.items()
        }

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What a complete snapshot would have and this one lacks, in words."""
        lacking = []
        for name in self.dataflow.scalable:
            found, expected = len(self.by_operator.get(name, ())), self.plan[name]
            if found < expected:
                lacking.append(f"{name}: readings of {found} of {expected} instances")
        return (*lacking, *self.gaps)

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def at_source_rates(self, source_rates: Mapping[str, float]) -> Snapshot:
        """The same measurements, with other rates asked of the sources."""
        return replace(self, source_rates=source_rates)

    def delay_s(self, name: str) -> float:
        """The largest delay between the nodes of an operator; none where nodes are not known."""
        return 0.0 if self.nodes is None else self.nodes.largest_delay_s(self.placement.get(name, ()))

    def _check_plan(self) -> None:
        for name in self.batch_costs:
            if name not in self.dataflow:
                raise InvalidInput(f"batch_costs: unknown operator {name!r}{nearest(name, self.dataflow.order)}")
        for name in self.plan:
            if name not in self.dataflow:
                raise InvalidInput(
                    f"the plan names an unknown operator {name!r}{nearest(name, self.dataflow.order)}"
                )
        lacking = [name for name in self.dataflow.scalable if name not in self.plan]
        if lacking:
            raise InvalidInput(f"the plan has no parallelism for {lacking[0]!r}")

    def _check_placement(self) -> None:
        for name, nodes in self.placement.items():
            if self.nodes is None:
                raise InvalidInput(f"placement: {name!r} runs on nodes, but no nodes are given")
            if name not in self.dataflow.scalable:
                raise InvalidInput(f"placement: unknown operator {name!r}{nearest(name, self.dataflow.scalable)}")
            if len(nodes) != self.plan[name]:
                found = f"{self.plan[name]} instances, but {len(nodes)} nodes"
                raise InvalidInput(f"placement: {name!r} has {found}")
            try:
                self.nodes.places(nodes)
            except InvalidInput as error:
                raise error.at(f"placement: {name!r}") from None

    def _check_executors(self) -> None:
        seen: set[str] = set()
        for executor in self.executors:
            if executor.id in seen:
                raise InvalidInput(f"executors: a second reading of {executor.id!r} in one window")
            seen.add(executor.id)

    def _check_source_rates(self) -> None:
        sources = self.dataflow.sources
        for name, rate in self.source_rates.items():
            if name not in sources:
                what = "not a source" if name in self.dataflow else "an unknown operator"
                raise InvalidInput(f"source_rates: {name!r} is {what}{nearest(name, sources)}")
            check_amount(f"source_rates: {name!r}", rate)
        lacking = [name for name in sources if name not in self.source_rates]
        if lacking:
            raise InvalidInput(f"source_rates: no rate for the source {lacking[0]!r}")

    def _check_readings(self) -> None:
        seen: set[tuple[str, int]] = set()
        for index, reading in enumerate(self.readings):
            place = f"readings[{index}]"
            if reading.operator not in self.dataflow:
                hint = nearest(reading.operator, self.dataflow.order)
                raise InvalidInput(f"{place}: unknown operator {reading.operator!r}{hint}")
            key = (reading.operator, reading.instance)
            if key in seen:
                raise InvalidInput(f"{place}: a second reading of {key[0]!r} instance {key[1]} in one window")
            seen.add(key)
            if isinstance(reading.records_out, Mapping):
                self._check_consumers(place, reading.operator, reading.records_out)
        for name in self.dataflow.scalable:
            if len(self.by_operator.get(name, ())) > self.plan[name]:
                raise InvalidInput(
                    f"operator {name!r} has parallelism {self.plan[name]}, "
                    f"but there are readings of {len(self.by_operator[name])} instances"
                )

    def _check_consumers(self, place: str, operator: str, records_out: Mapping[str, float]) -> None:
        consumers = self.dataflow.downstream(operator)
        for name in records_out:
            if name not in consumers:
                raise InvalidInput(
                    f"{place}.records_out: {operator!r} has no edge to {name!r}{nearest(name, consumers)}"
                )
