"""How a pipeline is written: functions from DataFrame to DataFrame, declared with the names of what they read.

    pipeline = Pipeline("wordcount")

    @pipeline.source
    def sentences(spark): return spark.readStream.format("rate").load()

    @pipeline.operator(reads="sentences", max_parallelism=16)
    def words(sentences): return sentences.select(F.explode(F.split("line", " ")).alias("word"))

    @pipeline.operator(reads="words", state_partitions=12, output_mode="update")
    def counts(words): return words.groupBy("word").count()

Nothing runs until an engine takes it: the graph is known before, and can be drawn.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, overload

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.durations import seconds
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.session_conf import checked_conf, packages_of
from elastream.errors import InvalidInput


class Kind(StrEnum):
    SOURCE = "source"
    """An external stream, copied into a channel."""
    FEED = "feed"
    """A channel that another process writes to."""
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True, kw_only=True)
class PipelineStep:
    """One declared part of a pipeline."""

    name: str
    kind: Kind
    function: Callable[..., Any] | None = None
    """From DataFrames (of a source, from the session) to a DataFrame; of a sink, what a batch is given to."""
    reads: tuple[str, ...] = ()
    schema: str | None = None
    """Of a feed."""
    folder: Path | None = None
    """Where a sink keeps its records, each once, if it has no function."""
    parallelism: int = 1
    min_parallelism: int = 1
    max_parallelism: int | None = None
    fixed: bool = False
    state_partitions: int | None = None
    output_mode: str = "append"
    trigger_s: float | None = None
    """How often it takes a batch, where that is not as in the rest of the run."""

    def operator(self) -> Operator:
        return Operator(
            name=self.name,
            source=self.kind in (Kind.SOURCE, Kind.FEED),
            min_parallelism=self.min_parallelism,
            max_parallelism=self.max_parallelism,
            fixed=self.fixed,
            state_partitions=self.state_partitions,
            movable_state=self._movable_state,
        )

    @property
    def _movable_state(self) -> bool:
        """Whether it may have more instances than its state has partitions in the beginning."""
        if self.state_partitions is None or self.max_parallelism is None:
            return False
        return self.max_parallelism > self.state_partitions


UNIQUE_ID = "unique_id"
"""The parameter by which the function of a sink asks for it."""


def takes_unique_id(step: PipelineStep) -> bool:
    """Whether the function of a sink wants to be told what no other batch of any run has."""
    if step.kind is not Kind.SINK or step.function is None:
        return False
    try:
        return UNIQUE_ID in inspect.signature(step.function).parameters
    except (TypeError, ValueError):  # of something that is not written in Python
        return False


Function = TypeVar("Function", bound=Callable[..., Any])
_OUTPUT_MODES = ("append", "update")


class Pipeline:
    """Functions over streaming DataFrames and what each of them reads; the name is also that of its folder.

    `conf` are settings of Spark that its session begins with, `packages` what Spark fetches from Maven for it,
    such as a connector, as GROUP:ARTIFACT:VERSION. On the command line `--conf` counts before the one, and
    `--packages` adds to the other. `latency` is what is to be kept from end to end, "10 s" or a number of seconds;
    `--latency` counts before it.
    """

    def __init__(
        self,
        name: str,
        *,
        conf: Mapping[str, str | float | bool] | None = None,
        packages: Iterable[str] = (),
        latency: str | float | None = None,
    ) -> None:
        if not name or "/" in name:
            raise InvalidInput(f"a pipeline has a name without '/', found {name!r}")
        self.name = name
        try:
            self.conf = checked_conf(conf or {})
            self.packages = packages_of([packages] if isinstance(packages, str) else list(packages))
        except InvalidInput as error:
            raise error.at(f"pipeline {name!r}") from None
        self.latency_s = None if latency is None else _positive_s(f"pipeline {name!r}: latency", latency)
        self._steps: dict[str, PipelineStep] = {}

    @property
    def steps(self) -> tuple[PipelineStep, ...]:
        return tuple(self._steps.values())

    @overload
    def source(self, function: Function) -> Function: ...
    @overload
    def source(self, *, trigger: str | float | None = None) -> Callable[[Function], Function]: ...
    def source(self, function: Any = None, *, trigger: str | float | None = None) -> Any:
        """An external stream: a function from the session to a streaming DataFrame.

        `@pipeline.source`, or `@pipeline.source(trigger="10 s")` for how often it takes a batch.
        """

        def enter(function: Function) -> Function:
            name = _name(function)
            trigger_s = self._trigger_s(name, trigger)
            self._add(PipelineStep(name=name, kind=Kind.SOURCE, function=function, trigger_s=trigger_s))
            return function

        return enter if function is None else enter(function)

    def feed(self, name: str, *, schema: str) -> None:
        """A stream that another process writes, such as the load generator; the schema is Spark's DDL."""
        self._add(PipelineStep(name=name, kind=Kind.FEED, schema=schema))

    def operator(
        self,
        *,
        reads: str | Iterable[str],
        parallelism: int = 1,
        min_parallelism: int = 1,
        max_parallelism: int | None = None,
        fixed: bool = False,
        state_partitions: int | None = None,
        output_mode: str = "append",
        trigger: str | float | None = None,
    ) -> Callable[[Function], Function]:
        """A function from the DataFrames that it reads, in that order, to a DataFrame.

        An operator that keeps state (an aggregate, a join, deduplication) has `state_partitions`: the partitions
        that its state begins with, and so the most that its parallelism can be. With a `max_parallelism` above
        that it may have more instances: its state is then moved into more partitions, which takes seconds.

        `trigger` is how often it takes a batch, such as "10 s", where that is not as in the rest of the run
        (`--batch-interval`): the longer, the fewer and larger its batches, and the later its results.
        """
        if output_mode not in _OUTPUT_MODES:
            raise InvalidInput(f"output_mode is one of {', '.join(_OUTPUT_MODES)}, found {output_mode!r}")

        def enter(function: Function) -> Function:
            self._add(
                PipelineStep(
                    name=_name(function),
                    kind=Kind.OPERATOR,
                    function=function,
                    reads=_names(reads),
                    parallelism=parallelism,
                    min_parallelism=min_parallelism,
                    max_parallelism=max_parallelism,
                    fixed=fixed,
                    state_partitions=state_partitions,
                    output_mode=output_mode,
                    trigger_s=self._trigger_s(_name(function), trigger),
                )
            )
            return function

        return enter

    def sink(
        self, *, reads: str, parallelism: int = 1, trigger: str | float | None = None
    ) -> Callable[[Function], Function]:
        """A function that is given each batch: `function(dataframe, batch_id)`; every `trigger`, where it has one.

        After a crash the last batch is given to it again with the same id; it must not count twice. Batch ids
        begin at 0 in every folder of a run. A function with a parameter `unique_id` is also given a text that is
        the same when the batch is given again, and that no batch of another folder has, such as `5b0c1f9a7d21-12`.
        """

        def enter(function: Function) -> Function:
            self._add(
                PipelineStep(
                    name=_name(function),
                    kind=Kind.SINK,
                    function=function,
                    reads=_names(reads),
                    parallelism=parallelism,
                    trigger_s=self._trigger_s(_name(function), trigger),
                )
            )
            return function

        return enter

    def keep(
        self,
        name: str,
        *,
        reads: str,
        folder: Path,
        parallelism: int = 1,
        trigger: str | float | None = None,
    ) -> None:
        """A sink that keeps every record once, in Parquet files in a folder."""
        try:
            where = local_folder(Path(folder))
        except InvalidInput as error:
            raise error.at(f"pipeline {self.name!r}: {name!r}") from None
        self._add(
            PipelineStep(
                name=name,
                kind=Kind.SINK,
                reads=_names(reads),
                folder=where,
                parallelism=parallelism,
                trigger_s=self._trigger_s(name, trigger),
            )
        )

    def graph(self) -> Dataflow:
        """The dataflow, checked: unknown names, cycles and sinks with readers are refused."""
        for step in self.steps:
            for read in step.reads:
                if read in self._steps and self._steps[read].kind is Kind.SINK:
                    raise InvalidInput(f"{step.name!r} reads {read!r}, which is a sink: a sink has no readers")
        edges = [(read, step.name) for step in self.steps for read in step.reads]
        try:
            return Dataflow.of((step.operator() for step in self.steps), edges)
        except InvalidInput as error:
            raise error.at(f"pipeline {self.name!r}") from None

    def plan(self) -> Plan:
        """The parallelism to start with, within the bounds of each operator."""
        graph = self.graph()
        return Plan({name: _first_parallelism(graph[name], self._steps[name]) for name in graph.scalable})

    def starting_with(self, given: Mapping[str, int]) -> Plan:
        """The parallelism to start with, where `given` counts before what is declared; refused out of bounds."""
        graph, plan = self.graph(), self.plan().with_changes(given)
        for name, parallelism in given.items():
            check_bounds(graph[name], parallelism)
        return plan

    def run(self, **options: Any) -> None:
        """Run it and keep it at the right size, until the time is up, or until Ctrl-C: `elastream.run`, with its
        options, and seen while it runs: as a live table, below the cell of a notebook or in the terminal.

        `pipeline.run(duration="2 min", knobs={"interval": "10 s"})`
        """
        # what shows it stands on all that is below it, and so on this
        import_module("elastream.notebook").run_shown(self, **options)

    def readers(self, name: str) -> tuple[str, ...]:
        """Who reads what a step puts out."""
        return tuple(step.name for step in self.steps if name in step.reads)

    def __getitem__(self, name: str) -> PipelineStep:
        return self._steps[name]

    def _trigger_s(self, step: str, written: str | float | None) -> float | None:
        return None if written is None else _positive_s(f"pipeline {self.name!r}: {step!r}: trigger", written)

    def _add(self, step: PipelineStep) -> None:
        if step.name in self._steps:
            raise InvalidInput(f"pipeline {self.name!r}: two steps have the name {step.name!r}")
        if not step.name.isidentifier():
            raise InvalidInput(f"pipeline {self.name!r}: {step.name!r} is not a name like those of functions")
        self._steps[step.name] = step


def check_bounds(operator: Operator, parallelism: int) -> None:
    if operator.fixed:
        raise InvalidInput(f"plan: {operator.name!r} is fixed, its parallelism cannot be changed")
    if operator.clamp(parallelism) != parallelism:
        most = "any number of" if math.isinf(operator.most) else f"{operator.most:g}"
        bounds = f"{operator.min_parallelism} to {most}"
        raise InvalidInput(f"plan: {operator.name!r} may have {bounds} instances, found {parallelism}")


def _first_parallelism(operator: Operator, step: PipelineStep) -> int:
    """Not more than the partitions that the state begins with: moving it is for a load that asks for it."""
    wanted = step.parallelism if step.state_partitions is None else min(step.parallelism, step.state_partitions)
    return operator.clamp(wanted)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _names(reads: str | Iterable[str]) -> tuple[str, ...]:
    return (reads,) if isinstance(reads, str) else tuple(reads)


def _positive_s(place: str, written: str | float) -> float:
    try:
        found = seconds(written)
    except ValueError as error:
        raise InvalidInput(f"{place}: {error}") from None
    if not 0 < found < math.inf:
        raise InvalidInput(f"{place} must be above 0, found {written!r}")
    return found
