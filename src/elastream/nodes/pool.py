"""A pool of nodes: what each costs, how many instances it can hold, and the round trip between any two.

A placement is the nodes of an operator's instances, one name for each instance; a node with several slots may be
named several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from elastream.checked import NOT_NEGATIVE, Checked, Count, NotNegative
from elastream.errors import InvalidInput, nearest, shown
from elastream.texts import check_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Node(Checked):
    name: str
    cost: NotNegative = 1.0
    """Of each instance on it, for a unit of time."""
    slots: Count = 1
    """How many instances it can hold."""
    available: bool = True
    """Whether it is there now; one that went away may come back."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInput("a node has an empty name")
        check_name(self.name, "a node's name")
        try:
            Checked.__post_init__(self)
        except InvalidInput as error:
            raise error.at(f"node {self.name!r}") from None


@dataclass(frozen=True, kw_only=True)
class NodePool:
    nodes: tuple[Node, ...]
    delays_s: tuple[tuple[float, ...], ...]
    """Round trips, in the order of the nodes, a row for each. Where the two directions differ the longer counts;
    a node is at no distance from itself, whatever the table says."""

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(node.name for node in self.nodes).items() if count > 1]
        if twice:
            raise InvalidInput(f"two nodes are named {twice[0]!r}")
        _check_table(self.delays_s, self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def matrix(self) -> Any:
        """The delays as a symmetric array of floats."""
        table = np.array(self.delays_s, dtype=float).reshape(len(self.nodes), len(self.nodes))
        table = np.maximum(table, table.T)
        np.fill_diagonal(table, 0.0)
        return table

    @cached_property
    def costs(self) -> Any:
        return np.array([node.cost for node in self.nodes])

    def __getitem__(self, name: str) -> Node:
        return self.nodes[self.places((name,))[0]]

    def __contains__(self, name: str) -> bool:
        return name in self.index

    def places(self, names: Iterable[str]) -> list[int]:
        """Where the nodes stand in the table; one that is not in it is refused."""
        found = []
        for name in names:
            if name not in self.index:
                raise InvalidInput(f"unknown node {shown(name)}{nearest(name, self.names)}")
            found.append(self.index[name])
        return found

    def largest_delay_s(self, placement: Iterable[str], fed_from: Iterable[str] = ()) -> float:
        """The longest round trip between two of the nodes, ND_max, or between one of them and one that feeds them:
        a node of an operator before theirs. What those have between each other is no matter of theirs."""
        places = self.places(dict.fromkeys(placement))
        others = self.places(dict.fromkeys(fed_from))
        return float(self.matrix[np.ix_(places, places + others)].max()) if places else 0.0

    def free_slots(self, taken: Iterable[str]) -> Any:
        """Of each node: slots that no instance has; none where the node is gone."""
        free = np.array([node.slots if node.available else 0 for node in self.nodes])
        for place, count in Counter(self.places(taken)).items():
            free[place] -= count
        return np.maximum(free, 0)

    def with_node(self, name: str, *, available: bool) -> NodePool:
        """The same pool after the node went away, or came back."""
        place = self.places((name,))[0]
        changed = replace(self.nodes[place], available=available)
        return replace(self, nodes=(*self.nodes[:place], changed, *self.nodes[place + 1 :]))


def _check_table(delays_s: tuple[tuple[float, ...], ...], names: tuple[str, ...]) -> None:
    expected = len(names)
    if len(delays_s) != expected:
        raise InvalidInput(f"delays: expected a row for each of the {expected} nodes, found {len(delays_s)}")
    for name, row in zip(names, delays_s, strict=True):
        if len(row) != expected:
            raise InvalidInput(f"delays: the row of {name!r}: expected {expected} delays, found {len(row)}")
        for other, delay_s in zip(names, row, strict=True):
            NOT_NEGATIVE.check(f"delays: from {name!r} to {other!r}: a delay", delay_s)
