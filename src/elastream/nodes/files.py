"""Nodes as people write them: in a scenario, and in the file of `elastream run --nodes`.

names: [paris, lyon, turin]
delays: [[0, 8 ms, 20 ms], [8 ms, 0, 14 ms], [20 ms, 14 ms, 0]]
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from elastream.errors import InvalidInput, nearest, shown
from elastream.formats import Duration, Strict, parse, read_text, read_yaml
from elastream.nodes.pool import Node, NodePool

RECORDS_PER_FETCH = 100
"""For workers on this machine, between which there is no delay but the one that is emulated."""


class NodesEntry(Strict):
    """A table of round trips in the order of the names; what is not said of a node is its default."""

    names: list[str]
    delays: list[list[Duration]]
    cost: dict[str, float] = Field(default_factory=dict)
    slots: dict[str, int] = Field(default_factory=dict)

    def pool(self) -> NodePool:
        self.check_names("cost", self.cost)
        self.check_names("slots", self.slots)
        nodes = (Node(name=n, cost=self.cost.get(n, 1.0), slots=self.slots.get(n, 1)) for n in self.names)
        return NodePool(nodes=tuple(nodes), delays_s=tuple(tuple(row) for row in self.delays))

    def check_names(self, key: str, found: Mapping[str, object]) -> None:
        for name in found:
            if name not in self.names:
                raise InvalidInput(f"{key}: unknown node {shown(name)}{nearest(name, self.names)}")


class WorkersEntry(NodesEntry):
    """Nodes on which workers of Spark are started and stopped."""

    hosts: dict[str, str] = Field(default_factory=dict)
    start: str | None = Field(default=None, description="a command that runs for as long as the worker does")
    records_per_fetch: int | None = None

    def workers(self) -> WorkerNodes:
        pool = self.pool()
        self.check_names("hosts", self.hosts)
        for name in self.names if self.hosts else ():
            if name not in self.hosts:
                raise InvalidInput(f"hosts: {name!r} has none; give every node one, or none of them")
        on_this_machine = not self.hosts and self.start is None
        emulated = RECORDS_PER_FETCH if on_this_machine else 0
        return WorkerNodes(
            pool=pool,
            hosts=self.hosts or {name: _loopback(place) for place, name in enumerate(self.names)},
            start=None if self.start is None else tuple(shlex.split(self.start)),
            records_per_fetch=emulated if self.records_per_fetch is None else self.records_per_fetch,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerNodes:
    """Where workers of Spark may run: of each node the host that tells its executors apart."""

    pool: NodePool
    hosts: Mapping[str, str]
    start: tuple[str, ...] | None = None
    """The command that starts a worker, with {node}, {host}, {master}, {cores} and {memory} to be filled in; where
    there is none it is started on this machine."""
    records_per_fetch: int = RECORDS_PER_FETCH
    """A task waits a round trip for so many records; 0 where delays are real and nothing is to be emulated."""

    def __post_init__(self) -> None:
        if not self.pool.nodes:
            raise InvalidInput("names: at least one node was expected, found none")
        host, count = Counter(self.hosts.values()).most_common(1)[0]
        if count > 1:
            raise InvalidInput(
                f"hosts: {count} nodes have the host {host!r}: it is what tells their executors apart"
            )
        if len({node.slots for node in self.pool.nodes}) > 1:
            raise InvalidInput("slots: on Spark all nodes have the same number, as all executors are alike")
        if self.records_per_fetch < 0:
            raise InvalidInput(f"records_per_fetch must be at least 0, found {self.records_per_fetch}")
        self._check_start()

    @property
    def slots(self) -> int:
        """Of each node."""
        return self.pool.nodes[0].slots

    def command(self, node: str, **values: object) -> tuple[str, ...] | None:
        if self.start is None:
            return None
        return tuple(word.format(node=node, host=self.hosts[node], **values) for word in self.start)

    def _check_start(self) -> None:
        try:
            self.command(self.pool.names[0], master="", cores=1, memory="1g")
        except (KeyError, IndexError, ValueError) as error:
            known = "{node}, {host}, {master}, {cores} and {memory}"
            raise InvalidInput(f"start: a command with {known} was expected, found {error} in it") from None


def read_worker_nodes(path: Path) -> WorkerNodes:
    """Read the file of --nodes; every error names the file and the place in it."""
    data = read_yaml(read_text(path), str(path))
    if not isinstance(data, dict):
        raise InvalidInput(f"{path}: a file of nodes is a mapping with names, found {type(data).__name__}")
    entry = parse(WorkersEntry, data, str(path))
    try:
        return entry.workers()
    except InvalidInput as error:
        raise error.at(str(path)) from None


def _loopback(place: int) -> str:
    """An address of this machine that no other node has: Linux answers on all of 127.0.0.0/8."""
    return f"127.0.{1 + place // 250}.{1 + place % 250}"
