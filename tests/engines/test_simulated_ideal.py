"""The ideal plan keeps up, and nothing smaller does."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from simulated_models import chain, linear, steady

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import (
    Amdahl,
    Capacity,
    EngineModel,
    Ideal,
    OperatorModel,
    PowerLaw,
    SimulatedEngine,
    Usl,
)


def test_the_least_plan_of_a_word_count() -> None:
    operators = {"split": linear(100, selectivity=20), "count": linear(1000)}
    model = chain(steady(0), operators, {"split": 1, "count": 1})
    assert Ideal(model).required_per_s({"source": 1000}) == {"source": 1000, "split": 1000, "count": 20_000}
    assert Ideal(model).least_plan({"source": 1000}) == {"split": 10, "count": 20}
    assert Ideal(model).least_plan({"source": 1001}) == {"split": 11, "count": 21}
    assert Ideal(model).least_plan({"source": 0}) == {"split": 1, "count": 1}


def test_a_window_needs_capacity_for_firing() -> None:
    windowed = linear(100, window_s=10, fire_cost_s_per_record=0.03)
    model = chain(steady(0), {"window": windowed}, {"window": 1})
    assert Ideal(model).least_plan({"source": 100}) == {"window": 4}


def test_beyond_the_peak_of_the_universal_law_there_is_nothing_to_gain() -> None:
    capacity = Usl(per_instance_per_s=100, contention=0.05, coherence=0.01)
    model = chain(steady(0), {"work": OperatorModel(capacity=capacity)}, {"work": 1})
    peak = max(range(1, 50), key=capacity.total_per_s)
    assert Ideal(model).least_plan({"source": capacity.total_per_s(peak)}) == {"work": peak}
    assert Ideal(model).least_plan({"source": 1e9}) == {"work": peak}
    assert not Ideal(model).sustains({"work": peak}, {"source": 1e9})


def test_what_skew_makes_impossible_is_not_bought() -> None:
    model = chain(steady(0), {"work": linear(100, hot_share=0.5)}, {"work": 1})
    assert Ideal(model).least_plan({"source": 200}) == {"work": 2}
    assert Ideal(model).least_plan({"source": 201}) == {"work": 2}


def test_the_bounds_hold_and_fixed_operators_keep_their_parallelism() -> None:
    operators = [
        Operator(name="source", source=True),
        Operator(name="bounded", min_parallelism=2, max_parallelism=4),
        Operator(name="keyed", state_partitions=8),
        Operator(name="fixed", fixed=True),
    ]
    edges = [("source", "bounded"), ("bounded", "keyed"), ("keyed", "fixed")]
    model = EngineModel(
        dataflow=Dataflow.of(operators, edges),
        sources={"source": steady(0)},
        operators={name: linear(10) for name in ("bounded", "keyed", "fixed")},
        initial_plan=Plan({"bounded": 2, "keyed": 1, "fixed": 3}),
    )
    assert Ideal(model).least_plan({"source": 1}) == {"bounded": 2, "keyed": 1, "fixed": 3}
    # with eight partitions, five to seven instances do no more than four: one of them holds two
    assert Ideal(model).least_plan({"source": 45}) == {"bounded": 4, "keyed": 8, "fixed": 3}


def test_shared_workers_need_time_for_all_operators() -> None:
    operators = {"parse": linear(100), "count": linear(300)}
    model = chain(steady(0), operators, {"parse": 1, "count": 1}, shared_workers=True)
    assert Ideal(model).least_plan({"source": 225}) == {"parse": 3, "count": 3}
    assert Ideal(model).least_plan({"source": 226}) == {"parse": 4, "count": 4}
    assert Ideal(model).sustains({"parse": 3, "count": 3}, {"source": 225})
    assert not Ideal(model).sustains({"parse": 3, "count": 3}, {"source": 226})


def test_a_source_that_is_too_slow_is_not_helped_by_any_plan() -> None:
    model = chain(steady(0, max_rate_per_s=50), {"work": linear(100)}, {"work": 1})
    assert Ideal(model).sustains({"work": 1}, {"source": 50})
    assert not Ideal(model).sustains({"work": 1}, {"source": 51})


capacities: st.SearchStrategy[Capacity] = st.one_of(
    st.builds(PowerLaw, per_instance_per_s=st.floats(10, 500), exponent=st.floats(0.6, 1.1)),
    st.builds(Amdahl, per_instance_per_s=st.floats(10, 500), serial_share=st.floats(0, 0.2)),
    st.builds(
        Usl,
        per_instance_per_s=st.floats(10, 500),
        contention=st.floats(0, 0.1),
        coherence=st.floats(0, 0.01),
    ),
)
operator_models = st.builds(
    OperatorModel,
    capacity=capacities,
    selectivity=st.floats(0.1, 3),
    hot_share=st.none() | st.floats(0.05, 0.5),
    slow_instance=st.floats(0.5, 1),
)


@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(operator_models, min_size=1, max_size=4), rate=st.floats(1, 2000), shared_workers=st.booleans()
)
def test_the_least_plan_is_least(parts: list[OperatorModel], rate: float, shared_workers: bool) -> None:
    operators = {f"operator{index}": part for index, part in enumerate(parts)}
    ones = dict.fromkeys(operators, 1)
    ideal = Ideal(chain(steady(rate), operators, ones, shared_workers=shared_workers))
    rates = {"source": rate}
    plan = ideal.least_plan(rates)
    assume(ideal.sustains(plan, rates))
    for name, n in plan.items():
        if n > 1:
            fewer = dict.fromkeys(plan, n - 1) if shared_workers else {**plan, name: n - 1}
            assert not ideal.sustains(fewer, rates)


@given(capacity=capacities, rates=st.lists(st.floats(0, 5000), min_size=2, max_size=6))
def test_an_answer_does_not_depend_on_what_was_asked_before(capacity: Capacity, rates: list[float]) -> None:
    operator = Operator(name="work", max_parallelism=40)
    model = EngineModel(
        dataflow=Dataflow.of([Operator(name="source", source=True), operator], [("source", "work")]),
        sources={"source": steady(0)},
        operators={"work": OperatorModel(capacity=capacity)},
        initial_plan=Plan({"work": 1}),
    )
    ideal = Ideal(model)
    assert [ideal.least_plan({"source": r}) for r in rates] == [
        Ideal(model).least_plan({"source": r}) for r in rates
    ]


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(operator_models, min_size=1, max_size=3), rate=st.floats(10, 500))
def test_the_engine_keeps_up_with_the_least_plan(parts: list[OperatorModel], rate: float) -> None:
    operators = {f"operator{index}": part for index, part in enumerate(parts)}
    model = chain(steady(rate), operators, least_plan_of(operators, rate))
    assume(Ideal(model).sustains(model.initial_plan, {"source": rate}))
    engine = SimulatedEngine(model)
    engine.wait(100)
    waiting = engine.history.queued[-1] + engine.history.source_backlog[-1]
    assert waiting == pytest.approx(0, abs=rate * 1e-4)


def least_plan_of(operators: dict[str, OperatorModel], rate: float) -> Plan:
    return Ideal(chain(steady(rate), operators, dict.fromkeys(operators, 1))).least_plan({"source": rate})
