"""Pools of nodes: what is refused, and what is told about placements."""

from __future__ import annotations

import math

import pytest
from pools import line

from elastream.errors import InvalidInput
from elastream.nodes import Node, NodePool

NEAR = line(a=0, b=10, c=300)


def test_the_largest_delay_is_that_between_two_of_the_nodes() -> None:
    assert NEAR.largest_delay_s(("a", "b")) == pytest.approx(0.01)
    assert NEAR.largest_delay_s(("a", "b", "c")) == pytest.approx(0.3)
    assert NEAR.largest_delay_s(("a", "a")) == 0.0
    assert NEAR.largest_delay_s(()) == 0.0


def test_delays_to_the_nodes_that_feed_them_count_and_those_between_these_do_not() -> None:
    assert NEAR.largest_delay_s(("b",), ("a",)) == pytest.approx(0.01)
    assert NEAR.largest_delay_s(("a", "b"), ("c",)) == pytest.approx(0.3)
    assert NEAR.largest_delay_s(("b",), ("a", "c", "b")) == pytest.approx(0.29)
    assert NEAR.largest_delay_s((), ("a", "c")) == 0.0


def test_of_two_directions_the_longer_counts_and_a_node_is_at_no_distance_from_itself() -> None:
    pool = NodePool(nodes=(Node(name="a"), Node(name="b")), delays_s=((0.5, 0.1), (0.2, 0.0)))
    assert pool.largest_delay_s(("a", "b")) == 0.2
    assert pool.largest_delay_s(("a",)) == 0.0


def test_slots_that_are_taken_or_gone_are_not_free() -> None:
    pool = line(slots=2, a=0, b=10, c=20).with_node("c", available=False)
    assert list(pool.free_slots(("a", "b", "b"))) == [1, 0, 0]
    assert list(pool.with_node("c", available=True).free_slots(("a", "b", "b"))) == [1, 0, 2]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (((0.0, 0.1),), "expected a row for each of the 2 nodes, found 1"),
        (((0.0, 0.1), (0.1,)), "the row of 'b': expected 2 delays, found 1"),
        (((0.0, -0.1), (0.1, 0.0)), "from 'a' to 'b': a delay must be a finite number of at least 0, found -0.1"),
        (
            ((0.0, 0.1), (math.nan, 0.0)),
            "from 'b' to 'a': a delay must be a finite number .* found nan",
        ),
        (((0.0, math.inf), (0.1, 0.0)), "from 'a' to 'b': a delay must be a finite number"),
    ],
)
def test_a_table_that_cannot_be_one_is_refused(table: tuple[tuple[float, ...], ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        NodePool(nodes=(Node(name="a"), Node(name="b")), delays_s=table)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "a node has an empty name"),
        ({"name": "a", "cost": -1.0}, "node 'a': cost must be a finite number of at least 0, found -1"),
        ({"name": "a", "slots": 0}, "node 'a': slots must be at least 1, found 0"),
    ],
)
def test_a_node_that_cannot_be_one_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Node(**fields)  # type: ignore[arg-type]


def test_names_are_unique_and_unknown_ones_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two nodes are named 'a'"):
        NodePool(nodes=(Node(name="a"), Node(name="a")), delays_s=((0.0, 0.0), (0.0, 0.0)))
    with pytest.raises(InvalidInput, match=r"unknown node 'd' \(known: a, b, c\)"):
        NEAR.largest_delay_s(("a", "d"))
    with pytest.raises(InvalidInput, match="unknown node 'd'"):
        NEAR.with_node("d", available=False)
