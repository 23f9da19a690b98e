"""A dataflow is checked when it is made: afterwards nobody has to doubt it."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.dataflow import Channel, Dataflow, Operator
from elastream.errors import InvalidInput

SOURCE = Operator(name="source", source=True)


def dataflow(*edges: tuple[str, str], sources: tuple[str, ...] = ("source",)) -> Dataflow:
    names = dict.fromkeys([*sources, *(name for edge in edges for name in edge)])
    return Dataflow.of((Operator(name=name, source=name in sources) for name in names), edges)


def assert_topological(graph: Dataflow) -> None:
    place = {name: index for index, name in enumerate(graph.order)}
    assert set(place) == {operator.name for operator in graph.operators}
    assert all(place[channel.producer] < place[channel.consumer] for channel in graph.channels)


# --- what a graph knows -----------------------------------------------------------------------------------------


def test_a_chain_is_ordered_from_its_source_to_its_sink() -> None:
    graph = dataflow(("source", "map"), ("map", "sink"))

    assert graph.order == ("source", "map", "sink")
    assert graph.sources == ("source",)
    assert graph.sinks == ("sink",)
    assert graph.scalable == ("map", "sink")


def test_the_order_does_not_depend_on_how_the_edges_were_listed() -> None:
    graph = dataflow(("map", "sink"), ("source", "map"))

    assert graph.order == ("source", "map", "sink")


def test_a_diamond_has_its_join_after_both_branches() -> None:
    graph = dataflow(("source", "left"), ("source", "right"), ("left", "join"), ("right", "join"))

    assert graph.order[0] == "source"
    assert graph.order[-1] == "join"
    assert graph.upstream("join") == ("left", "right")
    assert graph.downstream("source") == ("left", "right")


def test_there_may_be_several_sources_and_sinks() -> None:
    graph = dataflow(
        ("clicks", "join"), ("users", "join"), ("join", "store"), ("join", "alerts"), sources=("clicks", "users")
    )

    assert graph.sources == ("clicks", "users")
    assert graph.sinks == ("store", "alerts")
    assert graph.scalable[0] == "join"


def test_a_source_that_nobody_reads_is_a_sink_too() -> None:
    graph = Dataflow((SOURCE,))

    assert graph.sources == graph.sinks == ("source",)
    assert graph.scalable == ()


def test_operators_are_found_by_name() -> None:
    graph = dataflow(("source", "map"))

    assert graph["map"] == Operator(name="map")
    assert "map" in graph
    assert "mop" not in graph
    assert 3 not in graph


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match=r"unknown operator 'flatmp' \(did you mean 'flatmap'\?\)"):
        dataflow(("source", "flatmap"))["flatmp"]


@given(st.integers(min_value=1, max_value=12), st.randoms(use_true_random=False))
def test_every_acyclic_graph_gets_a_topological_order(size: int, rng: random.Random) -> None:
    names = [f"o{index}" for index in range(size)]
    edges = [(names[rng.randrange(index)], names[index]) for index in range(1, size)]
    extra = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if rng.random() < 0.3]
    listed = list(dict.fromkeys(edges + extra))
    rng.shuffle(listed)

    assert_topological(dataflow(*listed, sources=("o0",)))


def test_a_very_long_chain_needs_no_recursion() -> None:
    names = ["source", *(f"o{index}" for index in range(20_000))]

    graph = dataflow(*pairwise(names))

    assert graph.order == tuple(names)


# --- what a graph refuses ---------------------------------------------------------------------------------------


def test_a_cycle_is_spelt_out_in_the_direction_of_the_stream() -> None:
    with pytest.raises(InvalidInput, match=r"cycle: (a → b → c → a|b → c → a → b|c → a → b → c); .* acyclic"):
        dataflow(("source", "a"), ("a", "b"), ("b", "c"), ("c", "a"))


def test_an_operator_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidInput, match="cycle: a → a;"):
        dataflow(("source", "a"), ("a", "a"))


def test_a_cycle_that_no_source_reaches_is_found_too() -> None:
    with pytest.raises(InvalidInput, match="cycle"):
        dataflow(("source", "sink"), ("a", "b"), ("b", "a"))


def test_an_edge_from_an_unknown_operator_names_the_edge_and_the_nearest() -> None:
    operators = (SOURCE, Operator(name="flatmap"))

    with pytest.raises(InvalidInput) as error:
        Dataflow.of(operators, [("sorce", "flatmap")])

    assert str(error.value) == "edge 'sorce' → 'flatmap': unknown operator 'sorce' (did you mean 'source'?)"


def test_an_edge_to_an_unknown_operator_lists_the_known_ones_where_none_is_near() -> None:
    with pytest.raises(InvalidInput, match=r"unknown operator 'xyz' \(known: map, source\)"):
        Dataflow.of((SOURCE, Operator(name="map")), [("source", "xyz")])


def test_an_edge_given_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="edge 'source' → 'map' is given twice"):
        Dataflow.of((SOURCE, Operator(name="map")), [("source", "map"), ("source", "map")])


def test_a_source_has_no_inputs() -> None:
    with pytest.raises(InvalidInput, match="edge 'a' → 'b': 'b' is a source, and a source has no inputs"):
        dataflow(("a", "b"), sources=("a", "b"))


def test_two_operators_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two operators have the name 'map'"):
        Dataflow.of((SOURCE, Operator(name="map"), Operator(name="map")), [("source", "map")])


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one operator"):
        Dataflow(())


def test_a_graph_without_a_source_is_refused_and_says_how_to_mark_one() -> None:
    with pytest.raises(InvalidInput, match=r'no operator is a source; .* "source": true'):
        Dataflow((Operator(name="map"),))


def test_an_operator_that_nothing_feeds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="operator 'lost' has no input"):
        Dataflow.of((SOURCE, Operator(name="map"), Operator(name="lost")), [("source", "map")])


# --- operators --------------------------------------------------------------------------------------------------


def operator_with(field: str, value: int) -> Operator:
    fields: dict[str, Any] = {"name": "map", field: value}
    return Operator(**fields)


def test_an_operator_needs_a_name() -> None:
    with pytest.raises(InvalidInput, match="empty name"):
        Operator(name="")


@pytest.mark.parametrize("name", ["a\x01", "\x1b[31m", "\x7f", "\x9b", "a\ud800", "\uffff"], ids=ascii)
def test_a_name_can_be_shown(name: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"an operator's name: a text that can be shown was expected, found U\+"
    ):
        Operator(name=name)


@pytest.mark.parametrize("field", ["min_parallelism", "max_parallelism", "state_partitions"])
@pytest.mark.parametrize("value", [0, -3])
def test_bounds_below_one_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"operator 'map': {field}.*{value}"):
        operator_with(field, value)


@pytest.mark.parametrize("field", ["min_parallelism", "max_parallelism", "state_partitions"])
def test_bounds_that_no_cluster_has_are_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"operator 'map': {field} must be at most"):
        operator_with(field, 10**400)


def test_the_least_may_not_be_above_the_most() -> None:
    with pytest.raises(InvalidInput, match=r"'map': max_parallelism \(2\) is below min_parallelism \(3\)"):
        Operator(name="map", min_parallelism=3, max_parallelism=2)


@pytest.mark.parametrize(
    ("operator", "most"),
    [
        (Operator(name="free"), math.inf),
        (Operator(name="bounded", max_parallelism=8), 8),
        (Operator(name="stateful", state_partitions=32), 32),
        (Operator(name="both", max_parallelism=8, state_partitions=32), 8),
        (Operator(name="both", max_parallelism=64, state_partitions=32), 32),
        (Operator(name="both", max_parallelism=10, state_partitions=32), 8),  # ten do no more than eight
        (Operator(name="moves", max_parallelism=64, state_partitions=32, movable_state=True), 64),
        (Operator(name="moves", max_parallelism=10, state_partitions=32, movable_state=True), 8),
        (Operator(name="moves", state_partitions=32, movable_state=True), math.inf),
    ],
)
def test_the_most_instances_that_can_share_the_work(operator: Operator, most: float) -> None:
    assert operator.most == most


@given(st.integers(min_value=1, max_value=50), st.integers(min_value=0, max_value=50), st.integers(-10, 10**6))
def test_clamping_gives_the_nearest_parallelism_within_the_bounds(least: int, room: int, wanted: int) -> None:
    operator = Operator(name="map", min_parallelism=least, max_parallelism=least + room)

    allowed = range(least, least + room + 1)
    assert operator.clamp(wanted) == min(allowed, key=lambda p: abs(p - wanted))


def test_without_bounds_nothing_is_clamped() -> None:
    assert Operator(name="map").clamp(10**9) == 10**9


def test_channels_sort_by_name() -> None:
    assert sorted([Channel("b", "a"), Channel("a", "c"), Channel("a", "b")])[0] == Channel("a", "b")
