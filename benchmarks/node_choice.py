"""How long it takes to choose the nodes of a decision, and how that grows with the pool.

An operator with a tenth of all nodes takes ten more, or gives ten back. To join, every free node is looked at once
for each that joins: linear in the pool. To leave, each pair of the operator's own nodes counts, of which there are
a hundred times as many in a pool of ten times the size.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.measure import Measure, Report, median_cpu_s
from elastream.nodes import Node, NodePool
from elastream.nodes.choice import NEAREST

MOST_S = 0.05
_MOVED = 10


def run(*, nodes: int = 100, repeats: int = 9) -> Report:
    """From so many nodes to ten times as many."""
    pools = {size: random_pool(size) for size in (nodes, 10 * nodes)}
    measures = (
        *_growth("ten nodes join", pools, lambda pool, own: NEAREST.joining(pool, own, _MOVED), repeats),
        *_growth("ten nodes leave", pools, lambda pool, own: NEAREST.leaving(pool, own, _MOVED), repeats),
    )
    return Report(measures=measures)


def random_pool(size: int, seed: int = 1) -> NodePool:
    """Nodes at random in a square, with costs from 1 to 3; the delays are distances."""
    rng = random.Random(seed)
    places = [(rng.random(), rng.random()) for _ in range(size)]
    nodes = tuple(Node(name=f"node{number}", cost=float(rng.randint(1, 3))) for number in range(size))
    return NodePool(nodes=nodes, delays_s=tuple(tuple(0.3 * math.dist(a, b) for b in places) for a in places))


def _growth(
    what: str,
    pools: dict[int, NodePool],
    choose: Callable[[NodePool, tuple[str, ...]], tuple[str, ...]],
    repeats: int,
) -> tuple[Measure, ...]:
    found_s = {}
    for size, pool in pools.items():
        own = NEAREST.joining(pool, (), max(_MOVED, size // 10))  # also computes what a pool keeps
        found_s[size] = median_cpu_s(
            lambda asked: choose(*asked), prepare=lambda pool=pool, own=own: (pool, own), repeats=repeats
        )
    (small, small_s), (large, large_s) = found_s.items()
    return (
        Measure(what=f"{what}: a pool of {small:,}", value=1000 * small_s, unit="ms"),
        Measure(what=f"{what}: a pool of {large:,}", value=1000 * large_s, unit="ms", at_most=1000 * MOST_S),
        Measure(what=f"{what}: growth from {small:,} to {large:,}", value=large_s / small_s, unit="times"),
    )
