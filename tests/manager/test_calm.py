"""With the default settings: calm under noise, windows and stalls, prompt where the load steps.

Each story begins with what was once seen to go wrong. The simulated engine is a fluid model of a real one; the
long forms, over a day and many seeds, are in `experiments/calm.py`.
"""

from __future__ import annotations

import math
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
DOWNTIME_S = 2.0


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
        downtime_s=DOWNTIME_S,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def needing(instances: float, **model: float) -> OperatorModel:
    """An operator that needs so many instances at the usual rate."""
    return OperatorModel(capacity=PowerLaw(per_instance_per_s=RATE / instances), **model)  # type: ignore[arg-type]


def firing(window_s: float) -> OperatorModel:
    """Half of the work is done when the window fires."""
    return OperatorModel(
        capacity=PowerLaw(per_instance_per_s=2 * RATE / 4.5),
        selectivity=0.5,
        window_s=window_s,
        fire_cost_s_per_record=4.5 / RATE / 2,
    )


SINK = OperatorModel(capacity=PowerLaw(per_instance_per_s=RATE / 2 / 4.5))
"""Behind it, needing as many."""


def managed(model: EngineModel, *, hours: float) -> Simulation:
    return simulate(model, create("ds2"), Knobs(), duration_s=hours * HOUR_S)


def acted_after(run: Simulation, at_s: float, *, before_s: float = math.inf) -> list[str]:
    return [str(decision) for decision in run.decisions if at_s < decision.at_s < before_s]


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


class TestTogether:
    """A day of five operators with 10 % noise: 15 → 14, an hour later another 42 → 39, then another 27 → 25."""

    def test_what_pays_for_no_action_of_its_own_goes_with_another(self) -> None:
        story = Story(DS2(), plan=plan_of(60))
        for _ in range(40):
            assert story.sees(each=100.0, load=5_700.0) is None, "two of sixty pay for no action"
        story.plan = plan_of(60, count=3)
        story.sees(each=100.0, load=5_700.0)
        assert story.plan == plan_of(58, count=1)


class TestWindows:
    """20 s gave 45 actions an hour, 60 s 7, 120 s 12 with up to 48 and 135 instances."""

    @pytest.mark.parametrize("window_s", [7.0, 20.0, 45.0, 60.0, 120.0])
    def test_what_fires_is_not_followed(self, window_s: float) -> None:
        run = managed(pipeline({"count": firing(window_s), "sink": SINK}, noise=0.02), hours=3)
        settled = acted_after(run, HOUR_S)
        assert len(settled) <= 2 * 2, settled
        assert all(5 <= size <= 7 for size in run.final_plan.values()), run.final_plan
        assert max(max(plan.values()) for _, plan in run.history.plans) <= 16

    @pytest.mark.parametrize(
        ("window_s", "slide_s", "phase_s", "step_s"),
        [(60.0, None, 30.7, 1.0), (10.0, 2.0, 0.7, 4.0), (139.5, 34.88, 22.7, 11.0), (600.0, 150.0, 10.2, 25.0)],
    )
    def test_neither_at_another_phase_nor_of_windows_that_slide(
        self, window_s: float, slide_s: float | None, phase_s: float, step_s: float
    ) -> None:
        """And a load that doubles is followed to its whole within two intervals, whenever in one it does: of a
        step at its end a part was followed, and then the rest, in 67 to 134 s."""
        windowed = replace(firing(window_s), slide_s=slide_s, phase_s=phase_s)
        at_s = 2 * HOUR_S + step_s
        load = Steps(steps=((0, RATE), (at_s, 2 * RATE)))
        run = managed(pipeline({"count": windowed, "sink": SINK}, load=load, noise=0.02), hours=2.1)
        settled = acted_after(run, HOUR_S, before_s=at_s)
        assert len(settled) <= 2, settled
        assert all(5 <= size <= 7 for size in run.plan_at(at_s).values()), run.plan_at(at_s)
        followed = run.plan_at(at_s + 2 * Knobs().interval_s + DOWNTIME_S)
        assert min(followed.values()) >= 9, acted_after(run, at_s)

    @pytest.mark.parametrize("phase_s", [0.4, 4.1])
    def test_nor_what_fires_more_often_than_is_looked(self, phase_s: float) -> None:
        """5 → 6 → 5 ..., six actions an hour: behind a window of 7 s, looked at every 10 s with 10 % noise, some
        windows looked as if all that the sink did was all that it can."""
        operators = {"count": replace(firing(7.0), phase_s=phase_s), "sink": SINK}
        model = replace(pipeline(operators, noise=0.1), step_s=1.0)
        run = simulate(model, create("ds2"), Knobs(interval_s=10.0), duration_s=2.5 * HOUR_S)
        assert len(acted_after(run, HOUR_S)) <= 2

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

    @pytest.mark.parametrize("policy", ["ds2", "ds2-learned"])
    @pytest.mark.parametrize("after", [0, 1, 2])
    def test_a_stall_right_after_an_action_is_not_followed(self, policy: str, after: int) -> None:
        """8 → 78: of one window or two there is no telling a stall from what a record costs now."""
        story = Story(create(policy), plan=plan_of(2), rollback_intervals=2)
        for each in (105.0, *[105.0] * after, 10.5, *[105.0] * 5):
            story.sees(load=400, each=each)
        assert [decision.after for decision in story.decisions] == [plan_of(4)]

    def test_half_of_the_instances_reporting_decide_nothing(self) -> None:
        """10 → 19."""
        story = Story(DS2(), plan=plan_of(10))
        story.sees()
        for _ in range(4):
            half = alike("map", instances=5, records_per_s=100.0, useful_share=1.0)
            assert story.sees(map_readings=half) is None


