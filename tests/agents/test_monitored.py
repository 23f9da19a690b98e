"""Rounds as snapshots, adaptors as engines, and rules over them: sizes, failures, guard times, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elastream.agents.adaptor import Adaptor, ReportedSizes
from elastream.agents.lease import LeaseError
from elastream.agents.monitored import MonitoredEngine, snapshot_of_round
from elastream.agents.rounds import InstanceReading, Round
from elastream.dataflow import Plan
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.events import Acted, Decided, Event, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.manager.store import Store
from elastream.measurement.late_reading import LateReading
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import info
from elastream.policies.rules import RuleSet, records, rule, rules, seconds

KNOBS = build(Knobs, {**info("rules").knobs, "interval_s": 1.0}, place="test")
RULES = rules(
    rule("long queue")
    .scale_out("map")
    .by_a_factor_of(2)
    .never_above_times_original(4)
    .when("queue_length")
    .above(records(100))
    .for_at_least(seconds(3))
    .unless_scaled_out_within(seconds(20)),
)


@dataclass
class Foreign:
    """The whole of what another engine needs: the four calls."""

    sizes: dict[str, int] = field(default_factory=lambda: {"map": 2, "sink": 1})
    originals: dict[str, int] = field(default_factory=lambda: {"map": 1, "sink": 1})
    broken: str | None = None

    def operators(self) -> Sequence[str]:
        return list(self.sizes)

    def current_size(self, operator: str) -> int:
        return self.sizes[operator]

    def original_size(self, operator: str) -> int:
        return self.originals[operator]

    def set_size(self, operator: str, size: int) -> None:
        if operator == self.broken:
            raise RuntimeError("no room")
        self.sizes[operator] = size


class ManualClock:
    """Both clocks move when they are told to, and each by what it is told."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = 1e9, 50.0

    def now(self) -> float:
        return self.wall_s

    def steady(self) -> float:
        return self.steady_s

    def wait(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def reading(operator: str = "map", instance: int = 0, **values: float) -> InstanceReading:
    return InstanceReading(operator=operator, instance=instance, agent="a", taken_at_s=0.0, values=values)


def a_round(*readings: InstanceReading, at_s: float = 0.0) -> Round:
    return Round(number=1, at_s=at_s, window_s=1.0, readings=readings, received={})


class Story:
    """A manager with rules over rounds: one a second, in which every instance of map has so much in its queue."""

    def __init__(
        self, adaptor: Adaptor, rule_set: RuleSet = RULES, store: Store | None = None, later_s: float = 0.0
    ) -> None:
        self.clock = ManualClock()
        self.clock.steady_s += later_s
        self.adaptor = adaptor
        self.engine = MonitoredEngine(adaptor, self.clock)
        self.events: list[Event] = []
        self.manager = Manager(
            engine=self.engine,
            policy=Rules(rules=rule_set),
            knobs=KNOBS,
            clock=self.clock,
            store=store,
            on_event=self.events.append,
            boot="this one",
        )
        self.manager.state = self.engine.knowing_original_sizes(self.manager.state)
        self.manager.start()
        self.seconds = 0
        self.late: tuple[LateReading, ...] = ()

    def second(self, queue_length: float = 500.0) -> None:
        self.clock.wall_s += 1
        self.clock.steady_s += 1
        self.seconds += 1
        size = self.adaptor.current_size("map")
        found = a_round(
            *(reading(instance=n, queue_length=queue_length) for n in range(size)), at_s=self.clock.wall_s
        )
        self.engine.take(replace(found, late=self.late))
        self.late = ()
        self.manager.tick()

    def grows_at(self, seconds: int) -> list[int]:
        """The seconds after which map grew, of so many."""
        found = []
        for _ in range(seconds):
            before = self.adaptor.current_size("map")
            self.second()
            if self.adaptor.current_size("map") > before:
                found.append(self.seconds)
        return found


def test_what_comes_late_closes_the_hole_that_an_outage_left() -> None:
    """RULES asks for three seconds; four seconds without a reading are more than the two that are tolerated."""
    for comes_late, expected in ((True, [7]), (False, [10])):
        story = Story(Foreign())
        story.second()
        story.second()
        story.seconds += 4
        story.clock.wall_s += 4
        story.clock.steady_s += 4
        if comes_late:
            values = {"queue_length": {0: 500.0, 1: 500.0}}
            story.late = tuple(
                LateReading(operator="map", age_s=float(age_s), values=values) for age_s in (4, 3, 2, 1)
            )
        assert story.grows_at(10) == expected


def test_a_rule_acts_through_the_adaptor_up_to_a_multiple_of_the_size_that_the_engine_began_with() -> None:
    story = Story(Foreign())
    assert story.grows_at(60) == [4], "from 2 to 4, which is four times the original size of 1"
    assert story.adaptor.current_size("map") == 4


def test_guard_times_hold_under_jumps_of_the_clock() -> None:
    story = Story(Foreign(originals={"map": 2, "sink": 1}))
    assert story.grows_at(5) == [4]
    story.clock.wall_s += 3600  # someone sets the clock, first forward
    assert story.grows_at(5) == []
    story.clock.wall_s -= 7200  # then back
    assert story.grows_at(30) == [24], "20 s after the first, by a clock that nobody can set"


def test_a_restart_loses_no_guard_time_and_no_reading_of_the_rules(tmp_path: Path) -> None:
    adaptor = Foreign(originals={"map": 2, "sink": 1})
    with Store(tmp_path / "master.db") as store:
        story = Story(adaptor, store=store)
        assert story.grows_at(6) == [4]
    with Store(tmp_path / "master.db") as store:
        again = Story(adaptor, store=store)
        again.clock.wall_s += 1e6  # long after
        assert again.grows_at(40) == [18], "6 s were watched before, 2 s of them after the action: 18 are left"
    with Store(tmp_path / "fresh.db") as store:
        assert Story(Foreign(originals={"map": 2, "sink": 1}), store=store).grows_at(6) == [4]


@pytest.mark.parametrize("killed_before_its_first_round", [False, True])
def test_what_nobody_watched_is_a_hole_also_where_the_clock_was_set_back(
    tmp_path: Path, *, killed_before_its_first_round: bool
) -> None:
    """Else a rule that asks for three seconds acts by two before an outage of ten minutes and one after."""
    adaptor = Foreign(originals={"map": 2, "sink": 1})
    with Store(tmp_path / "master.db") as store:
        assert Story(adaptor, store=store).grows_at(2) == []
        if killed_before_its_first_round:
            Story(adaptor, store=store, later_s=3.0)
        again = Story(adaptor, store=store, later_s=600.0)  # by the time of day it is as early as at the first
        assert again.grows_at(10) == [4]


def test_what_someone_elses_adaptor_raises_is_told_and_the_master_goes_on() -> None:
    adaptor = Foreign(broken="map")
    story = Story(adaptor)
    assert story.grows_at(6) == []
    acted = [event for event in story.events if isinstance(event, Acted)]
    assert acted[0].outcome.detail == "map: RuntimeError: no room"
    adaptor.broken = None
    assert story.grows_at(30) != [], "it tries again, after a while"


def test_an_adaptor_that_does_not_answer_is_trouble_and_nothing_else() -> None:
    adaptor = Foreign()
    story = Story(adaptor)
    story.second()
    del adaptor.sizes["map"]
    adaptor.operators = lambda: ["map"]  # type: ignore[method-assign]
    story.engine.take(a_round())
    story.manager.tick()
    (trouble,) = [event for event in story.events if isinstance(event, Trouble)]
    assert trouble.what == "cannot measure: the adaptor does not say the size of map: KeyError: 'map'"


def test_of_several_operators_the_first_failure_ends_the_action() -> None:
    adaptor = Foreign(broken="sink")
    engine = MonitoredEngine(adaptor, ManualClock())
    before = engine.plan()
    decision = Decision(number=1, at_s=0.0, before=before, after=Plan({"map": 3, "sink": 2}))
    outcome = engine.rescale(decision)
    assert (outcome.succeeded, dict(outcome.plan)) == (False, {"map": 3, "sink": 1})


def test_a_master_that_leads_no_longer_touches_nothing() -> None:
    """Between the written intent and the call it may have been held up for longer than its lease lasts."""
    engine = MonitoredEngine(Foreign(), ManualClock())
    before = engine.plan()

    def check() -> None:
        raise LeaseError("this master leads no longer")

    engine.before_acting = check
    outcome = engine.rescale(Decision(number=1, at_s=0.0, before=before, after=Plan({"map": 3, "sink": 2})))
    assert (outcome.succeeded, outcome.plan, outcome.detail) == (False, before, "map: this master leads no longer")


def test_a_round_becomes_readings_of_what_was_read() -> None:
    values = {
        "utilization": 50.0,
        "input_rate": 30.0,
        "queue_length": 7.0,
        "cpu_utilization": 80.0,
        "open_files": 9.0,
    }
    snapshot = snapshot_of_round(a_round(reading(**values)), Plan({"map": 1, "sink": 1}))
    (found,) = snapshot.readings
    assert (found.useful_s, found.records_in, found.backlog, found.cpu_utilization) == (0.5, 30.0, 7.0, 0.8)
    assert found.metrics == values
    assert snapshot.missing == ("sink: readings of 0 of 1 instances",)


def test_agents_of_what_is_gone_are_passed_over_and_those_that_read_less() -> None:
    readings = (
        reading("gone", 0, queue_length=1.0),
        reading("map", 0),
        reading("map", 1, queue_length=2.0),
        reading("map", 5, queue_length=3.0),
    )
    snapshot = snapshot_of_round(a_round(*readings), Plan({"map": 2}))
    assert [(found.operator, found.instance) for found in snapshot.readings] == [("map", 1), ("map", 5)]


def test_an_operator_may_have_the_name_of_the_made_up_source() -> None:
    snapshot = snapshot_of_round(a_round(reading("(input)", queue_length=1.0)), Plan({"(input)": 1}))
    assert snapshot.dataflow.scalable == ("(input)",)


def test_without_an_engine_sizes_are_what_agents_make_them_look() -> None:
    adaptor = ReportedSizes()
    adaptor.see([reading("map", 0), reading("map", 1)])
    adaptor.see([reading("map", 0), reading("map", 1), reading("map", 2), reading("sink", 0)])
    assert list(adaptor.operators()) == ["map", "sink"]
    assert (adaptor.original_size("map"), adaptor.current_size("map")) == (2, 3)
    for _ in range(9):
        adaptor.see([reading("map", 0), reading("sink", 0)])
    assert adaptor.current_size("map") == 3, "one that was not heard for a moment is still there"
    adaptor.see([reading("map", 0)])
    assert [adaptor.current_size(name) for name in ("map", "sink")] == [1, 1]
    with pytest.raises(ElastreamError, match="no engine was given"):
        adaptor.set_size("map", 4)


def test_reasons_say_what_agents_read_and_no_more() -> None:
    story = Story(Foreign())
    story.grows_at(4)
    (decided,) = [event for event in story.events if isinstance(event, Decided)]
    (advice,) = decided.decision.advice
    assert str(advice.reasons[0].text) == "agents of 2 of 2 instances read queue_length 500"
    assert (advice.observed_per_s, advice.utilization) == (None, None)
