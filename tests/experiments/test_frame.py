"""The frame of the experiments: what holds, what is written, and the exit status of the command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elastream.errors import InvalidInput
from experiments import frame
from experiments.__main__ import app
from experiments.frame import Check, Experiment, Progress, Report

HOLDS = Check(what="actions", ours="1", paper="1", bound="at most 2")
FAILS = Check(what="ends at", ours="11/20", paper="10/20", bound="10/20", holds=False)
SHOWN = Check(what="took", ours="60 s")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two more experiments for the length of a test: one that holds and one that does not."""
    monkeypatch.setattr(frame, "_EXPERIMENTS", dict(frame.experiments()))
    frame.experiments.cache_clear()

    @frame.experiment("fake-holds", paper="Nobody 2026, §1", question="Does it hold?")
    def holds(tell: Progress) -> Report:
        tell("halfway", 0.5)
        return Report(
            checks=(HOLDS, SHOWN), data={"curve": [1, 2.5]}, plot=lambda path: path.write_bytes(b"png") and None
        )

    @frame.experiment("fake-fails", paper="Nobody 2026, §2", question="Does it hold?")
    def fails(tell: Progress) -> Report:
        return Report(checks=(HOLDS, FAILS), differs=("we have one more",))

    yield
    frame.experiments.cache_clear()


# Reports


@pytest.mark.parametrize(
    ("checks", "holds"),
    [((), True), ((SHOWN,), True), ((HOLDS, SHOWN), True), ((HOLDS, FAILS), False), ((FAILS,), False)],
)
def test_a_report_holds_if_every_bound_does(checks: tuple[Check, ...], holds: bool) -> None:
    assert Report(checks=checks).holds is holds


def test_a_report_as_json_has_everything_but_the_plot() -> None:
    report = Report(checks=(FAILS,), differs=("why",), data={"x": 1}, plot=lambda _: None)

    assert frame.report_as_json("name", report) == {
        "experiment": "name",
        "holds": False,
        "checks": [{"what": "ends at", "ours": "11/20", "paper": "10/20", "bound": "10/20", "holds": False}],
        "differs": ["why"],
        "data": {"x": 1},
    }


def test_a_report_is_written_as_json_and_as_a_plot(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    report = Report(checks=(HOLDS,), data={"x": [1, "ä"]}, plot=lambda path: path.write_bytes(b"png") and None)

    written = frame.write("name", report, folder)

    assert written == (folder / "name.json", folder / "name.png")
    assert json.loads(written[0].read_text()) == frame.report_as_json("name", report)
    assert written[1].read_bytes() == b"png"


def test_without_a_plot_only_json_is_written(tmp_path: Path) -> None:
    assert frame.write("name", Report(checks=()), tmp_path) == (tmp_path / "name.json",)
    assert [path.name for path in tmp_path.iterdir()] == ["name.json"]


# The list


@pytest.mark.usefixtures("fake")
def test_experiments_are_found_by_name_and_listed_in_order() -> None:
    assert list(frame.experiments()) == sorted(frame.experiments())
    assert {"fake-fails", "fake-holds"} <= set(frame.experiments())
    assert frame.find("fake-holds").paper == "Nobody 2026, §1"


@pytest.mark.usefixtures("fake")
def test_an_unknown_experiment_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"unknown experiment 'fake-hold' \(did you mean 'fake-holds'\?\)"):
        frame.find("fake-hold")


def test_a_fake_experiment_does_not_outlive_its_test() -> None:
    assert "fake-holds" not in frame.experiments()


def test_every_experiment_says_what_it_repeats_and_asks() -> None:
    for experiment in frame.experiments().values():
        assert isinstance(experiment, Experiment)
        assert experiment.paper
        assert experiment.question.endswith("?")


# The command


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stdout


def run_json(*arguments: str | Path) -> tuple[int, list[Mapping[str, Any]]]:
    status, text = run(*arguments, "--json")
    found: list[Mapping[str, Any]] = json.loads(text)
    return status, found


@pytest.mark.usefixtures("fake")
def test_the_status_is_zero_if_every_bound_holds(tmp_path: Path) -> None:
    status, text = run("run", "fake-holds", "--out", tmp_path)

    assert status == 0
    assert "holds" in text
    assert (tmp_path / "fake-holds.png").exists()


@pytest.mark.usefixtures("fake")
def test_the_status_is_one_if_a_bound_fails_and_the_report_is_written_all_the_same(tmp_path: Path) -> None:
    status, text = run("run", "fake-fails", "--out", tmp_path)

    assert status == 1
    assert "FAILS" in text
    assert "• we have one more" in text
    assert json.loads((tmp_path / "fake-fails.json").read_text())["holds"] is False


@pytest.mark.usefixtures("fake")
def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    status, reports = run_json("run", "fake-fails", "fake-holds", "--out", tmp_path)

    assert status == 1
    assert [(report["experiment"], report["holds"]) for report in reports] == [
        ("fake-fails", False),
        ("fake-holds", True),
    ]


@pytest.mark.usefixtures("fake")
def test_the_list_as_json() -> None:
    status, listed = run_json("list")

    assert status == 0
    fails = {"name": "fake-fails", "paper": "Nobody 2026, §2", "question": "Does it hold?", "minutes": 0}
    assert fails in listed


@pytest.mark.usefixtures("fake")
def test_one_that_takes_long_says_so_and_is_run_by_its_name_only() -> None:
    frame.experiment("fake-long", paper="Nobody 2026, §3", question="Still?", minutes=40)(
        lambda _: Report(checks=())
    )
    frame.experiments.cache_clear()
    assert "fake-long" not in frame.short_ones()
    assert "fake-holds" in frame.short_ones()
    assert frame.find("fake-long").minutes == 40
    assert "40 minutes)" in CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).stdout


def test_the_list_names_every_experiment() -> None:
    status, listed = run_json("list")
    assert status == 0
    text = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).stdout
    assert all(entry["name"] in text for entry in listed)


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.removeprefix("error: ")


def test_an_experiment_that_nobody_knows_is_answered_with_the_known_ones() -> None:
    assert refused("run", "ds2-nowhere").startswith("unknown experiment 'ds2-nowhere' (")
    assert refused("run").startswith("name an experiment, or --all (known: ")


@pytest.mark.parametrize(
    ("command", "options"), [("list", ["--json"]), ("run", ["NAMES", "--all", "--out", "--json"])]
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_mentions_every_argument_and_option(command: str, options: list[str], flag: str) -> None:
    status, text = run(command, flag)
    assert status == 0
    assert all(option.lower() in text.lower() for option in options)
