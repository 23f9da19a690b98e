"""A snapshot: everything that is known about the pipeline for one window, and whether anything is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import pairwise
from typing import TypeVar

from elastream.dataflow import Dataflow, Plan
from elastream.errors import InvalidInput, nearest, shown
from elastream.measurement.amounts import check_amount
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.late_reading import LateReading
from elastream.measurement.measurement import Measurement
from elastream.measurement.reading import Reading
from elastream.measurement.whole_job import WholeJob
from elastream.nodes import NodePool
from elastream.nodes.places import fed_from


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    dataflow: Dataflow
    plan: Plan
    """The parallelism that was in force, for every operator that is not a source."""
    source_rates: Mapping[str, float]
    """Records per second that arrive at each source, whether or not the pipeline keeps up with them."""
    newest_rates: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """The same in the last part of the window, where the engine knows it: what a load that steps has come to."""
    readings: tuple[Reading, ...]
    at_s: float = 0.0
    """When the window ended."""
    gaps: tuple[str, ...] = ()
    """What the engine knows that it failed to measure, so that nothing can be decided."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Operators of which too little is known in this window, and why: nothing is decided for them alone."""
    notes: tuple[str, ...] = ()
    """What whoever runs the pipeline should know, though it spoils no measurement: records that were dropped as
    late, an idle input that holds a watermark back."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Operators and sources that do not work now, each with the reason in one line."""
    batch_costs: Mapping[str, BatchCost] = field(default_factory=dict)
    """For operators that work in micro-batches: what a batch and a record cost."""
    nodes: NodePool | None = None
    """The nodes that there are, where the engine knows of nodes."""
    placement: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The nodes that an operator's instances run on, one for each."""
    executors: tuple[ExecutorReading, ...] = ()
    """The processes that run the tasks, where the engine knows of them."""
    late: tuple[LateReading, ...] = ()
    """What was read before this window and came only now, the oldest first."""
    job: WholeJob | None = None
    """Where the executors of a whole job are what is sized: what rules for those look at."""

    latency_target_s: float | None = None
    """The latency that the pipeline is to keep from end to end, where someone asked for one."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.at_s):
            raise InvalidInput(f"at_s must be a number, found {self.at_s}")
        if self.latency_target_s is not None and not 0 < self.latency_target_s < math.inf:
            raise InvalidInput(f"latency_target_s must be a number above 0, found {self.latency_target_s}")
        self._check_plan()
        self._check_source_rates()
        self._check_readings()
        self._check_placement()
        self._check_executors()

    @cached_property
    def measurements(self) -> Mapping[str, Measurement]:
        """Of each operator that has readings."""
        found: dict[str, list[Reading]] = {}
        for reading in self.readings:
            found.setdefault(reading.operator, []).append(reading)
        return {
            name: Measurement(
                operator=name,
                readings=tuple(readings),
                consumers=tuple(self.dataflow.downstream(name)),
                batch_cost=self.batch_costs.get(name),
                partitions=self.dataflow[name].state_partitions,
            )
            for name, readings in found.items()
        }

    @cached_property
    def window_s(self) -> float:
        """The longest of its readings; 0 where there are none."""
        return max((reading.window_s for reading in self.readings), default=0.0)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What a complete snapshot would have and this one lacks, as text."""
        lacking = []
        for name in self.dataflow.scalable:
            found, expected = self._reported(name), self.plan[name]
            if found < expected:
                lacking.append(f"{name}: readings of {found} of {expected} instances")
        unknown = (f"{name}: {why}" for name, why in self.unknown.items())
        return (*lacking, *unknown, *self.gaps)

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def is_complete_for(self, name: str) -> bool:
        """Whether all instances of the operator reported."""
        return self._reported(name) >= self.plan.get(name, 1)

    def _reported(self, name: str) -> int:
        return self.measurements[name].instances if name in self.measurements else 0

    def at_source_rates(self, source_rates: Mapping[str, float]) -> Snapshot:
        """The same measurements, with other rates asked of the sources."""
        return replace(self, source_rates=source_rates, newest_rates={})

    def delay_s(self, name: str) -> float:
        """The largest delay between the nodes of an operator, and to those of the operators right before it; none
        where nodes are not known."""
        if self.nodes is None:
            return 0.0
        own = self.placement.get(name, ())
        return self.nodes.largest_delay_s(own, fed_from(self.dataflow, self.placement, name))

    def _check_plan(self) -> None:
        for field_name in ("batch_costs", "unknown", "failing"):
            for name in getattr(self, field_name):
                if name not in self.dataflow:
                    hint = nearest(name, self.dataflow.order)
                    raise InvalidInput(f"{field_name}: unknown operator {shown(name)}{hint}")
        for name in self.plan:
            if name not in self.dataflow:
                raise InvalidInput(
                    f"the plan names an unknown operator {shown(name)}{nearest(name, self.dataflow.order)}"
                )
        lacking = [name for name in self.dataflow.scalable if name not in self.plan]
        if lacking:
            raise InvalidInput(f"the plan has no parallelism for {lacking[0]!r}")

    def _check_placement(self) -> None:
        for name, nodes in self.placement.items():
            if self.nodes is None:
                raise InvalidInput(f"placement: {name!r} runs on nodes, but no nodes are given")
            if name not in self.dataflow.scalable:
                raise InvalidInput(
                    f"placement: unknown operator {shown(name)}{nearest(name, self.dataflow.scalable)}"
                )
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
        for field_name in ("source_rates", "newest_rates"):
            for name, rate in getattr(self, field_name).items():
                if name not in sources:
                    what = "not a source" if name in self.dataflow else "an unknown operator"
                    raise InvalidInput(f"{field_name}: {shown(name)} is {what}{nearest(name, sources)}")
                check_amount(f"{field_name}: {name!r}", rate)
        lacking = [name for name in sources if name not in self.source_rates]
        if lacking:
            raise InvalidInput(f"source_rates: no rate for the source {lacking[0]!r}")

    def _check_readings(self) -> None:
        for index, reading in enumerate(self.readings):
            place = f"readings[{index}]"
            if reading.operator not in self.dataflow:
                hint = nearest(reading.operator, self.dataflow.order)
                raise InvalidInput(f"{place}: unknown operator {shown(reading.operator)}{hint}")
            if isinstance(reading.records_out, Mapping):
                self._check_consumers(place, reading.operator, reading.records_out)
        self._check_instances()
        for name in self.dataflow.scalable:
            if self._reported(name) > self.plan[name]:
                raise InvalidInput(
                    f"operator {name!r} has parallelism {self.plan[name]}, "
                    f"but there are readings of {self._reported(name)} instances"
                )

    def _check_instances(self) -> None:
        """No two readings may be of the same instance."""
        order = sorted(
            range(len(self.readings)), key=lambda i: (self.readings[i].operator, self.readings[i].instance)
        )
        for first, second in pairwise(order):
            before, after = self.readings[first], self.readings[second]
            if before.operator == after.operator and before.instance + before.instances > after.instance:
                again = f"{after.operator!r} instance {after.instance} in one window"
                raise InvalidInput(f"readings[{max(first, second)}]: a second reading of {again}")

    def _check_consumers(self, place: str, operator: str, records_out: Mapping[str, float]) -> None:
        consumers = self.dataflow.downstream(operator)
        for name in records_out:
            if name not in consumers:
                hint = nearest(name, consumers)
                raise InvalidInput(f"{place}.records_out: {shown(operator)} has no edge to {shown(name)}{hint}")


Result = TypeVar("Result")


def once(compute: Callable[[Snapshot], Result]) -> Callable[[Snapshot], Result]:
    """What follows from a snapshot alone is computed once for each, however many ask."""

    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def remembered(snapshot: Snapshot) -> Result:
        known = snapshot.__dict__.setdefault("_computed", {})  # as `cached_property` does: not a part of its value
        if name not in known:
            known[name] = compute(snapshot)
        return known[name]  # type: ignore[no-any-return]

    return remembered
