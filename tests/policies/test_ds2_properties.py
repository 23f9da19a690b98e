"""The paper's promises (§3.4), on random pipelines whose every rate is known.

A `Pipeline` is drawn as what DS2 is to find out: for every operator the instances that it needs. From these follow
the capacity of one instance and, for any plan, the snapshot that an ideal system would give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Reading, Snapshot
from elastream.policies.ds2 import DS2

WINDOW_S = 60.0
ROUNDING = 2e-6  # what DS2 itself forgives, and a little
EXAMPLES = settings(deadline=None, max_examples=100)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    dataflow: Dataflow
    source_rates: Mapping[str, float]
    selectivity: Mapping[tuple[str, str], float]
    needs: Mapping[str, float]
    """Instances that would be just enough, were they divisible and linear."""
    exponents: Mapping[str, float]
    """β of every operator: n instances do the work of n^β."""

    @cached_property
    def required(self) -> Mapping[str, float]:
        """Records per second at every operator when all of the sources' rates are sustained."""
        required = dict(self.source_rates)
        for name in self.dataflow.scalable:
            before = self.dataflow.upstream(name)
            required[name] = math.fsum(required[b] * self.selectivity[b, name] for b in before)
        return required

    def capacity(self, name: str, instances: float) -> float:
        """Records per second; an operator that nothing reaches can do as much as any."""
        return (self.required[name] or 1.0) / self.needs[name] * math.pow(instances, self.exponents[name])

    def sustained_share(self, plan: Mapping[str, int]) -> float:
        """The share of the sources' rates that the plan keeps up with; backpressure slows all of them alike."""
        loaded = [name for name in self.dataflow.scalable if self.required[name] > 0]
        shares = (self.capacity(name, plan[name]) / self.required[name] for name in loaded)
        return min((1.0, *shares))

    def measured(self, plan: Mapping[str, int], *, backlogs: Mapping[str, float] | None = None) -> Snapshot:
        """What an ideal system gives: even instances, no noise, useful time in proportion to the work."""
        share = self.sustained_share(plan)
        readings = []
        for name in self.dataflow.scalable:
            each = share * self.required[name] * WINDOW_S / plan[name]
            useful = share * self.required[name] / self.capacity(name, plan[name])
            after = self.dataflow.downstream(name)
            readings += [
                Reading(
                    operator=name,
                    instance=instance,
                    window_s=WINDOW_S,
                    useful_s=WINDOW_S * useful,
                    records_in=each,
                    records_out={consumer: each * self.selectivity[name, consumer] for consumer in after},
                    backlog=(backlogs or {}).get(name),
                )
                for instance in range(plan[name])
            ]
        return Snapshot(
            dataflow=self.dataflow, plan=Plan(plan), source_rates=self.source_rates, readings=tuple(readings)
        )


NEEDS = st.floats(min_value=0.05, max_value=24) | st.integers(min_value=1, max_value=24).map(float)
SELECTIVITIES = st.floats(min_value=0.01, max_value=20) | st.sampled_from([0.0, 0.5, 1.0, 3.0])
RATES = st.floats(min_value=1, max_value=1e6)
INSTANCES = st.integers(min_value=1, max_value=12)


@st.composite
def operators(draw: st.DrawFn, name: str) -> Operator:
    """One that may be bounded, fixed, or stateful."""
    least = draw(st.integers(1, 4))
    return Operator(
        name=name,
        min_parallelism=least,
        max_parallelism=draw(st.none() | st.integers(least, 20)),
        fixed=draw(st.integers(0, 4).map(lambda chance: chance == 0)),
        state_partitions=draw(st.none() | st.integers(4, 40)),
    )


@st.composite
def pipelines(
    draw: st.DrawFn, *, sources: int = 3, linear: bool = True, bounded: bool = False, most: int = 9
) -> Pipeline:
    origins = [f"source{index}" for index in range(draw(st.integers(1, sources)))]
    names = [f"operator{index}" for index in range(draw(st.integers(1, most)))]
    edges: list[tuple[str, str]] = []
    for index, name in enumerate(names):
        before = draw(st.lists(st.sampled_from(origins + names[:index]), min_size=1, max_size=3, unique=True))
        edges += [(producer, name) for producer in before]
    made = [draw(operators(name)) if bounded else Operator(name=name) for name in names]
    return Pipeline(
        dataflow=Dataflow.of([*(Operator(name=name, source=True) for name in origins), *made], edges),
        source_rates={name: draw(RATES) for name in origins},
        selectivity={edge: 1.0 if edge[0] in origins else draw(SELECTIVITIES) for edge in edges},
        needs={name: draw(NEEDS) for name in names},
        exponents={name: 1.0 if linear else draw(st.floats(0.3, 1.0)) for name in names},
    )


