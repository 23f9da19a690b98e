"""Rules under the manager: proposals with reasons, restarts, clocks that jump, rules changed while they run."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.arrivals.load import Constant
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.engine_model import EngineModel, OperatorModel, SourceModel
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Decided, Event, Proposed, Renewed, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import create, info
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.policies.rules import (
    RuleSet,
    every_operator,
    mebibytes,
    minutes,
    percent,
    query,
    rule,
    rules,
    seconds,
)
from elastream.testing import alike, chain, snapshot_of

KNOBS = build(Knobs, info("rules").knobs, place="test")


def out(*, guard_s: float | None = None, by: int = 1, most: int = 9, operator: Any = "map") -> Any:
    sized = rule("long queue").scale_out(operator).by(by).never_above(most)
    written = sized.when("queue_length").above(100).for_at_least(seconds(10))
    return written if guard_s is None else written.unless_scaled_out_within(seconds(guard_s))


def asked(
    rule_set: RuleSet, *backlogs: float, plan: int = 2, operators: tuple[Operator, ...] = ()
) -> tuple[Proposal, Knowledge]:
    """The proposal after windows of 10 s in which each instance of map had so many records waiting."""
    policy, knowledge = Rules(rules=rule_set), NOTHING_KNOWN
    for backlog in backlogs:
        snapshot = snapshot_of(
            edges=chain("source", "map", "sink"),
            source_rates={"source": 1_000},
            readings=[*alike("map", instances=plan, backlog=backlog, window_s=10), *alike("sink", window_s=10)],
            operators=operators,
        )
        knowledge = policy.remember(snapshot, knowledge.watched(10.0, snapshot.plan))
    return policy(snapshot, knowledge), knowledge


def reasons(proposal: Proposal, name: str = "map") -> dict[ReasonKind, str]:
    return {reason.kind: reason.text for reason in proposal.advice[name].reasons[1:]}


class TestProposals:
    def test_a_rule_that_fires_is_followed_with_its_reason(self) -> None:
        proposal, _ = asked(rules(out()), 200, 300)
        assert proposal.parallelism == {"map": 3, "sink": 1}
        assert reasons(proposal) == {
            ReasonKind.FORMULA: "the rule 'long queue': the queue length (average of its instances) is "
            "300 records, above 100 records for 10 s of 10 s; so 2 → 3"
        }

    def test_what_it_waits_for_is_told(self) -> None:
        proposal, _ = asked(rules(out()), 50, 300)
        assert proposal.parallelism == {"map": 2, "sink": 1}
        assert reasons(proposal)[ReasonKind.MEASURED].endswith("and it was not above 100 records throughout")
        proposal, _ = asked(rules(out()), 300)
        assert reasons(proposal)[ReasonKind.MEASURED].endswith("above 100 records for 0 s of 10 s")

    def test_a_metric_that_nobody_measured_is_no_data(self) -> None:
        latency = rule("slow").scale_out(every_operator).by(1).never_above(9).when("latency").above(seconds(1))
        proposal, _ = asked(rules(latency.for_at_least(seconds(10))), 1, 1)
        assert proposal.parallelism == {"map": 2, "sink": 1}
        assert reasons(proposal)[ReasonKind.NO_DATA] == "the rule 'slow': no reading of latency in this window"

    def test_what_nobody_brings_is_told_for_the_whole_pipeline(self) -> None:
        lag = rule("lag").scale_out("map").by(1).never_above(9).when(query("sum(lag)")).above(1)
        proposal, _ = asked(rules(out(), lag.for_at_least(seconds(10))), 1, 1)
        assert [reason.text for reason in proposal.reasons] == [
            "the rule 'lag' waits for promql:sum(lag), which nobody brings so far"
        ]

    def test_so_is_what_is_brought_of_some_operators_only(self) -> None:
        """No reading at all came of sink: no agent is there, say, or it can read nothing."""
        policy, knowledge = Rules(rules=rules(out(operator=every_operator))), NOTHING_KNOWN
        snapshot = snapshot_of(
            edges=chain("source", "map", "sink"),
            source_rates={"source": 1_000},
            readings=alike("map", instances=2, backlog=1, window_s=10),
        )
        told = []
        for _ in range(3):
            knowledge = policy.remember(snapshot, knowledge.watched(10.0, snapshot.plan, interval_s=10.0))
            told.append([reason.text for reason in policy(snapshot, knowledge).reasons])
        waits = "the rule 'long queue' waits for queue_length, which nobody brings of sink so far"
        assert told == [[], [], [waits]]

    def test_its_limit_and_the_operators_own_bounds_are_told(self) -> None:
        proposal, _ = asked(rules(out(most=2)), 200, 200)
        assert reasons(proposal)[ReasonKind.CLAMPED] == "the rule 'long queue' fires, but is at its limit with 2"
        few = (Operator(name="map", max_parallelism=3),)
        proposal, _ = asked(rules(out(by=5)), 200, 200, operators=few)
        assert proposal.parallelism["map"] == 3
        assert "7 wanted, but it has at most 3" in reasons(proposal)[ReasonKind.CLAMPED]

    def test_the_rule_that_is_not_followed_is_told(self) -> None:
        other = rule("more").scale_out("map").by(3).never_above(9).when("queue_length").above(150)
        proposal, _ = asked(rules(out(), other.for_at_least(seconds(10))), 200, 200)
        assert proposal.parallelism["map"] == 5
        assert reasons(proposal)[ReasonKind.HELD] == "the rule 'long queue' wants 3, but 'more' goes before it"

    def test_without_rules_nothing_changes(self) -> None:
        proposal, _ = asked(rules(), 1e6, 1e6)
        assert proposal.parallelism == {"map": 2, "sink": 1}
        assert [reason.text for reason in proposal.reasons] == ["there are no rules, so nothing changes"]

    def test_a_rule_for_what_the_pipeline_does_not_have_is_told_and_does_nothing(self) -> None:
        proposal, _ = asked(rules(out(operator="mapp"), out(operator="source")), 200, 200)
        assert [reason.text for reason in proposal.reasons] == [
            "the rule 'long queue' does nothing: unknown operator 'mapp' (did you mean 'map'?)",
            "the rule 'long queue' does nothing: 'source' is a source, and a source is not scaled",
        ]

    def test_where_the_pipeline_is_known_it_is_refused(self) -> None:
        dataflow = Dataflow.of([Operator(name="source", source=True), Operator(name="map")], [("source", "map")])
        with pytest.raises(InvalidInput, match="the rule 'long queue': unknown operator 'mapp'"):
            Rules(rules=rules(out(operator="mapp"))).for_pipeline(dataflow)

    def test_it_is_in_the_catalog(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"none\.yaml: there is no such file"):
            create("rules", {"file": str(tmp_path / "none.yaml")})


# Under the manager


class Pipeline:
    """One instance of map can do a thousandth of its load: its queue grows, whatever the rules do."""

    def __init__(self, rule_set: RuleSet, store: Store | None = None, *, capacity_per_s: float = 1.0) -> None:
        self.engine = SimulatedEngine(
            EngineModel(
                dataflow=Dataflow.of(
                    [Operator(name="source", source=True), Operator(name="map")], [("source", "map")]
                ),
                operators={"map": OperatorModel(capacity=PowerLaw(per_instance_per_s=capacity_per_s))},
                sources={"source": SourceModel(load=Constant(records_per_s=1_000))},
                initial_plan=Plan({"map": 1}),
            )
        )
        self.clock = JumpingClock(self.engine)
        self.events: list[Event] = []
        self.store = store
        self.start(Rules(rules=rule_set))

    def start(self, policy: Rules) -> None:
        self.manager = Manager(
            engine=self.clock,
            policy=policy,
            knobs=KNOBS,
            clock=self.clock,
            store=self.store,
            on_event=self.events.append,
        )
        self.manager.start()

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.clock.wait(KNOBS.interval_s)
            self.manager.tick()

    def decided_s(self) -> list[float]:
        """By the engine's own time, whatever the clock on the wall said."""
        assert len(self.clock.acted_s) == sum(isinstance(event, Decided) for event in self.events)
        return self.clock.acted_s

    def reasons(self) -> list[str]:
        """Why map is as it is, in every proposal."""
        proposals = [event.proposal for event in self.events if isinstance(event, Proposed)]
        return [reason.text for proposal in proposals for reason in proposal.advice["map"].reasons]

    def told(self, kind: type[Any]) -> list[str]:
        return [event.what for event in self.events if isinstance(event, kind)]


