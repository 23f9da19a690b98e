"""The model that is learned from a recording, what it says of other policies, and how it is checked."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from elastream.arrivals.load import Steps
from elastream.dataflow import Operator
from elastream.engines.simulated import EngineModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.errors import InvalidInput
from elastream.manager.events import event_to_json
from elastream.manager.knobs import Knobs
from elastream.measurement import Reading, Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.recording import Recording, RunHeader
from elastream.options import settings_of
from elastream.policies.catalog import create
from elastream.report.learned_model import CannotSimulateError, LearnedCapacity, learn_model, noise
from elastream.report.story import Story, tell
from elastream.report.timeline import timeline
from elastream.report.what_if import IDEAL, STATIC, check_names, check_settings, setup_of, what_if
from elastream.testing import alike, chain, snapshot_of
from tests.engines.simulated_models import chain as model_of
from tests.engines.simulated_models import linear
from tests.report.runs import acted, decided, grown, recording, window

DURATION_S = 1_800.0
KNOBS = Knobs(interval_s=30.0, activation_intervals=2)


def known_model() -> EngineModel:
    """1,000 then 2,000 then 500 records/s; `parse` does 300/s an instance and doubles, `count` 500/s."""
    load = Steps(steps=((0.0, 1_000.0), (600.0, 2_000.0), (1_200.0, 500.0)))
    operators = {"parse": linear(300, selectivity=2.0), "count": linear(500)}
    return model_of(SourceModel(load=load), operators, {"parse": 1, "count": 1}, downtime_s=4.0)


@pytest.fixture(scope="module")
def simulated() -> Simulation:
    return simulate(known_model(), create("ds2-paper"), KNOBS, duration_s=DURATION_S)


@pytest.fixture(scope="module")
def story(simulated: Simulation) -> Story:
    header = RunHeader(pipeline="known", policy="ds2-paper", knobs=settings_of(KNOBS), options={})
    found = Recording(
        snapshots=simulated.snapshots, events=tuple(map(event_to_json, simulated.events)), headers=(header,)
    )
    return tell(found, pipeline="known")


# What is learned


def test_the_capacities_of_the_model_are_found_again(story: Story) -> None:
    learned = {found.name: found for found in learn_model(story.timeline, story.events).operators}
    for count in (1, 2, 5, 9, 20):
        assert learned["parse"].capacity.total_per_s(count) == pytest.approx(300 * count, rel=0.02)
        assert learned["count"].capacity.total_per_s(count) == pytest.approx(500 * count, rel=0.02)
    assert learned["parse"].selectivity == {"count": pytest.approx(2.0)}


def test_the_load_is_what_arrived_in_each_window(story: Story) -> None:
    load = learn_model(story.timeline, story.events).engine.sources["source"].load
    assert [load.rate_at(t_s) for t_s in (100, 550, 700, 1_150, 1_300, 1_700)] == pytest.approx(
        [1_000, 1_000, 2_000, 2_000, 500, 500]
    )


def test_actions_take_as_long_as_they_took() -> None:
    events = [
        acted(1, 60, 2, took_s=3.0),
        acted(2, 90, 3, took_s=8.0),
        acted(3, 120, 3, took_s=50, succeeded=False),
    ]
    line = timeline([window(60), window(120)])
    assert learn_model(line, events).engine.downtime_range_s == (3.0, 8.0)
    assert learn_model(line, ()).engine.downtime_range_s == (0.0, 0.0)


def test_an_operator_that_was_seen_at_one_size_is_taken_to_grow_in_proportion() -> None:
    line = timeline([window(60, rate=100, instances=2, useful_share=0.25)])  # 50 a second in a quarter of it
    (found,) = learn_model(line, ()).operators
    assert found.capacity.total_per_s(2) == pytest.approx(400)
    assert found.capacity.total_per_s(5) == pytest.approx(1_000)
    assert found.how == "what it did with 2 instances, in proportion"


def test_an_operator_that_never_did_anything_cannot_be_simulated() -> None:
    silent = snapshot_of(edges=chain("source", "map"), source_rates={"source": 5.0})
    with pytest.raises(CannotSimulateError, match="no complete window tells what 'map' can do"):
        learn_model(timeline([silent]), ())


COST = BatchCost(
    per_record_s=0.01,
    per_task_s=0.2,
    per_state_partition_s=0.05,
    state_partitions=12,
    driver_s=0.5,
    balance=1.0,
    longest_batch_s=3.0,
)


@pytest.mark.parametrize(
    ("count", "even"),
    [(1, 1), (4, 4), (5, 4), (12, 12)],  # with 12 partitions the fullest of five holds three, as one of four does
)
def test_the_price_of_batches_is_the_capacity_where_it_is_known(count: int, even: int) -> None:
    # in three seconds an instance has 3 - 0.5 - 0.2 for records, all of them less 12 · 0.05 for the state
    together_per_s = (even * (3 - 0.5 - 0.2) - 12 * 0.05) / 0.01 / 3
    operators = [Operator(name="map", state_partitions=12)]
    snapshot = replace(
        snapshot_of(
            edges=chain("source", "map"), source_rates={"source": 5.0}, readings=alike("map"), operators=operators
        ),
        batch_costs={"map": COST},
    )
    engine = learn_model(timeline([snapshot]), ()).engine
    assert engine.instances("map", count).effective_per_s == pytest.approx(together_per_s)


def test_a_batch_that_is_all_fixed_price_still_does_a_little() -> None:
    """Else its instances could not be measured, and no policy would ever help it."""
    dear = replace(COST, per_state_partition_s=1.0)
    assert dear.capacity(1) == 0
    assert LearnedCapacity(dear, None).total_per_s(1) == pytest.approx(0.01 / 0.01)


def held_back(at_s: float, waiting: float, wait_out_share: float) -> Snapshot:
    source = Reading(
        operator="source", window_s=60, useful_s=0, records_in=6e3, records_out=6e3, wait_out_s=60 * wait_out_share
    )
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 100.0},
        readings=[source, *alike("map", backlog=waiting)],
    )
    return replace(snapshot, at_s=at_s)


def test_a_queue_has_the_room_that_it_had_when_it_held_others_back() -> None:
    line = timeline([held_back(60, 500, 0.0), held_back(120, 700, 0.4), held_back(180, 900, 0.0)])
    assert learn_model(line, ()).engine.operators["map"].queue_records == 700


def test_queues_have_no_bound_where_nothing_was_held_back() -> None:
    line = timeline([held_back(60, 500, 0.0)])
    assert math.isinf(learn_model(line, ()).engine.operators["map"].queue_records)


def test_measurements_scatter_as_they_did() -> None:
    draw = random.Random(7)
    busy = [0.5 * draw.gauss(1.0, 0.05) for _ in range(600)]
    snapshots = [window(60.0 * (i + 1), useful_share=share) for i, share in enumerate(busy)]
    assert noise(snapshots) == pytest.approx(0.05, rel=0.15)


def test_a_change_of_the_load_or_of_the_parallelism_is_no_noise() -> None:
    shares = [0.2, 0.9] * 10
    snapshots = [
        window(60.0 * (i + 1), useful_share=share, rate=100 if share < 0.5 else 900)
        for i, share in enumerate(shares)
    ]
    assert noise(snapshots) == 0


def test_a_plan_beyond_the_bounds_of_today_may_be() -> None:
    narrow = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 100.0},
        readings=alike("map"),
        operators=[Operator(name="map", max_parallelism=2)],
    )
    line = timeline([window(60, instances=5), replace(narrow, at_s=120)])
    assert learn_model(line, ()).engine.dataflow["map"].max_parallelism == 5


# What others would have done, and the check


def test_the_ideal_and_the_static_peak_cost_what_arithmetic_says(story: Story) -> None:
    found = what_if(story, against=(IDEAL, STATIC))
    # parse: 1,000 / 300 → 4, 2,000 → 7, 500 → 2; count gets twice as much at 500 an instance: 4, 8, 2
    ideal, static = found.others
    assert ideal.instance_s == pytest.approx(600 * (4 + 4) + 600 * (7 + 8) + 600 * (2 + 2), rel=0.02)
    assert static.instance_s == pytest.approx(sum(story.cost.peak.values()) * story.timeline.duration_s)
    assert static.elasticity.reconfigurations == 0
    assert {8.0, 15.0, 4.0} <= set(found.demand.values), "and what windows that saw a change averaged to"


def test_the_recorded_run_is_measured_by_the_same_measures(story: Story, simulated: Simulation) -> None:
    recorded = what_if(story, against=()).recorded
    assert not recorded.simulated
    assert recorded.instance_s == pytest.approx(simulated.elasticity.cost * 60, rel=0.02)
    assert recorded.elasticity.accuracy_over == pytest.approx(simulated.elasticity.accuracy_over, abs=0.2)
    assert recorded.elasticity.accuracy_under == pytest.approx(simulated.elasticity.accuracy_under, abs=0.2)
    assert recorded.elasticity.reconfigurations == simulated.actions


def test_the_recorded_policy_repeats_itself_on_the_model(story: Story) -> None:
    check = what_if(story, against=()).check
    assert check.trust == "close"
    assert abs(check.cost_off or 1) < 0.05
    assert check.repeated is not None
    assert check.repeated.elasticity.reconfigurations == len(story.acted)


def test_with_the_recorded_parallelism_as_much_waits_in_the_model(story: Story) -> None:
    off_s = what_if(story, against=()).check.waiting_off_s
    assert set(off_s) == {"source", "parse", "count"}
    assert max(off_s.values()) < 2.0  # seconds of input; up to 60 s of it wait at the beginning


def test_a_model_that_is_wrong_is_found_out() -> None:
    """Seen idle, it looked able to do ten times as much: the recorded policy would have needed fewer."""
    windows = [window(60.0 * (i + 1), rate=1_000, instances=8, useful_share=0.05) for i in range(10)]
    header = RunHeader(policy="ds2-paper", knobs={"interval_s": 60.0, "scale_down_delay_s": 0})
    check = what_if(tell(recording(windows, headers=(header,)), pipeline="x"), against=()).check
    assert check.trust == "poor"


def test_every_policy_has_the_knobs_of_the_recorded_run() -> None:
    header = RunHeader(
        policy="ds2", options={"tolerance": 0.1}, knobs={"interval_s": 20.0, "warm_up_intervals": 3}
    )
    story = tell(recording([window(60)], headers=(header,)), pipeline="x")
    setup = setup_of(story, {"scale_down_delay": "2 min", "target_utilization": "0.7"}, window_s=60)
    assert setup.options == {"tolerance": 0.1, "target_utilization": "0.7"}
    assert setup.knobs == Knobs(interval_s=20.0, warm_up_intervals=3, scale_down_delay_s=120.0)


def test_the_interval_of_an_older_recording_is_that_of_its_windows() -> None:
    setup = setup_of(tell(recording([window(60)]), pipeline="x"), {}, window_s=60)
    assert setup.knobs == Knobs(interval_s=60)
    assert not setup.known


def test_without_a_policy_only_the_others_are_simulated() -> None:
    found = what_if(tell(recording([window(60), window(120)]), pipeline="x"), against=("threshold",))
    assert found.check.repeated is None
    assert found.check.why_not == "the recording does not say which policy was used"
    assert found.check.trust == "unknown"
    assert [outcome.name for outcome in found.others] == ["threshold"]


def test_a_rehearsal_is_repeated_as_a_rehearsal() -> None:
    header = RunHeader(policy="ds2-paper", knobs={"interval_s": 60.0, "dry_run": True, "scale_down_delay_s": 0})
    snapshots = [window(60.0 * (i + 1), instances=4, useful_share=0.1) for i in range(6)]
    found = recording(snapshots, [decided(1, 120, 4, 1, dry_run=True)], headers=(header,))
    result = what_if(tell(found, pipeline="x"), against=("ds2-paper",))
    assert result.check.repeated is not None
    assert result.check.repeated.elasticity.reconfigurations == 0
    assert result.others[0].elasticity.reconfigurations > 0, "the others act"


def test_rules_are_not_read_from_where_a_recording_says() -> None:
    header = RunHeader(policy="rules", options={"file": "/somewhere/rules.py"})
    found = what_if(tell(recording([window(60)], headers=(header,)), pipeline="x"), against=())
    assert found.check.why_not == "the rules that were used are in a file: --rules FILE"


def test_an_unknown_policy_is_named_before_anything_is_simulated() -> None:
    check_names(("ds2", IDEAL, STATIC))
    with pytest.raises(InvalidInput, match="unknown policy 'treshold'"):
        check_names(("ds2", "treshold"))


@pytest.mark.parametrize(
    ("name", "value", "policy"),
    [
        ("weather", "fine", "ds2"),
        ("tolerance", "0.1", None),
        ("interval", "soon", "ds2"),
        ("tolerance", "x", "ds2"),
    ],
)
def test_a_setting_that_nobody_has_or_that_makes_no_sense_is_refused(
    name: str, value: str, policy: str | None
) -> None:
    check_settings({"interval": "30 s", "tolerance": "0.1"}, "ds2")
    with pytest.raises(InvalidInput, match=name):
        check_settings({name: value}, policy)


def test_a_run_that_grew_is_simulated_from_where_it_began() -> None:
    found = what_if(tell(grown(), pipeline="x"), against=("ds2",))
    assert dict(found.model.engine.initial_plan) == {"map": 1}
