"""The end of a run: what is told of it, and that telling it takes no more memory the longer the run was."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastream.cli import main
from elastream.commands.run_summary import RunSummary
from elastream.manager.events import Accounted, Event, Held, Proposed
from elastream.manager.run import Run
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts, InputAccount, StepAccount
from elastream.policies.proposal import Proposal
from tests.report.runs import acted, decided, judged, window

WINDOW_S = 60.0
PIPELINE = """
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

pipeline = Pipeline("clicks")
pipeline.feed("source", schema=SCHEMA)

@pipeline.operator(reads="source")
def map(records):
    return records
"""


def feed(windows: range, on_snapshot: Callable[[Snapshot], None], on_event: Callable[[Event], None]) -> None:
    """Windows of a run that changes its parallelism with each of them: no run has more to tell."""
    for number in windows:
        at_s = WINDOW_S * (number + 1)
        before, after = 1 + number % 2, 2 - number % 2
        on_snapshot(window(at_s, rate=100, instances=before, waiting=number))
        on_event(Proposed(at_s=at_s, proposal=Proposal(policy="ds2", advice={})))
        on_event(Held(at_s=at_s, why="too soon"))
        on_event(decided(number + 1, at_s, before, after))
        on_event(acted(number + 1, at_s, after))
        on_event(judged(number + 1, at_s))


ACCOUNTS = Accounts(
    steps=(
        StepAccount(operator="source", records_out=20_000),
        StepAccount(
            operator="map",
            inputs=(InputAccount(producer="source", published=20_000, read=18_000, waiting=2_000),),
            records_in=18_000,
            records_out=None,
        ),
    )
)
LATE = replace(ACCOUNTS, steps=(ACCOUNTS.steps[0], replace(ACCOUNTS.steps[1], late=1_300, late_before=66)))
LOST = replace(ACCOUNTS, faults=("map: its batch 7 was to read 10 records of source, and has read 9: 1 was lost",))


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    run = RunSummary()
    feed(range(2_000), run.snapshot, run.event)
    after_a_while = len(pickle.dumps(run))
    feed(range(2_000, 6_000), run.snapshot, run.event)
    assert len(pickle.dumps(run)) < 1.1 * after_a_while
    assert len(run.history.at_s) <= 1_000


def test_nothing_of_a_long_run_is_miscounted() -> None:
    run = RunSummary()
    feed(range(3_000), run.snapshot, run.event)
    assert run.first == window(60)
    assert run.last == window(180_000, instances=2, waiting=2_999)
    assert sum(run.history.span_s) == 180_000, "the points are of all of the run"
    assert run.history.operators["map"].backlog[-1] == 2_999
    assert len(run.events) + run.earlier_events == 3 * 3_000
    assert run.events[-1] == judged(3_000, 180_000)


# The command, with a run that is none: it hands over what one would measure


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command prints at the end of a run with so many windows, and how many of them it has kept."""

    def run_command(
        windows: int, *options: str, accounts: Accounts = ACCOUNTS, status: int = 0
    ) -> tuple[str, int]:
        kept = 0

        def fake_run(run: Run) -> Sequence[str]:
            nonlocal kept
            handed_over: list[weakref.ref[Snapshot]] = []

            def hand_over(snapshot: Snapshot) -> None:
                handed_over.append(weakref.ref(snapshot))
                run.on_snapshot(snapshot)

            feed(range(windows), hand_over, run.on_event)
            run.on_event(Accounted(at_s=0.0, accounts=accounts))
            gc.collect()
            kept = sum(snapshot() is not None for snapshot in handed_over)
            return ()

        file = tmp_path / "clicks.py"
        file.write_text(PIPELINE)
        arguments = ["run", str(file), "--folder", str(tmp_path / "run"), "--no-serve", *options]
        monkeypatch.setattr(Run, "run", fake_run)
        monkeypatch.setattr(sys, "argv", ["elastream", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == status
        return capsys.readouterr().out, kept

    return run_command


def rows(told: str, name: str) -> list[list[str]]:
    """The cells of every row of a table that begins with this name."""
    found = [line for line in told.splitlines() if line.startswith(f"│ {name} ")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in found]


def test_a_run_keeps_no_windows(ended: Any) -> None:
    assert ended(200)[1] == 2, "the first and the last"


def test_the_end_of_a_run_is_told_as_a_table_and_a_picture(ended: Any, tmp_path: Path) -> None:
    printed, _ = ended(3)
    told = printed.split("clicks on Spark")[1]
    assert told.count("rescale map 1 → 2") == 2
    assert told.count("rescale map 2 → 1") == 1
    assert told.count(": effective") == 3
    assert rows(told, "map") == [["map", "1", "1"], ["map", "18,000", "—", "2,000", "yes"]]
    assert rows(told, "source") == [["source", "—", "20,000", "—", "—"]]
    assert (tmp_path / "run" / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_with_many_events_tells_the_newest_and_how_many_there_were(ended: Any) -> None:
    found = json.loads(ended(400, "--json")[0])
    assert found["final_parallelism"] == {"map": 2}
    assert len(found["events"]) == 1_000
    assert found["events"][-1]["number"] == 400
    assert found["earlier_events"] == 200
    assert "200 earlier events are in the recording" in ended(400)[0]


def test_a_run_that_ended_before_it_was_measured_says_so(ended: Any, tmp_path: Path) -> None:
    printed, _ = ended(0)
    assert "It ended before the first measurement." in printed
    assert rows(printed, "map") == [["map", "18,000", "—", "2,000", "yes"]], "where its records went is known"
    assert not (tmp_path / "run" / "run.png").exists()


def test_a_run_that_dropped_late_records_says_so_in_its_last_line(ended: Any) -> None:
    printed, _ = ended(3, accounts=LATE)
    last = printed.splitlines()[-1]
    assert last.startswith("map dropped at least 1,234 records as late (and 66 in earlier runs): raise the delay")
    assert rows(printed, "map")[-1] == ["map", "18,000", "—", "1,300", "2,000", "yes"]


def test_records_that_were_put_aside_are_told_in_the_last_line(ended: Any) -> None:
    (map_,) = (step for step in LATE.steps if step.operator == "map")
    accounts = replace(LATE, steps=(replace(map_, late=None, late_before=0, aside=2),))
    last = ended(3, accounts=accounts)[0].splitlines()[-1]
    assert last.startswith("map could not process 2 records: put aside with the error of each, in the folder")


def test_a_run_whose_records_do_not_add_up_fails(ended: Any) -> None:
    printed, _ = ended(3, accounts=LOST, status=1)
    assert f"it does not add up: {LOST.faults[0]}" in printed


def test_json_has_where_every_record_went(ended: Any) -> None:
    found = json.loads(ended(3, "--json", accounts=LATE)[0])
    assert found["records"]["map"] == {
        "in": 18_000,
        "out": None,
        "late": 1_300,
        "late_in_this_run": 1_234,
        "aside": 0,
        "waiting": 2_000,
        "adds_up": True,
        "inputs": {"source": {"published": 20_000, "read": 18_000, "waiting": 2_000}},
    }
    assert found["differences"] == []
    assert found["warnings"][0].startswith("map dropped at least 1,234 records as late")
    assert json.loads(ended(3, "--json", accounts=LOST, status=1)[0])["differences"] == list(LOST.faults)
