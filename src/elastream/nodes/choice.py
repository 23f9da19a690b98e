"""Which node joins an operator and which one leaves it.

Aware of delays (`NEAREST`): the node joins that keeps the largest delay lowest between the operator's nodes, and
between them and those that feed it, on which the operators before it run; and the one leaves whose leaving lowers
it most. Ties go by cost: the cheapest joins, the dearest leaves; among equals
the one that is nearer to the rest joins and the farther one leaves, then the one that comes first in the table.

Not aware (`AtRandom`): any free node joins and any leaves, drawn by a seed from the unsorted list.

A choice is made node by node, for each the best given those before it. Both ways give fewer nodes than asked for
where there are no more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Protocol

import numpy as np

from elastream.nodes.pool import NodePool

_MOST_TRIED = 20_000  # sets of nodes that are all looked at; where there are more, each is grown from a centre


class NodeChoice(Protocol):
    def joining(
        self,
        pool: NodePool,
        own: Sequence[str],
        count: int,
        *,
        taken: Sequence[str] = (),
        fed_from: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """The nodes of `count` more instances, beside the operator's own; `taken` are those of other operators."""

    def leaving(
        self, pool: NodePool, own: Sequence[str], count: int, *, fed_from: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The nodes that `count` instances give back."""


@dataclass(frozen=True)
class Nearest:
    def joining(
        self,
        pool: NodePool,
        own: Sequence[str],
        count: int,
        *,
        taken: Sequence[str] = (),
        fed_from: Sequence[str] = (),
    ) -> tuple[str, ...]:
        free = pool.free_slots((*own, *taken))
        within_s = pool.largest_delay_s(own, fed_from)
        places = pool.places((*own, *fed_from))
        farthest = pool.matrix[:, places].max(axis=1) if places else np.zeros(len(pool.nodes))
        chosen: list[int] = []
        for _ in range(min(count, int(free.sum()))):
            aside = farthest if places or chosen else pool.matrix.mean(axis=1)  # the first is to be in the middle
            place = _first(np.flatnonzero(free), np.maximum(within_s, farthest), pool.costs, aside)
            chosen.append(place)
            free[place] -= 1
            within_s = max(within_s, float(farthest[place]))
            farthest = np.maximum(farthest, pool.matrix[:, place])
        return tuple(pool.names[place] for place in chosen)

    def leaving(
        self, pool: NodePool, own: Sequence[str], count: int, *, fed_from: Sequence[str] = ()
    ) -> tuple[str, ...]:
        left, feeding = Counter(pool.places(own)), pool.places(dict.fromkeys(fed_from))
        chosen = []
        for _ in range(min(count, left.total())):
            place = _leaves(pool, left, feeding)
            chosen.append(place)
            left[place] -= 1
            left = +left  # without those that have no instance any more
        return tuple(pool.names[place] for place in chosen)


NEAREST = Nearest()


@dataclass(frozen=True)
class AtRandom:
    seed: str

    def joining(
        self,
        pool: NodePool,
        own: Sequence[str],
        count: int,
        *,
        taken: Sequence[str] = (),
        fed_from: Sequence[str] = (),
    ) -> tuple[str, ...]:
        free = pool.free_slots((*own, *taken))
        slots = [name for name, slots in zip(pool.names, free, strict=True) for _ in range(slots)]
        return tuple(self._drawn("joining", slots, count))

    def leaving(
        self, pool: NodePool, own: Sequence[str], count: int, *, fed_from: Sequence[str] = ()
    ) -> tuple[str, ...]:
        pool.places(own)  # refuses those that it does not know
        return tuple(self._drawn("leaving", list(own), count))

    def _drawn(self, what: str, names: list[str], count: int) -> list[str]:
        random.Random(f"{what} {self.seed}").shuffle(names)
        return names[:count]


def without(own: Sequence[str], leaving: Sequence[str]) -> tuple[str, ...]:
    """The operator's nodes after these were given back, in their order."""
    gone = Counter(leaving)
    kept = []
    for name in own:
        if gone[name] > 0:
            gone[name] -= 1
        else:
            kept.append(name)
    return tuple(kept)


def resized(
    pool: NodePool,
    own: Sequence[str],
    count: int,
    choice: NodeChoice = NEAREST,
    *,
    taken: Sequence[str] = (),
    fed_from: Sequence[str] = (),
) -> tuple[str, ...]:
    """The operator's nodes for so many instances: those that it has, with some joining or leaving."""
    if count < len(own):
        return without(own, choice.leaving(pool, own, len(own) - count, fed_from=fed_from))
    return (*own, *choice.joining(pool, own, count - len(own), taken=taken, fed_from=fed_from))


def closest(pool: NodePool, count: int) -> tuple[str, ...]:
    """The free nodes for so many instances with the lowest largest delay, of all sets of nodes.

    Exact where there are few enough sets to look at all of them; else the best of those that grow from a centre.
    """
    slots = [name for name, free in zip(pool.names, pool.free_slots(()), strict=True) for _ in range(free)]
    count = min(count, len(slots))
    if comb(len(slots), count) <= _MOST_TRIED:
        return min(combinations(slots, count), key=pool.largest_delay_s)
    grown = (NEAREST.joining(pool, (name,), count - 1) for name in dict.fromkeys(slots))
    sets = ((name, *others) for name, others in zip(dict.fromkeys(slots), grown, strict=True))
    return min(sets, key=pool.largest_delay_s)


def _first(candidates: Any, *keys: Any) -> int:
    """The candidate with the smallest first key; of those that are equal in it, by the next."""
    order = np.lexsort(tuple(key[candidates] for key in reversed(keys)))
    return int(candidates[order[0]])


def _leaves(pool: NodePool, left: Counter[int], feeding: Sequence[int]) -> int:
    """Only a node of the farthest pair can lower the largest delay, and only if no other instance is on it."""
    places = np.array(sorted(left))
    among = pool.matrix[np.ix_(places, np.concatenate([places, np.array(feeding, dtype=int)]))]
    pair = np.unravel_index(int(among.argmax()), among.shape)
    within_s = float(among.max())
    after_s = np.full(len(places), within_s)
    for row in map(int, pair):
        if row < len(places) and left[int(places[row])] == 1:
            others = np.delete(np.arange(len(places)), row)
            also = np.delete(np.arange(among.shape[1]), row)
            after_s[row] = among[np.ix_(others, also)].max() if len(others) else 0.0
    best = np.flatnonzero(after_s == after_s.min())
    return int(places[_first(best, -pool.costs[places], -among.max(axis=1))])
