"""Replay: what would have been decided, in every recorded window, with the parallelism of that window."""

from __future__ import annotations

from dataclasses import replace

from manager_story import Scripted, plan_of, window

from elastream.manager.events import Acted, Decided, Event, Ignored, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.replay import replay
from elastream.policies.catalog import create
from elastream.testing import alike, chain, snapshot_of

AT_ONCE = Knobs(warm_up_intervals=0, scale_down_delay_s=0)


def decided(events: tuple[Event, ...]) -> list[tuple[float, str]]:
    return [(event.at_s, str(event.decision)) for event in events if isinstance(event, Decided)]


def test_every_window_is_judged_with_the_parallelism_that_was_then_in_force() -> None:
    windows = [window(plan_of(1), at_s=60), window(plan_of(12), at_s=120), window(plan_of(10), at_s=180)]

    events = replay(windows, create("ds2-paper"), AT_ONCE)

    assert decided(events) == [(60, "map 1 → 10"), (120, "map 12 → 10")]


def test_nothing_is_acted_upon() -> None:
    windows = [window(plan_of(1), at_s=60), window(plan_of(1), at_s=120)]

    events = replay(windows, create("ds2-paper"), AT_ONCE)

    assert not any(isinstance(event, Acted) for event in events)
    assert all(event.dry_run for event in events if isinstance(event, Decided))
    assert sum(isinstance(event, Proposed) for event in events) == 2


def test_the_knobs_count_as_they_would_have_then() -> None:
    windows = [window(plan_of(1), at_s=at_s) for at_s in (60, 120, 180, 240)]
    knobs = Knobs(warm_up_intervals=1, activation_intervals=2)

    events = replay(windows, create("ds2-paper"), knobs)

    assert [event.at_s for event in events if isinstance(event, Ignored)] == [60]
    assert decided(events) == [(180, "map 1 → 10")]


def test_a_scale_down_waits_for_its_delay() -> None:
    windows = [window(plan_of(12), at_s=at_s) for at_s in (60, 120, 180, 240)]

    events = replay(windows, create("ds2-paper"), replace(AT_ONCE, scale_down_delay_s=120.0))

    assert decided(events) == [(180, "map 12 → 10")]


def test_a_sink_that_gets_a_batch_a_minute_silences_nobody_whatever_the_policy() -> None:
    """A window of a minute in append mode: of its sink too little is known, and of the others enough."""
    of_sink = {"sink": "too few batches yet to know what one costs"}
    windows = [
        replace(
            snapshot_of(
                edges=chain("source", "map", "sink"),
                source_rates={"source": 800.0},
                readings=[
                    *alike("map", records_per_s=400, window_s=10, backlog=4_000, selectivity=0.001),
                    *alike("sink", records_per_s=0, useful_share=0, window_s=10, backlog=0),
                ],
            ),
            at_s=10.0 * number,
            unknown=of_sink,
        )
        for number in range(22)
    ]
    for policy in ("ds2", "ds2-paper", "threshold", "lag"):
        events = replay(windows, create(policy), Knobs(warm_up_intervals=1))
        assert [event.at_s for event in events if isinstance(event, Ignored)] == [0.0], policy
        proposed = [event for event in events if isinstance(event, Proposed)]
        assert len(proposed) == 21, policy
        assert proposed[-1].proposal.advice["map"].parallelism is not None, policy


def test_windows_with_gaps_are_left_out() -> None:
    windows = [window(plan_of(1), at_s=60, gaps=("worker 3 is silent",)), window(plan_of(1), at_s=120)]

    events = replay(windows, create("ds2-paper"), AT_ONCE)

    assert [event.why for event in events if isinstance(event, Ignored)] == [
        "incomplete measurements: worker 3 is silent"
    ]
    assert decided(events) == [(120, "map 1 → 10")]


def test_a_decision_is_told_again_when_it_comes_back_and_not_while_it_stays() -> None:
    loads = {60: 1_000, 120: 1_000, 180: 100, 240: 1_000}
    windows = [window(plan_of(1), at_s=at_s, load=load) for at_s, load in loads.items()]

    events = replay(windows, create("ds2-paper"), AT_ONCE)

    assert decided(events) == [(60, "map 1 → 10"), (240, "map 1 → 10")]


def test_what_was_learned_in_earlier_windows_is_known_in_later_ones() -> None:
    """An operator whose capacity grows as n^0.5: four instances do what plain DS2 takes for the work of eight."""
    windows = [window(plan_of(n), at_s=60 * n, load=200, each=100 / n**0.5) for n in (1, 16)]

    plain = replay(windows, create("ds2-paper"), AT_ONCE)
    learned = replay(windows, create("ds2-learned", {"single_window": True}), AT_ONCE)

    assert decided(plain)[-1] == (960, "map 16 → 8")
    assert decided(learned)[-1] == (960, "map 16 → 4")


def test_no_windows_give_no_events() -> None:
    assert replay([], Scripted(), Knobs()) == ()
