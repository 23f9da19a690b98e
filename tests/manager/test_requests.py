"""What people ask for while the manager runs: through the step like everything else, and without a server."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from manager_story import FakeEngine, ManualClock, Scripted, Story, plan_of

from elastream.dataflow import Operator, Plan
from elastream.errors import ElastreamError
from elastream.manager.decision import DecisionKind
from elastream.manager.events import Acted, ActionVerdict, Decided, Event, Held, Judged, Proposed, Steered
from elastream.manager.inbox import Inbox, InboxFull
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import (
    Bounds,
    Controls,
    Pause,
    Request,
    Resume,
    RollBack,
    Scale,
    SetBounds,
    SetDryRun,
)
from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.manager.store import Store


def asked(story: Story, request: Request) -> Steered:
    """Ask; what was decided because of it was also handed to the engine."""
    before = len(story.told(Steered))
    story.asks(request)
    [told] = story.told(Steered)[before:]
    return told


def field_refused(story: Story, request: Request) -> str | None:
    told = asked(story, request)
    assert told.refusal is not None, "it was not refused"
    assert story.decisions == [], "what is refused is not done"
    return told.refusal.field


class TestPause:
    def test_nothing_is_decided_but_what_is_wanted_is_still_told(self) -> None:
        story = Story(plan=plan_of(5))
        told = asked(story, Pause())
        assert (told.what, told.refusal) == ("scaling is paused", None)
        assert story.sees(wants={"map": 10}) is None
        assert story.told(Proposed)[-1].proposal.parallelism == {"map": 10}
        assert story.told(Held)[-1].why == "scaling is paused"

    def test_it_goes_on_when_resumed_and_needs_its_proposals_in_a_row_anew(self) -> None:
        story = Story(plan=plan_of(5), activation_intervals=2)
        story.sees(wants={"map": 10})
        asked(story, Pause())
        story.sees(wants={"map": 10})
        asked(story, Resume())
        assert story.sees(wants={"map": 10}) is None
        decision = story.sees(wants={"map": 10})
        assert decision is not None
        assert decision.after == plan_of(10)

    def test_a_harmful_action_is_not_taken_back_while_paused(self) -> None:
        story = Story(plan=plan_of(10))
        story.sees(wants={"map": 5})
        asked(story, Pause())
        assert story.sees(share=0.5) is None
        assert story.plan == plan_of(5)
        asked(story, Resume())
        assert story.sees(share=0.5) is not None
        assert story.plan == plan_of(10)

    def test_it_survives_a_restart_which_says_so(self) -> None:
        before = Story(plan=plan_of(5))
        asked(before, Pause())
        asked(before, SetBounds(operator="map", most=7))
        saved = state_from_json(state_to_json(before.state), place="the store")
        after = Story(plan=plan_of(5), state=saved)
        after.starts()
        assert after.told(Steered)[-1].what == "still set from before: scaling is paused, map: at most 7"
        assert after.sees(wants={"map": 10}) is None

    def test_an_action_that_a_kill_interrupted_is_finished_though_paused(self) -> None:
        story = Story(plan=plan_of(5))
        asked(story, Pause())
        story.engine = lambda decision: plan_of(5)
        asked(story, Scale(parallelism={"map": 6}))
        interrupted = story.state.__class__(
            **{**vars(story.state), "phase": ManagerPhase.RESCALING, "under_way": story.decisions[-1]}
        )
        again = Story(plan=plan_of(5), state=interrupted)
        decision = again.starts()
        assert decision is not None
        assert again.plan == plan_of(6)

    def test_a_state_of_an_earlier_version_has_nothing_set(self) -> None:
        assert state_from_json("{}", place="the store").controls == Controls()


class TestBounds:
    def test_the_policy_stays_within_them(self) -> None:
        story = Story(plan=plan_of(5))
        assert asked(story, SetBounds(operator="map", least=2, most=7)).what == "map: 2 to 7"
        decision = story.sees(wants={"map": 10})
        assert decision is not None
        assert decision.after == plan_of(7)
        decision = story.sees(wants={"map": 1})
        assert decision is not None
        assert decision.after == plan_of(2)

    def test_they_can_be_taken_back(self) -> None:
        story = Story(plan=plan_of(5))
        asked(story, SetBounds(operator="map", most=7))
        assert asked(story, SetBounds(operator="map")).controls.bounds == {}
        story.sees(wants={"map": 10})
        assert story.plan == plan_of(10)

    @pytest.mark.parametrize(
        ("request_", "field"),
        [
            (SetBounds(operator="map", least=1), "least"),
            (SetBounds(operator="map", most=9), "most"),
            (SetBounds(operator="map", least=6, most=4), "least"),
            (SetBounds(operator="mapp", most=4), "operator"),
            (SetBounds(operator="source", most=4), "operator"),
            (SetBounds(operator="count", most=4), "operator"),
        ],
        ids=["below its own", "above its own", "crossed", "unknown", "a source", "fixed"],
    )
    def test_those_that_do_not_fit_are_refused(self, request_: SetBounds, field: str) -> None:
        operators = [
            Operator(name="map", min_parallelism=2, max_parallelism=8),
            Operator(name="count", fixed=True),
        ]
        story = Story(plan=plan_of(5), operators=operators)
        assert field_refused(story, request_) == field
        assert story.state.controls.bounds == {}

    def test_bounds_never_widen_those_of_a_pipeline_that_was_changed_since(self) -> None:
        controls = Controls(bounds={"map": Bounds(least=1, most=50), "gone": Bounds(most=3)})
        [narrowed] = [
            operator
            for operator in controls.narrowed(
                _graph(Operator(name="map", min_parallelism=3, max_parallelism=6))
            ).operators
            if operator.name == "map"
        ]
        assert (narrowed.min_parallelism, narrowed.max_parallelism) == (3, 6)


def _graph(*operators: Operator) -> Any:
    return Story(plan=plan_of(5), operators=operators).graph


class TestDryRun:
    def test_it_can_be_turned_on_and_off(self) -> None:
        story = Story(plan=plan_of(5))
        asked(story, SetDryRun(on=True))
        story.sees(wants={"map": 10})
        assert [event.dry_run for event in story.told(Decided)] == [True]
        assert story.plan == plan_of(5)
        asked(story, SetDryRun(on=False))
        story.sees(wants={"map": 10})
        assert story.plan == plan_of(10)

    def test_a_dry_run_of_the_command_is_not_ended_by_what_was_said_before_a_restart(self) -> None:
        story = Story(plan=plan_of(5), dry_run=True)
        asked(story, SetDryRun(on=False))
        again = Story(plan=plan_of(5), state=story.state, dry_run=True)
        again.starts()
        again.sees(wants={"map": 10})
        assert again.plan == plan_of(5)

    def test_nothing_is_scaled_by_hand_in_it(self) -> None:
        assert field_refused(Story(plan=plan_of(5), dry_run=True), Scale(parallelism={"map": 6})) is None


class TestScale:
    def test_it_is_a_decision_like_any_other_with_its_reason(self) -> None:
        story = Story(plan=plan_of(5))
        told = asked(story, Scale(parallelism={"map": 8, "count": 2}))
        [decision] = story.decisions
        assert story.plan == plan_of(8, 2)
        assert (decision.kind, decision.before, decision.after) == (
            DecisionKind.BY_HAND,
            plan_of(5),
            plan_of(8, 2),
        )
        assert [str(reason.kind) for reason in decision.reasons] == ["asked"]
        assert told.what == "asked for by hand: map 5 → 8, count 1 → 2"
        assert [type(event) for event in story.events if isinstance(event, Steered | Decided | Acted)] == [
            Steered,
            Decided,
            Acted,
        ]

    def test_it_is_done_though_scaling_is_paused_or_given_up(self) -> None:
        for state in (ManagerState(controls=Controls(paused=True)), ManagerState(phase=ManagerPhase.GIVEN_UP)):
            story = Story(plan=plan_of(5), state=state)
            asked(story, Scale(parallelism={"map": 8}))
            assert story.plan == plan_of(8)

    def test_it_is_judged_but_not_taken_back(self) -> None:
        story = Story(plan=plan_of(10))
        story.sees(wants={})
        asked(story, Scale(parallelism={"map": 5}))
        story.sees(wants={}, share=0.5)
        assert [event.verdict for event in story.told(Judged)] == [ActionVerdict.HARMFUL]
        assert story.plan == plan_of(5)

    @pytest.mark.parametrize(
        ("parallelism", "field"),
        [
            ({"map": 9}, "parallelism.map"),
            ({"map": 4}, "parallelism.map"),
            ({"count": 2}, "parallelism.count"),
            ({"map": 6, "counts": 2}, "parallelism.counts"),
            ({"source": 2}, "parallelism.source"),
            ({"map": 5}, None),
        ],
        ids=["above", "below what was set", "fixed", "unknown", "a source", "as it is"],
    )
    def test_what_cannot_be_is_refused_as_a_whole(self, parallelism: dict[str, int], field: str | None) -> None:
        operators = [Operator(name="map", max_parallelism=8), Operator(name="count", fixed=True)]
        state = ManagerState(controls=Controls(bounds={"map": Bounds(least=5)}))
        story = Story(plan=plan_of(5), operators=operators, state=state)
        assert field_refused(story, Scale(parallelism=parallelism)) == field

    def test_an_operator_without_bounds_has_a_limit_all_the_same(self) -> None:
        assert field_refused(Story(plan=plan_of(5)), Scale(parallelism={"map": 10_001})) == "parallelism.map"

    def test_not_while_another_action_is_under_way(self) -> None:
        first = Story(plan=plan_of(5))
        first.sees(wants={"map": 10})
        state = ManagerState(phase=ManagerPhase.RESCALING, under_way=first.decisions[0])
        told = asked(Story(plan=plan_of(5), state=state), Scale(parallelism={"map": 6}))
        assert told.refusal is not None
        assert told.refusal.why == "action 1 is still under way"


class TestRollBack:
    def test_the_last_action_is_taken_back_and_not_proposed_again_under_this_load(self) -> None:
        story = Story(plan=plan_of(5))
        story.sees(wants={"map": 10})
        told = asked(story, RollBack())
        assert told.what == "action 1 is taken back by hand: map 10 → 5"
        assert story.plan == plan_of(5)
        assert story.decisions[-1].kind is DecisionKind.ROLLBACK
        assert story.sees(wants={"map": 10}) is None
        assert "was taken back under this load" in story.told(Held)[-1].why
        story.sees(wants={"map": 10}, load=2_000.0)
        assert story.plan == plan_of(10)

    def test_it_is_refused_where_there_is_nothing_to_take_back(self) -> None:
        story = Story(plan=plan_of(5))
        assert field_refused(story, RollBack()) is None
        story.sees(wants={"map": 10})
        asked(story, RollBack())
        told = asked(story, RollBack())
        assert told.refusal is not None
        assert told.refusal.why == "the last action, 2, was a rollback itself"

    def test_it_is_refused_where_something_else_runs_by_now(self) -> None:
        story = Story(plan=plan_of(5))
        story.sees(wants={"map": 10})
        story.plan = plan_of(9)
        told = asked(story, RollBack())
        assert told.refusal is not None
        assert "no longer what action 1 left" in told.refusal.why


class Waking(ManualClock):
    """A clock that someone wakes in the middle of the first wait."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Any] = []

    def wait(self, seconds: float) -> None:
        if self.meanwhile:
            super().wait(seconds / 3)
            self.meanwhile.pop(0)()
        else:
            super().wait(seconds)


