"""Steady states against arithmetic: rates, backpressure, skew, windows, shared workers."""

from __future__ import annotations

import math

import pytest
from simulated_models import chain, linear, steady

from elastream.arrivals.load import Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, PowerLaw, SimulatedEngine, SourceModel, Usl
from elastream.engines.simulated.engine_model import OperatorModel
from elastream.errors import ElastreamError, InvalidInput
from elastream.measurement import Snapshot


def measured_after(model: EngineModel, warm_up_s: float = 60, window_s: float = 60) -> Snapshot:
    engine = SimulatedEngine(model)
    engine.wait(warm_up_s)
    engine.measure()
    engine.wait(window_s)
    return engine.measure()


def test_a_pipeline_that_keeps_up_shows_the_rates_of_arithmetic() -> None:
    operators = {"split": linear(100, selectivity=20), "count": linear(1000)}
    snapshot = measured_after(chain(steady(200), operators, {"split": 4, "count": 5}))
    split, count = snapshot.measurements["split"], snapshot.measurements["count"]
    assert snapshot.source_rates == {"source": pytest.approx(200)}
    assert split.observed_per_s == pytest.approx(200)
    assert split.utilization == pytest.approx(0.5)
    assert split.selectivity("count") == pytest.approx(20)
    assert count.observed_per_s == pytest.approx(4000)
    assert count.utilization == pytest.approx(0.8)
    assert split.totals.backlog == count.totals.backlog == 0
    assert split.totals.latency_s == count.totals.latency_s == 0
    assert snapshot.is_complete


def test_the_measured_true_rate_is_the_capacity_of_the_model_also_when_it_is_held_back() -> None:
    capacity = Usl(per_instance_per_s=100, contention=0.05, coherence=0.002)
    operators = {"fast": OperatorModel(capacity=capacity), "slow": linear(30, queue_records=100)}
    snapshot = measured_after(chain(steady(1000), operators, {"fast": 6, "slow": 2}))
    assert snapshot.measurements["fast"].true_per_s == pytest.approx(capacity.total_per_s(6))
    assert snapshot.measurements["fast"].observed_per_s == pytest.approx(60)
    assert snapshot.measurements["slow"].true_per_s == pytest.approx(60)


def test_backpressure_reaches_the_source_when_the_queues_are_small() -> None:
    operators = {"first": linear(500, queue_records=100), "last": linear(50, queue_records=100)}
    snapshot = measured_after(chain(steady(200), operators, {"first": 1, "last": 1}))
    source, first, last = (snapshot.measurements[name].readings[0] for name in ("source", "first", "last"))
    assert source.records_in == source.records_out_to("first") == pytest.approx(60 * 50)
    assert source.wait_out_s is not None
    assert source.wait_out_s > 0.9 * 60
    assert source.backlog == pytest.approx(120 * 150, rel=0.05)
    # the first could do 500/s, is asked for 50/s, and must wait for the rest of the time
    assert first.useful_s == pytest.approx(6)
    assert first.wait_out_s == pytest.approx(54)
    assert first.wait_in_s == pytest.approx(0, abs=1e-9)
    assert last.useful_s == pytest.approx(60)
    assert last.wait_out_s == 0


def test_a_queue_without_bound_keeps_the_backlog_from_the_source() -> None:
    snapshot = measured_after(chain(steady(200), {"slow": linear(50)}, {"slow": 1}))
    slow = snapshot.measurements["slow"]
    assert snapshot.measurements["source"].totals.backlog == 0
    assert slow.totals.backlog == pytest.approx(120 * 150)
    assert slow.totals.latency_s == pytest.approx(120 * 150 / 50)


def test_a_queue_shorter_than_a_step_does_not_throttle() -> None:
    operators = {"a": linear(1000, queue_records=1), "b": linear(1000, queue_records=1)}
    snapshot = measured_after(chain(steady(900), operators, {"a": 1, "b": 1}, step_s=5.0))
    assert snapshot.measurements["b"].observed_per_s == pytest.approx(900)


