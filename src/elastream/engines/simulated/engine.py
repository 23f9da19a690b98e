"""A streaming engine that is only a model: the port of `manager.engine` over simulated time.

The engine is its own clock. Time moves when someone waits for it, in steps of `step_s`, and while an action is
carried out. In a step the load brings records to the sources, and sources and operators pass on what their
capacity, their input and the room in the queues after them allow (`stages.py`). Backpressure is not a mechanism
of its own: an operator that cannot keep up leaves its queues full, those before it find no room, and in the end
the records stay in the sources, which are durable. Nothing is lost or repeated, by an action neither.

Everything random is drawn from the model's seed. Noise and downtimes have generators of their own, so that
policies which act and measure at different times still meet the same downtimes in the same order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastream.dataflow import Channel, Dataflow, Plan
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, InstanceSet
from elastream.engines.simulated.history import SimulatedHistory
from elastream.engines.simulated.readings import Noise, operator_readings, source_reading
from elastream.engines.simulated.stages import (
    OperatorStage,
    PacedSource,
    Queue,
    SourceStage,
    Stage,
    WindowedOperator,
    divide_workers,
)
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.measurement import Snapshot
from elastream.nodes.places import Chosen, NoNodeLeftError, Placement, Places, fed_from

_ROUNDING = 1e-9  # a share of a step that is not worth a step of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTotals:
    arrived: float
    emitted: float
    backlog: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelTotals:
    put: float
    taken: float
    queued: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorTotals:
    taken: float
    processed: float
    """Records whose results have been put out."""
    in_windows: float
    """Records that were taken and wait for their window to fire, or to be worked off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordTotals:
    """Where every record since the start of the simulation is now."""

    sources: Mapping[str, SourceTotals]
    channels: Mapping[Channel, ChannelTotals]
    operators: Mapping[str, OperatorTotals]


