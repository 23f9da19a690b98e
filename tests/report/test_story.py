"""The story of a recorded run: its time, decisions with their effect, cost, and the summary in words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from elastream.manager.events import Accounted, ActionVerdict, Trouble, event_to_json
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts, InputAccount, StepAccount
from elastream.measurement.recording import Recording, RunHeader
from elastream.report.story import Story, summary, tell
from elastream.report.timeline import timeline
from elastream.report.what_if import what_if
from elastream.testing import alike, chain, snapshot_of
from tests.report.runs import acted, decided, grown, judged, recording, window


def story_of(found: Recording) -> Story:
    return tell(found, pipeline="file")


# Time


def test_the_time_of_an_action_belongs_to_the_window_after_it() -> None:
    line = timeline(grown().snapshots)
    assert [(s.begin_s, s.lasts_s) for s in line.stretches] == [(0, 60), (60, 60), (120, 65), (185, 60)]
    assert line.duration_s == 245


def test_a_time_in_which_nobody_watched_is_left_out() -> None:
    line = timeline([window(60), window(120), window(7_320), window(7_380)])
    assert [s.begin_s for s in line.stretches] == [0, 60, 120, 180]
    assert line.unwatched_s == 7_140
    assert line.since(7_320) == 180, "what came with the window after the pause"


def test_a_time_of_the_recording_is_told_since_its_beginning() -> None:
    now_s = 1_790_000_000.0
    line = timeline([window(now_s + 60), window(now_s + 120)])
    assert [line.since(now_s + at_s) for at_s in (0, 60, 90, 120, 500)] == [0, 60, 90, 120, 120]


def test_windows_of_another_pipeline_before_it_are_left_out() -> None:
    line = timeline([window(60, name="old"), window(120), window(180)])
    assert [s.snapshot.at_s for s in line.stretches] == [120, 180]
    assert line.other_graph == 1


def test_a_window_without_readings_still_makes_a_story() -> None:
    silent = snapshot_of(edges=chain("source", "map"), source_rates={"source": 5.0})
    story = story_of(recording([silent]))
    assert story.operators[0].busiest is None
    assert "5 records/s" in summary(story)[0]


# Cost: 1 · 120 s + 3 · 125 s = 495, and at the peak 3 · 245 s = 735


def test_the_cost_is_that_of_the_instances_while_they_were_there() -> None:
    cost = story_of(grown()).cost
    assert cost.instance_s == 495
    assert cost.peak == {"map": 3}
    assert cost.peak_instance_s == 735
    assert cost.saved_share == pytest.approx(240 / 735)


def test_what_each_operator_did() -> None:
    (facts,) = story_of(grown()).operators
    assert (facts.fewest, facts.most) == (1, 3)
    assert facts.mean == pytest.approx(495 / 245)
    assert facts.records == pytest.approx(60 * (100 + 100 + 250 + 250))
    assert (facts.waiting_most, facts.waiting_last) == (900, 0)


# Decisions


def test_a_decision_is_told_with_its_effect() -> None:
    (told,) = story_of(grown()).decisions
    assert told.since_s == 120
    assert told.changes == (("map", 1, 3),)
    assert (told.waiting_before, told.waiting_after) == (900, 90)
    assert (told.view.share_before, told.view.expected_share, told.view.achieved_share) == (0.5, 1.0, 0.9)
    assert (told.view.verdict, told.view.took_s) == ("effective", 5.0)


def test_what_came_of_a_decision_counts_whatever_was_asked_for() -> None:
    story = story_of(recording([window(60), window(120)], [decided(1, 60, 1, 4), acted(1, 61, 3)]))
    assert story.decisions[0].changes == (("map", 1, 3),)


def other_operators_before() -> Story:
    """Three windows of `old`, which grew twice, each time in 40 s; then two of `map`, which grew once, in 2 s."""
    snapshots = [
        window(60, name="old"),
        window(120, name="old", instances=2),
        window(180, name="old", instances=3),
        window(300),
        window(360, instances=2),
    ]
    events = [
        decided(1, 60, 1, 2),
        acted(1, 100, 2, took_s=40),
        decided(2, 180, 2, 3),
        acted(2, 220, 3, took_s=40),
        Trouble(at_s=180, what="disk full"),
        decided(3, 300, 1, 2),
        acted(3, 302, 2, took_s=2),
    ]
    return story_of(recording(snapshots, events, headers=(RunHeader(), RunHeader())))


def test_what_was_done_to_other_operators_before_is_left_out() -> None:
    story = other_operators_before()
    assert [told.view.number for told in story.decisions] == [3]
    assert story.remarks == ()
    assert "changed the parallelism once, between 1 and 2 instances" in summary(story)[1]
    assert story.notes == (
        "3 earlier windows, in which the pipeline had other operators, are left out, with their events.",
    )


def test_what_was_done_to_other_operators_before_is_not_in_the_model() -> None:
    story = other_operators_before()
    found = what_if(story, against=())
    assert found.model.engine.downtime_s == (2, 2)
    assert found.recorded.elasticity.reconfigurations == 1


def test_trouble_is_told() -> None:
    story = story_of(recording([window(60), window(120)], [Trouble(at_s=60, what="disk full")]))
    assert [(remark.since_s, remark.text) for remark in story.remarks] == [(60, "disk full")]


# In words


def test_the_summary_says_what_came_in_what_was_done_and_what_it_cost() -> None:
    assert summary(story_of(grown())) == (
        "In 4.1 min, between 100 and 250 records/s arrived at clicks, and it always kept up.",
        "elastream (ds2) changed the parallelism once, between 1 and 3 instances in all; "
        "it had the effect that was expected.",
        "It used 0.138 instance-hours, 33% less than its peak of 3 instances all the time would have.",
    )


def test_a_pipeline_that_was_behind_is_said_to_be() -> None:
    busy = window(60, waiting=9_000, useful_share=1.0)
    text, _, _ = summary(story_of(recording([busy, window(120)])))
    assert text == (
        "In 2 min, about 100 records/s arrived at file; it was behind for 60 s (50% of the time), "
        "with at most 9,000 records waiting, 0 at the end."
    )


def test_a_run_without_changes_says_so() -> None:
    _, done, cost = summary(story_of(recording([window(60, instances=2), window(120, instances=2)])))
    assert done == "The parallelism stayed at 2 instances: no change was carried out."
    assert cost.endswith("as much as its peak of 2 instances all the time would have.")


def test_a_dry_run_is_told_as_a_rehearsal() -> None:
    events = [decided(1, 60, 1, 4, dry_run=True), decided(1, 120, 1, 5, dry_run=True)]
    story = story_of(recording([window(60), window(120)], events))
    assert story.acted == ()
    assert summary(story)[1] == ("elastream only rehearsed: it would have changed the parallelism twice.")


def test_changes_that_failed_or_did_not_help_are_told() -> None:
    events = [
        decided(1, 60, 1, 2),
        acted(1, 61, 2),
        judged(1, 120),
        decided(2, 120, 2, 3),
        acted(2, 121, 3),
        judged(2, 180, ActionVerdict.HARMFUL),
        decided(3, 180, 3, 9),
        acted(3, 181, 3, succeeded=False),
    ]
    snapshots = [window(60), window(120, instances=2), window(180, instances=3)]
    assert summary(story_of(recording(snapshots, events)))[1] == (
        "elastream changed the parallelism twice, between 1 and 3 instances in all; 1 more change failed; "
        "of 2 that were judged, 1 had the effect that was expected, 1 harmful."
    )


# What the recording lacks


def test_what_a_recording_lacks_is_said() -> None:
    found = Recording(
        snapshots=(window(60),), events=({"event": "of tomorrow"}, {"event": "held"}), headers=(), cut_off=True
    )
    cut_off, old, unknown = story_of(found).notes
    assert "cut off" in cut_off
    assert "does not say what was run" in old
    assert unknown.startswith("2 lines tell of something that this version does not know")


def test_a_whole_recording_has_no_notes() -> None:
    assert story_of(recording([window(60)], headers=(RunHeader(),))).notes == ()


def test_a_reading_that_came_late_to_a_master_is_nothing_unknown() -> None:
    late = {
        "event": "late_reading",
        "operator": "map",
        "instance": 0,
        "agent": "a",
        "taken_at_s": 1.0,
        "values": {},
    }
    found = Recording(snapshots=(window(60),), events=(late,), headers=(RunHeader(),))
    assert story_of(found).notes == ()


@pytest.mark.parametrize(
    "outcome", [{"plan": {"map": 0}, "took_s": 1.0}, {"plan": {"map": 2}, "took_s": math.nan}], ids=repr
)
def test_an_event_that_cannot_be_is_left_out_and_counted(outcome: dict[str, Any]) -> None:
    event = {"event": "acted", "at_s": 60.0, "number": 1, "outcome": {"succeeded": True, **outcome}}
    story = story_of(Recording(snapshots=(window(60),), events=(event,), headers=(RunHeader(),)))
    assert story.events == ()
    assert story.notes == ("1 lines tell of something that this version does not know; they are left out.",)


def test_windows_that_the_clock_put_out_of_order_are_counted() -> None:
    story = story_of(recording([window(60)], headers=(RunHeader(),), out_of_order=2))
    assert story.notes == (
        "2 windows, which end no later than one before them, are left out: a clock was set back.",
    )


def test_a_window_with_gaps_is_counted() -> None:
    partly = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 5.0}, readings=alike("map"), parallelism={"map": 2}
    )
    story = story_of(recording([partly], headers=(RunHeader(),)))
    (note,) = story.notes
    assert note == "1 of 1 windows were not measured completely: map: readings of 1 of 2 instances (in 1)."


# Where records went


def accounts(*, late: int | None = None, read: int = 41_999) -> Accounts:
    """Of the run in `grown`, of which a record still waits."""
    given = InputAccount(producer="source", published=42_000, read=read, waiting=1)
    step = StepAccount(operator="map", inputs=(given,), records_in=read, records_out=read, late=late)
    return Accounts(steps=(StepAccount(operator="source", records_out=42_000), step))


def late(found: Recording, count: float) -> Recording:
    """With so many records dropped as late in every window."""
    return replace(
        found,
        snapshots=tuple(
            replace(one, readings=tuple(replace(r, records_late=count / one.plan["map"]) for r in one.readings))
            for one in found.snapshots
        ),
    )


def test_totals_are_those_of_the_accounts_where_a_run_has_told_them() -> None:
    found = grown()
    story = story_of(found)
    assert (story.accounts, story.operators[0].records) == (None, pytest.approx(60 * 700)), "an older recording"
    ended = replace(found, events=(*found.events, event_to_json(Accounted(at_s=246, accounts=accounts()))))
    told = story_of(ended)
    assert (told.accounts, told.operators[0].records) == (accounts(), 41_999)
    assert told.losses == ()
    assert told.notes == story.notes, "nothing in it that is not understood"


def test_accounts_of_an_earlier_run_are_not_those_of_a_later_one() -> None:
    found = grown()
    earlier = replace(found, events=(event_to_json(Accounted(at_s=130, accounts=accounts())), *found.events))
    assert story_of(earlier).accounts is None


def test_records_that_were_lost_are_told() -> None:
    found = late(grown(), 25)
    assert story_of(found).operators[0].late == 100, "as windows told it"
    (loss,) = story_of(found).losses
    assert loss.startswith("map dropped at least 100 records as late: raise the delay of its watermark")
    wrong = Accounted(at_s=246, accounts=accounts(late=103, read=41_000))
    story = story_of(replace(found, events=(event_to_json(wrong),)))
    dropped, missing = story.losses
    assert dropped.startswith("map dropped at least 103 records as late"), "with what came after the last window"
    assert missing.endswith("of which it has read 41,000 and 1 wait for it: 999 are missing")


def test_notes_are_told_when_they_begin() -> None:
    first, second, third, fourth = grown().snapshots
    found = recording(
        [
            first,
            replace(second, notes=("idle",)),
            replace(third, notes=("idle",)),
            replace(fourth, notes=("late",)),
        ],
        [Trouble(at_s=185, what="no answer")],
    )
    remarks = story_of(found).remarks
    assert [(round(remark.since_s), remark.text) for remark in remarks] == [
        (120, "idle"),
        (185, "no answer"),
        (245, "late"),
    ]


def test_a_latency_that_was_asked_for_is_in_the_summary() -> None:
    def measured(at_s: float, latency_s: float) -> Snapshot:
        found = window(at_s)
        readings = tuple(replace(one, latency_s=latency_s) for one in found.readings)
        return replace(found, readings=readings, latency_target_s=5.0)

    latencies = ((60, 9.0), (120, 4.0), (180, 4.5), (240, 4.9))
    told = tell(recording([measured(*one) for one in latencies]), pipeline="p")
    assert "The latency of 5 s that was asked for was kept for 75% of the time." in summary(told)[0]