def test_the_slowest_branch_holds_back_the_others() -> None:
    names = [Operator(name="source", source=True), *(Operator(name=name) for name in ("fork", "slow", "fast"))]
    model = EngineModel(
        dataflow=Dataflow.of(names, [("source", "fork"), ("fork", "slow"), ("fork", "fast")]),
        sources={"source": steady(100)},
        operators={
            "fork": linear(1000, selectivity={"slow": 2, "fast": 0.5}),
            "slow": linear(40, queue_records=100),
            "fast": linear(1000),
        },
        initial_plan=Plan({"fork": 1, "slow": 1, "fast": 1}),
    )
    rates = measured_after(model).measurements
    assert rates["slow"].observed_per_s == pytest.approx(40)
    assert rates["fork"].observed_output_per_s == {"slow": pytest.approx(40), "fast": pytest.approx(10)}
    assert rates["fast"].observed_per_s == pytest.approx(10)


def test_a_join_takes_the_same_share_of_each_input() -> None:
    names = [Operator(name="a", source=True), Operator(name="b", source=True), Operator(name="join")]
    model = EngineModel(
        dataflow=Dataflow.of(names, [("a", "join"), ("b", "join")]),
        sources={"a": steady(300), "b": steady(100)},
        operators={"join": linear(200)},
        initial_plan=Plan({"join": 1}),
    )
    engine = SimulatedEngine(model)
    engine.wait(100)
    taken = {channel.producer: totals.taken for channel, totals in engine.totals().channels.items()}
    assert taken == {"a": pytest.approx(15_000), "b": pytest.approx(5_000)}


def test_a_durable_source_replays_its_backlog_at_its_own_rate() -> None:
    load = Steps(steps=((0, 300), (100, 0)))
    source = SourceModel(load=load, max_rate_per_s=200)
    engine = SimulatedEngine(chain(source, {"work": linear(1000)}, {"work": 1}))
    engine.wait(100)
    assert engine.totals().sources["source"].backlog == pytest.approx(10_000)
    engine.measure()
    engine.wait(40)
    reading = engine.measure().measurements["source"].readings[0]
    assert reading.records_in == pytest.approx(8_000)
    assert reading.useful_s == pytest.approx(40)
    engine.wait(20)
    assert engine.totals().sources["source"].backlog == 0


def test_skew_limits_throughput_and_shows_in_the_instances() -> None:
    skewed = linear(100, hot_share=0.5, queue_records=100)
    snapshot = measured_after(chain(steady(1000), {"work": skewed}, {"work": 5}))
    hot, *others = snapshot.measurements["work"].readings
    assert snapshot.measurements["work"].observed_per_s == pytest.approx(200)
    assert hot.useful_s == pytest.approx(60)
    assert hot.records_in == pytest.approx(60 * 100)
    assert [other.useful_s for other in others] == [pytest.approx(15)] * 4
    # each still shows what it could do
    assert snapshot.measurements["work"].true_per_instance == pytest.approx(100)


def test_a_straggler_shows_a_lower_true_rate_than_its_siblings() -> None:
    slow = linear(100, slow_instance=0.2, queue_records=100)
    readings = measured_after(chain(steady(1000), {"work": slow}, {"work": 4})).measurements["work"].readings
    true_rates = [reading.records_in / reading.useful_s for reading in readings]
    assert true_rates == [pytest.approx(100)] * 3 + [pytest.approx(20)]
    assert sum(reading.records_in for reading in readings) == pytest.approx(60 * 80)


def test_only_one_instance_of_what_is_not_parallel_works() -> None:
    snapshot = measured_after(chain(steady(150), {"work": linear(100, not_parallel=True)}, {"work": 3}))
    readings = snapshot.measurements["work"].readings
    assert [reading.records_in for reading in readings] == [pytest.approx(6000), 0, 0]
    assert snapshot.measurements["work"].useful_instances == 1


