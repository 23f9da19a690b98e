"""Sizing by what is expected: never without trust, early enough, in one step, and not down before a rise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from elastream.forecast import Calendar, Forecaster
from elastream.forecast.calendar_format import parse_calendar
from elastream.measurement import Snapshot
from elastream.policies.catalog import create
from elastream.policies.ds2 import DS2
from elastream.policies.foresight import Foresight, foresee
from elastream.policies.knowledge import Knowledge
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.testing import alike, chain, snapshot_of

EVERY_S, DAY_S = 300.0, 86_400.0
PER_INSTANCE = 100.0
EXPECTING = {"short_costs": 10.0}


def a_day(at_s: float) -> float:
    """400 to 1600 records/s, the least at midnight."""
    return 1000.0 - 600.0 * math.cos(math.tau * at_s / DAY_S)


def learned(days: float, *, rate: float | None = None) -> Forecaster:
    times = (EVERY_S * (number + 1) for number in range(int(days * DAY_S / EVERY_S)))
    return Forecaster().warmed((at_s, a_day(at_s) if rate is None else rate) for at_s in times)


@pytest.fixture(scope="module")
def at_dawn() -> Forecaster:
    return learned(2.25)


@pytest.fixture(scope="module")
def at_dusk(at_dawn: Forecaster) -> Forecaster:
    times = (at_dawn.history.at_s + EVERY_S * number for number in range(1, 145))
    return at_dawn.warmed((at_s, a_day(at_s)) for at_s in times)


def window(at_s: float, rate: float, instances: int, *, cost: float = 1.0) -> Snapshot:
    each = min(rate / instances, PER_INSTANCE)
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": rate},
        readings=alike(
            "map",
            instances=instances,
            records_per_s=each,
            useful_share=cost * each / PER_INSTANCE,
            window_s=EVERY_S,
        ),
    )
    return replace(snapshot, at_s=at_s)


def asked(
    forecaster: Forecaster | None,
    instances: int,
    *,
    calendar: Calendar | None = None,
    scatter: float = 0.0,
    **options: float,
) -> Proposal:
    """Of a policy with an action that takes a minute, and windows in which costs scatter by so much."""
    known = forecaster or Forecaster().observed(0.0, 1000.0)
    at_s, rate = known.history.at_s, known.history.last
    snapshot = window(at_s, rate, instances)
    knowledge = Knowledge(action_s=60.0, interval_s=EVERY_S)
    for number in range(20):
        knowledge = knowledge.with_snapshot(window(at_s, rate, instances, cost=1 + scatter * (-1) ** number))
    knowledge = knowledge.with_snapshot(snapshot)
    knowledge = replace(knowledge, forecasters={"source": known} if forecaster else {})
    if calendar is not None:
        knowledge = replace(knowledge, calendar=calendar)
    return DS2(**options)(snapshot, knowledge)


def texts(proposal: Proposal) -> Iterable[str]:
    return [reason.text for reason in proposal.reasons if reason.kind is ReasonKind.FORESEEN]


def test_it_grows_before_the_rise_with_the_reason(at_dawn: Forecaster) -> None:
    reactive, ahead = asked(at_dawn, 10), asked(at_dawn, 10, **EXPECTING)
    soon = a_day(at_dawn.history.at_s + 720)  # twice an interval and an action
    assert reactive.parallelism["map"] <= 11
    assert ahead.parallelism["map"] >= math.ceil(soon / PER_INSTANCE) > 10
    (text,) = texts(ahead)
    assert "is expected at" in text
    assert "in 12 min (such forecasts were right within" in text


def test_one_larger_step_in_place_of_several(at_dawn: Forecaster) -> None:
    """The dearer an action, the longer a size lasts."""
    sizes = [asked(at_dawn, 10, short_costs=c).parallelism["map"] for c in (1, 10, 100)]
    assert sizes[0] < sizes[1] <= sizes[2] <= 20


def test_what_is_needed_later_grows_with_what_is_needed_now() -> None:
    """The action is paid for once."""
    foreseen = Foresight()
    assert foreseen.sized(5, 5, 7, grows=True) == 7
    assert foreseen.sized(5, 5, 7) == 5
    assert foreseen.sized(5, 4, 3, grows=True) == 4


def test_trust_that_only_the_next_moment_has_lost_does_not_end_it(at_dawn: Forecaster) -> None:
    """The last value is hard to beat over a minute; over the hours that a size lasts it is not."""
    doubted = replace(at_dawn)  # of the next quarter of an hour
    doubted.__dict__["scores"] = tuple(replace(s, beyond_level=float(s.horizon_s > 900)) for s in at_dawn.scores)
    wanted = asked(doubted, 10, **EXPECTING)
    assert [one.trusted for one in wanted.outlook] == [1.0]
    assert wanted.parallelism["map"] > 11 >= asked(doubted, 10).parallelism["map"]


def test_of_many_horizons_one_may_have_been_lucky(at_dawn: Forecaster) -> None:
    lucky = replace(at_dawn)
    lucky.__dict__["scores"] = tuple(
        replace(one, beyond_level=float(n == 5)) for n, one in enumerate(at_dawn.scores)
    )
    assert asked(lucky, 10, **EXPECTING).parallelism == asked(at_dawn, 10).parallelism


def test_no_step_down_before_a_rise(at_dawn: Forecaster) -> None:
    now = math.ceil(at_dawn.history.last / PER_INSTANCE)
    reactive, ahead = asked(at_dawn, now + 2), asked(at_dawn, now + 2, **EXPECTING)
    assert reactive.parallelism["map"] < now + 2
    assert ahead.parallelism["map"] >= now + 2


def test_a_fall_is_followed(at_dusk: Forecaster) -> None:
    assert asked(at_dusk, 24, **EXPECTING).parallelism["map"] < 14


def test_without_trust_it_is_the_reactive_policy_exactly() -> None:
    random = Random(1)
    around_a_level = Forecaster().warmed((EVERY_S * row, random.gauss(1000, 50)) for row in range(480))
    assert max(one.share for one in around_a_level.scores) == 1.0
    for forecaster in (None, learned(0.05), learned(2, rate=1000.0), around_a_level):
        for instances in (4, 10, 30):
            reactive, ahead = asked(forecaster, instances), asked(forecaster, instances, **EXPECTING)
            assert ahead.advice == reactive.advice
            assert ahead.reasons == reactive.reasons


def test_the_reserve_for_what_nobody_foresees_is_not_added_to_what_is_foreseen(at_dawn: Forecaster) -> None:
    whole = asked(at_dawn, 10, **EXPECTING).parallelism["map"]
    assert asked(at_dawn, 10, target_utilization=0.7, **EXPECTING).parallelism["map"] == whole
    assert asked(None, 10, target_utilization=0.7, **EXPECTING).parallelism["map"] >= 15


def test_a_cost_that_is_not_known_well_asks_for_more(at_dawn: Forecaster) -> None:
    """The reserve that is not added had room for that, too."""
    sure, unsure = (asked(at_dawn, 14, scatter=s, **EXPECTING).advice["map"].need or 0.0 for s in (0.0, 0.1))
    assert 1.02 * sure < unsure < 1.2 * sure
    sure, unsure = (asked(None, 14, scatter=scatter).advice["map"].need or 0.0 for scatter in (0.0, 0.1))
    assert unsure == pytest.approx(sure, rel=0.01)


def test_what_is_told_is_the_load_whatever_share_of_the_capacity_is_used(at_dawn: Forecaster) -> None:
    (text,) = texts(asked(at_dawn, 10, **EXPECTING))
    assert texts(asked(at_dawn, 10, target_utilization=0.7, **EXPECTING)) == [text]


def test_it_says_how_good_it_was(at_dawn: Forecaster) -> None:
    (outlook,) = asked(at_dawn, 10, **EXPECTING).outlook
    assert outlook.trusted == 1.0
    assert outlook.error is not None
    assert outlook.last_value_error is not None
    assert outlook.error < outlook.last_value_error
    assert outlook.expected_per_s <= outlook.at_most_per_s
    (unknown,) = asked(None, 10, **EXPECTING).outlook
    assert (unknown.trusted, unknown.error) == (0.0, None)


def test_giving_back_must_pay_for_going_and_coming_back() -> None:
    foreseen = foresight_of(lasts_s=600, price_s=30)
    assert foreseen.least_saving(10) == 2  # one saves 600 instance-seconds, and to go and to come back costs 600
    assert foreseen.least_saving(9) == 1
    assert foreseen.sized(10, 8, 8) == 8
    assert foreseen.sized(10, 5, 8) == 8
    assert foreseen.sized(10, 5, 12) == 10
    assert foreseen.sized(10, 11, 14) == 14


def foresight_of(*, lasts_s: float, price_s: float) -> Foresight:
    snapshot = window(0.0, 1000.0, 10)
    knowledge = Knowledge(interval_s=EVERY_S, calendar=EVENT)
    one = foresee(snapshot, knowledge, {"source": 1000.0}, short_costs=None).sources["source"]
    return Foresight(sources={"source": replace(one, lasts_s=lasts_s)}, price_s=price_s)


# What people know ahead

EVENT = parse_calendar('events: [{name: sale, every: day, at: "00:10", for: 1 h, factor: 2}]', "calendar")


def test_an_event_is_prepared_for_without_any_forecast() -> None:
    before = asked(None, 10, calendar=EVENT)
    assert before.parallelism["map"] == 20
    assert list(texts(before)) == ["source is expected to reach 2,000/s: sale (calendar)"]
    assert asked(None, 10, calendar=Calendar()).parallelism == asked(None, 10).parallelism


def test_of_an_event_that_is_there_the_rate_tells() -> None:
    snapshot = window(1200.0, 2000.0, 20)
    knowledge = replace(Knowledge(interval_s=30.0).with_snapshot(snapshot), calendar=EVENT)
    assert DS2()(snapshot, knowledge).parallelism == {"map": 20}


# What a source may bring


@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e15])
def test_whatever_a_source_brings_there_is_a_proposal(rate: float) -> None:
    policy, knowledge = DS2(**EXPECTING), Knowledge(interval_s=30.0)
    for number in range(1, 200):
        per_s = rate * 1000 if number > 150 else rate  # a thousandfold, too
        snapshot = snapshot_of(
            edges=chain("source", "map"),
            source_rates={"source": per_s},
            readings=alike("map", instances=2, records_per_s=min(per_s, 100.0)),
        )
        snapshot = replace(snapshot, at_s=30.0 * number + (DAY_S if number > 100 else 0.0))
        knowledge = policy.remember(snapshot, knowledge.with_snapshot(snapshot))
        proposal = policy(snapshot, knowledge)
        assert proposal.parallelism.get("map", 1) >= 1
    assert len(knowledge.forecasters) == 1


def test_who_does_not_look_ahead_keeps_no_forecasters(at_dawn: Forecaster) -> None:
    snapshot = window(0.0, 1000.0, 10)
    knowledge = Knowledge(forecasters={"source": at_dawn})
    assert DS2().remember(snapshot, knowledge).forecasters == {}
    assert DS2(**EXPECTING).remember(snapshot, Knowledge()).forecasters.keys() == {"source"}


def test_it_has_a_name_and_options_of_its_own() -> None:
    policy = create("ds2-forecast", {"short_costs": "50"})
    assert policy(window(0.0, 1000.0, 10), Knowledge()).policy == "ds2-forecast"
