"""Pools for tests: nodes on a line, the delay between two of them their distance in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

from elastream.nodes import Node, NodePool


def line(slots: int = 1, costs: Mapping[str, float] | None = None, **places_ms: float) -> NodePool:
    return NodePool(
        nodes=tuple(Node(name=name, slots=slots, cost=(costs or {}).get(name, 1.0)) for name in places_ms),
        delays_s=tuple(tuple(abs(a - b) / 1000 for b in places_ms.values()) for a in places_ms.values()),
    )
