"""Looking at a logical plan of Spark's, which lives in the JVM: the few questions that are asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "FlatMapGroups",
    "GlobalLimit",
    "Join",
    "TransformWithState",
)
WATERMARK_DELAY = "spark.watermarkDelayMs"
"""Spark's own mark of a column that has a watermark."""
_CHANNEL = "StreamingRelationV2"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribute:
    """A column of a plan: its id stays the same for as long as its values do."""

    id: int
    name: str
    watermark_delay_ms: int | None = None


def nodes_of(plan: Any) -> Iterator[Any]:
    """All nodes, those below before those above."""
    for child in _each(plan.children()):
        yield from nodes_of(child)
    yield plan


def output_of(plan: Any) -> list[Attribute]:
    return [
        Attribute(
            id=int(one.exprId().id()),
            name=str(one.name()),
            watermark_delay_ms=int(one.metadata().getLong(WATERMARK_DELAY))
            if one.metadata().contains(WATERMARK_DELAY)
            else None,
        )
        for one in _each(plan.output())
    ]


def origins_of(plan: Any, attribute: int) -> list[tuple[str, str]]:
    """The columns that a column of the plan has its values from, unchanged: the path that is read, and the name.

    Several below a union, whose columns are those of its children by their place.
    """
    ids = [one.id for one in output_of(plan)]
    if attribute not in ids:
        return []
    if plan.nodeName() == _CHANNEL:
        path = plan.extraOptions().get("path")
        return [] if path is None else [(str(path), output_of(plan)[ids.index(attribute)].name)]
    wanted = _before_renaming(plan, attribute)
    found: list[tuple[str, str]] = []
    for child in _each(plan.children()):
        of_child = output_of(child)[ids.index(attribute)].id if plan.nodeName() == "Union" else wanted
        found += origins_of(child, of_child)
    return found


def _before_renaming(plan: Any, attribute: int) -> int:
    """A column with another name is an alias with an id of its own."""
    for one in _each(plan.projectList()) if plan.nodeName() == "Project" else ():
        if int(one.exprId().id()) == attribute and one.getClass().getSimpleName() == "Alias":
            child = one.child()
            if child.getClass().getSimpleName() == "AttributeReference":
                return int(child.exprId().id())
    return attribute


def relations_of(plan: Any) -> Iterator[tuple[str, list[Attribute]]]:
    """What is read from folders as streams: the `path` of each, and its columns."""
    for node in nodes_of(plan):
        if node.nodeName() == _CHANNEL:
            path = node.extraOptions().get("path")
            if path is not None:
                yield str(path), output_of(node)


def stateful_nodes(plan: Any) -> list[str]:
    """The names of the nodes that keep state.

    An aggregate of a table keeps none, nor does a join of a stream with one.
    """
    found = []
    for node in nodes_of(plan):
        name, streaming = str(node.nodeName()), [child.isStreaming() for child in _each(node.children())]
        if name.startswith(_STATEFUL) and (all(streaming) if name == "Join" else any(streaming)):
            found.append(name)
    return found


def _each(sequence: Any) -> list[Any]:
    """Of a sequence of Scala's."""
    return [sequence.apply(index) for index in range(sequence.size())]
