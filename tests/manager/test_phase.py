"""The phases: the table itself, and that whatever happens to the manager keeps to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from manager_story import Scripted, Story, carried_out, plan_of, refused, window

from elastream.dataflow import Operator, Plan
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Decided, PhaseChanged
from elastream.manager.knobs import Knobs
from elastream.manager.moves import ManagerStep
from elastream.manager.phase import TRANSITIONS, IllegalTransition, ManagerPhase, PhaseTrigger, following
from elastream.manager.requests import Pause, Request, Resume, RollBack, Scale
from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.manager.step import Input, Measured, Rescaled, step
from elastream.policies.ds2 import DS2

ILLEGAL = [
    (phase, trigger) for phase in ManagerPhase for trigger in PhaseTrigger if (phase, trigger) not in TRANSITIONS
]


class TestTable:
    @pytest.mark.parametrize(("phase", "trigger"), ILLEGAL)
    def test_what_it_does_not_have_raises(self, phase: ManagerPhase, trigger: PhaseTrigger) -> None:
        before = ManagerStep(state=ManagerState(phase=phase, decisions=7))
        with pytest.raises(IllegalTransition, match=f"'{phase}' on '{trigger}'"):
            before.go(trigger, at_s=1.0)
        assert before == ManagerStep(state=ManagerState(phase=phase, decisions=7))

    @pytest.mark.parametrize(("phase", "trigger"), TRANSITIONS)
    def test_what_it_has_leads_on_and_is_told(self, phase: ManagerPhase, trigger: PhaseTrigger) -> None:
        after = TRANSITIONS[phase, trigger]
        assert following(phase, trigger) is after
        moved = ManagerStep(state=ManagerState(phase=phase)).go(trigger, at_s=1.0)
        assert moved.state.phase is after
        told = PhaseChanged(at_s=1.0, before=phase, after=after, why=str(trigger))
        assert moved.events == (() if phase is after else (told,))

    def test_an_action_begins_only_where_it_was_decided_or_asked_for_and_ends_in_a_warm_up(self) -> None:
        begun_by = {
            t for (before, t), after in TRANSITIONS.items() if after is ManagerPhase.RESCALING is not before
        }
        assert begun_by == {PhaseTrigger.DECIDED, PhaseTrigger.ASKED_FOR}
        ended = {after for (before, _), after in TRANSITIONS.items() if before is ManagerPhase.RESCALING}
        assert ended == {ManagerPhase.RESCALING, ManagerPhase.WARMING_UP}

    def test_only_a_changed_load_or_a_person_ends_giving_up(self) -> None:
        ends = {t for (before, t), after in TRANSITIONS.items() if before is ManagerPhase.GIVEN_UP is not after}
        assert ends == {PhaseTrigger.LOAD_CHANGED, PhaseTrigger.ASKED_FOR}

    def test_every_phase_can_be_reached_from_the_first(self) -> None:
        assert reachable(ManagerPhase.WARMING_UP) == set(ManagerPhase)

    @pytest.mark.parametrize("phase", ManagerPhase)
    def test_every_phase_leads_back_to_observing_without_a_restart(self, phase: ManagerPhase) -> None:
        assert ManagerPhase.OBSERVING in reachable(phase)


def reachable(start: ManagerPhase) -> set[ManagerPhase]:
    """What can come after a phase while the manager is not restarted."""
    found: set[ManagerPhase] = set()
    pending = {start}
    while pending:
        phase = pending.pop()
        found.add(phase)
        pending |= {
            after
            for (before, t), after in TRANSITIONS.items()
            if before is phase and t is not PhaseTrigger.STARTED
        } - found
    return found


class TestStep:
    def test_a_story_that_goes_through_every_phase(self) -> None:
        story = Story(warm_up_intervals=1, activation_intervals=2, decision_limit=1)
        visited = [story.phase]
        for wanted, share in [(10, 1), (5, 1), (5, 1), *[(5, 0.5)] * 4, *[(30, 0.5)] * 4]:
            story.sees(wants={"map": wanted}, share=share)
            visited.append(story.phase)
        visited += [change.after for change in story.told(PhaseChanged)]
        assert set(visited) == set(ManagerPhase)
        assert story.phase is ManagerPhase.GIVEN_UP

    @pytest.mark.parametrize("phase", [phase for phase in ManagerPhase if phase is not ManagerPhase.RESCALING])
    def test_an_outcome_that_nobody_waits_for_raises(self, phase: ManagerPhase) -> None:
        outcome = RescaleOutcome(plan=plan_of(1), succeeded=True, took_s=0.0)
        with pytest.raises(IllegalTransition):
            take(ManagerState(phase=phase), Rescaled(at_s=1.0, outcome=outcome))

    @pytest.mark.parametrize("wanted", [1, 5])
    @pytest.mark.parametrize("knobs", [{}, {"activation_intervals": 2}, {"dry_run": True}])
    def test_a_window_in_the_middle_of_an_action_raises(self, wanted: int, knobs: dict[str, Any]) -> None:
        under_way = Decision(number=1, at_s=0.0, before=plan_of(1), after=plan_of(2))
        state = ManagerState(phase=ManagerPhase.RESCALING, decisions=1, under_way=under_way)
        with pytest.raises(IllegalTransition):
            take(state, Measured(snapshot=window(plan_of(1))), wants=wanted, **knobs)


def take(state: ManagerState, given: Input, *, wants: int = 1, **knobs: Any) -> ManagerStep:
    return step(state, given, policy=Scripted(wants={"map": wants}), knobs=Knobs(**knobs))


OPERATORS = (Operator(name="map", min_parallelism=2, max_parallelism=24), Operator(name="count", fixed=True))
PLANS = st.integers(2, 24).map(plan_of)
KNOBS = st.fixed_dictionaries(
    {
        "warm_up_intervals": st.integers(0, 2),
        "activation_intervals": st.integers(1, 3),
        "activation_by": st.sampled_from(["median", "max"]),
        "minimum_change": st.integers(1, 4),
        "scale_down_delay_s": st.sampled_from([0.0, 100.0]),
        "rollback_drop": st.sampled_from([None, 0.0, 0.1]),
        "decision_limit": st.integers(1, 3),
        "dry_run": st.sampled_from([False, False, False, True]),
    }
)
WANTED = st.dictionaries(st.sampled_from(["map", "count", "nobody"]), st.integers(-1, 40), min_size=1)
SHARES = st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])
WINDOWS = st.fixed_dictionaries(
    {
        "wants": WANTED,
        "load": st.sampled_from([0.0, 0.01, 700.0, 1_000.0, 1_100.0]),
        "share": SHARES,
        "each": st.sampled_from([50.0, 100.0, 400.0]),
        "gaps": st.sampled_from([(), ("a gap",)]),
        "after_s": st.sampled_from([60.0, 0.0, -90.0]),
    }
)


ACTIONS = st.builds(Scale, parallelism=WANTED) | st.just(RollBack())


class Killed(Exception):  # noqa: N818
    """The manager's process ends in the middle of an action."""


