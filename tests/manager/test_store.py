"""The manager's file: what is saved is found again, and whatever is wrong with the file is said by its name."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_story import FakeEngine, ManualClock, Scripted, Story, carried_out, plan_of

from elastream.dataflow import Plan
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.events import (
    Accounted,
    Event,
    Held,
    Ignored,
    Refusal,
    Renewed,
    Steered,
    Trouble,
    event_from_json,
    event_to_json,
)
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import Bounds, Controls
from elastream.manager.state import Barred, ManagerState, WantedParallelism, state_from_json, state_to_json
from elastream.manager.store import Store, StoreError
from elastream.measurement.accounts import Accounts, InputAccount, StepAccount
from elastream.measurement.arrivals import Arrivals
from elastream.measurement.evidence import Evidence, Span, Trail
from elastream.policies.ds2 import DS2
from elastream.policies.knowledge import CapacityPoint, Correction, Knowledge
from elastream.policies.proposal import Advice, Reason, ReasonKind
from elastream.policies.rules.evaluation import Evaluator, RulesMemory, TriggerHistory, TriggerSample
from elastream.policies.rules.metrics import Unit
from elastream.policies.rules.rule import Comparison, OverInstances, RuleTrigger
from elastream.policies.sizes import Sizes

# What a state and its events may hold

names = st.sampled_from(["map", "count", "größe/2", ""])
times = st.floats(0, 1e12)
shares = st.none() | st.floats(0, 1)
rates = st.dictionaries(names, st.floats(0, allow_nan=False))
plans = st.dictionaries(names, st.integers(1, 10_000)).map(Plan)
reasons = st.lists(st.builds(Reason, kind=st.sampled_from(ReasonKind), text=st.text()), max_size=2).map(tuple)
advice = st.builds(
    Advice, operator=names, current=st.integers(1, 99), parallelism=st.none() | st.integers(1, 99), reasons=reasons
)
decisions = st.builds(
    Decision,
    number=st.integers(1),
    at_s=times,
    kind=st.sampled_from(DecisionKind),
    before=plans,
    after=plans,
    source_rates=rates,
    reasons=reasons,
    advice=st.lists(advice, max_size=2).map(tuple),
    share_before=shares,
    expected_share=shares,
)
wanted = st.lists(
    st.builds(WantedParallelism, at_s=times, parallelism=st.dictionaries(names, st.integers())), max_size=3
).map(tuple)
point = st.builds(CapacityPoint, parallelism=st.integers(1), true_per_s=st.floats(0), windows=st.integers(1))
points = st.dictionaries(names, st.lists(point, max_size=2).map(tuple))
sizes = st.dictionaries(
    names,
    st.builds(
        Sizes,
        original=st.integers(1, 99),
        current=st.integers(1, 99),
        scaled_out_s=st.none() | times,
        scaled_in_s=st.none() | times,
    ),
)
samples = st.builds(
    TriggerSample, at_s=times, values=st.dictionaries(st.integers(0, 9), times, min_size=1, max_size=2)
)
triggers = st.builds(
    RuleTrigger,
    metric=st.just("latency"),
    comparison=st.sampled_from(Comparison),
    value=times,
    unit=st.just(Unit.SECONDS),
    for_at_least_s=st.floats(1, 1_000),
    instances=st.sampled_from(OverInstances),
)
histories = st.builds(TriggerHistory, trigger=triggers, samples=st.lists(samples, max_size=2).map(tuple))
evaluators = st.builds(
    Evaluator,
    histories=st.lists(histories, max_size=2).map(tuple),
    seen_s=st.none() | times,
    holds_since_s=st.none() | times,
)
outputs = st.dictionaries(names, times, max_size=2)
maybe = st.none() | times
spans = st.builds(
    Span,
    window_s=times,
    useful_s=times,
    records_in=times,
    records_out=outputs,
    waiting=maybe,
    busy=times,
    hottest=maybe,
)
trails = st.builds(Trail, spans=st.lists(spans, max_size=3).map(tuple))
arrivals = st.builds(Arrivals, rates=st.lists(times, max_size=3).map(tuple))
evidence = st.builds(
    Evidence,
    trails=st.dictionaries(names, trails, max_size=2),
    arrivals=st.dictionaries(names, arrivals, max_size=2),
)
corrections = st.dictionaries(
    names, st.builds(Correction, ratio=st.floats(1, 2), windows=st.integers(0)), max_size=2
)
memories = st.builds(
    RulesMemory,
    evaluators=st.dictionaries(names, st.dictionaries(names, evaluators, max_size=2), max_size=2),
)
bounds = st.builds(Bounds, least=st.none() | st.integers(1), most=st.none() | st.integers(1))
controls = st.builds(
    Controls,
    paused=st.booleans(),
    dry_run=st.none() | st.booleans(),
    bounds=st.dictionaries(names, bounds, max_size=2),
)
states = st.builds(
    ManagerState,
    phase=st.sampled_from(ManagerPhase),
    warm_up_left=st.integers(0),
    last_at_s=st.none() | times,
    knowledge=st.builds(
        Knowledge,
        points=points,
        evidence=evidence,
        corrections=corrections,
        action_s=times,
        watched_s=times,
        sizes=sizes,
        rules=memories,
    ),
    recent=wanted,
    seen=wanted,
    decisions=st.integers(0),
    under_way=st.none() | decisions,
    to_judge=st.none() | decisions,
    useless=st.integers(0),
    failures=st.integers(0),
    short=st.integers(0),
    waiting=st.none() | st.dictionaries(names, st.floats(0)),
    barred=st.lists(st.builds(Barred, plan=plans, source_rates=rates), max_size=2).map(tuple),
    settled_load=rates,
    last_dry_run=st.none() | plans,
    last_load=rates,
    last_share=shares,
    last_done=st.none() | decisions,
    controls=controls,
)


def one_event_of_each_kind() -> tuple[Event, ...]:
    """As a real story tells them, for what it can tell."""
    story = Story(DS2(), plan=plan_of(5))
    story.sees()
    story.sees()
    by_kind: dict[type, Event] = {type(event): event for event in story.events}
    others: list[Event] = [
        Ignored(at_s=60.0, why="warming up, 1 more"),
        Held(at_s=60.0, why="too small"),
        Renewed(at_s=60.0, what="rules: 1 new"),
        Trouble(at_s=60.0, what="no answer"),
        Steered(
            at_s=60.0,
            what="refused: no such operator",
            controls=Controls(paused=True, dry_run=False, bounds={"map": Bounds(most=3)}),
            refusal=Refusal(why="no such operator", field="operator"),
        ),
        Accounted(
            at_s=60.0,
            accounts=Accounts(
                steps=(
                    StepAccount(operator="source", records_out=10),
                    StepAccount(
                        operator="map",
                        inputs=(InputAccount(producer="source", published=10, read=7, waiting=3),),
                        records_in=7,
                        records_out=7,
                        late=2,
                        late_before=1,
                    ),
                ),
                faults=("map: its batch 3 was to read 5 records of source, and has read 4: 1 was lost",),
            ),
        ),
    ]
    return tuple(({type(event): event for event in others} | by_kind).values())


class TestRoundTrip:
    @given(state=states)
    @settings(max_examples=150, deadline=None)
    def test_any_state_is_read_as_it_was_written(self, state: ManagerState) -> None:
        assert state_from_json(state_to_json(state), place="memory") == state

    def test_every_kind_of_event_is_read_as_it_was_written(self) -> None:
        events = one_event_of_each_kind()
        assert {type(event) for event in events} == set(get_args(Event))
        for event in events:
            found = event_from_json(event_to_json(event))
            assert (type(found), found) == (type(event), event)

    def test_kinds_with_the_same_fields_are_told_apart(self) -> None:
        ignored, held = Ignored(at_s=1.0, why="a"), Held(at_s=1.0, why="a")
        assert isinstance(event_from_json(event_to_json(ignored)), Ignored)
        assert isinstance(event_from_json(event_to_json(held)), Held)

    def test_a_new_file_has_no_state(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            assert store.load() is None

    @given(state=states)
    @settings(max_examples=10, deadline=None)
    def test_it_survives_being_closed_and_opened(
        self, tmp_path_factory: pytest.TempPathFactory, state: ManagerState
    ) -> None:
        path = tmp_path_factory.mktemp("store") / "manager.db"
        with Store(path) as store:
            store.save(ManagerState())
            store.save(state)
        with Store(path) as store:
            assert store.load() == state

    def test_the_events_that_older_versions_kept_there_go(self, tmp_path: Path) -> None:
        path = tmp_path / "manager.db"
        with Store(path) as store:
            store.save(ManagerState(decisions=3))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, json TEXT NOT NULL)")
            db.execute("INSERT INTO events (json) VALUES ('{}')")
        with Store(path) as store:
            assert store.load() == ManagerState(decisions=3)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT name FROM sqlite_master WHERE name = 'events'").fetchall() == []

    def test_a_saved_state_is_seen_by_who_reads_at_the_same_time(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as writer, Store(tmp_path / "manager.db") as reader:
            writer.save(ManagerState(decisions=7))
            assert reader.load() == ManagerState(decisions=7)


def filled(path: Path) -> Path:
    """A closed store with a few pages in it."""
    with Store(path) as store:
        wanted = tuple(WantedParallelism(at_s=float(n), parallelism={"map": n, "sink": n}) for n in range(500))
        store.save(ManagerState(decisions=1, recent=wanted))
    return path


@contextmanager
def only_readable(path: Path) -> Iterator[None]:
    """Nobody may write to the file or next to it; root, who may do that anyway, becomes somebody else."""
    is_root = os.geteuid() == 0
    path.chmod(0o444)
    path.parent.chmod(0o555)
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.parent.chmod(0o755)


class TestBadFile:
    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=str(tmp_path)):
            Store(tmp_path)

    def test_a_place_where_no_file_can_be(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere" / "manager.db"
        with pytest.raises(StoreError, match=f"{path}: cannot be used as the manager's store"):
            Store(path)

    def test_not_a_database(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("dear diary, " * 1_000)
        with pytest.raises(StoreError, match=f"{path}: .*not a database"):
            Store(path)
        assert path.read_text() == "dear diary, " * 1_000

    def test_a_file_that_may_only_be_read(self) -> None:
        with TemporaryDirectory() as folder:  # unlike tmp_path, it is not inside a folder that only root may enter
            path = filled(Path(folder) / "manager.db")
            before = path.read_bytes()
            with only_readable(path), pytest.raises(StoreError, match=str(path)), Store(path) as store:
                store.save(ManagerState(decisions=2))
            assert path.read_bytes() == before

    def test_damaged_pages(self, tmp_path: Path) -> None:
        path = filled(tmp_path / "manager.db")
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
        with pytest.raises(StoreError, match=f"{path}: the manager's state cannot be read"), Store(path) as store:
            store.load()

    def test_a_file_that_was_cut_short(self, tmp_path: Path) -> None:
        path = filled(tmp_path / "manager.db")
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(StoreError, match=str(path)), Store(path) as store:
            store.load()

    @pytest.mark.parametrize("text", ["", "{", '{"phase": "dancing"}', '{"decisions": null}', "[1, 2]"])
    def test_a_state_that_is_none(self, tmp_path: Path, text: str) -> None:
        path = filled(tmp_path / "manager.db")
        with sqlite3.connect(path) as db:
            db.execute("UPDATE state SET json = ?", (text,))
        db.close()
        with pytest.raises(StoreError, match=f"{path}: not a state of the manager"), Store(path) as store:
            store.load()

    def test_a_database_of_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE state (country TEXT)")
        db.close()
        with pytest.raises(StoreError, match=f"{path}: .*no such column"), Store(path) as store:
            store.load()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow, or be written to at all: as on a full disk, every write fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFullDisk:
    def test_a_save_fails_as_a_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "manager.db"
        with Store(path) as store:
            store.save(ManagerState(decisions=1))
            with full_disk(), pytest.raises(StoreError, match=f"{path}: the manager's state cannot be written"):
                store.save(ManagerState(decisions=2))
            assert store.load() == ManagerState(decisions=1)
            store.save(ManagerState(decisions=3))
            assert store.load() == ManagerState(decisions=3)

    def test_the_loop_does_not_act_but_goes_on_measuring(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            run = Loop(store)
            run.manager.start()
            with full_disk():
                run.ticks(3)
            assert run.engine.asked == []
            assert run.measured == 3
            (trouble,) = run.troubles
            assert "the manager's state cannot be written" in trouble
            assert trouble.endswith("nothing is changed until it can be written again")

            run.ticks(1)
            assert run.troubles[1:] == [f"{store.path}: the manager's state is written again"]
            assert run.engine.in_force == plan_of(10)
            assert store.load() == run.manager.state

    def test_an_undoing_waits_for_the_disk_as_well(self, tmp_path: Path) -> None:
        with Store(tmp_path / "manager.db") as store:
            run = Loop(store)
            run.manager.start()
            with ExitStack() as during_the_action:

                def half_done(decision: Decision) -> Plan:
                    during_the_action.enter_context(full_disk())
                    return plan_of(7)

                run.engine.gets_to = half_done
                run.ticks(3)
            assert [decision.number for decision in run.engine.asked] == [1]
            assert run.engine.in_force == plan_of(7)
            assert run.measured == 3

            run.engine.gets_to = carried_out
            run.ticks(1)
            assert run.engine.in_force == plan_of(10)
            assert run.manager.state.under_way is None
            assert store.load() == run.manager.state


class Loop:
    """A manager with a store, and an engine that it wants to bring from 5 to 10."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.engine = FakeEngine(self.clock, plan_of(5))
        self.measured = 0
        self.troubles: list[str] = []
        self.manager = Manager(
            engine=self.engine,
            policy=Scripted(wants={"map": 10}),
            knobs=Knobs(warm_up_intervals=0),
            clock=self.clock,
            store=store,
            on_snapshot=lambda snapshot: setattr(self, "measured", self.measured + 1),
            on_event=lambda event: self.troubles.append(event.what) if isinstance(event, Trouble) else None,
        )

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.clock.wait(60.0)
            self.manager.tick()
