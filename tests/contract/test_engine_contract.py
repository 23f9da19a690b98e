"""What the manager relies on, whatever engine runs the pipeline (`manager/engine.py`).

An engine joins by adding a factory to `ENGINES`, or, where it is slow, by giving a `subject` of its own to these
tests (`tests/spark/test_spark_contract.py`). The pipeline is source → map → count, in which every record becomes
one record; it starts with one instance each, and 1 to 8 are allowed. Four times as many records come as one
instance of map can do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from elastream.agents.adaptor import EngineAdaptor
from elastream.arrivals.load import Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import (
    DowntimeScope,
    EngineModel,
    OperatorModel,
    PowerLaw,
    SimulatedEngine,
    SourceModel,
)
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import Clock, Engine
from elastream.measurement import Snapshot
from elastream.testing import chain

PIPELINE = Dataflow.of(
    [
        Operator(name="source", source=True),
        Operator(name="map", max_parallelism=8),
        Operator(name="count", max_parallelism=8),
    ],
    chain("source", "map", "count"),
)
START = Plan({"map": 1, "count": 1})
_MOST_WINDOWS = 10


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An engine that runs the pipeline, with what a test needs to know besides the port."""

    engine: Engine
    clock: Clock
    drain: Callable[[], None]
    """Let no more records come, and wait until nothing is left to do."""
    records_brought: Callable[[], float]
    """How many records the source was given, from the start."""
    records_delivered: Callable[[], float]
    """How many records count has put out, from the start."""
    moment_s: float = 30.0
    """Long enough to see something happen."""
    load_per_s: float = 400.0
    """Records that come to the source, until it is drained."""
    slack: float = 0.05
    """By which share what is measured in time may be off."""
    slack_s: float = 1.0
    """How long calls take that should take no time."""


def simulated(**options: object) -> Subject:
    """Far too few instances at first, and queues so short that the source is soon held back."""
    load_ends_s = 300.0
    model = EngineModel(
        dataflow=PIPELINE,
        sources={"source": SourceModel(load=Steps(steps=((0.0, 400.0), (load_ends_s, 0.0))))},
        operators={
            "map": OperatorModel(capacity=PowerLaw(per_instance_per_s=100.0), queue_records=500.0),
            "count": OperatorModel(capacity=PowerLaw(per_instance_per_s=150.0), queue_records=500.0),
        },
        initial_plan=START,
        **options,  # type: ignore[arg-type]
    )
    engine = SimulatedEngine(model)

    def brought() -> float:
        return engine.totals().sources["source"].arrived

    def delivered() -> float:
        return engine.totals().operators["count"].processed

    def drain() -> None:
        engine.wait(max(0.0, load_ends_s - engine.now()))
        while brought() - delivered() > 1e-6:  # records are real numbers here
            engine.wait(60.0)
            assert engine.now() < 86_400.0, "records are stuck"

    return Subject(engine=engine, clock=engine, drain=drain, records_brought=brought, records_delivered=delivered)


ENGINES: dict[str, Callable[[], Subject]] = {
    "simulated, no downtime": simulated,
    "simulated, the job stops": lambda: simulated(downtime_s=(30.0, 50.0), noise=0.1),
    "simulated, an operator stops": lambda: simulated(downtime_s=2.2, downtime_scope=DowntimeScope.OPERATOR),
}


@pytest.fixture(params=ENGINES)
def subject(request: pytest.FixtureRequest) -> Subject:
    return ENGINES[request.param]()


@pytest.fixture
def engine(subject: Subject) -> Engine:
    return subject.engine


@pytest.fixture
def clock(subject: Subject) -> Clock:
    return subject.clock


@pytest.fixture
def moment_s(subject: Subject) -> float:
    return subject.moment_s


def to(engine: Engine, **changes: int) -> Decision:
    """A decision that changes some operators of what runs now."""
    before = engine.plan()
    return Decision(number=1, at_s=0.0, before=before, after=before.with_changes(changes))


def windows_s(snapshot: Snapshot) -> list[float]:
    return [reading.window_s for reading in snapshot.readings]


