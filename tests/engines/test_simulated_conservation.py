"""No record is lost or repeated, whatever the graph, the queues, the windows and the actions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.arrivals.load import Brownian
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import (
    DowntimeScope,
    EngineModel,
    OperatorModel,
    PowerLaw,
    SimulatedEngine,
    SourceModel,
)
from elastream.engines.simulated.engine import RecordTotals
from elastream.manager.decision import Decision


@st.composite
def operator_models(draw: st.DrawFn) -> OperatorModel:
    window_s = draw(st.none() | st.floats(1, 20))
    return OperatorModel(
        capacity=PowerLaw(per_instance_per_s=draw(st.floats(1, 500)), exponent=draw(st.floats(0.3, 1.2))),
        selectivity=draw(st.floats(0, 10)),
        hot_share=draw(st.none() | st.floats(0.05, 1)),
        slow_instance=draw(st.floats(0.1, 1)),
        not_parallel=draw(st.booleans()),
        window_s=window_s,
        slide_s=None
        if window_s is None
        else draw(st.none() | st.integers(1, 5).map(lambda parts: window_s / parts)),
        phase_s=draw(st.floats(0, 5)),
        fire_cost_s_per_record=0.0 if window_s is None else draw(st.floats(0, 0.1)),
        queue_records=draw(st.just(math.inf) | st.floats(1, 1000)),
    )


@st.composite
def source_models(draw: st.DrawFn) -> SourceModel:
    load = Brownian(start=draw(st.floats(0, 500)), step_std=50, step_s=5, seed=draw(st.integers(0, 9)))
    return SourceModel(load=load, max_rate_per_s=draw(st.just(math.inf) | st.floats(1, 2000)))


@st.composite
def engine_models(draw: st.DrawFn) -> EngineModel:
    sources = [f"source{index}" for index in range(draw(st.integers(1, 3)))]
    operators = [f"operator{index}" for index in range(draw(st.integers(1, 6)))]
    edges = []
    for index, name in enumerate(operators):
        before = [*sources, *operators[:index]]
        edges += [(other, name) for other in draw(st.sets(st.sampled_from(before), min_size=1))]
    shared = draw(st.booleans())
    alike = draw(st.integers(1, 5))
    return EngineModel(
        dataflow=Dataflow.of(
            [Operator(name=name, source=name in sources) for name in (*sources, *operators)], edges
        ),
        sources={name: draw(source_models()) for name in sources},
        operators={name: draw(operator_models()) for name in operators},
        initial_plan=Plan({name: alike if shared else draw(st.integers(1, 5)) for name in operators}),
        step_s=draw(st.sampled_from([0.3, 1.0, 2.5])),
        noise=draw(st.sampled_from([0.0, 0.2])),
        downtime_s=draw(st.sampled_from([0.0, 7.5])),
        downtime_scope=draw(st.sampled_from(list(DowntimeScope))),
        shared_workers=shared,
    )


def check_conserved(model: EngineModel, totals: RecordTotals) -> None:
    for source in totals.sources.values():
        assert source.arrived == pytest.approx(source.backlog + source.emitted)
    for channel, counts in totals.channels.items():
        assert min(counts.put, counts.taken, counts.queued) >= 0
        assert counts.put == pytest.approx(counts.taken + counts.queued)
        producer = channel.producer
        passed_on = totals.sources[producer].emitted if producer in totals.sources else None
        if passed_on is None:
            passed_on = totals.operators[producer].processed
        assert counts.put == pytest.approx(passed_on * model.selectivity(producer, channel.consumer))
    for name, operator in totals.operators.items():
        from_channels = sum(c.taken for channel, c in totals.channels.items() if channel.consumer == name)
        assert operator.taken == pytest.approx(from_channels)
        assert operator.taken == pytest.approx(operator.processed + operator.in_windows)


@settings(max_examples=150, deadline=None)
@given(
    model=engine_models(),
    actions=st.lists(st.tuples(st.floats(0.1, 40), st.integers(1, 6)), min_size=1, max_size=5),
)
def test_every_record_is_somewhere_and_no_instance_works_longer_than_the_window(
    model: EngineModel, actions: list[tuple[float, int]]
) -> None:
    engine = SimulatedEngine(model)
    for number, (wait_s, parallelism) in enumerate(actions):
        engine.wait(wait_s)
        check_conserved(model, engine.totals())
        snapshot = engine.measure()  # readings refuse useful time beyond the window
        assert snapshot.is_complete
        for reading in snapshot.readings:
            assert reading.wait_in_s is not None
            assert reading.wait_out_s is not None
            if not model.noise:
                spent_s = reading.useful_s + reading.wait_in_s + reading.wait_out_s
                assert spent_s == pytest.approx(reading.window_s)
        after = Plan(dict.fromkeys(model.operators, parallelism))
        engine.rescale(Decision(number=number, at_s=engine.now(), before=engine.plan(), after=after))
        check_conserved(model, engine.totals())


@settings(max_examples=50, deadline=None)
@given(model=engine_models())
def test_what_waits_is_what_the_history_says(model: EngineModel) -> None:
    engine = SimulatedEngine(model)
    engine.wait(30)
    totals = engine.totals()
    assert engine.history.queued[-1] == pytest.approx(sum(c.queued for c in totals.channels.values()))
    assert engine.history.source_backlog[-1] == pytest.approx(sum(s.backlog for s in totals.sources.values()))
