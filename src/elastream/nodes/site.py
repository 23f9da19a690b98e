"""The nodes of one operator, and what may join or leave them, as a policy sees them when it plans.

Without a pool of nodes there is always room for one more instance, at no delay and at a cost of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elastream.nodes.choice import NodeChoice, without
from elastream.nodes.pool import NodePool


@dataclass(frozen=True, kw_only=True)
class Placed:
    """So many instances, on these nodes."""

    instances: int
    nodes: tuple[str, ...] | None
    """None where there is no pool."""
    delay_s: float
    """The largest between two of the nodes, or between one of them and one that feeds them."""


@dataclass(frozen=True, kw_only=True)
class Site:
    operator: str
    pool: NodePool | None
    own: tuple[str, ...]
    taken: tuple[str, ...]
    """By other operators."""
    fed_from: tuple[str, ...] = ()
    """The nodes of the operators right before it."""
    instances: int
    choice: NodeChoice

    @property
    def now(self) -> Placed:
        return self._placed(self.instances, None if self.pool is None else self.own)

    def larger(self, *, most: float) -> Iterator[Placed]:
        """One more instance, two more, and so on, while there are nodes."""
        nodes, count = self.own, self.instances
        while count + 1 <= most:
            count += 1
            if self.pool is None:
                yield self._placed(count, None)
                continue
            joining = self.choice.joining(self.pool, nodes, 1, taken=self.taken, fed_from=self.fed_from)
            if not joining:
                return
            nodes = (*nodes, *joining)
            yield self._placed(count, nodes)

    def smaller(self, *, least: int) -> Iterator[Placed]:
        """One instance fewer, two fewer, and so on."""
        nodes = self.own
        for count in range(self.instances - 1, least - 1, -1):
            if self.pool is None:
                yield self._placed(count, None)
            else:
                leaving = self.choice.leaving(self.pool, nodes, 1, fed_from=self.fed_from)
                nodes = without(nodes, leaving)
                yield self._placed(count, nodes)

    def resized(self, count: int) -> Placed:
        """So many instances, or as near to that as the nodes allow."""
        steps = self.larger(most=count) if count > self.instances else self.smaller(least=count)
        *_, placed = (self.now, *steps)
        return placed

    def cost_of(self, placed: Placed) -> float:
        """Of what it has more than now."""
        if self.pool is None or placed.nodes is None:
            return float(placed.instances - self.instances)
        return sum(self.pool[name].cost for name in placed.nodes[len(self.own) :])

    def delay_s(self, nodes: tuple[str, ...] | None) -> float:
        """The largest that it has on these nodes."""
        return 0.0 if self.pool is None or nodes is None else self.pool.largest_delay_s(nodes, self.fed_from)

    def _placed(self, count: int, nodes: tuple[str, ...] | None) -> Placed:
        return Placed(instances=count, nodes=nodes, delay_s=self.delay_s(nodes))
