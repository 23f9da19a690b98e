"""Which node joins and which one leaves."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import line

from elastream.errors import InvalidInput
from elastream.nodes import Node, NodePool
from elastream.nodes.choice import NEAREST, AtRandom, closest, resized, without

FIVE = line(a=0, b=10, c=40, d=160, e=300)


def test_the_node_joins_that_keeps_the_largest_delay_lowest() -> None:
    assert NEAREST.joining(FIVE, ("a",), 1) == ("b",)
    assert NEAREST.joining(FIVE, ("e",), 2) == ("d", "c")


def test_the_node_leaves_whose_leaving_lowers_the_largest_delay_most() -> None:
    assert NEAREST.leaving(FIVE, ("a", "b", "c", "e"), 1) == ("e",)
    assert NEAREST.leaving(FIVE, ("a", "d", "e"), 1) == ("a",)  # 140 ms are left, without e it would be 160
    assert NEAREST.leaving(FIVE, ("a", "b", "c", "d"), 2) == ("d", "c")


def test_ties_go_by_cost_the_cheapest_joins_and_the_dearest_leaves() -> None:
    pool = line(costs={"b": 2.0, "c": 1.0, "d": 3.0}, a=0, b=10, c=20, d=30, e=40)
    assert NEAREST.joining(pool, ("a", "e"), 1) == ("c",)  # all keep the 40 ms
    pair = line(costs={"a": 1.0, "b": 5.0}, a=0, b=50)
    assert NEAREST.leaving(pair, ("a", "b"), 1) == ("b",)


def test_among_equals_the_nearer_joins_and_the_farther_leaves() -> None:
    pool = line(a=0, b=5, c=48, d=100)
    assert NEAREST.joining(pool, ("a", "d"), 1) == ("c",)
    doubled = line(slots=2, a=0, b=60, c=100)
    assert NEAREST.leaving(doubled, ("a", "a", "b", "c", "c"), 1) == ("a",)  # no single one lowers anything


def test_the_first_node_is_in_the_middle_unless_another_is_cheaper() -> None:
    assert NEAREST.joining(FIVE, (), 1) == ("c",)
    cheap = line(costs={"c": 2.0, "b": 2.0, "d": 2.0, "a": 2.0}, a=0, b=10, c=40, d=160, e=300)
    assert NEAREST.joining(cheap, (), 1) == ("e",)


def test_the_nodes_that_feed_it_count_as_well() -> None:
    assert NEAREST.joining(FIVE, (), 1, taken=("e",), fed_from=("e",)) == ("d",), "not the one in the middle"
    assert NEAREST.joining(FIVE, ("b",), 1, fed_from=("d",)) == ("c",), "a is nearer to b, and farther from d"
    assert NEAREST.leaving(FIVE, ("a", "b", "d"), 1) == ("d",)
    assert NEAREST.leaving(FIVE, ("a", "b", "d"), 1, fed_from=("e",)) == ("a",)


def test_slots_are_filled_before_a_farther_node_joins() -> None:
    pool = line(slots=2, a=0, b=10)
    assert NEAREST.joining(pool, ("a",), 3) == ("a", "b", "b")


def test_nodes_of_others_and_those_that_are_gone_do_not_join() -> None:
    gone = FIVE.with_node("b", available=False)
    assert NEAREST.joining(gone, ("a",), 1, taken=("c",)) == ("d",)


def test_fewer_join_where_there_are_no_more() -> None:
    assert NEAREST.joining(FIVE, ("a", "b", "c", "d"), 3) == ("e",)
    assert NEAREST.joining(FIVE, FIVE.names, 1) == ()
    assert AtRandom("1").joining(FIVE, FIVE.names, 1) == ()
    assert NEAREST.leaving(FIVE, ("a",), 5) == ("a",)


def test_at_random_is_the_same_for_the_same_seed_and_takes_no_heed_of_delays() -> None:
    one, again = (AtRandom("7").joining(FIVE, ("a",), 2) for _ in range(2))
    assert one == again
    joined = {AtRandom(str(seed)).joining(FIVE, ("a",), 1) for seed in range(50)}
    left = {AtRandom(str(seed)).leaving(FIVE, ("a", "b", "e"), 1) for seed in range(50)}
    assert joined == {("b",), ("c",), ("d",), ("e",)}
    assert left == {("a",), ("b",), ("e",)}


def test_resized_keeps_the_others_where_they_are() -> None:
    assert resized(FIVE, ("b", "a"), 3) == ("b", "a", "c")
    assert resized(FIVE, ("b", "a", "e"), 2) == ("b", "a")
    assert resized(FIVE, ("b", "a"), 2) == ("b", "a")
    assert without(("a", "b", "a"), ("a",)) == ("b", "a")


def test_unknown_nodes_are_refused() -> None:
    for choice in (NEAREST, AtRandom("1")):
        with pytest.raises(InvalidInput, match="unknown node 'z'"):
            choice.joining(FIVE, ("z",), 1)
        with pytest.raises(InvalidInput, match="unknown node 'z'"):
            choice.leaving(FIVE, ("z",), 1)


DELAY = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3])


@st.composite
def pools(draw: st.DrawFn) -> NodePool:
    size = draw(st.integers(2, 6))
    costs = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=size, max_size=size))
    table = [draw(st.lists(DELAY, min_size=size, max_size=size)) for _ in range(size)]
    nodes = tuple(Node(name=f"n{i}", cost=cost) for i, cost in enumerate(costs))
    return NodePool(nodes=nodes, delays_s=tuple(map(tuple, table)))


@settings(max_examples=100, deadline=None)
@given(pool=pools(), data=st.data())
def test_each_choice_is_the_best_of_all_single_ones(pool: NodePool, data: st.DataObject) -> None:
    own = data.draw(st.lists(st.sampled_from(pool.names), min_size=1, unique=True))
    feeding = data.draw(st.lists(st.sampled_from(pool.names), unique=True))
    others = [name for name in pool.names if name not in own]

    def after_s(*nodes: str) -> float:
        return pool.largest_delay_s(nodes, feeding)

    if others:
        (joined,) = NEAREST.joining(pool, own, 1, fed_from=feeding)
        found = (after_s(*own, joined), pool[joined].cost)
        assert found == min((after_s(*own, name), pool[name].cost) for name in others)
    (left,) = NEAREST.leaving(pool, own, 1, fed_from=feeding)
    found = (after_s(*without(own, (left,))), -pool[left].cost)
    assert found == min((after_s(*without(own, (name,))), -pool[name].cost) for name in own)


@settings(max_examples=30, deadline=None)
@given(pool=pools(), count=st.integers(1, 6))
def test_the_closest_nodes_have_the_lowest_largest_delay(pool: NodePool, count: int) -> None:
    count = min(count, len(pool.names))
    best = min(pool.largest_delay_s(names) for names in combinations(pool.names, count))
    assert pool.largest_delay_s(closest(pool, count)) == best


def test_the_closest_of_many_are_grown_from_a_centre() -> None:
    many = line(**{f"n{i}": float(i * i) for i in range(40)})
    assert set(closest(many, 10)) == {f"n{i}" for i in range(10)}
