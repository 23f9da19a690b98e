"""Gesscale whose model decides both ways: it grows by what arrives, and a removal must pay for its action."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from elastream.arrivals.load import Constant
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import EngineModel, OperatorModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.forecast import Forecaster
from elastream.forecast.calendar_format import parse_calendar
from elastream.manager.knobs import Knobs
from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.measurement import Snapshot
from elastream.nodes import NodePool
from elastream.options import build
from elastream.policies.catalog import create, info
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
    waits: float | None = 0.0,
    behind: float = 0.0,
    queued: float | None = None,
    useful: float = 1.0,
    pool: NodePool | None = POOL,
) -> Snapshot:
    """`behind` waits at the source, `queued` at the operator; rates are of all instances."""
    found = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": processed if arriving is None else arriving},
        readings=[
            *alike("source", records_per_s=processed, wait_out_share=waits, backlog=behind),
            *alike(
                "map",
                instances=len(nodes),
                records_per_s=processed / len(nodes),
                useful_share=useful,
                backlog=None if queued is None else queued / len(nodes),
            ),
        ],
    )
    return found if pool is None else replace(found, nodes=pool, placement={"map": nodes})


def truth(n: int, ms: float) -> Sustained:
    return Sustained(instances=n, delay_s=ms / 1000, records_per_s=100 * n**0.9 - 0.3 * ms)


FULL = Knowledge(
    sustained={"map": (truth(1, 0), truth(2, 10), truth(3, 40), truth(4, 160))}, action_s=120.0, watched_s=10_000.0
)


def advice(snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN, **options: object) -> Advice:
    return create("gesscale", options)(snapshot, knowledge).advice["map"]


def told(found: Advice, kind: ReasonKind) -> str:
    return "; ".join(reason.text for reason in found.reasons if reason.kind is kind)


# --- A: it grows by what arrives --------------------------------------------------------------------------------


def test_it_grows_before_there_is_back_pressure_and_at_once_to_what_is_enough() -> None:
    """Two sustain 184; where 290 arrive four are needed, and nothing waits yet."""
    rising = window(processed=184, arriving=290)
    found = advice(rising, FULL)
    assert (found.parallelism, found.nodes) == (4, ("a", "b", "c", "d"))
    assert "arrive" in told(found, ReasonKind.FORMULA)
    assert PAPER(rising, FULL).advice["map"].parallelism == 2
    assert advice(rising, FULL, grow_by_model=False).parallelism == 2


def test_one_measurement_is_enough_to_grow_by_more_than_one() -> None:
    known = Knowledge(sustained={"map": (truth(2, 10),)})
    assert advice(window(processed=184, arriving=240), known).parallelism == 3
    assert advice(window(processed=184, arriving=320), known).parallelism in (4, 5)


def test_it_grows_by_what_is_expected_as_far_as_that_is_trusted() -> None:
    """A day of 100 to 300/s, a while before its rise: two sustain 184 and would do for what arrives."""
    times_s = [300.0 * number for number in range(1, 288 * 2 + 65)]
    forecaster = Forecaster().warmed((t, 200 - 100 * math.cos(math.tau * t / 86_400)) for t in times_s)
    now = forecaster.history.last
    snapshot = replace(window(processed=now), at_s=times_s[-1])
    known = replace(FULL, interval_s=60.0, forecasters={"source": forecaster})
    assert advice(snapshot, known).parallelism == 2
    assert advice(snapshot, known, short_costs=30).parallelism == 4
    unknown = replace(known, forecasters={"source": Forecaster().observed(times_s[-1], now)})
    assert advice(snapshot, unknown, short_costs=30) == advice(snapshot, known)
    assert create("gesscale-paper")(snapshot, known).outlook == ()


def test_it_is_ready_for_what_a_calendar_announces() -> None:
    text = 'events: [{name: sale, every: day, at: "00:05", for: 1 h, factor: 2}]'
    known = replace(FULL, interval_s=60.0, calendar=parse_calendar(text, "c"))
    proposal = create("gesscale")(window(processed=140), known)
    assert (proposal.advice["map"].parallelism or 0) >= 3
    assert "source is expected to reach 280/s: sale (calendar)" in [one.text for one in proposal.reasons]


# --- B: a removal must pay for its action -----------------------------------------------------------------------


def test_one_instance_is_removed_only_once_that_was_possible_for_several_actions() -> None:
    falling = window(nodes=("a", "b", "c", "d"), processed=200)
    found = advice(falling, FULL)
    assert found.parallelism == 4
    assert "must pay for its action" in told(found, ReasonKind.HELD)
    assert PAPER(falling, FULL).advice["map"].parallelism == 3
    assert advice(falling, FULL, removal_pays_after=0).parallelism == 3


def test_it_stays_removable_by_the_watched_time() -> None:
    policy, falling = Gesscale(), window(nodes=("a", "b", "c", "d"), processed=200)
    known = policy.remember(falling, FULL)
    for minutes in (5, 8):
        known = policy.remember(falling, replace(known, watched_s=10_000 + 60 * minutes))
        assert policy(falling, known).advice["map"].parallelism == 4
    later = policy.remember(falling, replace(known, watched_s=10_000 + 600))
    assert policy(falling, later).advice["map"].parallelism == 3


def test_a_window_in_which_all_are_needed_begins_anew() -> None:
    policy, falling = Gesscale(), window(nodes=("a", "b", "c", "d"), processed=200)
    known = policy.remember(falling, FULL)
    known = policy.remember(window(nodes=("a", "b", "c", "d"), processed=250), replace(known, watched_s=10_300))
    known = policy.remember(falling, replace(known, watched_s=10_700))
    assert policy(falling, known).advice["map"].parallelism == 4


def test_two_or_more_pay_at_once() -> None:
    assert advice(window(nodes=("a", "b", "c", "d"), processed=120), FULL).parallelism == 2


def test_where_actions_take_no_time_one_is_removed_at_once() -> None:
    falling = window(nodes=("a", "b", "c", "d"), processed=200)
    assert advice(falling, replace(FULL, action_s=0.0)).parallelism == 3


# --- C: back pressure without excess arrival is backlog ---------------------------------------------------------


def test_back_pressure_of_a_backlog_is_no_reason_to_grow() -> None:
    after_an_action = window(processed=184, arriving=150, waits=0.9, behind=18_000)
    found = advice(after_an_action, FULL)
    assert found.parallelism == 2
    assert "backlog" in told(found, ReasonKind.HELD)
    assert PAPER(after_an_action, FULL).advice["map"].parallelism == 3
    assert advice(after_an_action, FULL, hold_for_backlog=False).parallelism == 3


@pytest.mark.parametrize("waits", [None, 0.0])
def test_a_million_that_wait_for_it_are_worked_off_in_the_time_that_was_asked_for(waits: float | None) -> None:
    """The backlog does not grow: 101 are done, 100 arrive."""
    knowledge = Knowledge(sustained={"map": (replace(truth(1, 0), records_per_s=101.0),)})
    waiting = window(nodes=("a",), processed=101, arriving=100, waits=waits, queued=1_000_000)
    assert (advice(waiting, knowledge).parallelism or 0) > 1
    assert advice(waiting, knowledge, catch_up_s=1e7).parallelism == 1


def test_a_source_that_does_not_hurry_is_not_hurried_by_more_instances() -> None:
    """Its backlog waits although nothing holds it back: it replays its records at their own pace."""
    policy = Gesscale()
    unheld = window(processed=150, arriving=150, waits=0.0, behind=500_000)
    assert policy(unheld, FULL).advice["map"].parallelism == 2
    known = policy.remember(unheld, FULL)
    held = window(processed=184, arriving=150, waits=0.9, behind=500_000)
    assert policy(held, known).advice["map"].parallelism == 2
    assert (policy(held, FULL).advice["map"].parallelism or 0) > 2


def test_what_it_keeps_survives_a_restart_of_the_manager() -> None:
    known = Gesscale().remember(window(processed=50, arriving=50, waits=0.0, behind=500_000), FULL)
    assert known.watching.unhurried == {"source"}
    assert known.watching.removable_since_s == {"map": 10_000.0}
    state = ManagerState(knowledge=known)
    assert state_from_json(state_to_json(state), place="here").knowledge == known


# --- what any engine has ----------------------------------------------------------------------------------------


def test_without_useful_time_it_learns_from_back_pressure_and_shrinks() -> None:
    known = NOTHING_KNOWN
    for nodes in (("a",), ("a", "b"), ("a", "b", "c")):
        most = truth(len(nodes), 1000 * POOL.largest_delay_s(nodes)).records_per_s
        known = known.with_snapshot(window(nodes=nodes, processed=most, arriving=300, waits=0.95, useful=0.0))
    assert [point.instances for point in known.sustained_by("map")] == [1, 2, 3]
    quiet = window(nodes=("a", "b", "c"), processed=70, useful=0.0)
    assert advice(quiet, known).parallelism == 1
    assert PAPER(quiet, known).advice["map"].parallelism == 1


def test_what_was_held_back_for_half_of_the_window_tells_less() -> None:
    sure, unsure = (
        NOTHING_KNOWN.with_snapshot(window(processed=100, arriving=300, waits=waits, useful=0.0))
        for waits in (1.0, 0.6)
    )
    assert sure.sustained_by("map")[0].relative_std < 0.05 < unsure.sustained_by("map")[0].relative_std
    assert NOTHING_KNOWN.with_snapshot(window(waits=0.4, useful=0.0)).sustained_by("map") == ()


# --- what is expected of it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gesscale", "gesscale-paper", "mdl-nlunaware"])
def test_a_growth_says_what_share_it_expects(name: str) -> None:
    one = window(nodes=("a",), processed=100, arriving=400, waits=0.9)
    found = create(name)(one, NOTHING_KNOWN)
    assert found.expected_share == pytest.approx(0.5)
    calm = create(name)(window(nodes=("a",), processed=50), NOTHING_KNOWN)
    assert calm.expected_share is None or calm.expected_share == 1.0


def not_scaling(name: str) -> Simulation:
    names, capacity = ("source", "map"), PowerLaw(per_instance_per_s=100.0)
    model = EngineModel(
        dataflow=Dataflow.of((Operator(name=n, source=n == "source") for n in names), [names]),
        sources={"source": SourceModel(load=Constant(records_per_s=400.0))},
        operators={"map": OperatorModel(capacity=capacity, not_parallel=True, queue_records=1000)},
        initial_plan=Plan({"map": 1}),
        step_s=1.0,
    )
    knobs = build(Knobs, dict(info(name).knobs), place=name)
    return simulate(model, create(name), knobs, duration_s=1200)


@pytest.mark.parametrize(("name", "actions"), [("gesscale", 1), ("gesscale-paper", 3)])
def test_an_operator_that_does_not_scale_is_not_grown_for_ever(name: str, actions: int) -> None:
    """Ours sees what the first action brought; as published the manager gives up after three."""
    found = not_scaling(name)
    assert (found.actions, found.final_plan["map"]) == (actions, 4)


# --- several operators ------------------------------------------------------------------------------------------


def in_a_row(edges: list[tuple[str, str]]) -> Snapshot:
    """`sum`, on b, holds back `map`, on d."""
    found = snapshot_of(
        edges=edges,
        source_rates={"source": 300.0},
        readings=[
            *alike("source", records_per_s=100, wait_out_share=0.9),
            *alike("map", records_per_s=100, wait_out_share=0.9, useful_share=0.1),
            *alike("sum", records_per_s=100, useful_share=1.0),
        ],
    )
    return replace(found, nodes=POOL, placement={"map": ("d",), "sum": ("b",)})


def test_it_grows_towards_the_operator_before_and_learns_with_the_delay_to_it() -> None:
    row, apart = in_a_row(chain("source", "map", "sum")), in_a_row([("source", "map"), ("source", "sum")])
    assert PAPER(apart).advice["sum"].nodes == ("b", "a"), "the nearest to b"
    found = PAPER(row).advice["sum"]
    assert found.nodes == ("b", "c"), "from a it would be 160 ms to d"
    assert "the largest delay goes from 150 to 150 ms" in told(found, ReasonKind.NODES)
    for snapshot, delay_s in ((row, 0.15), (apart, 0.0)):
        (point,) = NOTHING_KNOWN.with_snapshot(snapshot).sustained_by("sum")
        assert point.delay_s == pytest.approx(delay_s)
