"""`elastream forecast`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elastream.cli import app
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, snapshot_line

STEP_S = 60.0
PERIOD = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of a source with a season, and of one whose rate stays."""
    monkeypatch.chdir(tmp_path)
    dataflow = Dataflow.of(
        [Operator(name="orders", source=True), Operator(name="clicks", source=True), Operator(name="join")],
        [("orders", "join"), ("clicks", "join")],
    )
    with RecordingWriter(tmp_path / "recording.jsonl") as writer:
        for row in range(6 * PERIOD):
            rate = 1000 * math.exp(0.6 * math.sin(row / PERIOD * math.tau))
            snapshot = Snapshot(
                dataflow=dataflow,
                plan=Plan({"join": 1}),
                source_rates={"orders": rate, "clicks": 5.0},
                readings=(),
                at_s=row * STEP_S,
            )
            writer.write(snapshot_line(snapshot))
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["forecast", *arguments])


def test_it_says_what_is_coming_and_how_good_that_was(folder: Path) -> None:
    result = run("recording.jsonl")
    assert result.exit_code == 0
    assert "orders: 939/s now" in result.stdout
    assert "seasons: 60 min" in result.stdout
    assert "clicks: 5/s now" in result.stdout


def test_json_has_every_source_and_horizon(folder: Path) -> None:
    found = json.loads(run("recording.jsonl", "--json", "--horizon", "5 min", "--horizon", "12 min").stdout)
    orders, clicks = found["sources"]
    assert [row["horizon_s"] for row in orders["horizons"]] == [300, 720]
    ahead = orders["horizons"][1]
    expected = 1000 * math.exp(0.6 * math.sin((6 * PERIOD - 1 + 12) / PERIOD * math.tau))
    assert ahead["expected_per_s"] == pytest.approx(expected, rel=0.05)
    assert ahead["at_most_per_s"] >= ahead["expected_per_s"]
    assert ahead["error"] < ahead["last_value_error"]
    assert ahead["judged"] == 6 * PERIOD - 12
    assert [row["expected_per_s"] for row in clicks["horizons"]] == [5.0, 5.0]
    assert [row["trusted"] for row in clicks["horizons"]] == [0.0, 0.0]


def test_a_calendar_raises_what_is_expected(folder: Path) -> None:
    events = "events: [{name: import, every: day, at: '06:02', for: 1 h, floor: 9000, source: clicks}]"
    (folder / "calendar.yaml").write_text(events)
    result = run("recording.jsonl", "--calendar", "calendar.yaml", "--horizon", "5 min", "--json")
    orders, clicks = json.loads(result.stdout)["sources"]
    assert (clicks["horizons"][0]["expected_per_s"], clicks["horizons"][0]["events"]) == (9000, ["import"])
    assert orders["horizons"][0]["events"] == []
    shown = run("recording.jsonl", "--calendar", "calendar.yaml", "--horizon", "5 min").stdout
    assert "in 5 min: import (calendar)" in shown


def test_a_trace_can_be_forecast_too(folder: Path) -> None:
    (folder / "load.csv").write_text("time_s,records_per_s\n0,10\n60,10\n")
    assert json.loads(run("load.csv", "--json").stdout)["sources"][0]["records_per_s"] == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "there is no such file"),
        (["recording.jsonl", "--horizon", "soon"], "--horizon: a duration is"),
        (["recording.jsonl", "--horizon", "0"], "--horizon: a duration is"),
        (["recording.jsonl", "--horizon", "0 s"], "--horizon: more than 0 was expected"),
        (["recording.jsonl", "--calendar", "recording.jsonl"], "recording.jsonl: "),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
