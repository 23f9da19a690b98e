"""The snapshot format: how a `Snapshot` is written down as JSON, so that recordings can be exchanged.

Everything has a default but the names, the edges, `source_rates`, and of a reading its operator, `window_s`,
`useful_s`, `records_in` and `records_out`. docs/snapshot-format.md is its reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.dataflow.render import as_json as dataflow_as_json
from elastream.errors import InvalidInput, shown
from elastream.formats import Strict, entry_of, parse, read_json, read_text
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.late_reading import LateReading
from elastream.measurement.reading import Reading
from elastream.measurement.snapshot import Snapshot
from elastream.measurement.tasks import TaskSpread
from elastream.nodes import Node, NodePool


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


if TYPE_CHECKING:  # made of the dataclasses: a type checker has to believe that they have their fields
    OperatorEntry = Any
    ReadingEntry = Any
    BatchCostEntry = Any
    NodeEntry = Any
    ExecutorEntry = Any
else:
    OperatorEntry = entry_of(
        Operator,
        parallelism=(
            int | None,
            Field(default=None, description="as many as there are readings, where not given"),
        ),
    )
    ReadingEntry = entry_of(
        Reading,
        instance=(int | None, Field(default=None, description="the next free number, where not given")),
        records_out=(Annotated[Any, BeforeValidator(_records_out)], ...),
        tasks=(entry_of(TaskSpread, records=(list[float], ...), busy_s=(list[float], ...)) | None, None),
        metrics=(dict[str, float] | None, None),
    )
    BatchCostEntry = entry_of(  # who writes one by hand need not know of fixed costs
        BatchCost,
        per_task_s=(float, 0.0),
        per_state_partition_s=(float, 0.0),
        state_partitions=(int, 0),
        driver_s=(float, 0.0),
        balance=(float, 1.0),
    )
    NodeEntry = entry_of(Node)
    ExecutorEntry = entry_of(ExecutorReading)


class NodePoolEntry(Strict):
    nodes: list[NodeEntry]
    delays_s: list[list[float]]

    def pool(self) -> NodePool:
        return NodePool(
            nodes=tuple(Node(**node.model_dump()) for node in self.nodes),
            delays_s=tuple(tuple(row) for row in self.delays_s),
        )


class LateEntry(Strict):
    operator: str
    age_s: float = Field(ge=0)
    values: dict[str, dict[str, float]]

    def reading(self) -> LateReading:
        values = {metric: _by_instance(own) for metric, own in self.values.items()}
        return LateReading(operator=self.operator, age_s=self.age_s, values=values)


def _by_instance(values: Mapping[str, float]) -> dict[int, float]:
    try:
        return {int(instance): value for instance, value in values.items()}
    except ValueError:
        raise InvalidInput(f"late: an instance is a number, found {', '.join(values)}") from None


class SnapshotEntry(Strict):
    operators: list[OperatorEntry]
    edges: list[Annotated[tuple[str, str], BeforeValidator(_edge)]]
    source_rates: dict[str, float]
    newest_rates: dict[str, float] = Field(default_factory=dict)
    readings: list[ReadingEntry]
    at_s: float = 0.0
    gaps: list[str] = Field(default_factory=list)
    unknown: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)
    failing: dict[str, str] = Field(default_factory=dict)
    batch_costs: dict[str, BatchCostEntry] = Field(default_factory=dict)
    nodes: NodePoolEntry | None = None
    placement: dict[str, list[str]] = Field(default_factory=dict)
    executors: list[ExecutorEntry] = Field(default_factory=list)
    latency_target_s: float | None = None
    late: list[LateEntry] = Field(default_factory=list)


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
            newest_rates=entry.newest_rates,
            readings=_readings(entry.readings),
            at_s=entry.at_s,
            gaps=tuple(entry.gaps),
            unknown=entry.unknown,
            notes=tuple(entry.notes),
            failing=entry.failing,
            batch_costs={name: BatchCost(**cost.model_dump()) for name, cost in entry.batch_costs.items()},
            nodes=None if entry.nodes is None else entry.nodes.pool(),
            placement={name: tuple(nodes) for name, nodes in entry.placement.items()},
            executors=tuple(ExecutorReading(**executor.model_dump()) for executor in entry.executors),
            latency_target_s=entry.latency_target_s,
            late=tuple(late.reading() for late in entry.late),
        )
    except InvalidInput as error:
        raise error.at(place) from None


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The inverse of `snapshot_from_json`; what was not measured is left out."""
    costs = {name: asdict(cost) for name, cost in snapshot.batch_costs.items()}
    return {
        **dataflow_as_json(snapshot.dataflow, snapshot.plan),
        "source_rates": dict(snapshot.source_rates),
        **({"newest_rates": dict(snapshot.newest_rates)} if snapshot.newest_rates else {}),
        "readings": [_reading_json(reading) for reading in snapshot.readings],
        "at_s": snapshot.at_s,
        **({"gaps": list(snapshot.gaps)} if snapshot.gaps else {}),
        **({"unknown": dict(snapshot.unknown)} if snapshot.unknown else {}),
        **({"notes": list(snapshot.notes)} if snapshot.notes else {}),
        **({"failing": dict(snapshot.failing)} if snapshot.failing else {}),
        **({"batch_costs": costs} if costs else {}),
        **({"nodes": _nodes_json(snapshot.nodes)} if snapshot.nodes is not None else {}),
        **({"placement": {n: list(on) for n, on in snapshot.placement.items()}} if snapshot.placement else {}),
        **({"executors": [_measured(asdict(one)) for one in snapshot.executors]} if snapshot.executors else {}),
        **_measured({"latency_target_s": snapshot.latency_target_s}),
        **({"late": [_late_json(late) for late in snapshot.late]} if snapshot.late else {}),
    }


