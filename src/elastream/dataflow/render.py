"""A dataflow as text, as JSON and as a Mermaid diagram, with the parallelism of a plan where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastream.dataflow.graph import Dataflow, Operator

_DEFAULTS = Operator(name="default")
_MERMAID_ESCAPES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;"})
_OPTIONAL = ("source", "min_parallelism", "max_parallelism", "fixed", "state_partitions", "movable_state")


def as_text(dataflow: Dataflow, plan: Mapping[str, int] | None = None) -> str:
    """One line an operator, in topological order, with what it reads and its bounds."""
    lines = []
    for name in dataflow.order:
        reads = ", ".join(dataflow.upstream(name))
        notes = _notes(dataflow[name])
        lines.append(
            f"{name}{_times(name, plan)}"
            + (f"  ← {reads}" if reads else "")
            + (f"  [{', '.join(notes)}]" if notes else "")
        )
    return "\n".join(lines)


def as_json(dataflow: Dataflow, plan: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The `operators` and `edges` of the snapshot format; what is at its default is left out."""
    return {
        "operators": [_operator_json(operator, plan) for operator in dataflow.operators],
        "edges": [[channel.producer, channel.consumer] for channel in dataflow.channels],
    }


def as_mermaid(dataflow: Dataflow, plan: Mapping[str, int] | None = None) -> str:
    """A flowchart for Markdown pages; sources are rounded, fixed operators have a double border."""
    ids = {name: f"n{index}" for index, name in enumerate(dataflow.order)}
    lines = ["flowchart LR"]
    for name in dataflow.order:
        one_line = " ".join(name.split())
        label = f'"{one_line.translate(_MERMAID_ESCAPES)}{_times(name, plan)}"'
        operator = dataflow[name]
        shape = f"([{label}])" if operator.source else f"[[{label}]]" if operator.fixed else f"[{label}]"
        lines.append(f"    {ids[name]}{shape}")
    lines.extend(f"    {ids[channel.producer]} --> {ids[channel.consumer]}" for channel in dataflow.channels)
    return "\n".join(lines)


def _times(name: str, plan: Mapping[str, int] | None) -> str:
    return f" ×{plan[name]}" if plan is not None and name in plan else ""


def _notes(operator: Operator) -> list[str]:
    notes = []
    if operator.source:
        notes.append("source")
    if operator.fixed:
        notes.append("fixed")
    if operator.min_parallelism > 1 or operator.max_parallelism is not None:
        notes.append(f"{operator.min_parallelism} to {operator.max_parallelism or 'any'}")
    if operator.state_partitions is not None:
        notes.append(
            f"{operator.state_partitions} state partitions{', or more' if operator.movable_state else ''}"
        )
    return notes


def _operator_json(operator: Operator, plan: Mapping[str, int] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": operator.name}
    if plan is not None and operator.name in plan:
        found["parallelism"] = plan[operator.name]
    for key in _OPTIONAL:
        if getattr(operator, key) != getattr(_DEFAULTS, key):
            found[key] = getattr(operator, key)
    return found