class Run:
    def __init__(self, *, store: Store | None = None) -> None:
        self.clock = Waking()
        self.engine = FakeEngine(self.clock, plan_of(10))
        self.inbox = Inbox(wake=lambda: None)
        self.events: list[Event] = []
        self.manager = Manager(
            engine=self.engine,
            policy=Scripted(),
            knobs=Knobs(interval_s=60.0, warm_up_intervals=0),
            clock=self.clock,
            store=store,
            on_event=self.events.append,
            inbox=self.inbox,
        )


class TestLoop:
    def test_a_scale_by_hand_does_not_wait_for_the_end_of_the_interval(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            run = Run(store=store)
            answers = []
            run.clock.meanwhile.append(lambda: answers.append(run.inbox.ask(Scale(parallelism={"map": 12}))))
            run.manager.run(until_s=120.0)
            assert answers[0].result(0).what == "asked for by hand: map 10 → 12"
            assert [decision.at_s for decision in run.engine.asked] == [20.0]
            assert run.clock.waits == [20.0, 60.0, 40.0], "after an action a new interval begins"
            assert store.load() == run.manager.state

    def test_what_is_no_action_leaves_the_interval_as_it_was(self) -> None:
        run = Run()
        run.clock.meanwhile.append(lambda: run.inbox.ask(Pause()))
        run.manager.run(until_s=60.0)
        assert run.clock.waits == pytest.approx([20.0, 40.0])
        assert [type(event) for event in run.events[:1]] == [Steered]
        assert run.manager.state.controls.paused

    def test_who_asks_after_the_end_is_told_so(self) -> None:
        run = Run()
        run.manager.run(until_s=60.0)
        with pytest.raises(ElastreamError, match="the run has ended"):
            run.inbox.ask(Pause()).result(0)

    def test_an_engine_that_cannot_say_what_runs_answers_with_trouble(self) -> None:
        run = Run()
        answers = []

        def ask() -> None:
            run.engine.fails = {"plan": "no answer"}
            answers.append(run.inbox.ask(Scale(parallelism={"map": 12})))

        run.clock.meanwhile.append(ask)
        run.manager.run(until_s=60.0)
        with pytest.raises(ElastreamError, match="could not do it"):
            answers[0].result(0)

    def test_too_many_requests_are_refused(self) -> None:
        inbox = Inbox(wake=lambda: None)
        for _ in range(100):
            inbox.ask(Pause())
        with pytest.raises(InboxFull):
            inbox.ask(Pause())

    def test_the_wall_clock_is_woken(self) -> None:
        clock = WallClock()
        inbox = Inbox(clock.wake)
        threading.Timer(0.01, lambda: inbox.ask(Pause())).start()
        began = time.monotonic()
        clock.wait(3_600.0)
        assert time.monotonic() - began < 600.0
        assert [letter.request for letter in inbox.letters()] == [Pause()]

    def test_a_stop_is_not_lost_before_or_in_a_wait(self) -> None:
        clock = WallClock()
        threading.Timer(0.01, clock.stop).start()
        clock.wait(3_600.0)
        clock.wait(3_600.0)
        assert clock.stopped.is_set()


def test_a_plan_that_is_asked_for_is_what_the_engine_is_told() -> None:
    story = Story(plan=plan_of(5))
    asked(story, Scale(parallelism={"count": 3}))
    assert story.decisions[0].after == Plan({"map": 5, "count": 3})