@st.composite
def plans(draw: st.DrawFn, pipeline: Pipeline) -> Plan:
    return Plan({name: draw(INSTANCES) for name in pipeline.dataflow.scalable})


def fewer(pipeline: Pipeline, plan: Mapping[str, int]) -> list[Plan]:
    """Every plan with one instance fewer of one operator that has work to do and more than its least."""
    graph = pipeline.dataflow
    return [
        Plan({**plan, name: plan[name] - 1})
        for name in graph.scalable
        if plan[name] > graph[name].min_parallelism and not graph[name].fixed and pipeline.required[name] > 0
    ]


# --- linear operators, no noise ---------------------------------------------------------------------------------


@given(st.data())
@EXAMPLES
def test_the_answer_sustains_the_rate_and_one_instance_fewer_does_not(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())

    proposal = DS2()(pipeline.measured(data.draw(plans(pipeline))))

    plan = proposal.parallelism
    assert set(plan) == set(pipeline.dataflow.scalable)
    assert pipeline.sustained_share(plan) >= 1 - ROUNDING
    assert all(pipeline.sustained_share(less) < 1 for less in fewer(pipeline, plan))
    assert proposal.expected_share == 1.0


@given(st.data())
@EXAMPLES
def test_what_nothing_reaches_gets_the_least(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())

    plan = DS2()(pipeline.measured(data.draw(plans(pipeline)))).parallelism

    assert all(plan[name] == 1 for name in plan if pipeline.required[name] == 0)


@given(st.data())
@EXAMPLES
def test_applying_the_answer_and_measuring_again_changes_nothing(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines(bounded=data.draw(st.booleans())))

    once = DS2()(pipeline.measured(data.draw(plans(pipeline)))).parallelism
    again = DS2()(pipeline.measured(once)).parallelism

    assert again == once


@given(st.data())
@EXAMPLES
def test_where_a_bottleneck_cannot_grow_the_rest_is_just_enough_for_it(data: st.DataObject) -> None:
    """With one source what the bottleneck lets through is known; with several it is the engine that shares it."""
    pipeline = data.draw(pipelines(sources=1, bounded=True))
    stateless = [replace(operator, state_partitions=None) for operator in pipeline.dataflow.operators]
    pipeline = replace(pipeline, dataflow=Dataflow(tuple(stateless), pipeline.dataflow.channels))

    proposal = DS2()(pipeline.measured(data.draw(plans(pipeline))))

    assert proposal.expected_share is not None
    assert pipeline.sustained_share(proposal.parallelism) >= proposal.expected_share * (1 - ROUNDING)
    for less in fewer(pipeline, proposal.parallelism):
        assert pipeline.sustained_share(less) < proposal.expected_share


# --- always -----------------------------------------------------------------------------------------------------


@st.composite
def policies(draw: st.DrawFn) -> DS2:
    return DS2(
        target_utilization=draw(st.sampled_from([1.0, 0.8, 0.3])),
        tolerance=draw(st.sampled_from([0.0, 0.05, 1.0])),
        catch_up_s=draw(st.sampled_from([None, 60.0])),
        shared_workers=draw(st.booleans()),
    )


@st.composite
def snapshots_with_gaps(draw: st.DrawFn, pipeline: Pipeline) -> Snapshot:
    """With backlogs, and without the readings of some operators; the sources reported."""
    backlogs = {name: draw(st.floats(0, 1e6)) for name in pipeline.dataflow.scalable}
    snapshot = pipeline.measured(draw(plans(pipeline)), backlogs=backlogs)
    share = pipeline.sustained_share(snapshot.plan)
    sources = [
        Reading(
            operator=name,
            window_s=WINDOW_S,
            useful_s=0.0,
            records_in=share * rate * WINDOW_S,
            records_out=share * rate * WINDOW_S,
        )
        for name, rate in pipeline.source_rates.items()
    ]
    silent = draw(st.sets(st.sampled_from(pipeline.dataflow.scalable), max_size=2))
    reported = (reading for reading in snapshot.readings if reading.operator not in silent)
    return replace(snapshot, readings=(*sources, *reported))