def test_a_window_is_cheap_until_it_fires() -> None:
    windowed = linear(1000, window_s=10, fire_cost_s_per_record=0.004, selectivity=0.5)
    engine = SimulatedEngine(
        chain(steady(100), {"window": windowed, "sink": linear(1000)}, {"window": 1, "sink": 1})
    )
    engine.wait(10)
    before = engine.measure()
    assert before.measurements["window"].readings[0].useful_s == pytest.approx(1)
    assert before.measurements["sink"].observed_per_s == 0
    # 1,000 records fire in 4 s; meanwhile 400 more wait
    engine.wait(4)
    firing = engine.measure()
    assert firing.measurements["window"].readings[0].useful_s == pytest.approx(4)
    assert firing.measurements["window"].observed_per_s == 0
    assert firing.measurements["window"].totals.backlog == pytest.approx(400)
    assert firing.measurements["sink"].totals.records_in == pytest.approx(500)
    engine.wait(1)
    assert engine.measure().measurements["window"].totals.backlog == 0


def progress_of(engine: SimulatedEngine, operator: str, *, for_s: int) -> list[float]:
    """The records that it has processed after each second, and before the first."""
    found = [0.0]
    for _ in range(for_s):
        engine.wait(1)
        found.append(engine.totals().operators[operator].processed)
    return found


def test_windows_fire_one_after_the_other() -> None:
    model = chain(steady(100), {"window": linear(1000, window_s=10)}, {"window": 1})
    engine = SimulatedEngine(model)
    progress = progress_of(engine, "window", for_s=35)
    fired_at_s = [after - 1 for after in range(1, 36) if progress[after] > progress[after - 1]]
    assert fired_at_s == [10, 20, 30]
    assert progress[-1] == pytest.approx(3000)
    assert engine.totals().operators["window"].in_windows == pytest.approx(500)


def test_windows_that_slide_fire_a_part_of_each_record_at_a_time() -> None:
    windowed = linear(1000, window_s=10, slide_s=5, phase_s=2, fire_cost_s_per_record=0.001)
    model = chain(steady(100), {"window": windowed}, {"window": 1})
    engine = SimulatedEngine(model)
    progress = progress_of(engine, "window", for_s=19)
    fired = {after - 1: progress[after] - progress[after - 1] for after in range(1, 20)}
    # of the first two seconds a half, of the next five one as well, and what is left of the first
    assert {at: records for at, records in fired.items() if records > 0} == {
        2: pytest.approx(100),
        7: pytest.approx(350),
        12: pytest.approx(500),
        17: pytest.approx(500),
    }
    totals = engine.totals().operators["window"]
    assert totals.in_windows == pytest.approx(totals.taken - totals.processed)


def test_a_window_that_costs_too_much_falls_behind() -> None:
    windowed = linear(1000, window_s=10, fire_cost_s_per_record=0.02)
    snapshot = measured_after(chain(steady(100), {"window": windowed}, {"window": 1}), warm_up_s=400, window_s=400)
    rates = snapshot.measurements["window"]
    assert rates.utilization == pytest.approx(1, abs=0.01)
    assert rates.observed_per_s == pytest.approx(1000 / 21, rel=0.1)


def test_shared_workers_divide_their_time_by_demand() -> None:
    operators = {"parse": linear(100), "count": linear(300)}
    model = chain(steady(1000), operators, {"parse": 3, "count": 3}, shared_workers=True)
    snapshot = measured_after(model)
    # a record takes 10 ms + 3.3 ms, so three workers do 225 a second
    assert snapshot.measurements["parse"].observed_per_s == pytest.approx(225)
    assert snapshot.measurements["count"].observed_per_s == pytest.approx(225)
    assert snapshot.measurements["parse"].utilization == pytest.approx(0.75)
    assert snapshot.measurements["count"].utilization == pytest.approx(0.25)
    assert snapshot.measurements["parse"].true_per_instance == pytest.approx(100)


def test_shared_workers_with_time_to_spare_do_everything() -> None:
    operators = {"parse": linear(100), "count": linear(300)}
    model = chain(steady(200), operators, {"parse": 3, "count": 3}, shared_workers=True)
    rates = measured_after(model).measurements
    assert rates["count"].observed_per_s == pytest.approx(200)
    assert rates["parse"].totals.backlog == rates["count"].totals.backlog == 0


def test_shared_workers_that_fire_a_window_are_never_busy_for_longer_than_there_is_time() -> None:
    windowed = linear(1000, window_s=10, fire_cost_s_per_record=0.02)
    model = chain(
        steady(80), {"map": linear(200), "window": windowed}, {"map": 2, "window": 2}, shared_workers=True
    )
    engine = SimulatedEngine(model)
    for _ in range(100):
        engine.wait(1)
        rates = engine.measure().measurements
        assert rates["map"].utilization + rates["window"].utilization <= 1 + 1e-9


