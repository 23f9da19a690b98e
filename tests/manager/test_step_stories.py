"""One story for each knob of the manager, told to the pure step: windows in, decisions and events out.

The pipeline is source → map → count (see manager_story.py); nearly everything happens to map. The load is 1,000
records a second, and an instance of map does 100, where a story does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from manager_story import Story, carried_out, plan_of, refused, window

from elastream.dataflow import Operator, Plan
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Acted, ActionVerdict, Decided, Held, Ignored, Judged, PhaseChanged, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.phase import ManagerPhase
from elastream.manager.state import ManagerState
from elastream.manager.step import Rescaled, step
from elastream.measurement import Reading
from elastream.measurement.batch_cost import BatchCost
from elastream.policies.ds2 import AS_PUBLISHED, DS2
from elastream.policies.proposal import Reason, ReasonKind
from elastream.testing import alike


def skewed(instances: int, *, each: float, hot_share: float) -> list[Reading]:
    """Readings of map: its first instance gets this share of the records, is saturated, and holds all back."""
    hot, cold = each, each * (1 / hot_share - 1) / (instances - 1)
    return [
        *alike("map", records_per_s=hot),
        *alike("map", instances=instances, records_per_s=cold, useful_share=cold / each)[1:],
    ]


BATCH = BatchCost(
    per_record_s=0.01,
    per_task_s=0.0,
    per_state_partition_s=0.0,
    state_partitions=0,
    driver_s=1.0,
    balance=1.0,
    longest_batch_s=3.0,
)


class TestWarmUp:
    @pytest.mark.parametrize("intervals", [0, 1, 3])
    def test_windows_after_the_start_are_ignored(self, intervals: int) -> None:
        story = Story(warm_up_intervals=intervals)
        story.starts()
        for _ in range(intervals):
            assert story.sees(wants={"map": 20}) is None
            assert story.phase is ManagerPhase.WARMING_UP
        assert len(story.told(Ignored)) == intervals
        assert story.told(Proposed) == []
        assert story.sees(wants={"map": 20}) is not None

    @pytest.mark.parametrize("intervals", [0, 1, 3])
    def test_windows_after_each_action_are_ignored(self, intervals: int) -> None:
        story = Story(warm_up_intervals=intervals)
        for action, wanted in enumerate([12, 14, 16], start=1):
            for _ in range(intervals):
                assert story.sees(wants={"map": wanted}) is None
            assert story.sees(wants={"map": wanted}) is not None
            assert len(story.told(Ignored)) == action * intervals
        assert story.plan == plan_of(16)

    def test_nothing_is_learned_or_judged_in_a_warm_up(self) -> None:
        story = Story(warm_up_intervals=1)
        story.sees()
        assert story.sees(wants={"map": 20}) is not None
        learned = story.state.knowledge
        story.sees(share=0.1)
        assert story.state.knowledge.points == learned.points
        assert story.state.knowledge.watched_s == learned.watched_s + 60  # time passes all the same
        assert story.told(Judged) == []

    def test_the_reason_says_how_long_it_takes(self) -> None:
        story = Story(warm_up_intervals=2)
        story.sees()
        story.sees()
        assert [event.why for event in story.told(Ignored)] == [
            "warming up, 2 more windows",
            "warming up, 1 more window",
        ]


class TestActivation:
    def test_one_proposal_is_enough_by_default(self) -> None:
        story = Story()
        assert story.sees(wants={"map": 12}) is not None
        assert story.plan == plan_of(12)

    @pytest.mark.parametrize(
        ("combined_by", "proposals", "wanted"),
        [
            ("median", [20, 12, 14], 14),
            ("max", [20, 12, 14], 20),
            ("median", [20, 10, 10], 10),  # two of three see no need
            ("max", [20, 10, 10], 20),
            ("median", [12, 14], 14),  # the higher of the two in the middle: rather one too many than too few
        ],
    )
    def test_proposals_in_a_row_are_combined(self, combined_by: str, proposals: list[int], wanted: int) -> None:
        story = Story(activation_intervals=len(proposals), activation_by=combined_by)
        for proposal in proposals[:-1]:
            assert story.sees(wants={"map": proposal}) is None
        story.sees(wants={"map": proposals[-1]})
        assert story.plan == plan_of(wanted)

    def test_the_phase_tells_that_a_change_is_coming(self) -> None:
        story = Story(activation_intervals=3)
        phases = []
        for wanted in (12, 10, 10):  # the median of 12 and 10 is taken as 12
            story.sees(wants={"map": wanted})
            phases.append(story.phase)
        assert phases == [ManagerPhase.ACTIVATING, ManagerPhase.ACTIVATING, ManagerPhase.OBSERVING]
        assert story.told(PhaseChanged)[-2].why == "1 of 3 proposals in a row"

    def test_the_row_begins_with_the_first_that_wants_a_change(self) -> None:
        story = Story(activation_intervals=3, activation_by="max")
        for wanted in (10, 10, 10, 12, 10):
            assert story.sees(wants={"map": wanted}) is None
        assert story.sees(wants={"map": 10}) is not None

    def test_an_action_uses_its_proposals_up(self) -> None:
        story = Story(activation_intervals=2)
        story.sees(wants={"map": 12})
        assert story.sees(wants={"map": 12}) is not None
        assert story.sees(wants={"map": 14}) is None
        assert story.sees(wants={"map": 14}) is not None

    def test_an_operator_is_sized_by_the_proposals_that_speak_of_it(self) -> None:
        story = Story(activation_intervals=3)
        story.sees(wants={"map": 14})
        story.sees(wants={"map": 14, "count": 2})
        story.sees(wants={"count": 2})
        assert story.plan == plan_of(14, 2)

    def test_max_keeps_a_windowed_operator_at_what_its_firing_needs(self) -> None:
        # While records are set aside an instance seems to do 500 a second; when the window fires it does 100.
        story = Story(AS_PUBLISHED, plan=plan_of(4), activation_intervals=2, activation_by="max")
        for _ in range(6):
            story.sees(each=500, share=1.0)
            story.sees(each=100)
        assert [decision.after for decision in story.decisions] == [plan_of(10)]

    def test_without_activation_a_windowed_operator_goes_up_and_down(self) -> None:
        story = Story(AS_PUBLISHED, plan=plan_of(4), rollback_drop=None)
        for _ in range(3):
            story.sees(each=500, share=1.0)
            story.sees(each=100)
        assert [decision.after["map"] for decision in story.decisions] == [2, 10] * 3


class TestMinimumChange:
    @pytest.mark.parametrize(
        ("knobs", "held", "let_through"),
        [
            ({"minimum_change": 1}, [], [9, 11]),
            ({"minimum_change": 3}, [8, 9, 11, 12], [7, 13]),
            ({"minimum_change_share": 0.2}, [9, 11], [8, 12]),
            ({"minimum_change": 2, "minimum_change_share": 0.4}, [7, 12, 13], [6, 14]),  # the larger counts
        ],
    )
    def test_smaller_changes_are_left_alone(
        self, knobs: dict[str, Any], held: list[int], let_through: list[int]
    ) -> None:
        for wanted in held:
            story = Story(**knobs)
            assert story.sees(wants={"map": wanted}) is None
            assert [event.why for event in story.told(Held)] == [
                f"map: 10 → {wanted} is smaller than the minimum change"
            ]
        for wanted in let_through:
            story = Story(**knobs)
            story.sees(wants={"map": wanted})
            assert story.plan == plan_of(wanted)

    @pytest.mark.parametrize("share", [0.9, 0.0])
    def test_a_scale_up_is_never_too_small_for_a_pipeline_that_falls_behind(self, share: float) -> None:
        story = Story(minimum_change=5)
        story.sees(wants={"map": 11}, share=share)
        assert story.plan == plan_of(11)

    def test_a_scale_down_stays_too_small_for_a_pipeline_that_falls_behind(self) -> None:
        story = Story(minimum_change=5)
        assert story.sees(wants={"map": 9}, share=0.9) is None

    def test_a_small_change_does_not_ride_along_with_a_large_one(self) -> None:
        story = Story(minimum_change=2)
        story.sees(wants={"map": 11, "count": 3})
        assert story.plan == plan_of(10, 3)


class TestScaleDownDelay:
    def test_it_waits_until_the_delay_is_covered(self) -> None:
        story = Story(scale_down_delay_s=120)
        assert story.sees(wants={"map": 6}) is None
        assert story.sees(wants={"map": 6}) is None
        assert story.told(Held)[-1].why == "map: 10 → 6 waits for 120 s of lower need"
        assert story.sees(wants={"map": 6}) is not None
        assert story.plan == plan_of(6)

    def test_it_takes_the_highest_need_of_the_delay(self) -> None:
        story = Story(scale_down_delay_s=120)
        story.sees(wants={"map": 5})
        story.sees(wants={"map": 6})
        story.sees(wants={"map": 5})
        assert story.plan == plan_of(6)
        assert story.told(Held)[-1].why == "map: 10 → 6: 5 would do now, but 6 were needed within the last 2 min"

    def test_a_need_that_lies_further_back_is_forgotten(self) -> None:
        story = Story(scale_down_delay_s=120)
        story.sees(wants={"map": 6})
        for _ in range(4):
            story.sees(wants={"map": 5}, share=1.0)
        assert story.plan == plan_of(5)
        assert [decision.after["map"] for decision in story.decisions] == [6, 5]

    def test_a_fall_is_followed_once_and_not_in_parts(self) -> None:
        story = Story(scale_down_delay_s=120)
        for wanted in (10, 8, 6, 3, 3, 3, 3):
            story.sees(wants={"map": wanted}, share=1.0)
        assert [decision.after["map"] for decision in story.decisions] == [3]

    def test_a_need_that_goes_to_and_fro_is_followed_to_its_highest(self) -> None:
        story = Story(scale_down_delay_s=120)
        for wanted in 2 * (4, 7, 4):
            story.sees(wants={"map": wanted}, share=1.0)
        assert story.plan == plan_of(7)

    def test_while_the_present_size_was_needed_nothing_changes(self) -> None:
        story = Story(scale_down_delay_s=120)
        story.sees(wants={"map": 10})
        story.sees(wants={"map": 4})
        assert story.sees(wants={"map": 4}) is None
        assert story.sees(wants={"map": 4}) is not None

    def test_a_scale_up_does_not_wait(self) -> None:
        story = Story(scale_down_delay_s=600)
        story.sees(wants={"map": 12, "count": 1})
        assert story.plan == plan_of(12)

    def test_a_window_without_data_does_not_count_as_low_need(self) -> None:
        story = Story(scale_down_delay_s=120)
        story.sees(wants={})
        story.sees(wants={})
        assert story.sees(wants={"map": 4}) is None
        story.sees()
        assert story.sees() is not None

    def test_a_restart_begins_the_delay_anew(self) -> None:
        story = Story(scale_down_delay_s=120)
        story.sees(wants={"map": 4})
        story.sees()
        story.starts()
        assert story.sees() is None
        assert story.sees() is None
        assert story.sees() is not None


class TestTargetRateRatio:
    """Ten instances should do, by their useful time, but only 80 % of the load is processed."""

    def test_after_two_short_windows_it_asks_for_what_is_missing(self) -> None:
        story = Story(AS_PUBLISHED)
        assert story.sees(share=0.8) is None
        decision = story.sees(share=0.8)
        assert decision is not None
        assert decision.after == plan_of(13)  # 10 / 0.8 = 12.5
        assert "asks for 1.25 times the rate of source: the last plan fell short of its model" in map(
            str, decision.reasons
        )

    def test_an_operator_of_which_nothing_is_known_yet_did_not_fall_short_of_its_model(self) -> None:
        story = Story()
        for _ in range(4):
            assert story.sees(wants={"map": None, "count": 1}, share=0.8) is None
        assert story.state.knowledge.correction("source") == 1.0
        for _ in range(2):
            story.sees(wants={"map": 10, "count": 1}, share=0.8)
        assert story.state.knowledge.correction("source") == pytest.approx(1.25), "once something is known, it did"

    def test_one_good_window_in_between_starts_the_count_anew(self) -> None:
        story = Story(AS_PUBLISHED)
        for share in (0.8, 1.0, 0.8, 1.0, 0.8):
            assert story.sees(share=share) is None

    @pytest.mark.parametrize(
        ("ratio", "share", "acts"), [(0.95, 0.96, False), (0.95, 0.94, True), (0, 0.5, False)]
    )
    def test_the_ratio_says_what_is_short(self, ratio: float, share: float, acts: bool) -> None:
        story = Story(AS_PUBLISHED, target_rate_ratio=ratio)
        story.sees(share=share)
        story.sees(share=share)
        assert bool(story.decisions) is acts

    def test_what_a_window_cuts_off_is_not_missing(self) -> None:
        """A tenth of every window, 6,000 records, is counted in the next one; no more wait than before."""
        story = Story(AS_PUBLISHED)
        for waiting in (6_000, 6_200, 5_900, 6_100, 6_000, 6_300):
            assert story.sees(share=0.9, waiting=waiting) is None
        assert story.state.knowledge.correction("source") == 1.0

    def test_what_is_left_undone_is_found_waiting(self) -> None:
        """A fifth of every window, 12,000 records, is left over, until as many wait as a window brings."""
        story = Story(AS_PUBLISHED)
        for waiting in (37_000, 49_000):
            assert story.sees(share=0.8, waiting=waiting) is None
        assert story.sees(share=0.8, waiting=61_000) is not None
        assert story.plan == plan_of(13)

    def test_what_waits_where_nobody_counts_is_taken_to_be_missing(self) -> None:
        held_back = alike("map", instances=10, records_per_s=80, useful_share=0.8, backlog=0, wait_out_share=0.2)
        story = Story(AS_PUBLISHED)
        for _ in range(2):
            story.sees(share=0.8, waiting=0, map_readings=held_back)
        assert story.plan == plan_of(13)

    def test_what_an_action_left_waiting_is_not_held_against_its_plan(self) -> None:
        story = Story(AS_PUBLISHED, plan=plan_of(5))
        story.sees(waiting=0)
        assert story.plan == plan_of(10)
        for waiting in (30_000, 30_500, 30_200, 30_100):
            assert story.sees(share=0.9, waiting=waiting) is None

    def test_it_does_not_ask_for_more_than_twice_as_much(self) -> None:
        story = Story(AS_PUBLISHED)
        story.sees(share=0.1)
        story.sees(share=0.1)
        assert story.plan == plan_of(20)

    def test_after_an_action_two_more_short_windows_are_needed(self) -> None:
        story = Story(AS_PUBLISHED)
        story.sees(share=0.8)
        story.sees(share=0.8)
        assert story.sees(share=0.9) is None
        assert story.state.knowledge.correction("source") == pytest.approx(1.25)

    def test_a_correction_stays_while_the_load_does(self) -> None:
        story = Story(AS_PUBLISHED)
        story.sees(share=0.8)
        story.sees(share=0.8)
        for _ in range(3):
            assert story.sees(share=1.0) is None
        assert story.plan == plan_of(13)

    def test_a_correction_is_forgotten_when_the_load_changes(self) -> None:
        story = Story(AS_PUBLISHED)
        story.sees(share=0.8)
        story.sees(share=0.8)
        story.sees(load=1_500)
        assert story.plan == plan_of(15)
        assert story.state.knowledge.correction("source") == 1.0

    def test_skew_explains_a_short_rate_and_more_instances_do_not_mend_it(self) -> None:
        story = Story(AS_PUBLISHED, plan=plan_of(8))
        for _ in range(4):
            assert story.sees(share=0.5, map_readings=skewed(8, each=125, hot_share=0.25)) is None
        assert story.told(Proposed)[-1].proposal.names(ReasonKind.SKEW) == ("map",)

    def test_a_model_that_sees_the_shortage_itself_needs_no_correction(self) -> None:
        story = Story(AS_PUBLISHED, plan=plan_of(5), activation_intervals=3)
        for _ in range(3):
            story.sees()
        assert story.plan == plan_of(10)
        assert story.state.knowledge.correction("source") == 1.0

    def test_nothing_more_is_asked_where_the_policy_expects_no_more(self) -> None:
        story = Story()
        story.scripted.expected_share = 0.0
        story.sees(wants={"map": 10}, share=0.5)
        story.sees(share=0.5)
        assert story.state.knowledge.correction("source") == 1.0


class TestRollback:
    def test_a_scale_up_that_lowers_the_rate_is_taken_back(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        back = story.sees(share=0.6)
        assert back is not None
        assert (back.number, back.kind, back.after) == (2, DecisionKind.ROLLBACK, plan_of(10))
        assert [str(reason) for reason in back.reasons] == [
            "the achieved share fell from 80% to 60% after action 1"
        ]
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.HARMFUL]

    def test_a_scale_down_that_undershoots_is_taken_back(self) -> None:
        story = Story()
        story.sees(wants={"map": 5}, share=1.0)
        story.sees(share=0.7)
        assert story.plan == plan_of(10)
        assert story.decisions[-1].kind is DecisionKind.ROLLBACK

    def test_all_operators_of_the_action_go_back(self) -> None:
        story = Story()
        story.sees(wants={"map": 5, "count": 3}, share=1.0)
        story.sees(share=0.7)
        assert story.plan == plan_of(10, 1)

    @pytest.mark.parametrize(("batch_costs", "goes_back"), [({"map": BATCH}, False), ({}, True)])
    def test_a_window_in_which_no_batch_ended_does_no_harm(
        self, batch_costs: Mapping[str, BatchCost], goes_back: bool
    ) -> None:
        """12 → 1 with 84,785 waiting, on a machine so busy that a batch took longer than two windows."""
        story = Story()
        story.sees(wants={"map": 20}, share=0.5, waiting=50_000)
        story.at_s += 60
        seen = window(story.plan, at_s=story.at_s, share=0.0, waiting=80_000)
        story.tells(replace(seen, batch_costs=batch_costs))
        assert (story.plan == plan_of(10)) is goes_back

    @pytest.mark.parametrize(
        ("drop", "share", "goes_back"),
        [(0.1, 0.91, False), (0.1, 0.89, True), (0.3, 0.75, False), (None, 0.1, False)],
    )
    def test_the_drop_says_what_is_bad(self, drop: float | None, share: float, goes_back: bool) -> None:
        story = Story(rollback_drop=drop)
        story.sees(wants={"map": 5}, share=1.0)
        story.sees(share=share)
        assert (story.plan == plan_of(10)) is goes_back

    def test_it_takes_as_many_bad_windows_as_make_a_decision(self) -> None:
        story = Story(activation_intervals=3)
        for _ in range(3):
            story.sees(wants={"map": 5}, share=1.0)
        assert story.plan == plan_of(5)
        for share in (0.7, 0.7):
            story.sees(wants={"map": 5}, share=share)
            assert story.phase is ManagerPhase.VERIFYING
        story.sees(wants={"map": 5}, share=0.7)
        assert story.plan == plan_of(10)

    def test_one_bad_window_among_good_ones_is_forgiven(self) -> None:
        story = Story(activation_intervals=3)
        for _ in range(3):
            story.sees(wants={"map": 5}, share=1.0)
        story.sees(wants={"map": 5}, share=0.7)
        story.sees(wants={"map": 5}, share=1.0)
        assert story.plan == plan_of(5)
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.EFFECTIVE]

    def test_a_rollback_is_not_itself_judged(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(share=0.6)
        story.sees(share=0.2)
        assert story.phase is ManagerPhase.ROLLED_BACK
        assert [judged.number for judged in story.told(Judged)] == [1]
        assert len(story.decisions) == 2

    def test_a_rollback_that_the_engine_refuses_is_tried_again(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.engine = refused
        assert story.sees(share=0.6) is not None
        assert story.sees(share=0.6) is None  # waiting after the failure
        story.engine = carried_out
        back = story.sees(share=0.6)
        assert back is not None
        assert (back.number, back.kind) == (3, DecisionKind.ROLLBACK)
        assert story.plan == plan_of(10)
        assert len(story.state.barred) == 1

    def test_nothing_is_concluded_when_the_load_changed_in_between(self) -> None:
        story = Story()
        story.sees(wants={"map": 5}, share=1.0)
        story.sees(wants={"map": 20}, load=2_000, share=0.5)
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.UNCLEAR]
        assert story.plan == plan_of(20)

    def test_nothing_is_concluded_about_a_plan_that_someone_else_changed(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.plan = plan_of(10)
        assert story.sees(wants={"map": 10}, share=0.6) is None
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.UNCLEAR]

    def test_a_barred_plan_is_not_proposed_again_until_the_load_changes(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(share=0.6)
        for load in (1_000, 1_100, 900):
            assert story.sees(load=load, share=0.8) is None
            assert story.told(Held)[-1].why == "map 20, count 1 was taken back under this load"
        assert story.phase is ManagerPhase.ROLLED_BACK
        assert story.sees(load=1_300, share=0.7) is not None
        assert story.plan == plan_of(20)

    def test_another_plan_is_not_barred(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(share=0.6)
        story.sees(wants={"map": 13}, share=0.8)
        assert story.plan == plan_of(13)

    def test_a_plan_stays_barred_over_a_restart(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(share=0.6)
        story.starts()
        assert story.sees(share=0.8) is None
        assert story.told(Held)[-1].why == "map 20, count 1 was taken back under this load"

    def test_a_rollback_keeps_within_bounds_that_the_old_plan_broke(self) -> None:
        story = Story(plan=plan_of(10, 4), operators=[Operator(name="map", max_parallelism=6)])
        story.sees(wants={"map": 10, "count": 2}, share=1.0)
        assert story.plan == plan_of(6, 2)
        story.sees(share=0.6)
        assert story.plan == plan_of(6, 4)

    def test_where_nothing_can_be_taken_back_nothing_is_decided(self) -> None:
        story = Story(operators=[Operator(name="map", max_parallelism=6)])
        story.sees(wants={"map": 10}, share=1.0)
        assert story.sees(share=0.6) is None
        assert story.plan == plan_of(6)
        assert story.phase is ManagerPhase.OBSERVING


class TestGivingUp:
    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_after_so_many_useless_actions_it_stops(self, limit: int) -> None:
        story = Story(decision_limit=limit)
        for action in range(limit):
            assert story.sees(wants={"map": 11 + action}, share=0.5) is not None
        assert story.sees(wants={"map": 20}, share=0.5) is None
        assert story.phase is ManagerPhase.GIVEN_UP
        assert story.told(Held)[-1].why == "given up until the load changes"
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.USELESS] * limit

    def test_it_says_why(self) -> None:
        story = Story(decision_limit=1)
        story.scripted.reasons = (Reason(kind=ReasonKind.NOT_PARALLEL, text="not data-parallel"),)
        story.sees(wants={"map": 20}, share=0.5)
        story.sees(share=0.5)
        assert story.told(PhaseChanged)[-1].why == (
            "1 actions in a row gained almost nothing; map: not data-parallel"
        )

    def test_it_names_skew_that_shows_only_after_the_action(self) -> None:
        story = Story(DS2(), plan=plan_of(1), decision_limit=1)
        assert story.sees() is not None  # of a single instance nobody can tell
        story.sees(share=1 / 6, map_readings=skewed(10, each=100, hot_share=0.6))
        assert "gained almost nothing; map: skew: instance 0 takes 60%" in story.told(PhaseChanged)[-1].why

    def test_it_names_a_bottleneck_that_is_not_part_of_the_action(self) -> None:
        story = Story(decision_limit=1)
        story.scripted.overall = (Reason(kind=ReasonKind.BOTTLENECK, text="count is the bottleneck"),)
        story.sees(wants={"map": 20}, share=0.5)
        story.sees(share=0.5)
        assert "gained almost nothing; count is the bottleneck" in story.told(PhaseChanged)[-1].why

    def test_where_nothing_was_named_it_says_where_to_look(self) -> None:
        story = Story(decision_limit=1)
        story.sees(wants={"map": 20}, share=0.5)
        story.sees(share=0.5)
        assert story.told(PhaseChanged)[-1].why.endswith("look for skew, stragglers, or cores that are all in use")

    @pytest.mark.parametrize(
        ("share", "verdict"), [(0.54, ActionVerdict.USELESS), (0.56, ActionVerdict.EFFECTIVE)]
    )
    def test_useless_is_less_than_a_tenth_of_what_was_expected(self, share: float, verdict: ActionVerdict) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.5)
        story.sees(share=share)
        assert [judged.verdict for judged in story.told(Judged)] == [verdict]

    def test_only_useless_actions_in_a_row_count(self) -> None:
        story = Story(decision_limit=2)
        for wanted, share in [(12, 0.5), (14, 0.5), (16, 0.6), (18, 0.6), (20, 0.7), (22, 0.7)]:
            assert story.sees(wants={"map": wanted}, share=share) is not None
        verdicts = [judged.verdict for judged in story.told(Judged)]
        assert verdicts == [ActionVerdict.USELESS, ActionVerdict.EFFECTIVE] * 2 + [ActionVerdict.USELESS]
        story.sees(wants={"map": 24}, share=0.7)
        assert story.phase is ManagerPhase.GIVEN_UP

    def test_a_scale_down_that_keeps_the_rate_is_not_useless(self) -> None:
        story = Story(decision_limit=1)
        story.sees(wants={"map": 5}, share=0.9)
        story.sees(share=0.9)
        assert [judged.verdict for judged in story.told(Judged)] == [ActionVerdict.EFFECTIVE]
        assert story.phase is ManagerPhase.OBSERVING

    def test_a_changed_load_is_a_fresh_start(self) -> None:
        story = Story(decision_limit=2)
        for wanted in (11, 12):
            story.sees(wants={"map": wanted}, share=0.5)
        story.sees(wants={"map": 20}, share=0.5)
        assert story.sees(load=1_150, share=0.5) is None
        assert story.sees(load=1_250, share=0.5) is not None
        assert story.plan == plan_of(20)
        assert story.state.useless == 0

    def test_it_stays_given_up_over_a_restart(self) -> None:
        story = Story(decision_limit=1)
        story.sees(wants={"map": 20}, share=0.5)
        story.sees(share=0.5)
        story.starts()
        assert story.sees(wants={"map": 30}, share=0.5) is None
        assert story.phase is ManagerPhase.GIVEN_UP


class TestDryRun:
    def test_everything_but_the_act(self) -> None:
        story = Story(dry_run=True)
        assert story.sees(wants={"map": 20}) is None
        [decided] = story.told(Decided)
        assert decided.dry_run
        assert decided.decision.after == plan_of(20)
        assert story.plan == plan_of(10)
        assert story.state.under_way is None

    def test_it_tells_once_for_each_plan(self) -> None:
        story = Story(dry_run=True)
        for wanted in (20, 20, 20, 15, 15):
            story.sees(wants={"map": wanted})
        assert [decided.decision.after["map"] for decided in story.told(Decided)] == [20, 15]

    def test_the_other_knobs_apply(self) -> None:
        story = Story(dry_run=True, activation_intervals=2, minimum_change=3)
        story.sees(wants={"map": 12})
        story.sees(wants={"map": 12})
        story.sees(wants={"map": 13})
        assert story.told(Decided) == []
        story.sees(wants={"map": 13})
        assert len(story.told(Decided)) == 1

    @pytest.mark.parametrize("found", [plan_of(10), plan_of(15), plan_of(20)])
    def test_it_neither_finishes_nor_judges_the_action_of_an_earlier_run(self, found: Plan) -> None:
        story = Story(state=interrupted(plan_of(10), plan_of(20), share_before=1.0), plan=found, dry_run=True)
        assert story.starts() is None
        assert story.sees(wants=found, share=0.5) is None
        assert story.plan == found
        assert story.phase is ManagerPhase.OBSERVING


class TestBounds:
    """The manager keeps to them even where a policy does not."""

    @pytest.mark.parametrize(
        ("operator", "wanted", "allowed"),
        [
            (Operator(name="map", max_parallelism=12), 50, 12),
            (Operator(name="map", state_partitions=16), 50, 16),
            (Operator(name="map", min_parallelism=4), 2, 4),
            (Operator(name="map"), 0, 1),
            (Operator(name="map"), -3, 1),
        ],
    )
    def test_least_and_most(self, operator: Operator, wanted: int, allowed: int) -> None:
        story = Story(operators=[operator])
        story.sees(wants={"map": wanted})
        assert story.plan == plan_of(allowed)

    def test_a_fixed_operator_is_never_changed(self) -> None:
        story = Story(operators=[Operator(name="map", fixed=True)])
        story.sees(wants={"map": 20, "count": 2})
        assert story.plan == plan_of(10, 2)

    def test_what_is_not_in_the_graph_is_left_out(self) -> None:
        story = Story()
        story.sees(wants={"source": 3, "nobody": 4, "map": 12})
        assert story.plan == plan_of(12)

    def test_at_the_bound_nothing_is_decided(self) -> None:
        story = Story(operators=[Operator(name="map", max_parallelism=10)])
        assert story.sees(wants={"map": 50}) is None
        assert story.phase is ManagerPhase.OBSERVING


class TestGaps:
    def test_an_incomplete_window_leads_to_nothing_but_a_reason(self) -> None:
        story = Story()
        assert story.sees(wants={"map": 20}, gaps=("jobs 7 to 9 were not seen",)) is None
        assert [event.why for event in story.told(Ignored)] == [
            "incomplete measurements: jobs 7 to 9 were not seen"
        ]
        assert story.told(Proposed) == []
        assert story.sees() is not None

    def test_an_action_is_judged_by_the_first_complete_window(self) -> None:
        story = Story()
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(share=0.1, gaps=("one stage",))
        assert story.told(Judged) == []
        story.sees(share=0.9)
        assert [judged.share_after for judged in story.told(Judged)] == [pytest.approx(0.9)]

    def test_an_operator_without_readings_does_not_silence_the_others(self) -> None:
        story = Story(DS2(), plan=plan_of(10, 4))
        story.sees(map_readings=[])
        assert story.plan == plan_of(10, 1)


class TestClock:
    @pytest.mark.parametrize("jump_s", [0.0, -30.0, -1e9])
    def test_a_clock_that_does_not_go_forward_costs_one_window(self, jump_s: float) -> None:
        story = Story(activation_intervals=2)
        story.sees(wants={"map": 20})
        assert story.sees(after_s=jump_s) is None
        assert "this window is left out" in story.told(Ignored)[-1].why
        assert story.sees() is None  # proposals in a row begin anew
        assert story.sees() is not None

    def test_the_delay_begins_anew_after_a_jump_back(self) -> None:
        story = Story(scale_down_delay_s=120)
        for after_s in (60, 60, -3600, 60, 60):
            assert story.sees(wants={"map": 5}, after_s=after_s) is None
        assert story.sees() is not None

    def test_a_restart_may_come_with_another_clock(self) -> None:
        story = Story()
        story.sees(wants={"map": 10}, after_s=1e9)
        story.at_s = 0.0
        story.starts()
        assert story.sees(wants={"map": 20}) is not None


class TestEngineFailure:
    def test_it_tries_again_and_waits_longer_each_time(self) -> None:
        story = Story(warm_up_intervals=1)
        story.engine = refused
        waits = []
        story.sees(wants={"map": 20})
        story.sees()
        for _ in range(7):
            ignored = len(story.told(Ignored))
            while story.sees() is None:
                pass
            waits.append(len(story.told(Ignored)) - ignored)
        assert waits == [1, 2, 4, 8, 16, 32, 32]
        assert story.plan == plan_of(10)

    def test_a_warm_up_that_is_longer_than_the_longest_wait_still_holds(self) -> None:
        story = Story(warm_up_intervals=40)
        story.engine = refused
        for _ in range(41):
            decision = story.sees(wants={"map": 20})
        assert decision is not None
        assert story.state.warm_up_left == 40

    def test_the_reason_is_told(self) -> None:
        story = Story()
        story.engine = refused
        story.sees(wants={"map": 20})
        assert story.told(Acted)[-1].outcome.detail == "no room"
        assert story.told(PhaseChanged)[-1].why == "the action failed: no room"

    def test_success_ends_the_waiting(self) -> None:
        story = Story()
        story.engine = refused
        story.sees(wants={"map": 20})
        story.engine = carried_out
        story.sees()
        assert story.sees() is not None
        assert (story.plan, story.state.failures) == (plan_of(20), 0)

    def test_a_failed_action_is_not_judged(self) -> None:
        story = Story()
        story.engine = refused
        story.sees(wants={"map": 20}, share=0.8)
        story.sees(wants={"map": 10}, share=0.1)
        story.sees(share=0.1)
        assert story.told(Judged) == []

    def test_an_action_that_was_done_counts_as_done_whatever_the_engine_calls_it(self) -> None:
        late = RescaleOutcome(plan=plan_of(20), succeeded=False, took_s=300.0, detail="no answer within 300 s")
        given = Rescaled(at_s=800.0, outcome=late)
        result = step(interrupted(plan_of(10), plan_of(20)), given, policy=DS2(), knobs=Knobs())
        assert result.state.to_judge is not None
        assert result.state.failures == 0


def half_done(decision: Decision) -> Plan:
    """An engine that gets through the first operator of an action only; going back works."""
    if decision.kind is DecisionKind.ROLLBACK:
        return decision.after
    first = decision.changes[0]
    return decision.before.with_changes({first.operator: first.after})


class TestHalfDoneAction:
    def test_it_is_undone(self) -> None:
        story = Story()
        story.engine = half_done
        story.sees(wants={"map": 20, "count": 2})
        assert [decision.kind for decision in story.decisions] == [DecisionKind.RESCALE, DecisionKind.ROLLBACK]
        assert [str(reason) for reason in story.decisions[1].reasons] == ["action 1 was only half done (no room)"]
        assert story.decisions[1].before == plan_of(20, 1)
        assert story.plan == plan_of(10, 1)

    def test_the_next_try_waits_longer_each_time(self) -> None:
        story = Story()
        story.engine = half_done
        story.scripted.wants = {"map": 20, "count": 2}
        assert [n for n in range(20) if story.sees() is not None] == [0, 2, 5, 10, 19]

    def test_the_load_has_not_changed_because_of_it(self) -> None:
        story = Story(decision_limit=2)
        story.sees(wants={"map": 11}, share=0.5)
        story.sees(wants={"map": 12, "count": 1}, share=0.5)
        assert story.state.useless == 1
        story.engine = half_done
        story.sees(wants={"map": 20, "count": 2}, share=0.56)
        story.sees(wants={"map": 12, "count": 1}, share=0.56)
        story.sees(share=0.56)
        assert "the load changed" not in [change.why for change in story.told(PhaseChanged)]

    def test_an_undoing_that_is_half_done_is_left_to_the_policy(self) -> None:
        story = Story()
        story.engine = lambda decision: plan_of(15) if decision.number == 1 else plan_of(12)
        story.sees(wants={"map": 20, "count": 2})
        assert len(story.decisions) == 2
        assert story.state.under_way is None
        assert story.state.failures == 2
        story.engine = carried_out
        for _ in range(3):
            story.sees()
        assert story.plan == plan_of(20, 2)


def interrupted(before: Plan, after: Plan, *, share_before: float | None = None) -> ManagerState:
    """What a run that was killed in the middle of its third action left behind."""
    decision = Decision(
        number=3,
        at_s=500.0,
        before=before,
        after=after,
        source_rates={"source": 1_000.0},
        share_before=share_before,
        expected_share=1.0,
    )
    return ManagerState(phase=ManagerPhase.RESCALING, decisions=3, under_way=decision, last_at_s=500.0)


class TestResume:
    def test_an_action_that_was_not_begun_is_carried_out(self) -> None:
        story = Story(state=interrupted(plan_of(10), plan_of(20, 2)), plan=plan_of(10))
        decision = story.starts()
        assert decision is not None
        assert decision.number == 3
        assert story.plan == plan_of(20, 2)

    def test_an_action_that_was_half_done_is_finished(self) -> None:
        story = Story(state=interrupted(plan_of(10), plan_of(20, 2)), plan=plan_of(20, 1))
        story.starts()
        assert story.plan == plan_of(20, 2)
        assert story.state.under_way is None

    def test_an_action_that_cannot_be_finished_is_undone(self) -> None:
        story = Story(state=interrupted(plan_of(10), plan_of(20, 2)), plan=plan_of(20, 1))
        story.engine = lambda decision: plan_of(20, 1) if decision.number == 3 else decision.after
        story.starts()
        assert [decision.number for decision in story.decisions] == [3, 4]
        assert story.plan == plan_of(10)

    def test_an_action_that_is_found_done_is_judged_as_any_other(self) -> None:
        state = interrupted(plan_of(10), plan_of(20), share_before=0.8)
        story = Story(state=state, plan=plan_of(20), warm_up_intervals=1)
        assert story.starts() is None
        assert story.told(Acted)[-1].outcome.detail == "found done after a restart"
        story.sees(share=0.5)
        assert story.told(Judged) == []  # warming up
        story.sees(share=0.5)
        assert story.told(Judged)[-1].verdict is ActionVerdict.HARMFUL
        assert story.plan == plan_of(10)

    def test_a_rollback_is_taken_up_again_too(self) -> None:
        state = interrupted(plan_of(20), plan_of(10))
        assert state.under_way is not None
        rollback = Decision(
            number=3, at_s=500.0, kind=DecisionKind.ROLLBACK, before=state.under_way.before, after=plan_of(10)
        )
        settled = {"source": 1_000.0}
        state = ManagerState(phase=ManagerPhase.RESCALING, decisions=3, under_way=rollback, settled_load=settled)
        story = Story(state=state, plan=plan_of(20))
        story.starts()
        assert story.plan == plan_of(10)
        story.sees(wants={"map": 10})
        assert story.phase is ManagerPhase.ROLLED_BACK

    def test_an_action_on_a_pipeline_that_has_other_operators_now_is_dropped(self) -> None:
        state = interrupted(Plan({"old": 1}), Plan({"old": 2}))
        story = Story(state=state, plan=plan_of(10))
        assert story.starts() is None
        assert story.told(Acted)[-1].outcome.detail == "the pipeline has other operators now"
        assert story.plan == plan_of(10)
        assert story.state.under_way is None

    def test_an_action_that_was_done_but_not_judged_is_not_judged_any_more(self) -> None:
        story = Story(warm_up_intervals=1)
        story.sees()
        story.sees(wants={"map": 20}, share=0.8)
        story.starts()
        story.sees(share=0.5)
        story.sees(share=0.5)
        assert story.told(Judged) == []
        assert story.phase is ManagerPhase.OBSERVING

    def test_decisions_are_numbered_on(self) -> None:
        story = Story(state=interrupted(plan_of(10), plan_of(20)), plan=plan_of(10))
        story.starts()
        decision = story.sees(wants={"map": 25})
        assert decision is not None
        assert decision.number == 4


class TestOldCosts:
    """What a record costs is from before; why says whether there was nothing to do, or nothing came to an end."""

    @pytest.mark.parametrize(
        ("waiting", "why"),
        [(0, "had nothing to do for a window"), (500, "finished nothing for a window, though records wait")],
    )
    def test_why_nothing_was_measured(self, waiting: float, why: str) -> None:
        story = Story(DS2())
        for _ in range(3):
            story.sees(load=900)
        still = alike("map", instances=10, records_per_s=0, useful_share=0, backlog=waiting)
        story.sees(load=900, map_readings=still)
        reasons = map(str, story.told(Proposed)[-1].proposal.advice["map"].reasons)
        assert f"it {why}: what a record costs is from before" in reasons
