"""Scenario files: a pipeline, its load and the engine it runs on, in a YAML file that people write.

    name: word count
    duration: 30 min                     # numbers are seconds; also "500 ms", "90 s", "30 min", "2 h", "1 d"
    engine: {downtime: 30 s, downtime_of: job, noise: 0.03, seed: 7}
    operators:
      sentences: {source: true, load: {steps: [[0, 1000], [10 min, 2000]]}}
      words: {reads: sentences, capacity: {per_instance: 100, exponent: 0.9}, selectivity: 20, parallelism: 10}
      counts: {reads: words, capacity: 5000, max_parallelism: 64}
    manager: {interval: 60 s}
    policies: {ds2: {target_utilization: 0.8}}

All rates are in records per second. What is under `manager` and `policies` is passed on as it is: those who
know the options check them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from elastream.arrivals.load_format import LoadEntry
from elastream.checked import NOT_NEGATIVE, POSITIVE
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.durations import seconds
from elastream.durations import text as duration_text
from elastream.engines.simulated.capacity import Amdahl, Capacity, PowerLaw, Usl
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.errors import InvalidInput, shown
from elastream.formats import Duration, Strict, is_number, parse, read_text, read_yaml
from elastream.nodes.files import NodesEntry

_MOST_STEPS = 100_000_000  # years of a pipeline in steps of a second, and hours of simulating them


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    duration_s: float
    model: EngineModel
    manager: Mapping[str, Any]
    """The manager's options, as they were written."""
    policies: Mapping[str, Mapping[str, Any]]
    """The options of each policy that the scenario has some for, as they were written."""
    cost_per_instance_hour: float


def _number_as(key: str, value: Any) -> Any:
    """A bare number is short for the mapping with only this key."""
    return {key: value} if is_number(value) else value


def _duration_range(value: Any) -> tuple[float, float]:
    if isinstance(value, list):
        if len(value) != 2:
            raise ValueError(f"a duration, or the least and the most [20 s, 40 s], found {shown(value)}")
        return seconds(value[0]), seconds(value[1])
    return seconds(value), seconds(value)


def _selectivity(value: Any) -> Any:
    ratios = value.values() if isinstance(value, dict) else [value]
    if not all(map(is_number, ratios)):
        raise ValueError(
            f"a number, or a mapping with a number for each downstream operator, found {shown(value)}"
        )
    return value


Selectivity = Annotated[Any, BeforeValidator(_selectivity)]


class EngineEntry(Strict):
    step: Duration = 1.0
    downtime: Annotated[tuple[float, float], BeforeValidator(_duration_range)] = (0.0, 0.0)
    downtime_of: Literal["job", "operator"] = "job"
    noise: float = 0.0
    seed: int = 0
    shared_workers: bool = False


class CapacityEntry(Strict):
    """A power law; Amdahl's law with `serial_share`; the universal scalability law with `contention`."""

    per_instance: float
    exponent: float | None = None
    delay_cost: float | None = None
    delay: Duration | None = None
    serial_share: float | None = None
    contention: float | None = None
    coherence: float | None = None

    @model_validator(mode="after")
    def _one_law(self) -> CapacityEntry:
        laws = [{"exponent", "delay_cost", "delay"}, {"serial_share"}, {"contention", "coherence"}]
        given = self.model_fields_set - {"per_instance"}
        if not any(given <= law for law in laws):
            raise ValueError(f"{' and '.join(sorted(given))} belong to different laws and do not go together")
        return self

    def capacity(self) -> Capacity:
        alone = self.per_instance
        if self.serial_share is not None:
            return Amdahl(per_instance_per_s=alone, serial_share=self.serial_share)
        if self.contention is not None or self.coherence is not None:
            contention, coherence = self.contention or 0.0, self.coherence or 0.0
            return Usl(per_instance_per_s=alone, contention=contention, coherence=coherence)
        return PowerLaw(
            per_instance_per_s=alone,
            exponent=1.0 if self.exponent is None else self.exponent,
            delay_cost=self.delay_cost or 0.0,
            delay_s=self.delay or 0.0,
        )


class SourceEntry(Strict):
    source: Literal[True]
    load: Annotated[LoadEntry, BeforeValidator(lambda value: _number_as("constant", value))]
    max_rate: float = math.inf
    replay_speed: float = math.inf
    selectivity: Selectivity = 1.0

    def operator(self, name: str) -> Operator:
        return Operator(name=name, source=True)

    def model(self, folder: Path) -> SourceModel:
        return SourceModel(
            load=self.load.load(folder),
            max_rate_per_s=self.max_rate,
            replay_speed=self.replay_speed,
            selectivity=self.selectivity,
        )


