"""The snapshot format: how a `Snapshot` is written down as JSON, so that recordings can be exchanged.

Everything has a default but the names, the edges, `source_rates`, and of a reading its operator, `window_s`,
`useful_s`, `records_in` and `records_out`. docs/snapshot-format.md is its reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.dataflow.render import as_json as dataflow_as_json
from elastream.errors import InvalidInput
from elastream.formats import Strict, parse, read_json, read_text, shown
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.reading import Reading
from elastream.measurement.snapshot import Snapshot
from elastream.nodes import Node, NodePool


class SnapshotOperatorEntry(Strict):
    name: str
    source: bool = False
    parallelism: int | None = Field(default=None, description="as many as there are readings, where not given")
    min_parallelism: int = 1
    max_parallelism: int | None = None
    fixed: bool = False
    state_partitions: int | None = None
    movable_state: bool = False

    def operator(self) -> Operator:
        return Operator(**self.model_dump(exclude={"parallelism"}))


def _edge(value: Any) -> Any:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)):
        raise ValueError(f'an edge is ["from", "to"], found {shown(value)}')
    return tuple(value)


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("not a number")
    return float(value)


def _records_out(value: Any) -> Any:
    try:
        if isinstance(value, dict):
            return {consumer: _number(count) for consumer, count in value.items()}
        return _number(value)
    except (TypeError, OverflowError):
        expected = "a number, or an object with a number for each downstream operator"
        raise ValueError(f"{expected}, found {shown(value)}") from None


class ReadingEntry(Strict):
    operator: str
    instance: int | None = Field(default=None, description="the next free number, where not given")
    window_s: float
    useful_s: float
    records_in: float
    records_out: Annotated[Any, BeforeValidator(_records_out)]
    records_late: float | None = None
    backlog: float | None = None
    overdue: float | None = None
    wait_in_s: float | None = None
    wait_out_s: float | None = None
    wait_core_s: float | None = None
    latency_s: float | None = None
    cpu_utilization: float | None = None
    memory_utilization: float | None = None
    heap_utilization: float | None = None
    state_size: float | None = None
    metrics: dict[str, float] | None = None


class BatchCostEntry(Strict):
    """For operators that work in micro-batches; see `batch_cost.py`."""

    per_record_s: float
    per_task_s: float = 0.0
    per_state_partition_s: float = 0.0
    state_partitions: int = 0
    driver_s: float = 0.0
    balance: float = 1.0
    longest_batch_s: float


class NodeEntry(Strict):
    name: str
    cost: float = 1.0
    slots: int = 1
    available: bool = True


class NodePoolEntry(Strict):
    nodes: list[NodeEntry]
    delays_s: list[list[float]]

    def pool(self) -> NodePool:
        return NodePool(
            nodes=tuple(Node(**node.model_dump()) for node in self.nodes),
            delays_s=tuple(tuple(row) for row in self.delays_s),
        )


class ExecutorEntry(Strict):
    id: str
    host: str
    node: str | None = None
    cores: int
    active_tasks: int
    busy_cores: float | None = None
    memory_used_bytes: float | None = None
    memory_bytes: float | None = None
    peak_heap_bytes: float | None = None
    leaving: bool = False


class SnapshotEntry(Strict):
    operators: list[SnapshotOperatorEntry]
    edges: list[Annotated[tuple[str, str], BeforeValidator(_edge)]]
    source_rates: dict[str, float]
    readings: list[ReadingEntry]
    at_s: float = 0.0
    gaps: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    batch_costs: dict[str, BatchCostEntry] = Field(default_factory=dict)
    nodes: NodePoolEntry | None = None
    placement: dict[str, list[str]] = Field(default_factory=dict)
    executors: list[ExecutorEntry] = Field(default_factory=list)


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file; every error names the file and the place in it."""
    return snapshot_from_json(read_json(read_text(path), str(path)), place=str(path))


def snapshot_from_json(data: Any, *, place: str) -> Snapshot:
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: a snapshot is a JSON object, found {type(data).__name__}")
    entry = parse(SnapshotEntry, data, place)
    try:
        return Snapshot(
            dataflow=Dataflow.of(_operators(entry.operators), entry.edges),
            plan=_plan(entry),
            source_rates=entry.source_rates,
            readings=_readings(entry.readings),
            at_s=entry.at_s,
            gaps=tuple(entry.gaps),
            notes=tuple(entry.notes),
            batch_costs={name: BatchCost(**cost.model_dump()) for name, cost in entry.batch_costs.items()},
            nodes=None if entry.nodes is None else entry.nodes.pool(),
            placement={name: tuple(nodes) for name, nodes in entry.placement.items()},
            executors=tuple(ExecutorReading(**executor.model_dump()) for executor in entry.executors),
        )
    except InvalidInput as error:
        raise error.at(place) from None


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The inverse of `snapshot_from_json`; what was not measured is left out."""
    costs = {name: asdict(cost) for name, cost in snapshot.batch_costs.items()}
    return {
        **dataflow_as_json(snapshot.dataflow, snapshot.plan),
        "source_rates": dict(snapshot.source_rates),
        "readings": [_reading_json(reading) for reading in snapshot.readings],
        "at_s": snapshot.at_s,
        **({"gaps": list(snapshot.gaps)} if snapshot.gaps else {}),
        **({"notes": list(snapshot.notes)} if snapshot.notes else {}),
        **({"batch_costs": costs} if costs else {}),
        **({"nodes": _nodes_json(snapshot.nodes)} if snapshot.nodes is not None else {}),
        **({"placement": {n: list(on) for n, on in snapshot.placement.items()}} if snapshot.placement else {}),
        **({"executors": [_measured(asdict(one)) for one in snapshot.executors]} if snapshot.executors else {}),
    }


def _nodes_json(pool: NodePool) -> dict[str, Any]:
    return {
        "nodes": [asdict(node) for node in pool.nodes],
        "delays_s": [list(row) for row in pool.delays_s],
    }


def _operators(entries: list[SnapshotOperatorEntry]) -> list[Operator]:
    operators = []
    for index, entry in enumerate(entries):
        try:
            operators.append(entry.operator())
        except InvalidInput as error:
            raise error.at(f"operators[{index}]") from None
    return operators


def _plan(entry: SnapshotEntry) -> Plan:
    """Without the sources, which are not scaled, however many instances they are said to have."""
    reported = Counter(reading.operator for reading in entry.readings)
    return Plan(
        {
            operator.name: max(1, reported[operator.name])
            if operator.parallelism is None
            else operator.parallelism
            for operator in entry.operators
            if not operator.source
        }
    )


def _readings(entries: list[ReadingEntry]) -> tuple[Reading, ...]:
    taken: dict[str, set[int]] = {}
    for entry in entries:
        if entry.instance is not None:
            taken.setdefault(entry.operator, set()).add(entry.instance)
    readings = []
    following: Counter[str] = Counter()
    for index, entry in enumerate(entries):
        fields = {name: getattr(entry, name) for name in ReadingEntry.model_fields}
        if entry.instance is None:
            while following[entry.operator] in taken.get(entry.operator, ()):
                following[entry.operator] += 1
            fields["instance"] = following[entry.operator]
            following[entry.operator] += 1
        try:
            readings.append(Reading(**fields))
        except InvalidInput as error:
            raise error.at(f"readings[{index}]") from None
    return tuple(readings)


def _reading_json(reading: Reading) -> dict[str, Any]:
    fields = {name: getattr(reading, name) for name in ReadingEntry.model_fields}
    return _measured(
        {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
    )


def _measured(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
