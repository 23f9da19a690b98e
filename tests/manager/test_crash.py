"""Real processes, really killed: in the middle of an action, and while they write.

This file is also the program that those processes run (see the end): a manager with a fake engine that says on
standard output how far it got. The tests read that, and kill. Nobody sleeps.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from manager_story import FakeEngine, ManualClock, Scripted, plan_of

import elastream
from elastream.dataflow import Plan
from elastream.manager.decision import Decision
from elastream.manager.events import Acted, Event
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.manager.phase import ManagerPhase
from elastream.manager.state import ManagerState
from elastream.manager.store import Store

BEFORE, HALF_WAY, AFTER = plan_of(5, 1), plan_of(10, 1), plan_of(10, 2)


class Process:
    """One run of the program below; it is killed at the latest when the test ends."""

    def __init__(self, *args: str) -> None:
        source = str(Path(elastream.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, __file__, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
        )

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> int:
        self._process.kill()
        return self.ends()

    def ends(self) -> int:
        self._process.communicate()
        return self._process.returncode

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a manager that was killed while the engine was carrying out its first action."""
    folder = tmp_path_factory.mktemp("crash")
    with Process("act", str(folder / "manager.db"), "wait") as process:
        assert process.says() == "rescaling, action 1"
        assert process.kill() == -signal.SIGKILL
    return folder


@pytest.fixture
def path(left_behind: Path, tmp_path: Path) -> Path:
    """A copy of it, as each test goes on from there."""
    shutil.copytree(left_behind, tmp_path / "copy")
    return tmp_path / "copy" / "manager.db"


def intent(path: Path) -> Decision | None:
    with Store(path) as store:
        state = store.load()
    assert state is not None
    assert state.phase is ManagerPhase.RESCALING
    return state.under_way


def test_a_killed_manager_leaves_its_intent(path: Path) -> None:
    found = intent(path)
    assert found is not None
    assert (found.number, found.before, found.after) == (1, BEFORE, AFTER)


def test_so_does_one_that_exits_without_a_word(tmp_path: Path) -> None:
    with Process("act", str(tmp_path / "manager.db"), "exit") as process:
        assert process.says() == "rescaling, action 1"
        assert process.ends() == 3
    found = intent(tmp_path / "manager.db")
    assert found is not None
    assert found.after == AFTER


@pytest.mark.parametrize(
    ("found", "asked_again"),
    [
        pytest.param(BEFORE, [1], id="not begun"),
        pytest.param(HALF_WAY, [1], id="half done"),
        pytest.param(AFTER, [], id="done"),
    ],
)
def test_another_process_resumes(path: Path, found: Plan, asked_again: list[int]) -> None:
    with Process("resume", str(path), json.dumps(dict(found))) as process:
        report = json.loads(process.says())
        assert process.ends() == 0
    assert report == {"in force": dict(AFTER), "asked": asked_again, "acted": [[1, dict(AFTER)]]}
    with Store(path) as store:
        state = store.load()
    assert state is not None
    assert (state.under_way, state.decisions) == (None, 1)


def test_a_writer_that_is_killed_leaves_whole_transactions(tmp_path: Path) -> None:
    path = tmp_path / "manager.db"
    with Process("write", str(path)) as process:
        said = [process.says() for _ in range(20)]
        assert process.kill() == -signal.SIGKILL
    with Store(path) as store:
        state = store.load()
    assert state is not None
    assert state.decisions >= int(said[-1])


# The program


def run(command: str, path: str, *args: str) -> None:
    with Store(Path(path)) as store:
        match command, args:
            case "act", (how,):
                act(store, how)
            case "resume", (found,):
                resume(store, Plan(json.loads(found)))
            case "write", ():
                write(store)


def act(store: Store, how: str) -> None:
    """Never returns from its first action."""

    def broken_off(decision: Decision) -> Plan:
        say(f"rescaling, action {decision.number}")
        if how == "exit":
            os._exit(3)
        sys.stdin.readline()  # nobody will write a line
        raise AssertionError("this process should have been killed")

    manager, engine = managed(store, BEFORE)
    engine.gets_to = broken_off
    manager.start()
    manager.tick()


def resume(store: Store, found: Plan) -> None:
    manager, engine = managed(store, found)
    events: list[Event] = []
    manager.on_event = events.append
    manager.start()
    asked = [decision.number for decision in engine.asked]
    acted = [(event.number, dict(event.outcome.plan)) for event in events if isinstance(event, Acted)]
    say(json.dumps({"in force": dict(engine.in_force), "asked": asked, "acted": acted}))


def write(store: Store) -> None:
    for number in count(1):
        store.save(ManagerState(decisions=number))
        say(str(number))


def managed(store: Store, plan: Plan) -> tuple[Manager, FakeEngine]:
    clock = ManualClock()
    engine = FakeEngine(clock, plan)
    policy, knobs = Scripted(wants=AFTER), Knobs(warm_up_intervals=0)
    return Manager(engine=engine, policy=policy, knobs=knobs, clock=clock, store=store), engine


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:])
