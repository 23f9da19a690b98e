"""What the plan of a step reads, and what Spark's count of it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from elastream.engines.spark.channels import files_source, kafka_source
from elastream.engines.spark.logical_plan import nodes_of

_CHANNELS = (files_source.FORMAT, kafka_source.FORMAT)
# each of these takes every record of its input, whatever the data; a limit does not, nor need a join with a table
_TAKES_ALL = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "Join",
        "Project",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "Union",
        "Window",
    )
)
_PASSES_ALL_ON = frozenset(
    ("EventTimeWatermark", "Project", "StreamingRelation", "StreamingRelationV2", "SubqueryAlias")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanReads:
    streams: tuple[str | None, ...]
    """The channel of each place that reads a stream, from left to right, as in checkpoints; None for others."""
    takes_all: bool
    """Whether it surely reads every record that a batch has."""
    passes_all_on: bool
    """Whether it surely puts out a record for each that it reads, and reads them in one place."""

    @property
    def told(self) -> tuple[str | None, ...]:
        """As Spark's progress has them: a stream that is read in several places once."""
        return tuple(dict.fromkeys(self.streams))

    def in_one_place(self, channel: str) -> bool:
        return self.streams.count(channel) == 1


def plan_reads(frame: DataFrame) -> PlanReads:
    nodes = list(nodes_of(frame._jdf.queryExecution().analyzed()))
    streams = tuple(_channel(node) for node in nodes if _reads_a_stream(node))
    names = {str(node.nodeName()) for node in nodes}
    with_tables = any(not node.isStreaming() for node in nodes)
    return PlanReads(
        streams=streams,
        takes_all=names <= _TAKES_ALL and not with_tables,
        passes_all_on=names <= _PASSES_ALL_ON and len(streams) == 1,
    )


def _reads_a_stream(node: Any) -> bool:
    return bool(node.isStreaming()) and node.children().isEmpty()


def _channel(node: Any) -> str | None:
    """Its name: that of the folder that it lies in."""
    if node.nodeName() != "StreamingRelationV2" or node.sourceName() not in _CHANNELS:
        return None
    return str(node.extraOptions().get("path")).rstrip("/").rsplit("/", 1)[-1]
