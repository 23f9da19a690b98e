"""Where the simulated instances run: which nodes there are now, who is on them, and where a new plan will run.

A decision may name the nodes that it wants. Between plan and act a node may have gone; then another one is chosen
in its place, as for a decision that names none. Where there are not enough nodes nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastream.dataflow import Plan
from elastream.engines.simulated.model import EngineModel
from elastream.errors import ElastreamError
from elastream.nodes.choice import resized
from elastream.nodes.pool import NodePool

Placement = Mapping[str, tuple[str, ...]]


class NoNodeLeftError(ElastreamError):
    """A plan needs more nodes than there are."""


class Places:
    def __init__(self, model: EngineModel) -> None:
        self.pool: NodePool | None = model.nodes
        self.placement: Placement = dict(model.initial_nodes)
        if self.pool is not None:
            self.placement, _ = self.for_plan(model.initial_plan, {})

    def set_node(self, name: str, *, available: bool) -> None:
        if self.pool is None:
            raise ElastreamError(f"{name!r}: this model has no nodes")
        self.pool = self.pool.with_node(name, available=available)

    def for_plan(self, plan: Plan, wanted: Placement) -> tuple[Placement, str]:
        """The nodes of every operator under the plan, and what had to be chosen again, in words."""
        if self.pool is None:
            return {}, ""
        placement = dict(self.placement)
        # who gives nodes back goes first: others may need them
        order = sorted(plan, key=lambda name: plan[name] - len(placement.get(name, ())))
        told = []
        for name in order:
            if plan[name] != len(placement.get(name, ())):
                others = [node for other, nodes in placement.items() if other != name for node in nodes]
                placement[name], gone = self._nodes(name, plan[name], wanted.get(name, ()), others)
                if gone:
                    told.append(f"{name}: {', '.join(gone)} cannot be used any more, chosen again")
        return placement, "; ".join(told)

    def _nodes(
        self, name: str, count: int, wanted: tuple[str, ...], others: list[str]
    ) -> tuple[tuple[str, ...], list[str]]:
        assert self.pool is not None  # or nobody asks
        own = self.placement.get(name, ())
        start, gone = (self._usable(wanted, own, others)) if len(wanted) == count else (own, [])
        found = resized(self.pool, start, count, taken=others)
        if len(found) < count:
            raise NoNodeLeftError(
                f"no node is left: {name!r} was to have {count}, and there are nodes for {len(found)}"
            )
        return found, gone

    def _usable(
        self, wanted: tuple[str, ...], own: tuple[str, ...], others: list[str]
    ) -> tuple[tuple[str, ...], list[str]]:
        """Of the wanted nodes those that it has already or that are free, and the rest."""
        assert self.pool is not None  # or nobody asks
        kept: list[str] = []
        gone = []
        for node in wanted:
            beside = kept.count(node)
            free = node in self.pool and self.pool.free_slots((*kept, *others))[self.pool.index[node]] > 0
            if beside < own.count(node) or free:
                kept.append(node)
            else:
                gone.append(node)
        return tuple(kept), gone
