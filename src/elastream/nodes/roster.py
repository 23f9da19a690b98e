"""Which nodes have a worker, and which workers have to be started or stopped: values in, values out.

A node that went away, or on which no worker would start, is left alone for a while; then it is taken to have
returned, and is tried again when one is needed. A node that gives its work back is not free until it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastream.nodes.places import Placement
from elastream.nodes.pool import NodePool

AWAY_S = 60.0
"""How long a node that went away is left alone."""


@dataclass(frozen=True, kw_only=True)
class Roster:
    pool: NodePool
    """As it was given: all nodes are there."""
    up: frozenset[str] = frozenset()
    """With a worker that takes work."""
    leaving: frozenset[str] = frozenset()
    """With a worker that finishes what it has."""
    away_until_s: Mapping[str, float] = field(default_factory=dict)

    def at(self, now_s: float) -> NodePool:
        """The pool of this moment, with who can be used."""
        pool = self.pool
        for name in pool.names:
            if name in self.leaving or self.away_until_s.get(name, now_s) > now_s:
                pool = pool.with_node(name, available=False)
        return pool

    def to_start(self, placement: Placement) -> tuple[str, ...]:
        """Nodes that the placement needs and that have no worker."""
        needed = _nodes(placement)
        return tuple(name for name in self.pool.names if name in needed and name not in self.up)

    def to_stop(self, placement: Placement) -> tuple[str, ...]:
        """Nodes that have a worker and that the placement does not need."""
        needed = _nodes(placement)
        return tuple(name for name in self.pool.names if name in self.up and name not in needed)

    def started(self, name: str) -> Roster:
        away = {other: until_s for other, until_s in self.away_until_s.items() if other != name}
        return replace(self, up=self.up | {name}, away_until_s=away)

    def stopping(self, name: str) -> Roster:
        return replace(self, up=self.up - {name}, leaving=self.leaving | {name})

    def stopped(self, name: str) -> Roster:
        return replace(self, up=self.up - {name}, leaving=self.leaving - {name})

    def lost(self, name: str, now_s: float) -> Roster:
        return replace(self.stopped(name), away_until_s={**self.away_until_s, name: now_s + AWAY_S})


def round_trips_s(pool: NodePool, nodes: tuple[str, ...], fed_from: tuple[str, ...] = ()) -> dict[str, float]:
    """From each of the nodes to the farthest of them and of those that feed them: what a fetch of a task takes."""
    return {name: pool.largest_delay_s((name,), (*nodes, *fed_from)) for name in dict.fromkeys(nodes)}


def _nodes(placement: Placement) -> set[str]:
    return {name for nodes in placement.values() for name in nodes}