def within(windows: list[float], least_s: float, most_s: float) -> bool:
    """As long as was waited, and what calls take on a busy machine may be in it."""
    return all(least_s * 0.999 <= window_s <= most_s * 1.001 for window_s in windows)


class TestGraphAndPlan:
    def test_the_graph_is_the_pipeline(self, engine: Engine) -> None:
        assert engine.graph() == PIPELINE

    def test_the_plan_has_every_operator_but_the_sources(self, engine: Engine) -> None:
        assert engine.plan() == START


class TestAdaptor:
    """The four calls by which a monitoring master scales it (`agents/adaptor.py`)."""

    def test_it_says_and_sets_the_size_of_each_operator(self, engine: Engine) -> None:
        adaptor = EngineAdaptor(engine)
        assert list(adaptor.operators()) == ["map", "count"]
        for _ in range(2):  # a second time changes nothing
            adaptor.set_size("map", 5)
            assert [adaptor.current_size(name) for name in ("map", "count")] == [5, 1]
        assert [adaptor.original_size(name) for name in ("map", "count")] == [1, 1]

    def test_it_refuses_what_cannot_be(self, engine: Engine) -> None:
        adaptor = EngineAdaptor(engine)
        for operator, size in (("map", 9), ("nobody", 2), ("map", 0)):
            with pytest.raises(ElastreamError):
                adaptor.set_size(operator, size)
        assert adaptor.current_size("map") == 1


class TestMeasure:
    def test_a_snapshot_is_complete_and_of_what_is_in_force(
        self, engine: Engine, clock: Clock, moment_s: float
    ) -> None:
        clock.wait(moment_s)
        snapshot = engine.measure()
        assert snapshot.missing == ()
        assert snapshot.dataflow == engine.graph()
        assert snapshot.plan == engine.plan()

    def test_what_comes_in_counts_whether_or_not_the_pipeline_keeps_up(self, subject: Subject) -> None:
        subject.clock.wait(2 * subject.moment_s)
        snapshot = subject.engine.measure()
        came = snapshot.source_rates["source"] * max(windows_s(snapshot))
        assert came == pytest.approx(subject.load_per_s * 2 * subject.moment_s, rel=subject.slack)
        assert snapshot.measurements["map"].observed_per_s < subject.load_per_s / 2

    def test_it_tells_of_the_time_since_the_last_call(self, subject: Subject) -> None:
        subject.clock.wait(subject.moment_s)
        called_s = subject.clock.steady()
        subject.engine.measure()
        for waited_s in (2 * subject.moment_s, subject.moment_s):
            before_s = called_s
            subject.clock.wait(waited_s)
            called_s = subject.clock.steady()
            snapshot = subject.engine.measure()
            assert snapshot.at_s == pytest.approx(subject.clock.now(), abs=subject.slack_s)
            assert within(windows_s(snapshot), waited_s, subject.clock.steady() - before_s)

    def test_it_tells_of_the_time_since_the_last_action(self, subject: Subject) -> None:
        subject.clock.wait(2 * subject.moment_s)
        began_s = subject.clock.steady()
        subject.engine.rescale(to(subject.engine, map=4))
        subject.clock.wait(subject.moment_s)
        windows = windows_s(subject.engine.measure())
        assert within(windows, subject.moment_s, subject.clock.steady() - began_s)

    def test_windows_follow_each_other_in_time(self, engine: Engine, clock: Clock, moment_s: float) -> None:
        times = []
        for instances in (2, 3, 3, 1):
            engine.rescale(to(engine, map=instances))
            clock.wait(moment_s / 2)
            times.append(engine.measure().at_s)
        assert times == sorted(set(times))

    def test_what_an_instance_can_do_does_not_depend_on_the_load(
        self, engine: Engine, clock: Clock, moment_s: float
    ) -> None:
        """By its useful time; where a batch has a fixed cost beside that of its records, by that of a record."""

        def can_do() -> float:
            clock.wait(2 * moment_s)
            measured = engine.measure().measurements["map"]
            if measured.batch_cost is not None:
                return 1 / measured.batch_cost.per_record_s
            return measured.true_per_instance or 0.0

        alone = max(can_do() for _ in range(2))  # others may take the cores in one window, and not in the next
        engine.rescale(to(engine, map=8, count=8))
        together = (can_do() for _ in range(_MOST_WINDOWS))
        assert any(found == pytest.approx(alone, rel=0.5) for found in together)


