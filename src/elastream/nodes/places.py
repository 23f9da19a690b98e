"""Where instances run: which nodes there are now, who is on them, and where a new plan will run.

A decision may name the nodes that it wants. Between plan and act a node may have gone; then another one is chosen
in its place, as for a decision that names none. Where there are not enough nodes nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elastream.errors import ElastreamError
from elastream.nodes.choice import resized
from elastream.nodes.pool import NodePool

Placement = Mapping[str, tuple[str, ...]]
"""The nodes of each operator's instances, one for each."""


class Upstream(Protocol):
    """A graph, of which no more is asked than this."""

    def upstream(self, name: str) -> tuple[str, ...]: ...


def fed_from(graph: Upstream, placement: Placement, name: str) -> tuple[str, ...]:
    """The nodes of the operators right before one; those that have no nodes of their own are at no distance."""
    return tuple(node for producer in graph.upstream(name) for node in placement.get(producer, ()))


class NoNodeLeftError(ElastreamError):
    """A plan needs more nodes than there are."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    placement: Placement
    told: str = ""
    """What had to be chosen again, as text."""
    missing: int = 0
    """Instances whose node is gone, with no other in its place."""


@dataclass(frozen=True, kw_only=True)
class Places:
    pool: NodePool
    placement: Placement
    graph: Upstream | None = None
    """Where operators feed each other, and delays between them count."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Of nodes that are one operator's until it has left them, whatever is chosen for it: whose they are."""

    def for_plan(self, plan: Mapping[str, int], wanted: Placement) -> Chosen:
        """The nodes of every operator under the plan."""
        placement = dict(self.placement)
        # who gives nodes back goes first: others may need them
        order = sorted(plan, key=lambda name: plan[name] - len(placement.get(name, ())))
        told = []
        for name in order:
            if plan[name] != len(placement.get(name, ())):
                others = self._others(placement, name)
                feeding = self._fed_from(placement, name)
                placement[name], gone = self._nodes(name, plan[name], wanted.get(name, ()), others, feeding)
                if gone:
                    told.append(f"{name}: {', '.join(gone)} cannot be used any more, chosen again")
        return Chosen(placement=placement, told="; ".join(told))

    def without_gone(self, *, up: Collection[str]) -> Chosen:
        """As many nodes for every operator, others in the place of those that are gone or not up.

        Where there is no other, the one that is gone keeps its place until one returns.
        """
        placement, told, missing = dict(self.placement), [], 0
        for name, own in self.placement.items():
            left = [node for node in own if node in up and self.pool[node].available]
            gone = [node for node in own if node not in left]
            if not gone:
                continue
            found = resized(
                self.pool,
                left,
                len(own),
                taken=self._others(placement, name),
                fed_from=self._fed_from(placement, name),
            )
            placement[name] = (*found, *gone[len(found) - len(left) :])
            told.append(_replaced_text(name, gone, found[len(left) :]))
            missing += len(own) - len(found)
        return Chosen(placement=placement, told="; ".join(told), missing=missing)

    def _others(self, placement: Placement, name: str) -> list[str]:
        """What is not free for an operator."""
        chosen = [node for other, nodes in placement.items() if other != name for node in nodes]
        return [*chosen, *(node for node, owner in self.held.items() if owner != name)]

    def _fed_from(self, placement: Placement, name: str) -> tuple[str, ...]:
        return () if self.graph is None else fed_from(self.graph, placement, name)

    def _nodes(
        self, name: str, count: int, wanted: tuple[str, ...], others: list[str], feeding: tuple[str, ...]
    ) -> tuple[tuple[str, ...], list[str]]:
        own = self.placement.get(name, ())
        start, gone = (self._usable(wanted, own, others)) if len(wanted) == count else (own, [])
        found = resized(self.pool, start, count, taken=others, fed_from=feeding)
        if len(found) < count:
            raise NoNodeLeftError(
                f"no node is left: {name!r} was to have {count}, and there are nodes for {len(found)}"
            )
        return found, gone

    def _usable(
        self, wanted: tuple[str, ...], own: tuple[str, ...], others: list[str]
    ) -> tuple[tuple[str, ...], list[str]]:
        """Of the wanted nodes those that it has already or that are free, and the rest."""
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


def _replaced_text(name: str, gone: list[str], joining: tuple[str, ...]) -> str:
    if set(joining) == set(gone):
        return f"{name}: {', '.join(gone)} is back"
    text = f"{name}: {', '.join(gone)} is gone"
    if joining:
        text += f", {', '.join(joining)} in its place"
    missing = len(gone) - len(joining)
    return text if not missing else f"{text}, and no other node is left: it has {missing} fewer until one returns"
