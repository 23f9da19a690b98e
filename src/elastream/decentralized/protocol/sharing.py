"""Who gets which records of a batch: each successor operator all of them, its instances a fair part each.

The parts are contiguous and differ by at most one record; who gets the records that are over goes around with the
number of the batch. The same batch and the same view give the same shares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from elastream.decentralized.protocol.messages import Address, operator_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The records from the first, up to but without the last."""

    receiver: Address
    first: int
    last: int


def shares(records: int, successors: Iterable[Address], batch: int) -> list[Share]:
    """Empty parts are left out."""
    by_operator: dict[str, list[Address]] = defaultdict(list)
    for successor in sorted(successors):
        by_operator[operator_of(successor)].append(successor)
    return [share for instances in by_operator.values() for share in _among(records, instances, batch)]


def _among(records: int, instances: list[Address], batch: int) -> Iterable[Share]:
    turn = batch % len(instances)
    in_turn = instances[turn:] + instances[:turn]
    each, over = divmod(records, len(instances))
    first = 0
    for number, receiver in enumerate(in_turn):
        last = first + each + (number < over)
        if last > first:
            yield Share(receiver=receiver, first=first, last=last)
        first = last
