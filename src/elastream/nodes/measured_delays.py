"""Measuring the delays between nodes: how long TCP connections take, which is a round trip.

A single connection may wait for anything: a busy machine, a lost packet that is sent again after a second. What
only adds to a round trip never takes from it, so of several tries the low ones are near to the truth, and the
lower quartile is taken: a single try that was too quick, or too slow, does not move it.

Each node measures its own row, as only it can; `pool_of_rows` puts the rows together.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from elastream.errors import ElastreamError, InvalidInput, nearest
from elastream.nodes.pool import Node, NodePool

Address = tuple[str, int]


def connect_s(address: Address, timeout_s: float) -> float:
    """How long one connection takes; an OSError where there is none."""
    began_s = time.perf_counter()
    with socket.create_connection(address, timeout=timeout_s):
        return time.perf_counter() - began_s


def delays_from_here(
    addresses: Mapping[str, Address],
    *,
    tries: int = 9,
    timeout_s: float = 2.0,
    connect: Callable[[Address, float], float] = connect_s,
) -> Mapping[str, float]:
    """The round trip to each of the other nodes, by name; one that is not reached is left out."""
    if tries < 1:
        raise InvalidInput(f"tries must be at least 1, found {tries}")
    found = {}
    for name, address in addresses.items():
        took_s = list(_answers(address, tries, timeout_s, connect))
        if len(took_s) * 2 >= tries:  # one that answers less often is not to be relied on
            found[name] = robust_s(took_s)
    return found


def robust_s(tries_s: Sequence[float]) -> float:
    """The lower quartile."""
    if not tries_s:
        raise InvalidInput("a delay needs at least one try, found none")
    return sorted(tries_s)[(len(tries_s) - 1) // 4]


def pool_of_rows(nodes: Iterable[Node], rows: Mapping[str, Mapping[str, float]]) -> NodePool:
    """A pool from what each node measured; what only one of two nodes measured counts for both.

    Between nodes that never reached each other there is no delay to be given, and that is an error.
    """
    nodes = tuple(nodes)
    names = [node.name for node in nodes]
    for name in (*rows, *(other for row in rows.values() for other in row)):
        if name not in names:
            raise InvalidInput(f"unknown node {name!r}{nearest(name, names)}")
    table = tuple(tuple(_between(rows, name, other) for other in names) for name in names)
    return NodePool(nodes=nodes, delays_s=table)


def _answers(
    address: Address, tries: int, timeout_s: float, connect: Callable[[Address, float], float]
) -> Iterable[float]:
    for _ in range(tries):
        try:
            yield connect(address, timeout_s)
        except OSError:
            continue


def _between(rows: Mapping[str, Mapping[str, float]], name: str, other: str) -> float:
    if name == other:
        return 0.0
    measured = [rows.get(a, {}).get(b, math.nan) for a, b in ((name, other), (other, name))]
    known = [delay_s for delay_s in measured if not math.isnan(delay_s)]
    if not known:
        raise ElastreamError(f"neither of {name!r} and {other!r} reached the other, so their delay is not known")
    return max(known)
