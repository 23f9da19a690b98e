"""Keyed state lives in N partitions; p instances share them, and the fullest one holds ceil(N / p).

So p instances do the work of N / ceil(N / p): with 32 partitions, nine instances do no more than eight,
because one of the nine still holds four partitions. The useful values of p are those where ceil(N / p) changes.
Where an engine can move state, more instances than partitions get partitions to match.
"""

from __future__ import annotations

import math


def effective_instances(parallelism: int, partitions: int | None) -> float:
    """How many evenly loaded instances do the same work as these ones."""
    if partitions is None:
        return float(parallelism)
    return partitions / math.ceil(partitions / parallelism)


def least_useful(parallelism: int, partitions: int | None) -> int:
    """The least parallelism with the same fullest instance: what to take instead of this one."""
    if partitions is None:
        return parallelism
    return math.ceil(partitions / math.ceil(partitions / min(parallelism, partitions)))


def enough_for(need: float, partitions: int | None) -> int:
    """The least parallelism whose effective instances reach a need; all the partitions where none does."""
    wanted = max(1, math.ceil(need))
    if partitions is None:
        return wanted
    if wanted >= partitions:
        return partitions
    return math.ceil(partitions / math.floor(partitions / max(need, 1.0)))


def partitions_for(parallelism: int, partitions: int, *, most: int | None) -> int:
    """The partitions for so many instances, of a state that can be moved and has `partitions` now.

    They stay while there are enough. Else two for each instance, so that it can double without moving again, but
    only where it may double: each partition costs time in every batch. Either way all instances hold equally many.
    """
    if parallelism <= partitions:
        return partitions
    return 2 * parallelism if most is None or 2 * parallelism <= most else parallelism