class JumpingClock:
    """A wall clock that somebody sets, over an engine that does not care; the windows are as the wall says."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.ahead_s = 0.0
        self.acted_s: list[float] = []
        self.gaps: tuple[str, ...] = ()

    def now(self) -> float:
        return self.engine.now() + self.ahead_s

    def steady(self) -> float:
        return self.engine.now()

    def wait(self, seconds: float) -> None:
        self.engine.wait(seconds)

    def graph(self) -> Dataflow:
        return self.engine.graph()

    def plan(self) -> Plan:
        return self.engine.plan()

    def rescale(self, decision: Decision) -> RescaleOutcome:
        self.acted_s.append(self.engine.now())
        return self.engine.rescale(decision)

    def measure(self) -> Snapshot:
        return replace(self.engine.measure(), at_s=self.now(), gaps=self.gaps)


def test_a_guard_time_is_kept_from_one_action_to_the_next() -> None:
    pipeline = Pipeline(rules(out(guard_s=60)))
    pipeline.ticks(40)
    assert pipeline.decided_s() == [15, 75, 135, 195]


@given(jumps=st.lists(st.tuples(st.integers(0, 59), st.floats(-1e6, 1e6)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_guard_times_hold_when_the_clock_jumps(jumps: list[tuple[int, float]]) -> None:
    pipeline = Pipeline(rules(out(guard_s=60)))
    by_tick: dict[int, float] = dict(jumps)
    for tick in range(60):
        pipeline.clock.ahead_s += by_tick.get(tick, 0.0)
        pipeline.ticks(1)
    found = pipeline.decided_s()
    waits_s = [after - before for before, after in pairwise(found)]
    assert all(wait_s >= 60 for wait_s in waits_s)
    # nor does a jump hold it up for longer than the window that the manager leaves out for it
    assert all(wait_s <= 60 + 5 * (1 + len(by_tick)) for wait_s in waits_s)
    assert len(found) >= 2


def test_a_restart_loses_no_guard_time_and_nothing_that_was_seen(tmp_path: Path) -> None:
    with Store(tmp_path / "manager.db") as store:
        pipeline = Pipeline(rules(out(guard_s=60)), store)
        pipeline.ticks(4)
        assert pipeline.decided_s() == [15]
        pipeline.clock.ahead_s += 3_600  # an hour in which nobody looked is not counted
        for _ in range(5):
            pipeline.start(Rules(rules=rules(out(guard_s=60))))
            pipeline.ticks(4)
        assert pipeline.decided_s() == [15, 75]


def test_windows_with_gaps_are_a_hole_and_not_a_time_in_which_the_rule_held() -> None:
    """As on Spark while it cannot be asked: the manager leaves such windows out, and so do evaluators."""
    pipeline = Pipeline(rules(out(guard_s=600)))
    pipeline.ticks(1)
    pipeline.clock.gaps = ("Spark does not answer",)
    pipeline.ticks(12)
    pipeline.clock.gaps = ()
    pipeline.ticks(1)
    assert pipeline.decided_s() == []
    pipeline.ticks(2)
    assert pipeline.decided_s() == [80], "once two windows after the hole cover its ten seconds"
    assert any("60 s without a reading" in text for text in pipeline.reasons())


def test_a_few_windows_with_gaps_are_tolerated() -> None:
    pipeline = Pipeline(rules(out(guard_s=600)))
    pipeline.ticks(1)
    pipeline.clock.gaps = ("Spark does not answer",)
    pipeline.ticks(1)
    pipeline.clock.gaps = ()
    pipeline.ticks(1)
    assert pipeline.decided_s() == [15]


def test_after_a_restart_the_time_in_which_nobody_looked_is_a_hole(tmp_path: Path) -> None:
    slow = rule("long queue").scale_out("map").by(1).never_above(9)
    written = rules(slow.when("queue_length").above(100).for_at_least(seconds(30)))
    for away_s, acts_s in ((5.0, [35]), (3_600.0, [65])):
        with Store(tmp_path / f"{away_s}.db") as store:
            pipeline = Pipeline(written, store)
            pipeline.ticks(6)
            pipeline.clock.ahead_s += away_s
            pipeline.start(Rules(rules=written))
            pipeline.ticks(7)
            assert pipeline.decided_s()[:1] == acts_s


def test_the_original_size_survives_a_restart(tmp_path: Path) -> None:
    doubling = rule("double").scale_out("map").by(1).never_above_times_original(3)
    written = rules(doubling.when("queue_length").above(1).for_at_least(seconds(5)))
    with Store(tmp_path / "manager.db") as store:
        pipeline = Pipeline(written, store)
        for _ in range(3):
            pipeline.ticks(5)
            pipeline.start(Rules(rules=written))
        assert pipeline.engine.plan()["map"] == 3


# Changed while they run

TEXT = """\
rules:
  - name: long queue
    scale_out: map
    by: 1
    never_above: 9
    when: [{metric: queue_length, above: 100, for_at_least: 30 s}]
    unless_scaled_out_within: 10 min
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "rules.yaml"
    written.write_text(TEXT)
    return written


