"""Gesscale: when it grows and shrinks, by how much, on which nodes, and what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastream.dataflow import Operator
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.nodes import NodePool
from elastream.policies.catalog import Policy, create, info
from elastream.policies.gesscale import Gesscale
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.mst.mst_model import Sustained
from elastream.policies.proposal import Advice, ReasonKind
from elastream.testing import alike, chain, snapshot_of
from tests.nodes.pools import line

PAPER = create("gesscale-paper")
POOL = line(a=0, b=10, c=40, d=160, e=300)


def window(
    *,
    nodes: tuple[str, ...] = ("a", "b"),
    processed: float = 100.0,
    arriving: float | None = None,
    waits: float = 0.0,
    backlog: float = 0.0,
    pool: NodePool | None = POOL,
    **bounds: int | bool,
) -> Snapshot:
    """One operator behind a source that waited for it for a share of the window; rates are of all instances."""
    count = len(nodes)
    found = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": processed if arriving is None else arriving},
        readings=[
            *alike("source", records_per_s=processed, wait_out_share=waits, backlog=backlog),
            *alike("map", instances=count, records_per_s=processed / count),
        ],
        operators=[Operator(name="map", **bounds)],  # type: ignore[arg-type]
    )
    return found if pool is None else replace(found, nodes=pool, placement={"map": nodes})


def seen(*points: tuple[int, float, float]) -> Knowledge:
    """Instances, delay in milliseconds, records per second."""
    sustained = tuple(Sustained(instances=n, delay_s=ms / 1000, records_per_s=rate) for n, ms, rate in points)
    return Knowledge(sustained={"map": sustained})


def truth(n: int, ms: float) -> tuple[int, float, float]:
    return n, ms, 100 * n**0.9 - 0.3 * ms


FULL = seen(truth(1, 0), truth(2, 10), truth(3, 40), truth(4, 160))


def advice(policy: Policy, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Advice:
    return policy(snapshot, knowledge).advice["map"]


def told(found: Advice, kind: ReasonKind) -> str:
    return "; ".join(reason.text for reason in found.reasons if reason.kind is kind)


# --- scaling up -------------------------------------------------------------------------------------------------


def test_an_overloaded_operator_gets_one_more_on_the_nearest_node() -> None:
    found = advice(PAPER, window(waits=0.8))
    assert (found.parallelism, found.nodes) == (3, ("a", "b", "c"))
    assert told(found, ReasonKind.NODES) == "c to join: the largest delay goes from 10 to 40 ms"
    assert "source for 80% of the window" in told(found, ReasonKind.BOTTLENECK)


def test_without_high_back_pressure_nothing_grows() -> None:
    assert advice(PAPER, window(waits=0.5)).parallelism == 2


def test_without_nodes_only_the_number_is_said() -> None:
    found = advice(PAPER, window(waits=0.8, pool=None))
    assert (found.parallelism, found.nodes) == (3, None)


def test_a_node_that_is_gone_or_taken_does_not_join() -> None:
    gone = POOL.with_node("c", available=False)
    assert advice(PAPER, window(waits=0.8, pool=gone)).nodes == ("a", "b", "d")


def test_no_node_left_is_said_what_runs_is_kept_and_it_tries_again_when_one_returns() -> None:
    pool = line(a=0, b=10, c=40).with_node("c", available=False)
    found = advice(PAPER, window(waits=0.8, pool=pool))
    assert (found.parallelism, found.nodes) == (2, None)
    assert told(found, ReasonKind.CLAMPED) == "3 wanted, but no node is left for more than 2"
    back = pool.with_node("c", available=True)
    assert advice(PAPER, window(waits=0.8, pool=back)).nodes == ("a", "b", "c")


def test_bounds_are_kept() -> None:
    assert advice(PAPER, window(waits=0.8, max_parallelism=2)).parallelism == 2
    assert advice(PAPER, window(waits=0.8, fixed=True)).parallelism == 2


def test_a_scale_up_that_gains_too_little_for_its_cost_is_skipped_with_a_reason() -> None:
    snapshot = window(nodes=("a", "b", "c", "d"), processed=300, waits=0.8)
    assert advice(PAPER, snapshot, FULL).parallelism == 5
    found = advice(create("gesscale-paper", {"least_gain": 0.2}), snapshot, FULL)
    assert (found.parallelism, found.nodes) == (4, None)
    assert "1 more would gain" in told(found, ReasonKind.HELD)
    assert "less than 20.0%" in told(found, ReasonKind.HELD)


def test_a_node_so_far_away_that_it_would_do_harm_does_not_join() -> None:
    harmful = seen((1, 0, 100.0), (2, 10, 180.0), (3, 40, 240.0), (4, 160, 200.0))
    snapshot = window(nodes=("a", "b", "c", "d"), processed=200, waits=0.8)
    assert advice(PAPER, snapshot, harmful).parallelism == 4


def test_a_dear_node_gains_less() -> None:
    dear = replace(POOL, nodes=tuple(replace(node, cost=10.0 if node.name == "c" else 1.0) for node in POOL.nodes))
    policy = create("gesscale-paper", {"least_gain": 0.1})
    assert advice(policy, window(waits=0.8, processed=184), FULL).parallelism == 3
    assert advice(policy, window(waits=0.8, processed=184, pool=dear), FULL).parallelism == 2


def test_by_the_input_rate_it_grows_by_more_than_one() -> None:
    found = advice(Gesscale(), window(waits=0.9, processed=184, arriving=290), FULL)
    assert (found.parallelism, found.nodes) == (4, ("a", "b", "c", "d"))
    assert found.target_per_s == pytest.approx(290)
    assert "290/s arrive, and 2 sustain 184/s: 4 should sustain" in told(found, ReasonKind.FORMULA)


def test_a_backlog_asks_for_more() -> None:
    snapshot = window(nodes=("a",), waits=0.9, processed=100, arriving=150, backlog=180_000)
    assert advice(Gesscale(catch_up_s=1800), snapshot, FULL).target_per_s == 250


def test_while_it_works_off_its_backlog_in_time_it_is_left_alone() -> None:
    snapshot = window(waits=0.9, processed=184, arriving=150, backlog=18_000)
    found = advice(Gesscale(), snapshot, FULL)
    assert found.parallelism == 2
    assert "enough for what arrives and for its backlog in 3600 s" in told(found, ReasonKind.HELD)
    assert advice(PAPER, snapshot, FULL).parallelism == 3


def test_it_grows_no_further_than_the_model_may_be_asked() -> None:
    pool = line(**{f"n{i}": float(i) for i in range(30)})
    snapshot = window(nodes=("n0",), waits=0.9, processed=100, arriving=5_000, pool=pool)
    found = advice(Gesscale(), snapshot, FULL)
    assert found.parallelism == 16
    assert "no further, as 17 instances are more than 4 times the 4" in told(found, ReasonKind.FORMULA)


def test_before_the_model_is_calibrated_it_grows_one_by_one_without_a_prior() -> None:
    snapshot, two = window(waits=0.9, processed=184, arriving=290), seen(truth(1, 0), truth(2, 10))
    assert advice(Gesscale(prior=False), snapshot, two).parallelism == 3
    assert advice(Gesscale(), snapshot, two).parallelism == 4


# --- scaling down -----------------------------------------------------------------------------------------------


def test_it_shrinks_by_as_many_as_the_model_allows_and_gives_back_the_farthest() -> None:
    found = advice(PAPER, window(nodes=("a", "e", "b", "d", "c"), processed=120), FULL)
    assert (found.parallelism, found.nodes) == (2, ("a", "b"))
    assert told(found, ReasonKind.NODES) == "e, d, c to leave: the largest delay goes from 300 to 10 ms"


@pytest.mark.parametrize(("processed", "left"), [(79, 1), (81, 2), (146, 2), (148, 3), (204, 3), (207, 4)])
def test_a_fifth_is_left_to_spare(processed: float, left: int) -> None:
    """1, 2 and 3 sustain 100, 183.6 and 256.8 records per second on the nodes that would be left."""
    found = advice(PAPER, window(nodes=("a", "b", "c", "d"), processed=processed), FULL)
    assert found.parallelism == left


def test_it_never_goes_below_the_least_parallelism() -> None:
    nodes = ("a", "b", "c", "d")
    assert advice(PAPER, window(nodes=nodes, processed=1, min_parallelism=2), FULL).parallelism == 2
    assert advice(PAPER, window(nodes=nodes, processed=1), FULL).parallelism == 1


def test_the_input_rate_counts_where_it_is_above_what_was_processed() -> None:
    found = advice(PAPER, window(nodes=("a", "b", "c", "d"), processed=79, arriving=140), FULL)
    assert found.parallelism == 2


def test_far_below_what_was_measured_it_is_not_shrunk() -> None:
    found = advice(PAPER, window(nodes=("a", "b", "c", "d"), processed=10), seen(truth(4, 160)))
    assert found.parallelism == 2
    far = advice(PAPER, window(nodes=("a", "b"), processed=10), seen((8, 300, 500.0)))
    assert far.parallelism == 2
    assert "not shrunk, as 1 instances are fewer than half" in told(far, ReasonKind.FORMULA)


def test_without_a_model_it_is_not_shrunk_and_says_why() -> None:
    found = advice(PAPER, window(processed=1))
    assert found.parallelism == 2
    assert told(found, ReasonKind.NO_DATA) == "never seen at its limit, so it is not shrunk"


def test_measurements_that_contradict_each_other_are_told() -> None:
    found = advice(PAPER, window(processed=100), seen((1, 0, 300.0), (2, 10, 100.0), (3, 40, 240.0)))
    assert "contradict each other" in told(found, ReasonKind.LEARNED)


# --- the rest ---------------------------------------------------------------------------------------------------


def test_without_back_pressure_there_is_no_opinion() -> None:
    silent = snapshot_of(edges=chain("source", "map", "sink"), source_rates={"source": 200}, readings=alike("map"))
    found = Gesscale()(silent)
    assert found.parallelism == {}
    assert "back pressure" in told(found.advice["map"], ReasonKind.NO_DATA)


def test_two_operators_that_grow_do_not_take_the_same_node() -> None:
    snapshot = snapshot_of(
        edges=[("s", "one"), ("t", "two")],
        source_rates={"s": 100, "t": 100},
        readings=[r for n in ("s", "t") for r in alike(n, wait_out_share=0.9)] + alike("one") + alike("two"),
    )
    snapshot = replace(snapshot, nodes=POOL, placement={"one": ("a",), "two": ("e",)})
    found = PAPER(snapshot).advice
    assert (found["one"].nodes, found["two"].nodes) == (("a", "b"), ("e", "d"))
    crowded = replace(snapshot, nodes=line(a=0, b=10, e=30))
    found = PAPER(crowded).advice
    assert (found["one"].nodes, found["two"].nodes, found["two"].parallelism) == (("a", "b"), None, 1)


def test_saturated_windows_teach_what_is_sustained_at_which_delay() -> None:
    snapshot = window(nodes=("a", "c"), processed=150, waits=0.9)
    (point,) = NOTHING_KNOWN.with_snapshot(snapshot).sustained_by("map")
    assert (point.instances, point.delay_s, point.records_per_s) == (2, 0.04, pytest.approx(150))
    idle = replace(snapshot, readings=tuple(replace(r, useful_s=r.window_s / 2) for r in snapshot.readings))
    assert NOTHING_KNOWN.with_snapshot(idle).sustained_by("map") == ()


@pytest.mark.parametrize("name", ["gesscale", "gesscale-paper", "mdl-nlunaware", "thr-nlaware", "thr-nlunaware"])
def test_every_variant_is_in_the_catalog_and_says_its_name(name: str) -> None:
    proposal = create(name)(window(waits=0.9))
    assert proposal.policy == name
    assert proposal.advice["map"].parallelism == 3
    assert info(name).knobs["interval_s"] == 60


def test_the_unaware_variants_choose_at_random_by_their_seed() -> None:
    for name in ("mdl-nlunaware", "thr-nlunaware"):
        chosen = [create(name, {"seed": seed})(window(waits=0.9)).advice["map"].nodes for seed in range(40)]
        again = [create(name, {"seed": seed})(window(waits=0.9)).advice["map"].nodes for seed in range(40)]
        assert chosen == again
        assert {nodes[-1] for nodes in chosen if nodes} == {"c", "d", "e"}


def test_the_unaware_model_knows_nothing_of_delays() -> None:
    linear = create("mdl-nlunaware")
    found = linear(window(nodes=("a", "e", "b"), processed=150), seen((1, 0, 100.0), (2, 300, 200.0)))
    assert found.advice["map"].parallelism == 2


def test_thresholds_take_back_the_farthest_node() -> None:
    idle = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 1},
        readings=alike("map", instances=3, cpu_utilization=0.4),
    )
    idle = replace(idle, nodes=POOL, placement={"map": ("a", "e", "b")})
    assert create("thr-nlaware")(idle).advice["map"].nodes == ("a", "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"spare": 1.0}, "spare must be from 0 to 0.99"), ({"high_back_pressure": 2}, "high_back_pressure must be")],
)
def test_options_outside_their_bounds_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create("gesscale", options)
