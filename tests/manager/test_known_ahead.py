"""A calendar in the loop: what is known ahead is prepared for, and nothing is changed when it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from elastream.cli import app
from elastream.errors import InvalidInput
from elastream.forecast import Forecaster
from elastream.manager.events import Held
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.manager.requests import Scale
from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.manager.store import Store
from elastream.policies.ds2 import DS2
from elastream.policies.knowledge import Knowledge
from tests.manager.manager_story import FakeEngine, ManualClock, Story, plan_of

CALENDAR = """\
events:
  - {name: sale, every: day, at: "00:05", for: 1 h, factor: 3}
excluded:
  - {name: closing of the books, every: day, at: "02:00", for: 10 min}
"""


@pytest.fixture
def calendar(tmp_path: Path) -> str:
    file = tmp_path / "calendar.yaml"
    file.write_text(CALENDAR, encoding="utf-8")
    return str(file)


def test_nothing_is_changed_in_an_excluded_period(calendar: str) -> None:
    story = Story(calendar=calendar)
    story.at_s = 7200.0
    assert story.sees(wants={"map": 12}) is None
    assert story.told(Held)[-1].why == "nothing is changed during closing of the books (calendar)"
    story.at_s = 7800.0
    assert story.sees() is not None


def test_what_harmed_is_not_even_taken_back_then(calendar: str) -> None:
    story = Story(calendar=calendar)
    story.at_s = 7080.0
    assert story.sees(wants={"map": 5}, share=1.0) is not None
    assert story.sees(share=0.2) is None
    assert story.plan["map"] == 5
    story.at_s = 7800.0
    rollback = story.sees(share=0.2)
    assert rollback is not None
    assert rollback.after["map"] == 10


def test_a_person_may_change_something_even_then(calendar: str) -> None:
    story = Story(calendar=calendar)
    story.at_s = 7260.0
    story.sees(wants={"map": 12})
    assert story.asks(Scale(parallelism={"map": 11})) is not None


def test_an_event_is_prepared_for_before_it_begins(calendar: str) -> None:
    """By a policy that only reacts, too: instances are there before the load is."""
    story = Story(DS2(), calendar=calendar)
    sizes = {}
    for _ in range(4):
        story.sees()
        sizes[story.at_s] = story.plan["map"]
    assert sizes[60.0] < 12
    assert sizes[240.0] >= 30


def test_a_calendar_that_contradicts_itself_is_refused_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "calendar.yaml"
    file.write_text(CALENDAR + '  - {name: sale, every: day, at: "05:00", for: 1 h}\n', encoding="utf-8")
    message = f"{file}: line 2: 'sale' contradicts 'sale' of line 5: they have the same name"
    with pytest.raises(InvalidInput, match="have the same name"):
        Story(calendar=str(file))
    for command in ("simulate", "compare"):
        said = CliRunner().invoke(app, [command, "examples/wordcount.yaml", "--set", f"calendar={file}"])
        assert said.exit_code == 2
        assert message.split(": ", 1)[1] in " ".join(said.output.split())


def test_what_a_store_has_goes_before_what_was_recorded(tmp_path: Path) -> None:
    clock = ManualClock()
    recorded = Knowledge(forecasters={"source": Forecaster().observed(0.0, 5.0)})

    def begun() -> Manager:
        return Manager(
            engine=FakeEngine(clock, plan_of(5)),
            policy=DS2(short_costs=10.0),
            knobs=Knobs(),
            clock=clock,
            store=store,
            knowledge=recorded,
        )

    with Store(tmp_path / "manager.sqlite") as store:
        assert begun().state.knowledge is recorded
        store.save(ManagerState())
        assert begun().state.knowledge.forecasters == {}


def test_forecasters_survive_a_restart_and_those_of_another_version_learn_anew() -> None:
    forecaster = Forecaster().warmed((30.0 * number, 100.0 + number % 7) for number in range(100))
    text = state_to_json(ManagerState(knowledge=Knowledge(forecasters={"source": forecaster})))
    again = state_from_json(text, place="store").knowledge.forecasters["source"]
    assert again.forecast(60).median == pytest.approx(forecaster.forecast(60).median)
    older = state_from_json(text.replace('"version": 1', '"version": 0'), place="store")
    assert len(older.knowledge.forecasters["source"].history) == 0
    assert older.phase is ManagerState().phase