class TestRescale:
    def test_the_plan_is_what_was_asked_for(self, engine: Engine) -> None:
        outcome = engine.rescale(to(engine, map=5))
        assert outcome.succeeded
        assert outcome.plan == engine.plan() == {"map": 5, "count": 1}

    def test_several_operators_change_in_one_action(self, engine: Engine) -> None:
        outcome = engine.rescale(to(engine, map=5, count=3))
        assert outcome.plan == engine.plan() == {"map": 5, "count": 3}

    def test_one_may_grow_while_another_shrinks(self, engine: Engine) -> None:
        engine.rescale(to(engine, map=6, count=2))
        engine.rescale(to(engine, map=2, count=6))
        assert engine.plan() == {"map": 2, "count": 6}

    def test_a_second_time_changes_nothing(self, subject: Subject) -> None:
        decision = to(subject.engine, map=5, count=3)
        subject.engine.rescale(decision)
        began = subject.clock.now()
        again = subject.engine.rescale(decision)
        assert again.succeeded
        assert again.plan == subject.engine.plan() == {"map": 5, "count": 3}
        took_s = subject.clock.now() - began
        assert took_s <= subject.slack_s, "an action that is done already costs no downtime"

    def test_an_action_that_was_left_half_done_is_finished(self, engine: Engine) -> None:
        decision = to(engine, map=5, count=3)
        engine.rescale(to(engine, map=5))  # as far as a manager got that was killed
        assert engine.rescale(decision).plan == engine.plan() == {"map": 5, "count": 3}

    @pytest.mark.parametrize("instances", [1, 2, 8])
    def test_the_next_snapshot_has_as_many_instances_as_the_plan(
        self, engine: Engine, clock: Clock, moment_s: float, instances: int
    ) -> None:
        engine.rescale(to(engine, map=3, count=3))
        engine.rescale(to(engine, map=instances))
        clock.wait(moment_s)
        snapshot = engine.measure()
        assert snapshot.is_complete
        assert snapshot.measurements["map"].instances == instances
        assert snapshot.measurements["count"].instances == 3

    def test_time_does_not_go_back_and_the_outcome_says_how_long_it_took(self, subject: Subject) -> None:
        began = subject.clock.now()
        outcome = subject.engine.rescale(to(subject.engine, map=4))
        took_s = subject.clock.now() - began
        assert 0.0 <= outcome.took_s == pytest.approx(took_s, abs=subject.slack_s)

    def test_what_cannot_be_done_is_refused_and_changes_nothing(
        self, engine: Engine, clock: Clock, moment_s: float
    ) -> None:
        with pytest.raises(ElastreamError, match="map"):
            engine.rescale(to(engine, map=9, count=2))
        assert engine.plan() == START
        clock.wait(moment_s)
        assert engine.measure().plan == START


class TestRecords:
    def test_none_is_lost_or_repeated_by_actions(self, subject: Subject) -> None:
        plans = [(4, 1), (4, 3), (1, 3), (2, 2), (8, 8)]
        for instances, counting in plans:
            subject.clock.wait(subject.moment_s / 2)
            subject.engine.rescale(to(subject.engine, map=instances, count=counting))
        subject.drain()
        assert subject.records_brought() > 0
        assert subject.records_delivered() == pytest.approx(subject.records_brought(), rel=1e-9)

    def test_more_instances_get_more_done(self, subject: Subject) -> None:
        subject.clock.wait(2 * subject.moment_s)
        alone = subject.engine.measure().measurements["count"].observed_per_s
        subject.engine.rescale(to(subject.engine, map=4, count=4))
        together = 0.0
        for _ in range(_MOST_WINDOWS):  # an engine may take a while after an action, and longer when busy
            subject.clock.wait(2 * subject.moment_s)
            together = max(together, subject.engine.measure().measurements["count"].observed_per_s or 0.0)
            if together > 2 * alone:
                break
        assert together > 2 * alone