def _late_json(late: LateReading) -> dict[str, Any]:
    values = {metric: {str(number): value for number, value in own.items()} for metric, own in late.values.items()}
    return {"operator": late.operator, "age_s": late.age_s, "values": values}


def _nodes_json(pool: NodePool) -> dict[str, Any]:
    return {
        "nodes": [asdict(node) for node in pool.nodes],
        "delays_s": [list(row) for row in pool.delays_s],
    }


def _operators(entries: list[Any]) -> list[Operator]:
    operators = []
    for index, entry in enumerate(entries):
        try:
            operators.append(Operator(**entry.model_dump(exclude={"parallelism"})))
        except InvalidInput as error:
            raise error.at(f"operators[{index}]") from None
    return operators


def _plan(entry: SnapshotEntry) -> Plan:
    """Without the sources, which are not scaled, however many instances they are said to have."""
    reported: Counter[str] = Counter()
    for reading in entry.readings:
        reported[reading.operator] += max(1, reading.instances)
    return Plan(
        {
            operator.name: max(1, reported[operator.name])
            if operator.parallelism is None
            else operator.parallelism
            for operator in entry.operators
            if not operator.source
        }
    )


def _readings(entries: list[Any]) -> tuple[Reading, ...]:
    taken: dict[str, list[range]] = {}
    for entry in entries:
        if entry.instance is not None:
            taken.setdefault(entry.operator, []).append(range(entry.instance, entry.instance + entry.instances))
    readings = []
    following: Counter[str] = Counter()
    for index, entry in enumerate(entries):
        instance = entry.instance
        if instance is None:
            instance = _next_free(following[entry.operator], taken.get(entry.operator, []))
            following[entry.operator] = instance + entry.instances
        try:
            readings.append(_reading(entry, instance))
        except InvalidInput as error:
            raise error.at(f"readings[{index}]") from None
    return tuple(readings)


def _next_free(instance: int, taken: list[range]) -> int:
    for numbers in sorted(taken, key=lambda numbers: numbers.start):
        if instance in numbers:
            instance = numbers.stop
    return instance


def _reading(entry: Any, instance: int) -> Reading:
    found = {name: getattr(entry, name) for name in ReadingEntry.model_fields}
    if (tasks := found["tasks"]) is not None:
        lists = {"records": tuple(tasks.records), "busy_s": tuple(tasks.busy_s)}
        found["tasks"] = TaskSpread(**(tasks.model_dump() | lists))
    return Reading(**(found | {"instance": instance}))


def _reading_json(reading: Reading) -> dict[str, Any]:
    """`instances` only where it is of several, as most are not."""
    found = _measured({name: getattr(reading, name) for name in ReadingEntry.model_fields})
    if reading.instances == 1:
        del found["instances"]
    if reading.tasks is not None:
        found["tasks"] = asdict(reading.tasks)
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items()}


def _measured(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