class TestDraining:
    @pytest.mark.parametrize("noise", [0.03, 0.1])
    @pytest.mark.parametrize("seed", range(3))
    def test_each_size_is_reached_in_one_action_though_times_are_noisy(self, noise: float, seed: int) -> None:
        """1 → 4, 4 → 5, 5 → 9 with 10 % noise: that records wait all the time is counted, and not timed; and
        what is worked off before an operator comes to it next."""
        operators = {"map": needing(4.5), "count": needing(4.5)}
        run = managed(pipeline(operators, noise=noise, seed=seed), hours=0.1)
        (sized,) = run.decisions
        assert all(6 <= size <= 8 for size in sized.after.values()), sized


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


class TestOddLoads:
    def test_an_operator_that_never_emits(self) -> None:
        """What is behind it gets nothing, and no more than one instance; nobody else is silenced."""
        run = managed(pipeline({"filter": needing(4.5, selectivity=0.0), "sink": needing(4.5)}), hours=1)
        assert run.final_plan == Plan({"filter": 5, "sink": 1})
        assert acted_after(run, HOUR_S / 2) == []

    def test_a_source_that_pauses_for_an_hour_and_brings_all_of_it_at_once(self) -> None:
        back_s = 2 * HOUR_S
        load = Steps(steps=((0, RATE), (HOUR_S, 0.0), (back_s, 61 * RATE), (back_s + 60, RATE)))
        run = managed(pipeline({"map": needing(4.5)}, load=load, noise=0.02), hours=3)
        assert len(acted_after(run, HOUR_S, before_s=back_s)) <= 1, "nothing comes, and that is one fall"
        assert run.plan_at(back_s + 120)["map"] >= 10, "an hour of records is worked off"
        assert len(acted_after(run, back_s)) <= 6, acted_after(run, back_s)
        assert 5 <= run.final_plan["map"] <= 6
        assert run.history.source_backlog[-1] + run.history.queued[-1] < RATE


def last_advice(story: Story):  # type: ignore[no-untyped-def]
    from elastream.manager.events import Proposed

    return story.told(Proposed)[-1].proposal.advice["map"]