@given(st.data(), policies())
@EXAMPLES
def test_more_load_at_one_source_never_asks_for_fewer_instances(data: st.DataObject, policy: DS2) -> None:
    pipeline = data.draw(pipelines(bounded=True, linear=data.draw(st.booleans())))
    snapshot = data.draw(snapshots_with_gaps(pipeline))
    source = data.draw(st.sampled_from(sorted(pipeline.source_rates)))
    growth = data.draw(st.floats(1, 4) | st.floats(1, 1 + 1e-6))
    grown = snapshot.source_rates[source] * growth

    before = policy(snapshot).parallelism
    after = policy(snapshot.at_source_rates({**snapshot.source_rates, source: grown})).parallelism

    assert before.keys() == after.keys()
    assert {name: after[name] for name in after if after[name] < before[name]} == {}


@given(st.data(), policies())
@EXAMPLES
def test_the_order_of_operators_edges_and_instances_does_not_matter(data: st.DataObject, policy: DS2) -> None:
    pipeline = data.draw(pipelines(bounded=True))
    snapshot = data.draw(snapshots_with_gaps(pipeline))
    shuffled = Snapshot(
        dataflow=Dataflow(
            tuple(data.draw(st.permutations(snapshot.dataflow.operators))),
            tuple(data.draw(st.permutations(snapshot.dataflow.channels))),
        ),
        plan=Plan(dict(data.draw(st.permutations(list(snapshot.plan.items()))))),
        source_rates=dict(data.draw(st.permutations(list(snapshot.source_rates.items())))),
        readings=tuple(data.draw(st.permutations(snapshot.readings))),
    )

    ordered, unordered = policy(snapshot), policy(shuffled)

    assert unordered.parallelism == ordered.parallelism
    assert {n: a.need for n, a in unordered.advice.items()} == {n: a.need for n, a in ordered.advice.items()}
    assert unordered.workers == ordered.workers
    assert unordered.expected_share == ordered.expected_share
    assert unordered.reasons == ordered.reasons


@given(st.data(), policies())
@EXAMPLES
def test_the_answer_lies_within_the_bounds_and_leaves_fixed_operators_alone(
    data: st.DataObject, policy: DS2
) -> None:
    pipeline = data.draw(pipelines(bounded=True))
    snapshot = data.draw(snapshots_with_gaps(pipeline))

    for name, instances in policy(snapshot).parallelism.items():
        operator = pipeline.dataflow[name]
        if operator.fixed:
            assert instances == snapshot.plan[name]
        else:
            assert operator.min_parallelism <= instances <= max(operator.most, operator.min_parallelism)


# --- sub-linear operators: properties 1 and 2 -------------------------------------------------------------------


def least_sufficient(pipeline: Pipeline, name: str) -> float:
    """The instances, in fractions, whose capacity is what is required."""
    return float(pipeline.needs[name] ** (1 / pipeline.exponents[name]))


@given(st.data())
@EXAMPLES
def test_a_scale_up_never_overshoots_and_a_scale_down_never_undershoots(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines(linear=False))
    plan = data.draw(plans(pipeline))

    proposed = DS2()(pipeline.measured(plan)).parallelism

    for name in pipeline.dataflow.scalable:
        if pipeline.required[name] == 0:
            continue
        least = max(1, math.ceil(least_sufficient(pipeline, name) * (1 + ROUNDING)))
        if proposed[name] > plan[name]:
            assert proposed[name] <= least
        elif proposed[name] < plan[name]:
            assert pipeline.capacity(name, proposed[name]) >= pipeline.required[name] * (1 - ROUNDING)


@given(st.data())
@EXAMPLES
def test_repeated_answers_approach_the_least_sufficient_plan_from_one_side(data: st.DataObject) -> None:
    """No oscillation: an operator that went up never comes down again, nor the other way round."""
    pipeline = data.draw(pipelines(linear=False, most=4))
    steps = [data.draw(plans(pipeline))]
    while len(steps) < 4:
        steps.append(Plan(DS2()(pipeline.measured(steps[-1])).parallelism))

    for name in pipeline.dataflow.scalable:
        course = [step[name] for step in steps]
        assert course in (sorted(course), sorted(course, reverse=True))