def edit(file: Path, text: str) -> None:
    """As an editor saves: a new file in the place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    found = Pipeline(RuleSet())
    found.start(Rules(file=str(file)).for_pipeline(found.engine.graph()))
    return found


def test_a_changed_file_takes_effect_and_what_is_unchanged_goes_on(pipeline: Pipeline, file: Path) -> None:
    pipeline.ticks(5)
    edit(file, TEXT.replace("by: 1", "by: 4"))
    pipeline.ticks(2)
    # from the first reading on, that is at 5 s, for 30 s: the change at 25 s has not started it anew
    assert pipeline.decided_s() == [35]
    assert pipeline.engine.plan()["map"] == 5
    (told,) = pipeline.told(Renewed)
    assert told == f"{file} was changed; rules: 1 new or changed, 1 gone or changed, 0 as before"


def test_a_bad_edit_is_refused_once_with_its_error_and_the_old_rules_stay(pipeline: Pipeline, file: Path) -> None:
    edit(file, TEXT.replace("by: 1", "by: none"))
    pipeline.ticks(7)
    (told,) = pipeline.told(Trouble)
    assert told.startswith(f"the rules stay as they were: {file}: line 4: rules[0].by: a whole number")
    assert pipeline.decided_s() == [35]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scale_out: map", "scale_out: mpa", "unknown operator 'mpa' (did you mean 'map'?)"),
        ("queue_length", "queue_lenght", "unknown metric 'queue_lenght' (did you mean 'queue_length'?)"),
        (TEXT, "rules: [", "not valid YAML"),
    ],
)
def test_so_is_one_that_names_what_is_not_there(
    pipeline: Pipeline, file: Path, old: str, new: str, message: str
) -> None:
    edit(file, TEXT.replace(old, new))
    pipeline.ticks(7)
    (told,) = pipeline.told(Trouble)
    assert message in told
    assert pipeline.decided_s() == [35]


def test_a_file_that_is_gone_is_told_and_its_rules_stay_until_it_is_back(pipeline: Pipeline, file: Path) -> None:
    file.unlink()
    pipeline.ticks(7)
    assert pipeline.told(Trouble) == [f"the rules stay as they were: {file}: there is no such file"]
    edit(file, "rules: []")
    pipeline.ticks(1)
    (told,) = pipeline.told(Renewed)
    assert told == f"{file} was changed; rules: 0 new or changed, 1 gone or changed, 0 as before"


def test_the_manager_does_not_correct_or_take_back_what_a_person_asked_for() -> None:
    assert (KNOBS.target_rate_ratio, KNOBS.rollback_drop, KNOBS.warm_up_intervals) == (0, None, 0)


def test_percentages_are_of_the_window() -> None:
    busy = rule("busy").scale_out("map").by(1).never_above(9).when("utilization").above(percent(99))
    pipeline = Pipeline(rules(busy.for_at_least(seconds(5)).unless_scaled_out_within(minutes(5))))
    pipeline.ticks(3)
    assert pipeline.decided_s() == [10]


def test_where_an_agent_read_rules_look_at_nothing_else() -> None:
    """Fields of a reading that nobody measured are zero, which is not below a bound."""
    written = [
        rule(name).scale_in("map").by(1).when(metric).below(bound).for_at_least(seconds(10))
        for name, metric, bound in (("idle", "utilization", percent(20)), ("small", "state_size", mebibytes(1)))
    ]
    policy, knowledge = Rules(rules=rules(*written)), NOTHING_KNOWN
    for _ in range(2):
        (empty,) = alike("map", records_per_s=0, useful_share=0, window_s=10)
        snapshot = snapshot_of(
            edges=chain("source", "map"),
            source_rates={"source": 0},
            readings=[replace(empty, metrics={"state_size": 2.0**20 - 1})],
        )
        knowledge = policy.remember(snapshot, knowledge.watched(10.0, snapshot.plan))
    held = {rule.name: knowledge.rules.evaluator(rule, "map").holds(20.0) for rule in policy.rules.rules}
    assert held == {"idle": False, "small": True}
