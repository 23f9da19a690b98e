"""What is shown, from what the manager produces: no server, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastream.dataflow import Operator, Plan
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import (
    Acted,
    ActionVerdict,
    Decided,
    Event,
    Held,
    Judged,
    PhaseChanged,
    Steered,
    Trouble,
)
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import Bounds, Controls
from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.reading import Reading
from elastream.measurement.recording import RunHeader
from elastream.nodes import Node, NodePool
from elastream.policies.proposal import Advice, Reason, ReasonKind
from elastream.showing.as_views import batch_view, graph_view, window_view
from elastream.showing.history import RunHistory
from elastream.showing.points import point_of, thinned
from elastream.showing.views import CHARTED, AboutView, Health, OperatorKind, OperatorWindow
from elastream.testing import alike, chain, snapshot_of
from tests.web.serving import in_order, word_count


def a_window(
    *map_readings: Reading, at_s: float = 60.0, load: float = 1_000.0, instances: int | None = None
) -> Snapshot:
    """source → map → sink, with a sink that keeps up with whatever reaches it."""
    done = sum(reading.records_in for reading in map_readings) / 60
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": load},
        readings=[*map_readings, *alike("sink", records_per_s=done, useful_share=0.1)],
        parallelism={"map": instances or max(1, len(map_readings))},
    )
    return replace(snapshot, at_s=at_s)


def of(snapshot: Snapshot, name: str = "map") -> OperatorWindow:
    return next(operator for operator in window_view(snapshot).operators if operator.name == name)


def test_a_graph_has_every_operator_after_those_it_reads_with_its_bounds() -> None:
    operators = [Operator(name="map", min_parallelism=2, max_parallelism=8), Operator(name="sink", fixed=True)]
    flow = snapshot_of(edges=chain("in", "map", "sink"), source_rates={"in": 1}, operators=operators).dataflow
    graph = graph_view("<b>pipeline</b>", flow)
    assert graph.pipeline == "<b>pipeline</b>"
    assert [(one.name, one.kind, one.inputs) for one in graph.operators] == [
        ("in", OperatorKind.SOURCE, ()),
        ("map", OperatorKind.OPERATOR, ("in",)),
        ("sink", OperatorKind.SINK, ("map",)),
    ]
    assert [(one.least, one.most, one.fixed) for one in graph.operators] == [
        (1, None, False),
        (2, 8, False),
        (1, None, True),
    ]
    assert [(edge.producer, edge.consumer) for edge in graph.edges] == [("in", "map"), ("map", "sink")]


class TestWindow:
    def test_rates_and_balance_are_those_of_the_readings(self) -> None:
        readings = [
            Reading(operator="map", window_s=60, useful_s=30, records_in=6_000, records_out=0, backlog=10),
            Reading(
                operator="map", instance=1, window_s=60, useful_s=15, records_in=6_000, records_out=0, latency_s=2
            ),
        ]
        shown = of(a_window(*readings, load=200.0))
        assert shown.parallelism == 2
        assert shown.observed_per_s == pytest.approx(200.0)
        assert shown.true_per_s == pytest.approx(6_000 / 30 + 6_000 / 15)
        assert shown.required_per_s == pytest.approx(200.0)
        assert shown.utilization == pytest.approx((0.5 + 0.25) / 2)
        assert shown.balance == pytest.approx(22.5 / 30)
        assert (shown.backlog, shown.latency_s, shown.records_in) == (10.0, 2.0, 12_000.0)

    def test_what_nobody_measured_is_unknown_and_no_zero(self) -> None:
        shown = of(a_window())
        assert shown.health is Health.UNKNOWN
        assert (shown.observed_per_s, shown.true_per_s, shown.utilization, shown.backlog) == (None,) * 4
        assert window_view(a_window()).missing == ("map: readings of 0 of 1 instances",)

    def test_late_records_and_notes_are_shown_where_there_is_event_time(self) -> None:
        readings = [replace(reading, records_late=3.0) for reading in alike("map", instances=2)]
        shown = window_view(replace(a_window(*readings), notes=("map drops records as late",)))
        assert {one.name: one.records_late for one in shown.operators} == {
            "source": None,
            "map": 6.0,
            "sink": None,
        }
        assert shown.notes == ("map drops records as late",)

    def test_sources_have_what_came_and_what_got_in(self) -> None:
        snapshot = a_window(*alike("map", records_per_s=600))
        [source] = window_view(snapshot).sources
        assert (source.offered_per_s, source.achieved_per_s, source.processed_per_s) == (1_000.0, None, 600.0)
        fed = replace(snapshot, readings=(*snapshot.readings, *alike("source", records_per_s=600)))
        [source] = window_view(fed).sources
        assert (source.offered_per_s, source.achieved_per_s) == (1_000.0, 600.0)
        assert of(fed, "source").health is Health.BEHIND

    def test_nodes_are_shown_where_they_are_known(self) -> None:
        pool = NodePool(nodes=(Node(name="a", slots=2), Node(name="b")), delays_s=((0, 1), (1, 0)))
        snapshot = replace(
            a_window(*alike("map", instances=2)), nodes=pool, placement={"map": ("a", "a"), "sink": ("b",)}
        )
        shown = window_view(snapshot).nodes
        assert [(node.name, node.slots, node.instances) for node in shown] == [("a", 2, 2), ("b", 1, 1)]

    def test_executors_are_shown_as_they_were_measured(self) -> None:
        executor = ExecutorReading(
            id="1", host="10.0.0.7", node="a", cores=4, active_tasks=2, busy_cores=1.5, leaving=True
        )
        [shown] = window_view(replace(a_window(*alike("map")), executors=(executor,))).executors
        assert shown.model_dump() == {
            "id": "1", "host": "10.0.0.7", "node": "a", "cores": 4, "processors": None, "active_tasks": 2,
            "busy_cores": 1.5, "memory_used_bytes": None, "memory_bytes": None, "peak_heap_bytes": None,
            "leaving": True,
        }  # fmt: skip
        assert window_view(a_window(*alike("map"))).executors == ()

    def test_a_batch_is_split_into_its_fixed_price_and_that_of_the_records(self) -> None:
        cost = BatchCost(
            per_record_s=0.001, per_task_s=0.1, per_state_partition_s=0.02, state_partitions=10,
            driver_s=0.3, balance=0.5, longest_batch_s=2.0,
        )  # fmt: skip
        shown = batch_view(cost, parallelism=4, records_per_s=500.0)
        # four instances, half of them busy on the average: as two
        assert shown.fixed_s == pytest.approx((4 * 0.1 + 10 * 0.02) / 2)
        assert shown.records_s == pytest.approx(500 * 2.0 * 0.001 / 2)
        assert (shown.driver_s, shown.longest_s) == (0.3, 2.0)
        snapshot = replace(a_window(*alike("map", instances=4, records_per_s=125)), batch_costs={"map": cost})
        assert of(snapshot).batch == shown
        assert of(snapshot).balance == 0.5
        assert of(snapshot, "sink").batch is None


class TestHealth:
    @pytest.mark.parametrize(
        ("readings", "health", "says"),
        [
            (alike("map", records_per_s=1_000, useful_share=0.4, backlog=0), Health.OK, "keeps up, busy 40%"),
            (alike("map", records_per_s=1_000, useful_share=0.95, backlog=0), Health.STRAINED, "busy 95%"),
            (alike("map", records_per_s=600, backlog=24_000), Health.BEHIND, "24,000 records wait"),
            (alike("map", records_per_s=600, useful_share=0.5, backlog=24_000), Health.BEHIND, "600/s of 1,000/s"),
            (alike("map", records_per_s=600, useful_share=0.3, backlog=0), Health.OK, "others fall behind"),
            (alike("map", records_per_s=1_000, useful_share=0.3, backlog=90_000), Health.STRAINED, "90,000"),
            (alike("map", records_per_s=1_000, useful_share=0.3, wait_out_share=0.4), Health.STRAINED, "held"),
        ],
        ids=["ok", "little room", "saturated", "waits for its driver", "starved", "backlog", "held back"],
    )  # fmt: skip
    def test_the_word_and_its_reason(self, readings: list[Reading], health: Health, says: str) -> None:
        shown = of(a_window(*readings))
        assert (shown.health, says in shown.why) == (health, True), shown.why

    def test_only_some_readings_are_not_enough(self) -> None:
        shown = of(a_window(*alike("map", instances=2), instances=3))
        assert (shown.health, shown.why) == (Health.UNKNOWN, "readings of 2 of 3 instances")

    @pytest.mark.parametrize("name", ["source", "map"])
    def test_what_fails_is_not_well_however_little_comes(self, name: str) -> None:
        """A source whose topic does not exist has all of 0/s in."""
        snapshot = snapshot_of(
            edges=chain("source", "map"),
            source_rates={"source": 0.0},
            readings=[*alike("source", records_per_s=0), *alike("map", records_per_s=0, useful_share=0)],
        )
        failing = replace(snapshot, failing={name: "there is no such topic"})
        assert of(snapshot, name).health is Health.OK
        shown = of(failing, name)
        assert (shown.health, shown.why) == (Health.BEHIND, "does not work: there is no such topic")


def decided(number: int, *, at_s: float = 60.0, dry_run: bool = False) -> Decided:
    decision = Decision(
        number=number,
        at_s=at_s,
        before=Plan({"map": 1, "sink": 1}),
        after=Plan({"map": 2, "sink": 1}),
        reasons=(Reason(kind=ReasonKind.BOTTLENECK, text="the source"),),
        advice=(
            Advice(
                operator="map", current=1, parallelism=2, reasons=(Reason(kind=ReasonKind.FORMULA, text="1.5"),)
            ),
        ),
        share_before=0.5,
        expected_share=1.0,
    )
    return Decided(at_s=at_s, decision=decision, dry_run=dry_run)


def acted(number: int, *, succeeded: bool = True) -> Acted:
    plan = Plan({"map": 2 if succeeded else 1, "sink": 1})
    outcome = RescaleOutcome(plan=plan, succeeded=succeeded, took_s=3.0, detail="" if succeeded else "no room")
    return Acted(at_s=63.0, number=number, outcome=outcome)


def judged(number: int) -> Judged:
    return Judged(
        at_s=120.0,
        number=number,
        verdict=ActionVerdict.EFFECTIVE,
        share_before=0.5,
        share_after=0.9,
        expected_share=1.0,
    )


class TestAbout:
    def test_a_run_is_called_what_it_says_and_else_what_it_was_given(self) -> None:
        history = RunHistory("a folder")
        assert history.view().about == AboutView(pipeline="a folder", policy=None, engine=None)
        history.begin(RunHeader(policy="ds2"))
        assert history.about == AboutView(pipeline="a folder", policy="ds2", engine=None)
        history.add_snapshot(a_window(*alike("map")))
        update = history.begin(RunHeader(pipeline="clicks", policy="lag", engine="spark"))
        assert update.about == history.about == AboutView(pipeline="clicks", policy="lag", engine="spark")
        assert update.graph is not None
        assert update.graph.pipeline == "clicks"


class TestDecisions:
    def test_what_becomes_of_one_is_filled_in_as_it_is_told(self) -> None:
        history = RunHistory("p")
        first = history.add_event(decided(1)).decision
        assert first is not None
        assert (first.outcome, first.took_s, first.verdict) == ("under way", None, None)
        assert [(reason.operator, reason.kind, reason.text) for reason in first.reasons] == [
            (None, "bottleneck", "the source"),
            ("map", "formula", "1.5"),
        ]
        done = history.add_event(acted(1)).decision
        assert done is not None
        assert (done.id, done.outcome, done.took_s) == (first.id, "done", 3.0)
        assert done.in_force == {"map": 2, "sink": 1}
        history.add_event(judged(1))
        [shown] = history.decisions()
        assert (shown.verdict, shown.expected_share, shown.achieved_share) == ("effective", 1.0, 0.9)
        assert [event.decision for event in history.events()] == [first.id] * 3

    def test_a_failed_one_says_why(self) -> None:
        history = RunHistory("p")
        history.add_event(decided(1))
        history.add_event(acted(1, succeeded=False))
        assert [(one.outcome, one.detail) for one in history.decisions()] == [("failed", "no room")]

    def test_a_rehearsal_does_not_take_the_outcome_of_what_has_its_number(self) -> None:
        history = RunHistory("p")
        for event in (decided(1, dry_run=True), decided(1), decided(2, dry_run=True), acted(1)):
            history.add_event(event)
        assert [one.outcome for one in history.decisions()] == ["rehearsed", "done", "rehearsed"]

    def test_an_outcome_without_its_decision_is_an_event_like_others(self) -> None:
        history = RunHistory("p")
        assert history.add_event(acted(7)).decision is None
        assert [event.text for event in history.events()] == ["action 7: done in 3.00 s"]


class TestManager:
    def test_its_phase_and_what_people_set(self) -> None:
        history = RunHistory("p")
        history.begin(RunHeader(knobs={"dry_run": True}))
        assert (history.manager.phase, history.manager.dry_run, history.manager.paused) == (None, True, False)
        history.add_event(
            PhaseChanged(at_s=1, before=ManagerPhase.WARMING_UP, after=ManagerPhase.OBSERVING, why="warmed up")
        )
        controls = Controls(paused=True, bounds={"map": Bounds(most=3)})
        update = history.add_event(Steered(at_s=2, what="map: at most 3", controls=controls))
        assert update.manager == history.manager
        assert (history.manager.phase, history.manager.paused, history.manager.dry_run) == (
            "observing",
            True,
            True,
        )
        assert history.manager.bounds["map"].most == 3
        history.add_event(Steered(at_s=3, what="", controls=replace(controls, dry_run=False)))
        assert not history.manager.dry_run

    def test_a_run_that_begins_says_whether_it_is_a_dry_one_and_nothing_is_set_yet(self) -> None:
        history = RunHistory("p")
        history.begin(RunHeader(knobs={"dry_run": False}))
        assert not history.manager.dry_run
        controls = Controls(paused=True, bounds={"map": Bounds(most=3)})
        history.add_event(Steered(at_s=1, what="", controls=controls))
        update = history.begin(RunHeader(knobs={"dry_run": True}))
        assert update.manager == history.manager
        assert (history.manager.dry_run, history.manager.paused, history.manager.bounds) == (True, False, {})
        history.begin(RunHeader())
        assert not history.manager.dry_run, "it does not say"


class TestCost:
    def test_it_stands_beside_the_highest_parallelism_of_each_operator(self) -> None:
        history = RunHistory("p")
        for at_s, instances in ((60.0, 4), (120.0, 1), (180.0, 2)):
            history.add_snapshot(a_window(*alike("map", instances=instances), at_s=at_s))
        cost = history.cost  # three minutes; the sink had one instance throughout
        assert cost.span_s == 180.0
        assert cost.instance_s == 60 * (5 + 2 + 3)
        assert cost.static_peak_instance_s == 180 * 5
        assert cost.saved_share == pytest.approx(1 - 600 / 900)

    def test_it_begins_anew_with_other_operators(self) -> None:
        history = RunHistory("p")
        for at_s, name, instances in ((60.0, "old", 4), (120.0, "new", 3), (180.0, "new", 1)):
            window = snapshot_of(
                edges=chain("in", name), source_rates={"in": 1}, readings=alike(name, instances=instances)
            )
            history.add_snapshot(replace(window, at_s=at_s))
        assert history.cost.peak == {"new": 3}
        assert (history.cost.span_s, history.cost.instance_s) == (120.0, 60 * (3 + 1))
        assert history.cost.static_peak_instance_s == 120 * 3

    def test_other_bounds_of_the_same_operators_change_nothing(self) -> None:
        history, window = RunHistory("p"), a_window(*alike("map", instances=4))
        history.add_snapshot(window)
        operators = [
            Operator(name="map", max_parallelism=4),
            *(o for o in window.dataflow.operators if o.name != "map"),
        ]
        bounded = replace(window.dataflow, operators=tuple(operators))
        history.add_snapshot(replace(window, at_s=120.0, dataflow=bounded))
        assert history.cost.span_s == 120.0

    def test_it_is_nothing_before_the_first_window(self) -> None:
        assert (RunHistory("p").cost.instance_s, RunHistory("p").cost.saved_share) == (0.0, None)


class TestThinning:
    def test_pairs_of_old_windows_are_merged_by_their_kind(self) -> None:
        low = [replace(one, records_late=1_234_567.0) for one in alike("map", records_per_s=100, backlog=5)]
        low = [replace(one, useful_s=0.2 * one.window_s) for one in low]
        high = alike("map", instances=2, records_per_s=200, useful_share=0.6, backlog=50)
        high = [replace(one, records_late=1.0) for one in high]
        points = [
            point_of(window_view(a_window(*readings, at_s=60.0 * number, load=300.0)))
            for number, readings in ((1, low), (2, high), (3, low))
        ]
        first, second = thinned(points, 2)
        assert (first.at_s, first.span_s, second.at_s, second.span_s) == (120.0, 120.0, 180.0, 60.0)
        merged = first.operators["map"]
        assert merged.parallelism == 2, "what was in force at the end"
        values = dict(zip(CHARTED, merged.values, strict=True))
        assert values["observed_per_s"] == pytest.approx((100 + 400) / 2)
        assert values["utilization"] == pytest.approx(0.4)
        assert values["backlog"] == 100.0, "the highest, which is of two instances"
        assert values["records_late"] == 1_234_569.0, "their sum, to the last"
        assert second == points[2]

    def test_many_windows_stay_few_and_in_order_with_all_of_the_time(self) -> None:
        window = window_view(a_window(*alike("map")))
        points = []
        for number in range(2_000):
            points = thinned([*points, point_of(window.model_copy(update={"at_s": 60.0 * number}))], 480)
        assert 240 <= len(points) <= 480
        assert sum(point.span_s for point in points) == pytest.approx(60.0 * 2_000)
        times = [point.at_s for point in points]
        assert times == sorted(set(times))
        assert points[-1].span_s == 60.0
        assert points[0].span_s > points[-1].span_s

    @pytest.mark.parametrize(
        ("ends", "shown"),
        [
            ((60, 120, 180, 240, 150, 210), (60, 120, 150, 210)),
            ((60, 120, 120), (60, 120)),
            ((1e9, 1e9 + 60, 60, 120), (60, 120)),
        ],
        ids=["a clock that is set right", "the same time twice", "a clock that begins anew"],
    )
    def test_times_rise_also_when_the_clock_steps_back(
        self, ends: tuple[float, ...], shown: tuple[float, ...]
    ) -> None:
        history = RunHistory("p")
        for number, at_s in enumerate(ends, start=1):
            history.add_snapshot(a_window(*alike("map", instances=number), at_s=at_s))
        assert history.columns().at_s == shown
        assert history.columns().operators["map"].parallelism[-1] == len(ends), "the newest is what counts"
        assert history.cost.span_s == 60.0 * len(ends), "all of it was paid for"

    def test_routine_does_not_push_out_what_tells_of_something(self) -> None:
        history = RunHistory("p")
        history.add_event(Trouble(at_s=0, what="the disk is full"))
        for number in range(500):
            history.add_event(Held(at_s=float(number), why="scaling is paused"))
        texts = [event.text for event in history.events()]
        assert texts[0] == "the disk is full"
        assert len(texts) < 100

    def test_decisions_and_events_are_bounded(self) -> None:
        history = RunHistory("p")
        for number in range(1, 601):
            history.add_event(decided(number))
            history.add_event(acted(number))
        assert len(history.decisions()) == 200
        assert history.decisions()[-1].number == 600
        assert len(history.events()) == 500


def test_a_run_ends_in_the_same_view_however_it_is_watched() -> None:
    happened = in_order(word_count())
    history = RunHistory("p")
    windows = [
        history.add_snapshot(one) if isinstance(one, Snapshot) else history.add_event(one) for one in happened
    ]
    view = history.view()
    assert view.id == windows[-1].id
    snapshots = [one for one in happened if isinstance(one, Snapshot)]
    assert view.history.at_s == tuple(snapshot.at_s for snapshot in snapshots)
    assert view.history.operators["words"].parallelism == tuple(s.plan["words"] for s in snapshots)
    decisions = [one for one in happened if isinstance(one, Decided)]
    assert [one.number for one in view.decisions] == [one.decision.number for one in decisions]
    assert all(one.outcome == "done" for one in view.decisions)
    assert view.window is not None
    assert view.window.at_s == snapshots[-1].at_s
    assert type(view).model_validate_json(view.model_dump_json()) == view


def test_every_kind_of_event_has_a_line() -> None:
    history, told = RunHistory("p"), set()
    events: list[Event] = [
        *word_count().events,
        Trouble(at_s=0, what="x"),
        Steered(at_s=0, what="y", controls=Controls()),
    ]
    for event in events:
        update = history.add_event(event)
        told.add(event.event)
        assert update.event is None or update.event.text
    assert told >= {"ignored", "proposed", "decided", "acted", "judged", "phase", "trouble", "steered"}
