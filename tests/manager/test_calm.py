"""With the default settings: calm under noise, windows and stalls, prompt where the load steps.

Each story begins with what was once seen to go wrong. The simulated engine is a fluid model of a real one; the
long forms, over a day and many seeds, are in `experiments/calm.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from manager_story import Story, plan_of

from elastream.arrivals.load import Constant, Load, Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.policies.catalog import create
from elastream.policies.ds2 import DS2
from elastream.policies.proposal import ReasonKind
from elastream.testing import alike

RATE = 1_000.0
HOUR_S = 3600.0


def pipeline(
    operators: Mapping[str, OperatorModel], *, load: Load | None = None, noise: float = 0.0, seed: int = 0
) -> EngineModel:
    names = ("source", *operators)
    return EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == "source") for name in names), pairwise(names)),
        sources={"source": SourceModel(load=Constant(records_per_s=RATE) if load is None else load)},
        operators=operators,
        initial_plan=Plan(dict.fromkeys(operators, 1)),
        noise=noise,
        seed=seed,
        downtime_s=2.0,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def needing(instances: float, **model: float) -> OperatorModel:
    """An operator that needs so many instances at the usual rate."""
    return OperatorModel(capacity=PowerLaw(per_instance_per_s=RATE / instances), **model)  # type: ignore[arg-type]


def managed(model: EngineModel, *, hours: float) -> Simulation:
    return simulate(model, create("ds2"), Knobs(), duration_s=hours * HOUR_S)


def acted_after(run: Simulation, at_s: float) -> list[str]:
    return [str(decision) for decision in run.decisions if decision.at_s > at_s]


class TestNoise:
    """28 → 26 → 27 → 28 → 26 → 28 → 27 ... without end."""

    @pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
    @pytest.mark.parametrize("need", [27.9, 28.0, 28.1])
    def test_a_constant_load_is_left_alone(self, need: float, noise: float) -> None:
        run = managed(pipeline({"map": needing(need)}, noise=noise), hours=3)
        assert len(acted_after(run, HOUR_S)) <= 1, acted_after(run, 0)
        assert need <= run.final_plan["map"] <= 1.15 * need + 1

    def test_it_says_why_it_stays(self) -> None:
        story = Story(DS2(), plan=plan_of(11))
        for _ in range(3):
            story.sees(each=100.0, load=1_000.0)
        held = [r for r in last_advice(story).reasons if r.kind is ReasonKind.HELD]
        assert "does not stand out from its scatter, so it stays at 11 and not 10" in str(held[0])


class TestWindows:
    """20 s gave 45 actions an hour, 60 s 7, 120 s 12 with up to 48 and 135 instances."""

    @pytest.mark.parametrize("window_s", [7.0, 20.0, 45.0, 60.0, 120.0])
    def test_what_fires_is_not_followed(self, window_s: float) -> None:
        """Half of the work is done when the window fires."""
        windowed = OperatorModel(
            capacity=PowerLaw(per_instance_per_s=2 * RATE / 4.5),
            selectivity=0.5,
            window_s=window_s,
            fire_cost_s_per_record=4.5 / RATE / 2,
        )
        sink = OperatorModel(capacity=PowerLaw(per_instance_per_s=RATE / 2 / 4.5))
        run = managed(pipeline({"count": windowed, "sink": sink}, noise=0.02), hours=3)
        settled = acted_after(run, HOUR_S)
        assert len(settled) <= 2 * 2, settled
        assert all(5 <= size <= 7 for size in run.final_plan.values()), run.final_plan
        assert max(max(plan.values()) for _, plan in run.history.plans) <= 16

    def test_a_step_of_the_load_is_followed_at_once(self) -> None:
        windowed = needing(2.0, window_s=60.0)
        load = Steps(steps=((0, RATE), (HOUR_S, 2 * RATE)))
        run = managed(pipeline({"count": windowed}, load=load), hours=1.2)
        first = next(decision for decision in run.decisions if decision.at_s > HOUR_S)
        assert first.at_s - HOUR_S <= 2 * Knobs().interval_s
        assert first.after["count"] >= 4


class TestStalls:
    def test_one_stalled_window_does_not_take_back_what_is_right(self) -> None:
        """At half of the throughput 6,000 s later."""
        story = Story(DS2(), plan=plan_of(2), rollback_intervals=2)
        story.sees(load=400, each=105)
        assert story.plan == plan_of(4)
        story.sees(load=400, each=105, share=0.01)
        for _ in range(3):
            story.sees(load=400, each=105)
        assert story.plan == plan_of(4)

    def test_what_was_taken_back_is_tried_again(self) -> None:
        story = Story(DS2(), plan=plan_of(2), rollback_intervals=2)
        story.sees(load=400, each=105)
        for _ in range(2):
            story.sees(load=400, each=105, share=0.2)
        assert story.plan == plan_of(2), "it looked harmful twice"
        for _ in range(12):
            story.sees(load=400, each=105)
        assert story.plan == plan_of(4)

    def test_what_two_stalled_windows_asked_for_comes_down_again(self) -> None:
        """4 → 8, still 8 after 9,000 s."""
        story = Story(DS2(), plan=plan_of(4))
        story.sees(load=400, each=105)
        for _ in range(2):
            story.sees(load=400, each=105, share=0.05)
        for _ in range(25):
            story.sees(load=400, each=105, share=1.0)
        assert story.plan == plan_of(4)

    def test_half_of_the_instances_reporting_decide_nothing(self) -> None:
        """10 → 19."""
        story = Story(DS2(), plan=plan_of(10))
        story.sees()
        for _ in range(4):
            half = alike("map", instances=5, records_per_s=100.0, useful_share=1.0)
            assert story.sees(map_readings=half) is None


class TestNobodyIsSilenced:
    def test_an_operator_of_which_too_little_is_known_silences_no_other(self) -> None:
        story = Story(DS2(), plan=plan_of(5))
        story.sees(unknown={"count": "too few batches"})
        assert story.plan == plan_of(10)

    def test_what_is_behind_is_not_shrunk(self) -> None:
        story = Story(DS2(), plan=plan_of(20))
        for _ in range(4):
            assert story.sees(each=100, load=1_000, waiting=50_000, share=2.0) is None
        assert story.plan == plan_of(20)


class TestSkew:
    def test_it_stops_growing_where_that_stops_helping(self) -> None:
        """5 → 13 → 33 → 64, unnamed."""
        model = pipeline({"count": replace(needing(5.0), hot_share=0.5)})
        run = managed(model, hours=1)
        assert max(plan["count"] for _, plan in run.history.plans) <= 8

    def test_it_names_the_operator_and_what_would_help(self) -> None:
        story = Story(DS2(), plan=plan_of(8), activation_intervals=9)
        hot, cold = 0.5, 0.5 / 7
        for _ in range(3):
            readings = [
                reading
                for instance in range(8)
                for reading in [
                    replace(
                        alike("map", records_per_s=1_000 * (hot if instance == 0 else cold), useful_share=0.9)[0],
                        instance=instance,
                        useful_s=60 * (1.0 if instance == 0 else cold / hot),
                    )
                ]
            ]
            story.sees(load=5_000, map_readings=readings)
        (reason,) = (r for r in last_advice(story).reasons if r.kind is ReasonKind.SKEW)
        assert "hottest key has 43%" in str(reason)
        assert "a salted or finer key" in str(reason)


def last_advice(story: Story):  # type: ignore[no-untyped-def]
    from elastream.manager.events import Proposed

    return story.told(Proposed)[-1].proposal.advice["map"]
