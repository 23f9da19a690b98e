"""What an action does: downtime of the job or of an operator, failure, bounds; and what is random."""

from __future__ import annotations

import statistics

import pytest
from simulated_models import chain, linear, steady, to

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import DowntimeScope, EngineModel, SimulatedEngine
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import Clock, Engine
from elastream.measurement import Snapshot


def two_operators(**options: object) -> EngineModel:
    operators = {"first": linear(100), "second": linear(100)}
    return chain(steady(100), operators, {"first": 1, "second": 1}, **options)


def test_it_is_an_engine_and_its_own_clock() -> None:
    simulated = SimulatedEngine(two_operators())
    engine: Engine = simulated
    clock: Clock = simulated
    clock.wait(1)
    assert engine.graph() == two_operators().dataflow
    assert engine.plan() == {"first": 1, "second": 1}


def test_while_the_job_is_down_everything_stays_at_the_source() -> None:
    engine = SimulatedEngine(two_operators(downtime_s=30))
    engine.wait(60)
    outcome = engine.rescale(to(engine, second=3))
    assert outcome.succeeded
    assert outcome.took_s == 30
    assert outcome.plan == engine.plan() == {"first": 1, "second": 3}
    assert engine.now() == 90
    assert engine.totals().sources["source"].backlog == pytest.approx(3000)
    assert engine.history.downtimes_s == [(60, 90)]
    assert [at_s for at_s, _ in engine.history.plans] == [0, 90]


def test_while_an_operator_is_down_the_others_go_on() -> None:
    engine = SimulatedEngine(two_operators(downtime_s=30, downtime_scope=DowntimeScope.OPERATOR))
    engine.wait(60)
    engine.rescale(to(engine, second=3))
    totals = engine.totals()
    assert totals.sources["source"].backlog == 0
    assert totals.operators["first"].processed == pytest.approx(9000)
    assert totals.operators["second"].processed == pytest.approx(6000)
    assert sum(channel.queued for channel in totals.channels.values()) == pytest.approx(3000)


def test_a_measurement_covers_only_the_time_after_the_action() -> None:
    engine = SimulatedEngine(two_operators(downtime_s=30))
    engine.wait(60)
    engine.rescale(to(engine, first=3, second=3))
    engine.wait(20)
    snapshot = engine.measure()
    assert snapshot.at_s == 110
    assert {reading.window_s for reading in snapshot.readings} == {20}
    assert snapshot.source_rates == {"source": pytest.approx(100)}
    # 3,000 records from the downtime and 100 a second, at 300 a second; all of it waited at the first operator
    assert snapshot.measurements["first"].observed_per_s == pytest.approx(250)


def test_a_plan_that_is_already_in_force_costs_nothing() -> None:
    engine = SimulatedEngine(two_operators(downtime_s=30))
    engine.wait(60)
    decision = to(engine, first=2)
    engine.rescale(decision)
    again = engine.rescale(decision)
    assert again.succeeded
    assert again.took_s == 0
    assert again.plan == {"first": 2, "second": 1}
    assert engine.now() == 90
    assert len(engine.history.downtimes_s) == 1


def test_an_action_can_be_made_to_fail_once() -> None:
    engine = SimulatedEngine(two_operators(downtime_s=30))
    engine.wait(60)
    engine.fail_next_rescale("no more cores")
    failed = engine.rescale(to(engine, first=2))
    assert (failed.succeeded, failed.detail, failed.plan) == (False, "no more cores", engine.plan())
    assert engine.plan() == {"first": 1, "second": 1}
    assert engine.now() == 60
    assert engine.rescale(to(engine, first=2)).succeeded


def bounded() -> SimulatedEngine:
    operators = [
        Operator(name="source", source=True),
        Operator(name="work", min_parallelism=2, max_parallelism=4),
        Operator(name="sink", fixed=True),
    ]
    model = EngineModel(
        dataflow=Dataflow.of(operators, [("source", "work"), ("work", "sink")]),
        sources={"source": steady(1)},
        operators={"work": linear(1), "sink": linear(1)},
        initial_plan=Plan({"work": 2, "sink": 1}),
    )
    return SimulatedEngine(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work": 1}, "'work' may have 2 to 4 instances, found 1"),
        ({"work": 5}, "'work' may have 2 to 4 instances, found 5"),
        ({"sink": 2}, "'sink' is fixed"),
    ],
)
def test_a_plan_outside_the_bounds_is_refused_and_changes_nothing(changes: dict[str, int], message: str) -> None:
    engine = bounded()
    with pytest.raises(InvalidInput, match=message):
        engine.rescale(to(engine, **changes))
    assert engine.plan() == {"work": 2, "sink": 1}


def test_an_unknown_operator_is_refused() -> None:
    engine = bounded()
    decision = Decision(number=1, at_s=0, before=engine.plan(), after=Plan({"wrok": 2}))
    with pytest.raises(InvalidInput, match="'wrok'"):
        engine.rescale(decision)


def run(model: EngineModel) -> tuple[list[Snapshot], list[float]]:
    engine = SimulatedEngine(model)
    snapshots, downtimes = [], []
    for n in range(2, 8):
        engine.wait(30)
        snapshots.append(engine.measure())
        downtimes.append(engine.rescale(to(engine, first=n)).took_s)
    return snapshots, downtimes


def test_the_same_seed_gives_the_same_run() -> None:
    model = two_operators(noise=0.1, downtime_s=(10, 20), seed=3)
    assert run(model) == run(model)


def test_another_seed_gives_another_run() -> None:
    one = run(two_operators(noise=0.1, downtime_s=(10, 20), seed=3))
    other = run(two_operators(noise=0.1, downtime_s=(10, 20), seed=4))
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_downtimes_are_within_their_range_and_do_not_depend_on_the_measurements() -> None:
    quiet = run(two_operators(downtime_s=(10, 20), seed=3))[1]
    noisy = run(two_operators(noise=0.1, downtime_s=(10, 20), seed=3))[1]
    assert quiet == noisy
    assert all(10 <= downtime <= 20 for downtime in quiet)
    assert len(set(quiet)) > 1


def test_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    engine = SimulatedEngine(chain(steady(300), {"work": linear(100)}, {"work": 20}, noise=0.05, seed=1))
    means: list[float] = []
    ratios: list[float] = []
    for _ in range(2000):
        engine.wait(1)
        useful = [reading.useful_s for reading in engine.measure().measurements["work"].readings]
        mean = statistics.fmean(useful)
        means.append(mean / 0.15)
        ratios.extend(value / mean for value in useful[:2])
    # of an operator: its own draw, and the mean of twenty more; of an instance against its siblings: its own
    assert statistics.fmean(means) == pytest.approx(1, abs=0.005)
    assert statistics.stdev(means) == pytest.approx(0.05 * (1 + 1 / 20) ** 0.5, rel=0.1)
    assert statistics.stdev(ratios) == pytest.approx(0.05 * (1 - 1 / 20) ** 0.5, rel=0.1)


def test_noise_never_makes_an_instance_busier_than_the_window() -> None:
    engine = SimulatedEngine(chain(steady(300), {"work": linear(100)}, {"work": 2}, noise=0.5, seed=1))
    for _ in range(200):
        engine.wait(5)
        assert all(reading.useful_s <= reading.window_s for reading in engine.measure().readings)
