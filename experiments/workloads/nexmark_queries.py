"""The queries of Nexmark in `examples/nexmark`, as they are, but for where they keep their results and what a
record costs: for experiments, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep
from elastream.engines.spark.run import read_pipeline
from elastream.errors import InvalidInput, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER = Path(__file__).parents[2] / "examples" / "nexmark"
QUERIES = tuple(
    sorted((path.stem for path in _FOLDER.glob("q[0-9]*.py")), key=lambda name: int(name.removeprefix("q")))
)
RESULTS = "results"
NOT_EXPRESSED: Mapping[str, str] = {
    "q6": "a window of the last ten rows of each seller: Structured Streaming has windows of time only",
    "q10": "writes files by time and lists them when they are whole: a sink, not a query of records",
    "q15": "counts distinct persons: Structured Streaming has no distinct aggregates",
    "q16": "counts distinct persons, by channel: Structured Streaming has no distinct aggregates",
}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be otherwise than in the file."""

    cost: Mapping[str, Callable[[DataFrame], DataFrame]] = field(default_factory=dict)
    """What an operator does with each frame before its own work."""
    parallelism: Mapping[str, int] = field(default_factory=dict)
    """To begin with."""
    state_partitions: int | None = None
    """Of all that keep state."""


def path_of(query: str) -> Path:
    if query in NOT_EXPRESSED:
        raise InvalidInput(f"{query} of Nexmark is not among the examples: it {NOT_EXPRESSED[query]}")
    if query not in QUERIES:
        raise InvalidInput(f"Nexmark has no query {query!r}{nearest(query, QUERIES)}")
    return _FOLDER / f"{query}.py"


def query_pipeline(query: str, folder: Path, changes: Changes | None = None) -> Pipeline:
    """Declared anew from its file; its sink keeps what comes out in the folder."""
    written, changes = read_pipeline(path_of(query)).pipeline, changes or Changes()
    pipeline = Pipeline(written.name)
    for step in written.steps:
        match step.kind:
            case Kind.FEED:
                pipeline.feed(step.name, schema=step.schema or "")
            case Kind.OPERATOR:
                _declare(pipeline, step, changes)
            case _:
                pipeline.keep(step.name, reads=step.reads[0], folder=folder)
    return pipeline


def _declare(pipeline: Pipeline, step: PipelineStep, changes: Changes) -> None:
    partitions = step.state_partitions
    if partitions is not None and changes.state_partitions is not None:
        partitions = changes.state_partitions
    pipeline.operator(
        reads=step.reads,
        parallelism=changes.parallelism.get(step.name, step.parallelism),
        max_parallelism=step.max_parallelism,
        state_partitions=partitions,
        output_mode=step.output_mode,
    )(_costing(step, changes))


def _costing(step: PipelineStep, changes: Changes) -> Callable[..., Any]:
    function, cost = step.function, changes.cost.get(step.name)
    assert function is not None  # of an operator
    if cost is None:
        return function

    @wraps(function)
    def costing(*frames: DataFrame) -> Any:
        return function(*map(cost, frames))

    return costing