class OperatorEntry(Strict):
    source: Literal[False] = False
    reads: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
    capacity: Annotated[CapacityEntry, BeforeValidator(lambda value: _number_as("per_instance", value))]
    selectivity: Selectivity = 1.0
    parallelism: int | None = Field(default=None, description="at the start; the least, where not given")
    nodes: list[str] | None = Field(default=None, description="at the start, one for each instance")
    min_parallelism: int = 1
    max_parallelism: int | None = None
    fixed: bool = False
    state_partitions: int | None = None
    queue: float = Field(default=math.inf, description="records that wait at most on each input")
    hot_share: float | None = None
    slow_instance: float = 1.0
    not_parallel: bool = False
    window: Duration | None = None
    slide: Duration | None = Field(default=None, description="from one window to the next, where they slide")
    phase: Duration = Field(default=0.0, description="when a window fires first, where not after its length")
    fire_cost: Duration = Field(default=0.0, description="for each record of a window, when it fires")

    def operator(self, name: str) -> Operator:
        shared = {"min_parallelism", "max_parallelism", "fixed", "state_partitions"}
        return Operator(name=name, **self.model_dump(include=shared))

    def model(self) -> OperatorModel:
        shared = {"selectivity", "hot_share", "slow_instance", "not_parallel"}
        return OperatorModel(
            capacity=self.capacity.capacity(),
            window_s=self.window,
            slide_s=self.slide,
            phase_s=self.phase,
            fire_cost_s_per_record=self.fire_cost,
            queue_records=self.queue,
            **self.model_dump(include=shared),
        )


class ScenarioEntry(Strict):
    name: str
    duration: Duration
    engine: EngineEntry = EngineEntry()
    operators: dict[str, dict[str, Any]]
    nodes: NodesEntry | None = None
    manager: dict[str, Any] = Field(default_factory=dict)
    policies: dict[str, dict[str, Any] | None] = Field(default_factory=dict)
    cost_per_instance_hour: float = 1.0


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file; every error names the file and the place in it."""
    return scenario_from(read_yaml(read_text(path), str(path)), place=str(path), folder=path.parent)


def scenario_from(data: Any, *, place: str, folder: Path) -> Scenario:
    """A scenario from what its file says; traces are looked for in the folder."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: a scenario is a mapping with a name, found {type(data).__name__}")
    entry = parse(ScenarioEntry, data, place)
    with _errors_at(place):
        POSITIVE.check("duration", entry.duration)
        if entry.duration > _MOST_STEPS * entry.engine.step:
            most = duration_text(_MOST_STEPS * entry.engine.step)
            found = duration_text(entry.duration)
            raise InvalidInput(f"duration: at most {most} was expected with this engine.step, found {found}")
        NOT_NEGATIVE.check("cost_per_instance_hour", entry.cost_per_instance_hour)
    return Scenario(
        name=entry.name,
        duration_s=entry.duration,
        model=_engine_model(entry, place, folder),
        manager=entry.manager,
        policies={name: options or {} for name, options in entry.policies.items()},
        cost_per_instance_hour=entry.cost_per_instance_hour,
    )


def _engine_model(entry: ScenarioEntry, place: str, folder: Path) -> EngineModel:
    parsed = {name: _operator_entry(data, f"{place}: operators.{name}") for name, data in entry.operators.items()}
    sources: dict[str, SourceModel] = {}
    operators: dict[str, OperatorModel] = {}
    for name, part in parsed.items():
        with _errors_at(f"{place}: operators.{name}"):
            if isinstance(part, SourceEntry):
                sources[name] = part.model(folder)
            else:
                operators[name] = part.model()
    with _errors_at(f"{place}: nodes"):
        pool = None if entry.nodes is None else entry.nodes.pool()
    with _errors_at(place):
        return EngineModel(
            dataflow=_dataflow(parsed),
            operators=operators,
            sources=sources,
            initial_plan=_plan(parsed),
            step_s=entry.engine.step,
            noise=entry.engine.noise,
            seed=entry.engine.seed,
            downtime_s=entry.engine.downtime,
            downtime_scope=DowntimeScope(entry.engine.downtime_of),
            shared_workers=entry.engine.shared_workers,
            nodes=pool,
            initial_nodes={
                name: tuple(part.nodes)
                for name, part in parsed.items()
                if isinstance(part, OperatorEntry) and part.nodes is not None
            },
        )


def _operator_entry(data: dict[str, Any], place: str) -> SourceEntry | OperatorEntry:
    return parse(SourceEntry, data, place) if data.get("source") else parse(OperatorEntry, data, place)


def _dataflow(parsed: Mapping[str, SourceEntry | OperatorEntry]) -> Dataflow:
    edges = [
        (producer, name)
        for name, part in parsed.items()
        if isinstance(part, OperatorEntry)
        for producer in part.reads
    ]
    return Dataflow.of((part.operator(name) for name, part in parsed.items()), edges)


def _plan(parsed: Mapping[str, SourceEntry | OperatorEntry]) -> Plan:
    return Plan(
        {
            name: part.min_parallelism if part.parallelism is None else part.parallelism
            for name, part in parsed.items()
            if isinstance(part, OperatorEntry)
        }
    )


@contextmanager
def _errors_at(place: str) -> Iterator[None]:
    """Put the place before what the parts of the model find wrong with their values."""
    try:
        yield
    except InvalidInput as error:
        raise error.at(place) from None