def test_shared_workers_need_one_parallelism() -> None:
    with pytest.raises(InvalidInput, match="same parallelism"):
        chain(steady(1), {"a": linear(1), "b": linear(1)}, {"a": 1, "b": 2}, shared_workers=True)


def test_an_operator_without_any_capacity_says_so_without_dividing_by_it() -> None:
    nothing = OperatorModel(capacity=PowerLaw(per_instance_per_s=1, delay_cost=100, delay_s=1))
    snapshot = measured_after(chain(steady(10), {"work": nothing}, {"work": 2}))
    rates = snapshot.measurements["work"]
    assert rates.true_per_s is None
    assert rates.totals.backlog == pytest.approx(1200)
    assert rates.totals.latency_s is None


def test_measuring_twice_at_once_is_an_error() -> None:
    engine = SimulatedEngine(chain(steady(1), {"work": linear(10)}, {"work": 1}))
    with pytest.raises(ElastreamError, match="no simulated time has passed since 0 s"):
        engine.measure()
    engine.wait(1)
    engine.measure()
    with pytest.raises(ElastreamError, match="since 1 s"):
        engine.measure()


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_time_only_moves_forward(seconds: float) -> None:
    engine = SimulatedEngine(chain(steady(1), {"work": linear(10)}, {"work": 1}))
    with pytest.raises(InvalidInput, match="time to wait"):
        engine.wait(seconds)


def test_waiting_less_than_a_step_counts_the_part_of_it() -> None:
    engine = SimulatedEngine(chain(steady(100), {"work": linear(1000)}, {"work": 1}))
    engine.wait(2.25)
    assert engine.now() == 2.25
    assert engine.totals().sources["source"].arrived == pytest.approx(225)


def test_many_short_steps_do_not_drift() -> None:
    engine = SimulatedEngine(chain(steady(100), {"work": linear(1000)}, {"work": 1}, step_s=0.1))
    for _ in range(1000):
        engine.wait(0.7)
    assert engine.now() == pytest.approx(700, abs=1e-9)
    assert len(engine.history.times_s) == 7000


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"step_s": 0}, "step_s"),
        ({"noise": -0.1}, "noise"),
        ({"downtime_s": -1}, "downtime_s"),
        ({"downtime_s": (30, 20)}, "least, most"),
    ],
)
def test_an_engine_model_is_checked(options: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        chain(steady(1), {"work": linear(10)}, {"work": 1}, **options)


def test_a_model_names_every_operator_once() -> None:
    operators = {"a": linear(1, selectivity={"c": 1}), "b": linear(1)}
    with pytest.raises(InvalidInput, match="selectivity of 'a': 'c' does not belong here"):
        chain(steady(1), operators, {"a": 1, "b": 1})
    with pytest.raises(InvalidInput, match="plan: 'b' is missing"):
        chain(steady(1), {"a": linear(1), "b": linear(1)}, {"a": 1})
    with pytest.raises(InvalidInput, match="sources: 'source' is missing"):
        EngineModel(
            dataflow=Dataflow.of([Operator(name="source", source=True)], []),
            sources={},
            operators={},
            initial_plan=Plan(),
        )


def test_the_history_has_a_sample_for_each_step() -> None:
    load = Steps(steps=((0, 100), (5, 400)))
    model = chain(SourceModel(load=load), {"work": linear(200, queue_records=200)}, {"work": 1})
    engine = SimulatedEngine(model)
    engine.wait(10)
    history = engine.history
    assert list(history.times_s) == [float(second) for second in range(1, 11)]
    assert list(history.arriving_per_s["source"]) == [100.0] * 5 + [400.0] * 5
    assert list(history.emitted_per_s["source"]) == [100.0] * 5 + [200.0] * 5
    assert history.source_backlog[-1] == pytest.approx(1000)
    assert engine.totals().operators["work"].processed == 5 * 100 + 5 * 200
    assert history.plans == [(0.0, model.initial_plan)]
