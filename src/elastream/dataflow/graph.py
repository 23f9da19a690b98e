"""The logical dataflow: operators, the channels between them, and nothing that moves.

A `Dataflow` is checked once, when it is made; whoever holds one may rely on it having no cycle, no unknown
name and at least one source. Its parallelism is not part of it: that is a `Plan` (see `plan.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from elastream.dataflow.state_partitions import effective_instances, enough_for, least_useful, partitions_for
from elastream.errors import InvalidInput, nearest, shown
from elastream.texts import check_name

MOST_INSTANCES = 1_000_000_000
"""More than any cluster has; beyond it a number is a mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One step of the pipeline, and how many instances of it there may be."""

    name: str
    source: bool = False
    min_parallelism: int = 1
    max_parallelism: int | None = None
    fixed: bool = False
    """It cannot be parallel: its parallelism is never changed, and it limits the rest of the pipeline."""
    state_partitions: int | None = None
    """The keyed state is kept in this many partitions, which the instances share among themselves."""
    movable_state: bool = False
    """Its engine can spread the state over more partitions, so that they do not bound the parallelism."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInput("an operator has an empty name")
        check_name(self.name, "an operator's name")
        for field in ("min_parallelism", "max_parallelism", "state_partitions"):
            if (count := getattr(self, field)) is not None:
                check_count(self.name, field, count)
        if self.max_parallelism is not None and self.max_parallelism < self.min_parallelism:
            raise InvalidInput(
                f"operator {self.name!r}: max_parallelism ({self.max_parallelism}) is below "
                f"min_parallelism ({self.min_parallelism})"
            )

    @property
    def most(self) -> float:
        """The most instances that can share the work; infinite where nothing limits it."""
        by_state = None if self.movable_state else self.state_partitions
        limits = [limit for limit in (self.max_parallelism, by_state) if limit is not None]
        return least_useful(min(limits), self.partitions_with(min(limits))) if limits else math.inf

    def clamp(self, parallelism: int) -> int:
        """The nearest parallelism within this operator's bounds."""
        at_most = parallelism if math.isinf(self.most) else min(parallelism, int(self.most))
        return max(self.min_parallelism, at_most)

    def partitions_with(self, parallelism: int) -> int | None:
        """The partitions that the state has once there are so many instances."""
        if self.state_partitions is None or not self.movable_state:
            return self.state_partitions
        return partitions_for(parallelism, self.state_partitions, most=self.max_parallelism)

    def effective(self, parallelism: int) -> float:
        """How many evenly loaded instances do the same work as so many of this operator's."""
        return effective_instances(parallelism, self.partitions_with(parallelism))

    def enough_for(self, need: float) -> int:
        """The least parallelism that does the work of so many evenly loaded instances, as far as state allows."""
        wanted = max(1, math.ceil(need))
        if self.movable_state and self.state_partitions is not None and wanted > self.state_partitions:
            return wanted
        return enough_for(need, self.state_partitions)


@dataclass(frozen=True, slots=True, order=True)
class Channel:
    """A durable stream from one operator to another."""

    producer: str
    consumer: str


@dataclass(frozen=True)
class Dataflow:
    """A directed acyclic graph of operators; several sources and sinks, branches and diamonds are fine."""

    operators: tuple[Operator, ...]
    channels: tuple[Channel, ...] = ()

    def __post_init__(self) -> None:
        _check_names(self.operators)
        _check_channels(self.operators, self.channels)
        _ = self.order  # raises where there is a cycle

    @classmethod
    def of(cls, operators: Iterable[Operator], edges: Iterable[tuple[str, str]]) -> Dataflow:
        return cls(tuple(operators), tuple(Channel(a, b) for a, b in edges))

    @cached_property
    def _by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def _upstream(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {operator.name: [] for operator in self.operators}
        for channel in self.channels:
            found[channel.consumer].append(channel.producer)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def _downstream(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {operator.name: [] for operator in self.operators}
        for channel in self.channels:
            found[channel.producer].append(channel.consumer)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names of all operators, every one after those that it reads from."""
        try:
            return tuple(TopologicalSorter(self._upstream).static_order())
        except CycleError as error:
            cycle = " → ".join(error.args[1])
            raise InvalidInput(f"the edges form a cycle: {cycle}; a dataflow must be acyclic") from None

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators if operator.source)

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators if not self._downstream[operator.name])

    @cached_property
    def scalable(self) -> tuple[str, ...]:
        """Everything but the sources, in topological order: what a policy may speak about."""
        return tuple(name for name in self.order if not self._by_name[name].source)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Operator:
        try:
            return self._by_name[name]
        except KeyError:
            raise InvalidInput(f"unknown operator {shown(name)}{nearest(name, self._by_name)}") from None

    def upstream(self, name: str) -> tuple[str, ...]:
        return self._upstream[name]

    def downstream(self, name: str) -> tuple[str, ...]:
        return self._downstream[name]


def check_count(operator: str, field: str, count: int) -> None:
    """Refuse a number of instances, or of what they share, that cannot be one."""
    if count < 1:
        raise InvalidInput(f"operator {operator!r}: {field} must be at least 1, found {count}")
    if count > MOST_INSTANCES:
        raise InvalidInput(f"operator {operator!r}: {field} must be at most {MOST_INSTANCES:,}")


def _check_names(operators: tuple[Operator, ...]) -> None:
    if not operators:
        raise InvalidInput("a dataflow needs at least one operator, found none")
    twice = [name for name, count in Counter(operator.name for operator in operators).items() if count > 1]
    if twice:
        raise InvalidInput(f"two operators have the name {twice[0]!r}; names must be unique")
    if not any(operator.source for operator in operators):
        raise InvalidInput('no operator is a source; mark those that bring records in with "source": true')


def _check_channels(operators: tuple[Operator, ...], channels: tuple[Channel, ...]) -> None:
    by_name = {operator.name: operator for operator in operators}
    seen: set[Channel] = set()
    for channel in channels:
        edge = f"edge {channel.producer!r} → {channel.consumer!r}"
        for name in (channel.producer, channel.consumer):
            if name not in by_name:
                raise InvalidInput(f"{edge}: unknown operator {shown(name)}{nearest(name, by_name)}")
        if by_name[channel.consumer].source:
            raise InvalidInput(f"{edge}: {channel.consumer!r} is a source, and a source has no inputs")
        if channel in seen:
            raise InvalidInput(f"{edge} is given twice")
        seen.add(channel)
    fed = {channel.consumer for channel in channels}
    for operator in operators:
        if not operator.source and operator.name not in fed:
            raise InvalidInput(
                f'operator {operator.name!r} has no input: give it an edge, or mark it with "source": true'
            )