class SimulatedEngine:
    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._plan = model.initial_plan
        self._queues = _queues(model)
        self._sources = _sources(model, self._queues)
        self._operators = _operators(model, self._queues)
        self._stages: Sequence[Stage] = (*self._sources, *self._operators)
        self._instances: Mapping[str, InstanceSet] = {}
        self._nodes = model.nodes
        self._placement: Placement = dict(model.initial_nodes)
        self._noise = Noise(model.noise, random.Random(f"noise {model.seed}"))
        self._downtime_rng = random.Random(f"downtime {model.seed}")
        self._failure: str | None = None
        self._now_s = 0.0
        self._marked_s = 0.0
        self.history = SimulatedHistory(self._sources, self._queues)
        self._apply(model.initial_plan, self._chosen(model.initial_plan, {}).placement)
        self._mark()

    # The engine

    def graph(self) -> Dataflow:
        return self._model.dataflow

    def plan(self) -> Plan:
        return self._plan

    def measure(self) -> Snapshot:
        window_s = self._now_s - self._marked_s
        if window_s <= 0:
            raise ElastreamError(
                f"there is nothing to measure: no simulated time has passed since {self._marked_s:g} s; "
                "wait() before measuring again"
            )
        spans = {stage.name: stage.counters().since(self._marks[stage.name]) for stage in self._stages}
        readings = [source_reading(source, spans[source.name], window_s) for source in self._sources]
        for operator in self._operators:
            instances = self._instances[operator.name]
            readings += operator_readings(operator, spans[operator.name], window_s, instances, self._noise)
        snapshot = Snapshot(
            dataflow=self._model.dataflow,
            plan=self._plan,
            source_rates={source.name: spans[source.name].arrived / window_s for source in self._sources},
            newest_rates={
                source.name: source.mean_per_s(self._now_s - window_s / 3, self._now_s) for source in self._sources
            },
            readings=tuple(readings),
            at_s=self._now_s,
            nodes=self._nodes,
            placement=self._placement,
        )
        self._mark()
        return snapshot

    def rescale(self, decision: Decision) -> RescaleOutcome:
        after = self._plan.with_changes(decision.after)
        changed = {change.operator for change in self._plan.changes_to(after)}
        if not changed:
            return RescaleOutcome(
                plan=self._plan, succeeded=True, took_s=0.0, detail="this plan is already in force"
            )
        self._check(after, changed)
        if self._failure is not None:
            detail, self._failure = self._failure, None
            return RescaleOutcome(plan=self._plan, succeeded=False, took_s=0.0, detail=detail)
        try:
            chosen = self._chosen(after, decision.nodes)
        except NoNodeLeftError as error:
            return RescaleOutcome(plan=self._plan, succeeded=False, took_s=0.0, detail=str(error))
        took_s = self._downtime_rng.uniform(*self._model.downtime_range_s)
        self._stand_still(changed, took_s)
        self._apply(after, chosen.placement)
        self._mark()
        return RescaleOutcome(plan=after, succeeded=True, took_s=took_s, detail=chosen.told)

    # The clock

    def now(self) -> float:
        return self._now_s

    def steady(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        """Let so much simulated time pass, in whole steps and a shorter one for what remains."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InvalidInput(f"the time to wait must be a finite number of at least 0, found {seconds}")
        self._advance(seconds, self._stages)

    # For experiments and tests

    def fail_next_rescale(self, detail: str) -> None:
        """Let the next action that would change something fail, without effect."""
        self._failure = detail

    def set_node(self, name: str, *, available: bool) -> None:
        """Let a node go away, or come back. Instances that are on it stay: their end is not in this model."""
        if self._nodes is None:
            raise ElastreamError(f"{name!r}: this model has no nodes")
        self._nodes = self._nodes.with_node(name, available=available)

    def totals(self) -> RecordTotals:
        return RecordTotals(
            sources={
                s.name: SourceTotals(arrived=s.arrived, emitted=s.processed, backlog=s.backlog)
                for s in self._sources
            },
            channels={
                Channel(q.producer, q.consumer): ChannelTotals(put=q.put, taken=q.taken, queued=q.queued)
                for q in self._queues
            },
            operators={
                o.name: OperatorTotals(taken=o.taken, processed=o.processed, in_windows=o.in_windows())
                for o in self._operators
            },
        )

    def _advance(self, seconds: float, running: Sequence[Stage]) -> None:
        step_s, start_s = self._model.step_s, self._now_s
        whole = int(seconds / step_s + _ROUNDING)
        for index in range(whole):
            self._now_s = start_s + index * step_s  # a product does not drift as a sum would
            self._step(step_s, running)
        self._now_s = start_s + whole * step_s
        rest_s = seconds - whole * step_s
        if rest_s > _ROUNDING * step_s:
            self._step(rest_s, running)
            self._now_s += rest_s

    def _step(self, dt_s: float, running: Sequence[Stage]) -> None:
        now_s = self._now_s
        for source in self._sources:
            source.arrive(now_s, dt_s)
        if self._model.shared_workers:
            divide_workers(self._sources, self._operators, now_s, dt_s)
        for stage in running:
            stage.work(now_s, dt_s)
        self.history.sample(now_s + dt_s, dt_s)

    def _stand_still(self, changed: set[str], took_s: float) -> None:
        if self._model.downtime_scope is DowntimeScope.JOB:
            running: Sequence[Stage] = ()
        else:
            running = [stage for stage in self._stages if stage.name not in changed]
        start_s = self._now_s
        self._advance(took_s, running)
        self.history.downtimes_s.append((start_s, self._now_s))

    def _check(self, plan: Plan, changed: set[str]) -> None:
        self._model.check_plan(plan)
        fixed = sorted(name for name in changed if self._model.dataflow[name].fixed)
        if fixed:
            raise InvalidInput(f"plan: {fixed[0]!r} is fixed, its parallelism cannot be changed")

    def _chosen(self, plan: Plan, wanted: Placement) -> Chosen:
        if self._nodes is None:
            return Chosen(placement={})
        return Places(pool=self._nodes, placement=self._placement, graph=self._model.dataflow).for_plan(
            plan, wanted
        )

    def _apply(self, plan: Plan, placement: Placement) -> None:
        self._plan = plan
        self._placement = placement
        self._instances = {
            name: self._model.instances(
                name, n, nodes=placement.get(name), fed_from=fed_from(self._model.dataflow, placement, name)
            )
            for name, n in plan.items()
        }
        for operator in self._operators:
            operator.full_rate_per_s = operator.rate_per_s = self._instances[operator.name].effective_per_s
            bound = self._model.operators[operator.name].queue_records
            for queue in operator.inputs:
                # a queue that is shorter than a step would throttle the operator
                queue.bound = max(bound, operator.full_rate_per_s * self._model.step_s)
        self.history.plans.append((self._now_s, plan))

    def _mark(self) -> None:
        """From here on the next measurement counts."""
        self._marked_s = self._now_s
        self._marks = {stage.name: stage.counters() for stage in self._stages}


def _queues(model: EngineModel) -> tuple[Queue, ...]:
    return tuple(
        Queue(producer=c.producer, consumer=c.consumer, ratio=model.selectivity(c.producer, c.consumer))
        for c in model.dataflow.channels
    )


def _sources(model: EngineModel, queues: Sequence[Queue]) -> tuple[SourceStage, ...]:
    sources: list[SourceStage] = []
    for name in model.dataflow.sources:
        part = model.sources[name]
        shared: Any = {
            "name": name,
            "outputs": [queue for queue in queues if queue.producer == name],
            "rate_at": part.load.rate_at,
            "max_rate_per_s": part.max_rate_per_s,
        }
        paced = math.isfinite(part.replay_speed)
        sources.append(PacedSource(**shared, replay_speed=part.replay_speed) if paced else SourceStage(**shared))
    return tuple(sources)


def _operators(model: EngineModel, queues: Sequence[Queue]) -> tuple[OperatorStage, ...]:
    """In topological order."""
    operators: list[OperatorStage] = []
    for name in model.dataflow.scalable:
        part = model.operators[name]
        shared: Any = {
            "name": name,
            "inputs": [queue for queue in queues if queue.consumer == name],
            "outputs": [queue for queue in queues if queue.producer == name],
        }
        if part.window_s is None:
            operators.append(OperatorStage(**shared))
        else:
            windowed = WindowedOperator(
                **shared,
                every_s=part.slide_s or part.window_s,
                windows=part.windows,
                phase_s=part.phase_s,
                fire_weight=part.fire_weight,
            )
            operators.append(windowed)
    return tuple(operators)
