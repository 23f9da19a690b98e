"""Gesscale with nodes as they are: measured delays, pools of one, nodes that vanish while they are chosen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from elastream.measurement import Snapshot
from elastream.nodes import Node, NodePool
from elastream.nodes.places import Places
from elastream.policies.catalog import create
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.mst.mst_model import Sustained
from elastream.policies.proposal import Advice, ReasonKind
from elastream.testing import alike, chain, snapshot_of

POLICIES = ("gesscale", "gesscale-paper", "mdl-nlunaware")
KNOWN = Knowledge(
    sustained={"map": tuple(Sustained(instances=n, records_per_s=100.0 * n**0.9) for n in (1, 2, 3))}
)


def pool(delays_ms: list[list[float]]) -> NodePool:
    return NodePool(
        nodes=tuple(Node(name=f"n{number}") for number in range(len(delays_ms))),
        delays_s=tuple(tuple(ms / 1000 for ms in row) for row in delays_ms),
    )


def overloaded(nodes: NodePool, own: tuple[str, ...]) -> Snapshot:
    found = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 1000},
        readings=[
            *alike("source", records_per_s=100 * len(own), wait_out_share=0.9, backlog=60_000),
            *alike("map", instances=len(own), records_per_s=100),
        ],
    )
    return replace(found, nodes=nodes, placement={"map": own})


def advice(name: str, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Advice:
    return create(name)(snapshot, knowledge).advice["map"]


@pytest.mark.parametrize("name", POLICIES)
def test_a_pool_with_one_node_is_full_and_says_so(name: str) -> None:
    for knowledge in (NOTHING_KNOWN, KNOWN):
        found = advice(name, overloaded(pool([[0]]), ("n0",)), knowledge)
        assert (found.parallelism, found.nodes) == (1, None)
        assert any(reason.kind is ReasonKind.CLAMPED for reason in found.reasons)


def test_where_the_two_directions_differ_the_longer_counts() -> None:
    """n1 is near on the way there and far on the way back; n2 is 50 ms away both ways."""
    nodes = pool([[0, 1, 50], [200, 0, 60], [50, 60, 0]])
    assert advice("gesscale-paper", overloaded(nodes, ("n0",))).nodes == ("n0", "n2")


def test_a_detour_that_is_shorter_than_the_direct_way_is_not_believed() -> None:
    """Measured delays break the triangle inequality: from n0 to n2 it is 300 ms, over n1 it were 20 ms."""
    nodes = pool([[0, 10, 300], [10, 0, 10], [300, 10, 0]])
    found = advice("gesscale-paper", overloaded(nodes, ("n0", "n1")))
    assert found.nodes == ("n0", "n1", "n2")
    assert "goes from 10 to 300 ms" in "; ".join(map(str, found.reasons))


@pytest.mark.parametrize("seed", range(5))
def test_any_table_of_delays_gives_different_free_nodes(seed: int) -> None:
    rng = random.Random(seed)
    nodes = pool([[rng.choice((0, 0, 1, 20, 300, 5000)) for _ in range(6)] for _ in range(6)])
    for name in POLICIES:
        for knowledge in (NOTHING_KNOWN, KNOWN):
            found = advice(name, overloaded(nodes, ("n0", "n1")), knowledge)
            if found.nodes is not None:
                assert len(set(found.nodes)) == len(found.nodes) == found.parallelism
                assert found.nodes[:2] == ("n0", "n1")


@pytest.mark.parametrize("ms", [0.0, 80.0])
def test_where_all_are_equally_far_the_first_in_the_table_joins(ms: float) -> None:
    nodes = pool([[0.0 if a == b else ms for a in range(4)] for b in range(4)])
    assert advice("gesscale-paper", overloaded(nodes, ("n1",))).nodes == ("n1", "n0")
    assert advice("gesscale", overloaded(nodes, ("n1",)), KNOWN).parallelism == 4


def test_a_delay_of_nothing_everywhere_teaches_nothing_of_delays_and_does_no_harm() -> None:
    nodes = pool([[0.0] * 4 for _ in range(4)])
    known = NOTHING_KNOWN
    for own in (("n0",), ("n0", "n1"), ("n0", "n1", "n2")):
        known = known.with_snapshot(overloaded(nodes, own))
    assert [point.delay_s for point in known.sustained_by("map")] == [0.0, 0.0, 0.0]
    assert advice("gesscale", overloaded(nodes, ("n0", "n1", "n2")), known).parallelism == 4


def test_a_node_that_vanishes_between_choice_and_act_is_chosen_again() -> None:
    nodes = pool([[0, 10, 40, 90], [10, 0, 30, 80], [40, 30, 0, 50], [90, 80, 50, 0]])
    found = advice("gesscale-paper", overloaded(nodes, ("n0",)))
    assert found.nodes == ("n0", "n1")
    places = Places(pool=nodes.with_node("n1", available=False), placement={"map": ("n0",)})
    chosen = places.for_plan({"map": 2}, {"map": found.nodes})
    assert chosen.placement["map"] == ("n0", "n2")
    assert "n1 cannot be used any more" in chosen.told


def test_a_node_of_its_own_that_vanished_stays_until_the_engine_replaces_it() -> None:
    """The snapshot is from before: its node is gone, and yet named as one that it runs on."""
    nodes = pool([[0, 10, 40], [10, 0, 30], [40, 30, 0]]).with_node("n0", available=False)
    for name in POLICIES:
        found = advice(name, overloaded(nodes, ("n0",)), KNOWN)
        assert found.nodes is not None
        assert found.nodes[0] == "n0"
        assert "n0" not in found.nodes[1:]
