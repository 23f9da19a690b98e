"""The loop around the step, with a fake engine and a manual clock: what it does when something outside fails."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from manager_story import FakeEngine, ManualClock, Scripted, plan_of

from elastream.dataflow import Plan
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.events import (
    Acted,
    ActionVerdict,
    Decided,
    Event,
    Ignored,
    Judged,
    PhaseChanged,
    Proposed,
    Trouble,
)
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.phase import ManagerPhase
from elastream.manager.state import ManagerState
from elastream.manager.store import Store
from elastream.measurement import Snapshot


class Run:
    """A manager with all its surroundings: start at 5 instances of map, where 10 are needed and wanted."""

    def __init__(self, *, clock: ManualClock | None = None, store: Store | None = None, **knobs: Any) -> None:
        self.clock = clock or ManualClock()
        self.engine = FakeEngine(self.clock, plan_of(5))
        self.policy = Scripted(wants={"map": 10})
        self.events: list[Event] = []
        self.snapshots: list[Snapshot] = []
        self.manager = Manager(
            engine=self.engine,
            policy=self.policy,
            knobs=Knobs(
                **{
                    "interval_s": 60.0,
                    "warm_up_intervals": 0,
                    "scale_down_delay_s": 0,
                    "rollback_intervals": 1,
                    **knobs,
                }
            ),
            clock=self.clock,
            store=store,
            on_event=self.events.append,
            on_snapshot=self.snapshots.append,
        )

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.wait(60.0)
            self.manager.tick()

    def troubles(self) -> list[str]:
        return [event.what for event in self.events if isinstance(event, Trouble)]


class TestInterval:
    @pytest.mark.parametrize("interval_s", [5.0, 60.0])
    def test_it_is_how_long_the_loop_waits_between_two_windows(self, interval_s: float) -> None:
        run = Run(interval_s=interval_s)
        run.manager.run(until_s=4 * interval_s)
        assert run.clock.waits == [interval_s] * 4
        assert [snapshot.at_s for snapshot in run.snapshots] == [interval_s * n for n in (1, 2, 3, 4)]

    def test_what_is_left_at_the_end_is_waited_for_but_not_judged(self) -> None:
        run = Run()
        run.manager.run(until_s=150.0)
        assert run.clock.waits == [60.0, 60.0, 30.0]
        assert len(run.snapshots) == 2


class TestEvents:
    def test_they_come_in_the_order_in_which_things_happened(self) -> None:
        run = Run(warm_up_intervals=1)
        run.manager.run(until_s=240.0)
        kinds = [type(event) for event in run.events]
        assert kinds == [
            Ignored,
            *(PhaseChanged, Proposed, PhaseChanged, Decided, Acted, PhaseChanged),
            Ignored,
            *(PhaseChanged, Judged, PhaseChanged, Proposed),
        ]
        assert [event.at_s for event in run.events] == sorted(event.at_s for event in run.events)
        assert run.engine.in_force == plan_of(10)

    def test_those_of_an_action_come_before_and_after_it(self) -> None:
        run = Run()
        told_before: list[type[Event]] = []

        def look(decision: Decision) -> Plan:
            told_before.extend(type(event) for event in run.events)
            return decision.after

        run.engine.gets_to = look
        run.ticks()
        assert told_before[-1] is Decided
        assert Acted not in told_before
        assert any(isinstance(event, Acted) for event in run.events)


class TestStopping:
    def test_the_callback_ends_the_loop_before_the_next_window(self) -> None:
        run = Run()
        run.manager.run(until_s=1e9, stopped=lambda: len(run.snapshots) == 3)
        assert len(run.snapshots) == 3
        assert run.clock.now() == 180.0

    def test_a_stop_during_the_wait_leaves_the_window_out(self) -> None:
        run = Run()
        run.manager.run(until_s=1e9, stopped=lambda: run.clock.now() >= 120.0)
        assert len(run.snapshots) == 1

    def test_a_wait_on_the_wall_clock_ends_at_once(self) -> None:
        clock = WallClock()
        clock.stopped.set()
        began = time.time()
        clock.wait(3_600.0)
        assert began <= clock.now() < began + 60.0


class TestMeasureFails:
    def test_it_is_told_and_the_loop_goes_on(self) -> None:
        run = Run()
        run.engine.fails = {"measure": "no answer from the driver"}
        run.ticks(2)
        assert run.troubles() == ["cannot measure: no answer from the driver"] * 2
        run.engine.fails = {}
        run.ticks()
        assert run.engine.in_force == plan_of(10)

    def test_what_is_not_an_error_of_elastream_is_not_hidden(self) -> None:
        run = Run()
        run.engine.in_force = Plan({"map": 5})  # count is missing: a mistake in the test's engine
        with pytest.raises(KeyError):
            run.ticks()


class TestRescaleFails:
    def test_an_error_becomes_a_failed_outcome(self) -> None:
        run = Run()
        run.engine.fails = {"rescale": "the cluster is full"}
        run.ticks()
        [acted] = [event for event in run.events if isinstance(event, Acted)]
        assert (acted.outcome.succeeded, acted.outcome.detail) == (False, "the cluster is full")
        assert acted.outcome.plan == plan_of(5)
        assert run.manager.state.failures == 1

    def test_it_is_tried_again_after_a_while(self) -> None:
        run = Run()
        run.engine.fails = {"rescale": "the cluster is full"}
        run.ticks()
        run.engine.fails = {}
        run.ticks(2)
        assert run.engine.in_force == plan_of(10)

    def test_an_action_that_gets_half_way_is_undone(self) -> None:
        run = Run()
        run.policy.wants = {"map": 10, "count": 2}
        run.engine.gets_to = lambda d: plan_of(10, 1) if d.kind is DecisionKind.RESCALE else d.after
        run.ticks()
        assert [decision.kind for decision in run.engine.asked] == [DecisionKind.RESCALE, DecisionKind.ROLLBACK]
        assert run.engine.in_force == plan_of(5, 1)

    def test_an_engine_that_does_not_say_what_runs_is_asked_again_later(self) -> None:
        run = Run()
        run.engine.fails = {"rescale": "connection lost", "plan": "still lost"}
        run.ticks()
        assert run.manager.state.phase is ManagerPhase.RESCALING
        run.engine.fails = {"plan": "still lost"}
        run.ticks()
        assert run.troubles() == [
            "action 1 failed (connection lost), and what runs now is not known: still lost",
            "cannot measure: still lost",
        ]
        run.engine.fails = {}
        run.ticks()
        assert [decision.number for decision in run.engine.asked] == [1, 1]
        assert run.engine.in_force == plan_of(10)


class TestRollback:
    def test_a_bad_action_is_taken_back_by_the_loop(self) -> None:
        run = Run()
        run.engine.in_force = plan_of(10)
        run.policy.wants = {"map": 5}
        run.ticks(2)
        assert run.engine.in_force == plan_of(10)
        assert [event.verdict for event in run.events if isinstance(event, Judged)] == [ActionVerdict.HARMFUL]


class Interrupted(ManualClock):
    """Someone presses Ctrl-C while the loop waits."""

    def wait(self, seconds: float) -> None:
        if len(self.waits) == 2:
            raise KeyboardInterrupt
        super().wait(seconds)


class TestStore:
    def test_ctrl_c_leaves_the_state_saved(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            run = Run(clock=Interrupted(), store=store)
            with pytest.raises(KeyboardInterrupt):
                run.manager.run(until_s=1e9)
        with Store(tmp_path / "manager.db") as store:
            assert store.load() == run.manager.state
            assert run.manager.state.decisions == 1

    def test_only_what_a_power_cut_must_not_take_waits_for_the_disk(self, tmp_path: Path) -> None:
        class Watched(Store):
            lasting: list[bool]

            def save(self, state: ManagerState, *, lasting: bool = True) -> None:
                self.lasting = [*getattr(self, "lasting", []), lasting]
                super().save(state, lasting=lasting)

        with Watched(tmp_path / "manager.db") as store:
            run = Run(store=store)
            run.manager.start()
            run.ticks(1)
            assert store.lasting == [True, True, True], "the start, the intent, and what became of it"
            run.ticks(2)
            assert store.lasting[3:] == [False, False]

    def test_the_intent_is_on_disk_before_the_engine_is_asked(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store, Store(tmp_path / "manager.db") as other:
            run = Run(store=store)
            found: list[Decision | None] = []

            def look(decision: Decision) -> Plan:
                state = other.load()
                found.append(state.under_way if state else None)
                return decision.after

            run.engine.gets_to = look
            run.ticks()
            assert found == run.engine.asked
            assert store.load() == run.manager.state
            assert run.manager.state.under_way is None

    def test_a_second_run_takes_up_the_state_of_the_first(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            first = Run(store=store)
            first.ticks()
            second = Run(store=store)
            second.engine.in_force = first.engine.in_force
            second.policy.wants = {"map": 12}
            second.manager.start()
            second.ticks()
        assert [decision.number for decision in second.engine.asked] == [2]

    def test_an_engine_that_cannot_say_what_runs_is_no_place_to_start(self) -> None:
        run = Run()
        run.engine.fails = {"plan": "no such pipeline"}
        with pytest.raises(ElastreamError, match="no such pipeline"):
            run.manager.start()

    def test_nothing_is_done_twice_when_an_action_is_found_done(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            first = Run(store=store)
            first.engine.gets_to = _interrupted
            with pytest.raises(KeyboardInterrupt):
                first.ticks()
            second = Run(store=store)
            second.engine.in_force = plan_of(10)
            second.manager.start()
        assert second.engine.asked == []
        assert second.manager.state.under_way is None


def _interrupted(decision: Decision) -> Plan:
    raise KeyboardInterrupt