def killed(decision: Decision) -> Plan:
    raise Killed


def half_done(decision: Decision) -> Plan:
    return decision.before.with_changes({"map": (decision.before["map"] + decision.after["map"]) // 2})


class AnythingHappens(RuleBasedStateMachine):
    """Windows of all kinds, an engine in any mood, restarts, and a person who rescales by hand."""

    @initialize(plan=PLANS, knobs=KNOBS, with_ds2=st.booleans())
    def begin(self, plan: Plan, knobs: dict[str, Any], with_ds2: bool) -> None:
        policy = DS2(catch_up_s=60) if with_ds2 else None
        self.story = Story(policy, plan=plan, operators=OPERATORS, **knobs)
        self.resumed = False
        self.story.starts()

    @rule(share=SHARES, wants=st.lists(WANTED, min_size=1, max_size=5))
    def steady_windows(self, share: float, wants: list[dict[str, int]]) -> None:
        self.story.engine = carried_out
        for wanted in wants:
            self._sees({"wants": wanted, "share": share})

    @rule(measured=WINDOWS, engine=st.sampled_from([carried_out, refused, half_done, killed]))
    def any_window(self, measured: dict[str, Any], engine: Any) -> None:
        self.story.engine = engine
        self._sees(measured)

    @rule(found=st.none() | PLANS)
    def restart(self, found: Plan | None) -> None:
        """Perhaps after someone has rescaled by hand."""
        self.story.plan = found or self.story.plan
        self.story.starts()

    @rule(plan=PLANS)
    def rescaled_by_hand(self, plan: Plan) -> None:
        self.story.plan = plan

    @rule(request=ACTIONS, engine=st.sampled_from([carried_out, refused, half_done, killed]))
    def asked_by_hand(self, request: Request, engine: Any) -> None:
        self.story.engine = engine
        before = len(self.story.decisions)
        self._survives(lambda: self.story.asks(request))
        for decision in self.story.decisions[before:]:
            self._is_sound(decision)

    @rule(measured=WINDOWS)
    def a_window_while_paused(self, measured: dict[str, Any]) -> None:
        before = len(self.story.decisions)
        self.story.asks(Pause())
        self.story.sees(**measured)
        assert len(self.story.decisions) == before
        self.story.asks(Resume())
        self.resumed = True

    @invariant()
    def nobody_waits_for_an_outcome(self) -> None:
        stray = Rescaled(
            at_s=self.story.at_s, outcome=RescaleOutcome(plan=self.story.plan, succeeded=True, took_s=0.0)
        )
        with pytest.raises(IllegalTransition):
            take(self.story.state, stray)

    @invariant()
    def the_phase_was_reached_by_the_table(self) -> None:
        steps = {(before, after) for (before, _), after in TRANSITIONS.items()}
        changes = self.story.told(PhaseChanged)
        assert all((change.before, change.after) in steps for change in changes)
        assert all(one.after is next_one.before for one, next_one in pairwise(changes))
        assert not changes or changes[-1].after is self.story.phase

    @invariant()
    def what_is_remembered_fits_the_phase(self) -> None:
        state = self.story.state
        assert state.under_way is None
        assert state.phase is not ManagerPhase.RESCALING
        # one bad window proves nothing, so the last action may still be on trial
        harmful = 0 < state.harmful < self.story.knobs.activation_intervals
        on_trial = state.phase is ManagerPhase.VERIFYING and (harmful or self.resumed)
        assert state.to_judge is None or state.phase is ManagerPhase.WARMING_UP or on_trial
        assert len(state.recent) <= self.story.knobs.activation_intervals

    @invariant()
    def decisions_are_numbered_without_gaps(self) -> None:
        told = [event.decision.number for event in self.story.told(Decided) if not event.dry_run]
        assert told == list(range(1, self.story.state.decisions + 1))

    @invariant()
    def a_dry_run_decides_nothing(self) -> None:
        assert not (self.story.knobs.dry_run and self.story.decisions)

    def teardown(self) -> None:
        if hasattr(self, "story"):
            state = self.story.state
            assert state_from_json(state_to_json(state), place="memory") == state
            if self.story.policy is self.story.scripted and not self.story.knobs.dry_run:
                self._settles_under_a_new_load()

    def _settles_under_a_new_load(self) -> None:
        """Whatever went before, a load that is new and steady ends in the plan that the policy wants for it."""
        self.story.engine = carried_out
        patience = 32 + 10  # the longest wait after failures; warm-up, activation and scale-down delay, twice
        while patience and not 13 <= self.story.plan["map"] < 13 + self.story.knobs.minimum_change:
            self._sees({"wants": {"map": 13}, "load": 2_600.0, "each": 200.0})
            patience -= 1
        assert patience, f"{self.story.plan} while {self.story.phase}"

    def _sees(self, measured: dict[str, Any]) -> None:
        before = len(self.story.decisions)
        self.resumed = self.resumed and bool(measured.get("gaps") or measured.get("after_s", 1.0) <= 0)
        self._survives(lambda: self.story.sees(**measured))
        for decision in self.story.decisions[before:]:
            self._is_sound(decision)

    def _survives(self, happening: Callable[[], object]) -> None:
        try:
            happening()
        except Killed:
            self._is_found_somewhere_and_restarts(self.story.decisions[-1])

    def _is_found_somewhere_and_restarts(self, decision: Decision) -> None:
        self.story.plan = [decision.before, half_done(decision), decision.after][decision.number % 3]
        self.story.engine = carried_out
        self.story.starts()

    def _is_sound(self, decision: Decision) -> None:
        assert decision.changes, "a decision for the plan that is in force"
        for change in decision.changes:
            assert change.operator == "map", "count is fixed"
            assert 2 <= change.after <= 24


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
