"""Simulated instances on nodes: what delays cost, nodes that a decision names, nodes that go and return."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.arrivals.load import Constant, Load, Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SimulatedEngine, SourceModel
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.simulation import simulate, simulate_ideal
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.measurement import Snapshot
from elastream.nodes import Node, NodePool
from elastream.policies.catalog import create

PLACES_MS = {"a": 0.0, "b": 10.0, "c": 40.0, "d": 160.0, "e": 300.0}
POOL = NodePool(
    nodes=tuple(Node(name=name) for name in PLACES_MS),
    delays_s=tuple(tuple(abs(x - y) / 1000 for y in PLACES_MS.values()) for x in PLACES_MS.values()),
)


def model(load: Load | None = None, *, nodes: tuple[str, ...] = ("a",), replay_speed: float = 1e9) -> EngineModel:
    """One instance does 100/s, and each millisecond of delay costs one record per second."""
    return EngineModel(
        dataflow=Dataflow.of([Operator(name="source", source=True), Operator(name="map")], [("source", "map")]),
        sources={"source": SourceModel(load=load or Constant(records_per_s=1000), replay_speed=replay_speed)},
        operators={
            "map": OperatorModel(capacity=PowerLaw(per_instance_per_s=100, delay_cost=1000), queue_records=500)
        },
        initial_plan=Plan({"map": len(nodes)}),
        nodes=POOL,
        initial_nodes={"map": nodes},
    )


def measured(engine: SimulatedEngine) -> Snapshot:
    engine.wait(60)
    return engine.measure()


def rescale(engine: SimulatedEngine, n: int, nodes: tuple[str, ...] = ()) -> RescaleOutcome:
    after = Plan({"map": n})
    wanted = {"map": nodes} if nodes else {}
    return engine.rescale(Decision(number=1, at_s=engine.now(), before=engine.plan(), after=after, nodes=wanted))


@pytest.mark.parametrize(("nodes", "rate"), [(("a",), 100), (("a", "b"), 190), (("b", "d"), 50), (("a", "e"), 0)])
def test_the_largest_delay_between_the_nodes_in_use_costs_capacity(nodes: tuple[str, ...], rate: float) -> None:
    snapshot = measured(SimulatedEngine(model(nodes=nodes)))
    assert snapshot.measurements["map"].observed_per_s == pytest.approx(rate, rel=0.01)
    assert snapshot.placement == {"map": nodes}
    assert snapshot.nodes == POOL


def test_a_decision_may_name_the_nodes() -> None:
    engine = SimulatedEngine(model())
    assert rescale(engine, 3, ("a", "d", "e")) == RescaleOutcome(plan=Plan({"map": 3}), succeeded=True, took_s=0.0)
    assert measured(engine).placement == {"map": ("a", "d", "e")}


def test_without_names_the_nearest_join_and_the_farthest_leave() -> None:
    engine = SimulatedEngine(model(nodes=("a", "e")))
    rescale(engine, 3)
    assert measured(engine).placement == {"map": ("a", "e", "d")}
    rescale(engine, 2)
    assert measured(engine).placement == {"map": ("e", "d")}


def test_a_node_that_disappears_between_plan_and_act_is_chosen_again() -> None:
    engine = SimulatedEngine(model())
    engine.set_node("b", available=False)
    outcome = rescale(engine, 2, ("a", "b"))
    assert outcome.succeeded
    assert outcome.detail == "map: b cannot be used any more, chosen again"
    assert measured(engine).placement == {"map": ("a", "c")}


def test_a_node_that_was_never_there_is_chosen_again_too() -> None:
    engine = SimulatedEngine(model())
    assert rescale(engine, 2, ("a", "z")).succeeded
    assert measured(engine).placement == {"map": ("a", "b")}


def test_with_no_node_left_it_says_so_and_keeps_what_runs() -> None:
    engine = SimulatedEngine(model(nodes=("a", "b")))
    for name in ("c", "d", "e"):
        engine.set_node(name, available=False)
    outcome = rescale(engine, 3)
    assert (outcome.succeeded, outcome.plan) == (False, Plan({"map": 2}))
    assert outcome.detail == "no node is left: 'map' was to have 3, and there are nodes for 2"
    assert measured(engine).placement == {"map": ("a", "b")}
    engine.set_node("d", available=True)
    assert rescale(engine, 3).succeeded


def test_the_manager_tries_again_when_a_node_returns() -> None:
    engine = SimulatedEngine(model(Constant(records_per_s=150)))
    for name in "bcde":
        engine.set_node(name, available=False)
    knobs = Knobs(interval_s=60, warm_up_intervals=0, rollback_drop=None, target_rate_ratio=0)
    manager = Manager(engine=engine, policy=create("gesscale"), knobs=knobs, clock=engine)
    manager.run(until_s=600)
    assert engine.plan() == {"map": 1}
    engine.set_node("b", available=True)
    manager.run(until_s=900)
    assert engine.plan() == {"map": 2}


def test_the_policy_names_the_nodes_and_the_engine_takes_them() -> None:
    load = Steps(steps=((0, 90), (600, 260), (3000, 90)))
    knobs = Knobs(interval_s=60, rollback_drop=None, target_rate_ratio=0)
    found = simulate(model(load), create("gesscale-paper"), knobs, duration_s=5400)
    placements = [snapshot.placement["map"] for snapshot in found.snapshots]
    assert ("a", "b") in placements
    assert placements[-1] in {("a",), ("a", "b"), ("b",)}
    named = [decision.nodes["map"] for decision in found.decisions]
    assert all(nodes in placements for nodes in named)


def test_the_ideal_has_the_nodes_that_are_nearest_to_each_other() -> None:
    ideal = Ideal(model())
    assert [ideal.least_plan({"source": rate})["map"] for rate in (90, 150, 190, 240, 400)] == [1, 2, 2, 3, 3]
    found = simulate_ideal(model(Steps(steps=((0, 90), (600, 240)))), duration_s=1200)
    assert found.elasticity.reconfigurations == 1
    assert (found.elasticity.accuracy_over, found.elasticity.accuracy_under) == (0, 0)
    assert found.elasticity.excess_time < 0.01


def test_operators_share_the_nodes() -> None:
    dataflow = Dataflow.of(
        [Operator(name="source", source=True), Operator(name="one"), Operator(name="two")],
        [("source", "one"), ("one", "two")],
    )
    part = OperatorModel(capacity=PowerLaw(per_instance_per_s=100))
    both = EngineModel(
        dataflow=dataflow,
        sources={"source": SourceModel(load=Constant(records_per_s=10))},
        operators={"one": part, "two": part},
        initial_plan=Plan({"one": 2, "two": 2}),
        nodes=POOL,
    )
    engine = SimulatedEngine(both)
    placement = measured(engine).placement
    assert len({*placement["one"], *placement["two"]}) == 4
    shift = Decision(number=1, at_s=60, before=engine.plan(), after=Plan({"one": 1, "two": 4}))
    assert engine.rescale(shift).succeeded  # only if one gives its node back first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial_nodes": {"map": ("a", "b")}}, "'map' has 1 instances, but 2 nodes"),
        ({"initial_nodes": {"mop": ("a",)}}, "initial_nodes: 'mop' does not belong here"),
        ({"initial_nodes": {"map": ("z",)}}, "unknown node 'z'"),
        ({"nodes": None}, "initial_nodes: 'map' runs on nodes, but there are none"),
    ],
)
def test_first_nodes_that_cannot_be_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(model(), **change)  # type: ignore[arg-type]


# --- a source that does not hurry -------------------------------------------------------------------------------


def after_a_stop(replay_speed: float) -> SimulatedEngine:
    """The load is 100/s for ten minutes, then 40/s; a stop of 60 s in the first half."""
    load = Steps(steps=((0, 100), (600, 40)))
    engine = SimulatedEngine(replace(model(load, nodes=("a", "b"), replay_speed=replay_speed), downtime_s=60.0))
    engine.wait(120)
    rescale(engine, 3, ("a", "b", "c"))
    return engine


def test_with_a_replay_speed_of_one_what_was_held_up_stays_late() -> None:
    engine = after_a_stop(1.0)
    assert engine.totals().sources["source"].backlog == pytest.approx(6000)
    engine.wait(600 - engine.now() + 30)
    assert engine.history.emitted_per_s["source"][-1] == pytest.approx(100)  # what came a minute ago
    engine.wait(60)
    assert engine.history.emitted_per_s["source"][-1] == pytest.approx(40)
    assert engine.totals().sources["source"].backlog == pytest.approx(60 * 40)


@pytest.mark.parametrize("speed", [2.0, 4.0])
def test_a_higher_replay_speed_makes_up_for_it(speed: float) -> None:
    engine = after_a_stop(speed)
    engine.wait(5)
    assert engine.history.emitted_per_s["source"][-1] == pytest.approx(min(100 * speed, 300 - 40), rel=0.1)
    engine.wait(120)
    assert engine.totals().sources["source"].backlog == pytest.approx(0, abs=1)


def test_a_late_source_that_is_held_back_waits_all_the_time() -> None:
    engine = SimulatedEngine(model(Constant(records_per_s=105), replay_speed=1.0))
    engine.wait(300)
    engine.measure()
    assert measured(engine).measurements["source"].wait_out_share == pytest.approx(1, abs=0.05)


@given(st.lists(st.tuples(st.floats(1, 150), st.floats(0.1, 7)), min_size=1, max_size=9))
@settings(max_examples=200)
def test_a_load_that_ends_is_replayed_to_its_end(stretches: list[tuple[float, float]]) -> None:
    """After a stop, and however its stretches lie to the steps of the engine."""
    ends_s = [*accumulate(lasts_s for _, lasts_s in stretches)]
    begins_s = [0.0, *ends_s]
    rates_per_s = [*(rate_per_s for rate_per_s, _ in stretches), 0.0]
    load = Steps(steps=tuple(zip(begins_s, rates_per_s, strict=True)))
    engine = SimulatedEngine(replace(model(load, nodes=("a", "b"), replay_speed=1.5), downtime_s=3.3))
    rescale(engine, 3, ("a", "b", "c"))
    engine.wait(4 * ends_s[-1] + 20)
    totals = engine.totals().sources["source"]
    assert totals.backlog == pytest.approx(0, abs=1e-6)
    assert totals.emitted == pytest.approx(totals.arrived)


def test_a_replay_speed_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="replay_speed must be at least 1, or infinite"):
        SourceModel(load=Constant(records_per_s=1), replay_speed=0.5)


# --- several operators ------------------------------------------------------------------------------------------


def in_a_row(load: Load, **nodes: tuple[str, ...]) -> EngineModel:
    """`map` feeds `sum`; both as `map` is in the model of one."""
    one = model(load)
    names = ("source", "map", "sum")
    return replace(
        one,
        dataflow=Dataflow.of((Operator(name=name, source=name == "source") for name in names), pairwise(names)),
        operators=dict.fromkeys(names[1:], one.operators["map"]),
        initial_plan=Plan({name: len(nodes[name]) for name in names[1:]}),
        initial_nodes=nodes,
    )


@pytest.mark.parametrize(("sum_on", "delay_s", "rate"), [("b", 0.01, 90.0), ("c", 0.04, 60.0), ("a", 0.0, 100.0)])
def test_the_delay_to_the_operator_before_costs_capacity_too(sum_on: str, delay_s: float, rate: float) -> None:
    snapshot = measured(SimulatedEngine(in_a_row(Constant(records_per_s=1000), map=("a",), sum=(sum_on,))))
    assert (snapshot.delay_s("map"), snapshot.delay_s("sum")) == (0.0, pytest.approx(delay_s))
    assert snapshot.measurements["sum"].observed_per_s == pytest.approx(rate, rel=0.01)
