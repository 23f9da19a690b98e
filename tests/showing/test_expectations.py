"""What had been expected of a window stands beside what came, on the page and in its history, and in /metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elastream.manager.events import Proposed, event_from_json, event_to_json
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, read_recording
from elastream.policies.outlook import OUTLOOK_QUANTITIES, Outlook
from elastream.policies.proposal import Proposal
from elastream.report.story import tell
from elastream.showing.expectations import Expectations
from elastream.showing.history import RunHistory
from elastream.testing import alike, chain, snapshot_of
from elastream.web.feed import Feed
from elastream.web.metrics import RunCollector


def outlook(expected: float, *, ahead_s: float = 60.0) -> Outlook:
    return Outlook(
        source="in", ahead_s=ahead_s, expected_per_s=expected, at_most_per_s=expected + 10, trusted=0.5, error=0.06
    )


def proposed(at_s: float, expected: float) -> Proposed:
    return Proposed(at_s=at_s, proposal=Proposal(policy="ds2-forecast", advice={}, outlook=(outlook(expected),)))


def window(at_s: float) -> Snapshot:
    snapshot = snapshot_of(
        edges=chain("in", "map"), source_rates={"in": 100.0}, readings=alike("map", window_s=30.0)
    )
    return replace(snapshot, at_s=at_s)


def test_a_forecast_is_shown_with_the_window_that_it_was_for() -> None:
    history = RunHistory("pipeline")
    for number in range(1, 5):
        history.add_snapshot(window(30.0 * number))
        history.add_event(proposed(30.0 * number, 100.0 + number))
    columns = history.columns().sources["in"]
    assert columns.expected_per_s == (None, None, 101.0, 102.0)
    assert columns.prepared_per_s == (None, None, 111.0, 112.0)
    assert columns.forecast_error == (None, None, 0.06, 0.06)
    assert history.proposal is not None
    assert history.proposal.outlook[0].expected_per_s == 104.0


def test_a_clock_that_is_set_back_takes_forecasts_with_it() -> None:
    expectations = Expectations()
    expectations.add(1000.0, [outlook(1.0)])
    expectations.add(10.0, [outlook(2.0)])
    assert expectations.of("in", 69.0) is None
    assert expectations.of("in", 70.0) == outlook(2.0)
    assert expectations.of("in", 2000.0) is None


def test_a_proposal_keeps_its_outlook_in_a_recording() -> None:
    event = proposed(30.0, 100.0)
    assert event_from_json(event_to_json(event)) == event


def test_a_report_draws_it_at_the_time_that_was_meant(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "recording.jsonl") as writer:
        for number in range(1, 5):
            writer.snapshot(window(30.0 * number))
            writer.write(event_to_json(proposed(30.0 * number, 100.0 + number)))
    foreseen = tell(read_recording(tmp_path / "recording.jsonl"), pipeline="pipeline").foreseen
    assert foreseen["expected"].times_s == (90.0, 120.0)
    assert foreseen["expected"].values == (101.0, 102.0)
    assert foreseen["prepared for"].values == (111.0, 112.0)


def test_every_quantity_is_told_to_prometheus() -> None:
    feed = Feed("pipeline")
    feed.snapshot(window(30.0))
    feed.event(proposed(30.0, 100.0))
    told = {s.name: s.value for metric in RunCollector(feed).collect() for s in metric.samples}
    for name, quantity in OUTLOOK_QUANTITIES.items():
        value = getattr(outlook(100.0), name)
        assert told.get(f"elastream_source_{quantity.gauge}") == value
