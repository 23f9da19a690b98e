"""Which workers start and stop for a placement, and what becomes of nodes that go away: values in, values out."""

from __future__ import annotations

from itertools import combinations

import pytest
from pools import line

from elastream.nodes.places import NoNodeLeftError, Places
from elastream.nodes.roster import AWAY_S, Roster, round_trips_s

POOL = line(a=0, b=10, c=40, d=160)
SUBSETS = [set(names) for size in range(3) for names in combinations("abc", size)]


def roster(*up: str) -> Roster:
    found = Roster(pool=POOL)
    for name in up:
        found = found.started(name)
    return found


def test_workers_start_where_instances_will_be_and_stop_where_none_are() -> None:
    now = roster("a", "c")
    assert now.to_start({"map": ("a", "b")}) == ("b",)
    assert now.to_stop({"map": ("a", "b")}) == ("c",)
    assert (now.to_start({"map": ("a", "c")}), now.to_stop({"map": ("c", "a")})) == ((), ())


@pytest.mark.parametrize("needed", SUBSETS)
@pytest.mark.parametrize("up", SUBSETS)
def test_after_the_changes_there_is_a_worker_on_every_node_in_use_and_on_no_other(
    up: set[str], needed: set[str]
) -> None:
    now, placement = roster(*up), {"map": tuple(sorted(needed))}
    starts, stops = now.to_start(placement), now.to_stop(placement)
    for name in starts:
        now = now.started(name)
    for name in stops:
        now = now.stopping(name)
    assert now.up == needed
    assert not set(starts) & up
    assert now.leaving == up - needed


def test_a_node_that_leaves_is_not_free_until_it_has_finished() -> None:
    leaving = roster("a", "b").stopping("b")
    assert not leaving.at(0)["b"].available
    assert leaving.stopped("b").at(0)["b"].available


def test_a_node_that_is_lost_is_left_alone_for_a_while_and_then_tried_again() -> None:
    lost = roster("a", "b").lost("b", now_s=100)
    assert lost.up == {"a"}
    assert not lost.at(100 + AWAY_S - 1)["b"].available
    assert lost.at(100 + AWAY_S)["b"].available
    assert lost.started("b").at(100)["b"].available


def test_between_plan_and_act_another_node_is_chosen_for_one_that_is_gone() -> None:
    pool = roster("a").lost("b", now_s=0).at(1)
    chosen = Places(pool=pool, placement={"map": ("a",)}).for_plan({"map": 2}, {"map": ("a", "b")})
    assert chosen.placement == {"map": ("a", "c")}
    assert chosen.told == "map: b cannot be used any more, chosen again"


def test_where_no_node_is_left_a_plan_is_refused() -> None:
    pool = roster("a").lost("b", 0).lost("c", 0).lost("d", 0).at(1)
    with pytest.raises(NoNodeLeftError, match="'map' was to have 2, and there are nodes for 1"):
        Places(pool=pool, placement={"map": ("a",)}).for_plan({"map": 2}, {})


def test_a_node_in_use_that_is_gone_is_replaced_by_the_nearest() -> None:
    chosen = Places(
        pool=POOL.with_node("a", available=False), placement={"map": ("a", "b"), "sink": ("c",)}
    ).without_gone(up=POOL.names)
    assert chosen.placement == {"map": ("b", "d"), "sink": ("c",)}
    assert (chosen.told, chosen.missing) == ("map: a is gone, d in its place", 0)


def test_without_another_it_keeps_its_place_until_it_returns() -> None:
    pool = POOL
    for name in ("a", "c", "d"):
        pool = pool.with_node(name, available=False)
    chosen = Places(pool=pool, placement={"map": ("a", "b")}).without_gone(up=("b",))
    assert chosen.placement == {"map": ("b", "a")}
    assert chosen.missing == 1
    assert chosen.told == "map: a is gone, and no other node is left: it has 1 fewer until one returns"
    back = Places(pool=POOL, placement=chosen.placement).without_gone(up=("b",))
    assert (back.placement, back.told) == (chosen.placement, "map: a is back")


def test_a_fetch_takes_the_round_trip_to_the_farthest_node_in_use() -> None:
    assert round_trips_s(POOL, ("a", "c", "b", "a")) == {"a": 0.04, "c": 0.04, "b": 0.03}
    assert round_trips_s(POOL, ("d",)) == {"d": 0.0}
