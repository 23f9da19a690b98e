"""The command as a user meets it: what it prints where, and with which exit status it ends."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elastream import __version__
from elastream.cli import app, main
from elastream.manager.store import Store
from elastream.measurement.recording import read_recording
from elastream.policies.catalog import catalog
from tests.word_count import WORD_COUNT

EXAMPLE = Path(__file__).parents[2] / "examples" / "wordcount.yaml"

SCENARIO = """\
name: steady
duration: 5 min
operators:
  source: {source: true, load: 500}
  map: {reads: source, capacity: 100}
manager: {interval: 30 s}
policies: {ds2: {catch_up: 5 min}}
"""


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON by the letter: no NaN and no Infinity, and nothing else beside it."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command, as its entry point does, in an empty folder and with 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["elastream", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, captured.out, captured.err)

    return run_command


def refused(result: Result) -> str:
    """The message, after making sure that it is all there is: one line, on standard error, and status 2."""
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    return result.err.removeprefix("error: ").rstrip("\n")


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(WORD_COUNT), **changes}


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return write(tmp_path / "snapshot.json", WORD_COUNT)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    return write(tmp_path / "steady.yaml", SCENARIO)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `simulate --record` writes for the scenario above."""
    folder = tmp_path_factory.mktemp("recorded")
    arguments = [
        "simulate",
        write(folder / "steady.yaml", SCENARIO),
        "--out",
        folder,
        "--record",
        folder / "r.jsonl",
    ]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    return (folder / "r.jsonl").read_text()


@pytest.fixture
def recording(recorded: str, tmp_path: Path) -> Path:
    return write(tmp_path / "run.jsonl", recorded)


# evaluate


def test_evaluate_answers_the_word_count_of_the_paper(run: Run, snapshot: Path) -> None:
    result = run("evaluate", snapshot, "--policy", "ds2", "--json")

    assert (result.status, result.err) == (0, "")
    assert result.json["policy"] == "ds2"
    assert result.json["parallelism"] == {"flatmap": 10, "count": 20}
    flatmap = result.json["operators"]["flatmap"]
    assert flatmap["target_per_s"] == pytest.approx(16666.67)
    assert flatmap["true_per_instance_per_s"] == pytest.approx(1666.67, abs=0.01)
    assert flatmap["need"] == pytest.approx(10, abs=0.001)
    assert [reason["kind"] for reason in flatmap["reasons"]] == ["measured", "formula"]
    assert (result.json["complete"], result.json["missing"]) == (True, [])


def test_evaluate_prints_a_table(run: Run, snapshot: Path) -> None:
    result = run("evaluate", snapshot)

    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.out.splitlines() if "│" in line]
    assert result.status == 0
    assert [(row[0], row[1], row[3]) for row in rows] == [("flatmap", "1", "10"), ("count", "1", "20")]


def test_evaluate_tells_every_reason_when_asked(run: Run, snapshot: Path) -> None:
    formula = "must process 16,667/s, an instance can do 1,667/s: 10.00 instances"
    assert formula in run("evaluate", snapshot, "--why").out
    assert formula not in run("evaluate", snapshot).out


@pytest.mark.parametrize("policy", list(catalog()))
def test_every_policy_evaluates_to_json(run: Run, snapshot: Path, policy: str) -> None:
    result = run("evaluate", snapshot, "--policy", policy, "--json")
    assert result.status == 0
    assert set(result.json["operators"]) == {"flatmap", "count"}


def test_an_operator_without_readings_says_so_and_does_not_silence_the_others(run: Run, tmp_path: Path) -> None:
    readings = WORD_COUNT["readings"]
    path = write(tmp_path / "silent.json", changed(readings=readings[:1]))

    result = run("evaluate", path, "--json")

    assert result.status == 0
    assert result.json["parallelism"] == {"flatmap": 10}
    assert result.json["operators"]["count"]["parallelism"] is None
    assert [reason["text"] for reason in result.json["operators"]["count"]["reasons"]] == [
        "no readings in this window"
    ]
    assert result.json["missing"] == ["count: readings of 0 of 1 instances"]
    assert "• count: no readings in this window" in run("evaluate", path).out


def test_a_policy_that_lacks_a_measurement_says_which(run: Run, snapshot: Path) -> None:
    assert "wait_out_s" in run("evaluate", snapshot, "--policy", "dhalion").out


def test_amounts_at_the_edge_of_what_is_possible_are_still_json(run: Run, tmp_path: Path) -> None:
    readings = copy.deepcopy(WORD_COUNT["readings"])
    readings[0].update(useful_s=1e-9, records_in=1e-300, records_out=1e18)
    path = write(tmp_path / "edge.json", changed(readings=readings, source_rates={"source": 1e18}))

    for policy in catalog():
        assert run("evaluate", path, "--policy", policy, "--json").json["policy"] == policy


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    text = json.dumps(WORD_COUNT).replace("flatmap", "[/red]:key:")
    result = run("evaluate", write(tmp_path / "[markup].json", text))
    assert result.status == 0
    assert "│ [/red]:key: │" in result.out


# Bad input

READING = WORD_COUNT["readings"][0]
OPERATORS = WORD_COUNT["operators"]


def reading(**changes: Any) -> dict[str, Any]:
    return changed(readings=[{**READING, **changes}])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            changed(edges=[*WORD_COUNT["edges"], ["count", "flatmap"]]),
            "the edges form a cycle: flatmap → count → flatmap",
            id="a cycle",
        ),
        pytest.param(
            changed(edges=[["source", "flatmap"], ["flatmap", "cuont"]]),
            "'cuont'",
            id="an unknown operator in an edge",
        ),
        pytest.param(
            reading(operator="flatmpa"),
            "readings[0]: unknown operator 'flatmpa' (did you mean 'flatmap'?)",
            id="an unknown operator in a reading",
        ),
        pytest.param(
            changed(operators=[*OPERATORS, {"name": "count"}]),
            "two operators have the name 'count'",
            id="a name twice",
        ),
        pytest.param(
            changed(edges=[["source", "flatmap"], ["flatmap", "source"]]), "'source'", id="input of a source"
        ),
        pytest.param(
            reading(records_in=-1),
            "readings[0]: reading of 'flatmap' instance 0: records_in must be a number of at least 0, found -1",
            id="a negative count",
        ),
        pytest.param(
            reading(records_out={"count": float("nan")}),
            "readings[0]: reading of 'flatmap' instance 0: records_out to 'count' must be a number of at least 0, "
            "found nan",
            id="NaN",
        ),
        pytest.param(
            reading(useful_s=61),
            "readings[0]: reading of 'flatmap' instance 0: useful_s (61) is above window_s (60)",
            id="more useful time than time",
        ),
        pytest.param(
            changed(source_rates={}), "source_rates: no rate for the source 'source'", id="a missing source rate"
        ),
        pytest.param(
            reading(record_in=3),
            "readings[0]: unknown key 'record_in' (did you mean 'records_in'?)",
            id="an unknown key",
        ),
        pytest.param(
            changed(readings=[READING, READING]),
            "readings[1]: a second reading of 'flatmap' instance 0 in one window",
            id="a reading twice",
        ),
        pytest.param(changed(operators="all"), "operators: ", id="another type"),
        pytest.param([], "a snapshot is a JSON object, found list", id="no object"),
        pytest.param('{"operators": [', "not valid JSON: Expecting value (line 1, column 16)", id="cut off"),
        pytest.param("", "not valid JSON", id="nothing"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_bad_snapshot_is_refused_with_its_file_and_place(
    run: Run, tmp_path: Path, data: Any, message: str, flags: Sequence[str]
) -> None:
    path = write(tmp_path / "bad.json", data)

    said = refused(run("evaluate", path, *flags))

    assert said.startswith(f"{path}: ")
    assert message in said


@pytest.mark.parametrize("command", ["plan", "replay"])
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param([], "the recording is empty: no line has a snapshot", id="empty"),
        pytest.param(['{"event":"held"}', ""], "the recording is empty: no line has a snapshot", id="no snapshot"),
        pytest.param([{"at_s": 60}, '{"operators": [{"na'], "line 2: the last line is cut off", id="cut off"),
        pytest.param([{"at_s": 60}, "?", {"at_s": 90}, ""], "line 2: not valid JSON", id="garbage"),
    ],
)
def test_a_bad_recording_is_refused_with_its_file_and_line(
    run: Run, tmp_path: Path, command: str, lines: Sequence[str | Mapping[str, Any]], message: str
) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(changed(**line)) for line in lines)
    path = write(tmp_path / "bad.jsonl", text)

    said = refused(run(command, path))

    assert said.startswith(f"{path}: ")
    assert message in said


@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("duration", "duratoin", "unknown key 'duratoin' (did you mean 'duration'?)"),
        ("capacity: 100", "capacity: -100", "operators.map: "),
        ("reads: source", "reads: sauce", "'sauce'"),
        ("source: true, load: 500", "source: true", "operators.source: load: is missing"),
        ("interval: 30 s", "intervall: 30 s", "manager: unknown option 'intervall' (did you mean 'interval_s'?)"),
        ("interval: 30 s", "interval: 30 parsecs", "manager: interval: a duration is a number of seconds"),
        ("catch_up: 5 min", "catchup: 5 min", "policy ds2: unknown option 'catchup' (did you mean 'catch_up_s'?)"),
        ("ds2:", "dhalio:", "unknown policy 'dhalio' (did you mean 'dhalion'?)"),
        ("name: steady", "name: [", "not valid YAML: "),
    ],
)
def test_a_bad_scenario_is_refused_with_its_file_and_place(
    run: Run, tmp_path: Path, command: str, old: str, new: str, message: str
) -> None:
    path = write(tmp_path / "bad.yaml", SCENARIO.replace(old, new, 1))

    said = refused(run(command, path))

    assert said.startswith(f"{path}: ")
    assert message in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["evaluate", "simulate", "compare", "plan", "replay"])
def test_a_file_that_cannot_be_read_is_named(run: Run, tmp_path: Path, command: str) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")

    assert refused(run(command, "no-such-file")) == "no-such-file: there is no such file"
    read_by = {"plan": "the folder of a run was expected", "replay": "the folder of a run was expected"}
    assert f"{tmp_path}: {read_by.get(command, 'cannot be read: Is a directory')}" in refused(
        run(command, tmp_path)
    )
    assert refused(run(command, binary)) == f"{binary}: not a UTF-8 text file (byte 0)"


def test_a_file_name_that_looks_like_markup_is_named_as_it_is(run: Run) -> None:
    assert refused(run("evaluate", "[/red].json")) == "[/red].json: there is no such file"


# Names and settings


@pytest.mark.parametrize("command", ["evaluate", "simulate", "plan", "replay"])
def test_an_unknown_policy_is_answered_with_the_nearest(
    run: Run, snapshot: Path, scenario: Path, recording: Path, command: str
) -> None:
    file = {"evaluate": snapshot, "simulate": scenario}.get(command, recording)
    assert refused(run(command, file, "--policy", "ds3")) == "unknown policy 'ds3' (did you mean 'ds2'?)"


def test_an_unknown_policy_among_others_is_found_before_anything_runs(run: Run, scenario: Path) -> None:
    assert "'treshold' (did you mean 'threshold'?)" in refused(
        run("compare", scenario, "--policies", "ds2,treshold")
    )
    assert "'dhalin' (did you mean 'dhalion'?)" in refused(run("policies", "dhalin"))
    assert refused(run("compare", scenario, "--policies", " , ")) == "--policies: name at least one policy"


def test_an_unknown_option_of_the_command_is_answered_with_the_nearest(run: Run, snapshot: Path) -> None:
    result = run("evaluate", snapshot, "--polcy", "ds2")
    assert (result.status, result.out) == (2, "")
    assert "--policy" in result.err


def test_a_setting_of_the_policy(run: Run, snapshot: Path) -> None:
    result = run("evaluate", snapshot, "--set", "target_utilization=0.8", "--json")
    assert result.json["parallelism"] == {"flatmap": 13, "count": 25}


@pytest.mark.parametrize("written", ["interval=1min", "interval=60 s", "interval_s=60", " interval = 1 min "])
def test_a_knob_of_the_manager_in_any_spelling_overrides_the_scenario(
    run: Run, scenario: Path, written: str
) -> None:
    result = run("simulate", scenario, "--set", written, "--set", "warm-up-intervals=0", "--json")
    first = next(event for event in result.json["events"] if event["event"] == "decided")
    assert first["at_s"] == 60


@pytest.mark.parametrize("written", ["catch_up=90 s", "catch_up_s=90"])
def test_an_option_in_any_spelling_overrides_the_scenario(run: Run, scenario: Path, written: str) -> None:
    def reasons(result: Result) -> list[str]:
        decided = [event["decision"] for event in result.json["events"] if event["event"] == "decided"]
        return [reason["text"] for reason in decided[0]["reasons"]]

    assert reasons(run("simulate", scenario, "--json"))[0].endswith("is to be gone in 5 min")
    assert reasons(run("simulate", scenario, "--json", "--set", written))[0].endswith("is to be gone in 90 s")


def test_a_scenario_overrides_the_knobs_of_a_policys_authors_in_any_spelling(run: Run, scenario: Path) -> None:
    """Dhalion's authors say `interval_s`, the scenario says `interval`."""
    result = run("simulate", scenario, "--policy", "dhalion", "--json")
    assert result.status == 0
    assert {event["at_s"] for event in result.json["events"]} & {30, 90, 150}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "target_utilisation=0.8",
            "--set target_utilisation: no option of ds2 and no knob (did you mean 'target_util",
        ),
        ("intervl=3", "--set intervl: no option of ds2 and no knob (did you mean 'interval_s'?)"),
        ("interval", "--set takes NAME=VALUE, found 'interval'"),
        ("=3", "--set takes NAME=VALUE, found '=3'"),
        (" =3", "--set takes NAME=VALUE, found ' =3'"),
        ("interval=", "manager: interval: "),
        ("interval=soon", "manager: interval: a duration is a number of seconds or text like"),
        ("interval=0", "manager: interval_s must be at least 0.001, found 0"),
        ("activation_by=mean", "manager: activation_by: Input should be 'median' or 'max', found 'mean'"),
        ("target_utilization=1.5", "policy ds2: target_utilization must be from 0.01 to 1, found 1.5"),
        ("target_utilization=nan", "policy ds2: target_utilization must be a number, found NaN"),
    ],
)
def test_a_bad_setting_is_refused_by_name(run: Run, scenario: Path, setting: str, message: str) -> None:
    assert message in refused(run("simulate", scenario, "--set", setting))
    assert not Path("out").exists()


def test_evaluate_and_plan_know_no_knobs(run: Run, snapshot: Path, recording: Path) -> None:
    assert "unknown option 'interval'" in refused(run("evaluate", snapshot, "--set", "interval=1min"))
    assert "unknown option 'interval'" in refused(run("plan", recording, "--set", "interval=1min"))


# simulate, and what can be done with its recording


def test_simulate_shows_decisions_measures_and_a_plot(run: Run, scenario: Path) -> None:
    result = run("simulate", scenario)

    assert (result.status, result.err) == (0, "")
    assert "rescale map 1 → 6" in result.out
    assert "elasticity" in result.out
    assert result.out.endswith("plot: out/steady-ds2.png\n")
    assert Path("out/steady-ds2.png").read_bytes().startswith(b"\x89PNG")


def test_simulate_as_json(run: Run, scenario: Path) -> None:
    result = run("simulate", scenario, "--json", "--policy", "threshold", "--out", "elsewhere")

    assert (result.status, result.err) == (0, "")
    assert (result.json["scenario"], result.json["policy"]) == ("steady", "threshold")
    assert result.json["duration_s"] == 300
    assert result.json["actions"] == result.json["elasticity"]["reconfigurations"] > 0
    assert Path(result.json["plot"]) == Path("elsewhere/steady-threshold.png")
    assert Path("elsewhere/steady-threshold.png").exists()


def test_the_example_runs(run: Run) -> None:
    result = run("simulate", EXAMPLE, "--json")
    assert result.status == 0
    assert result.json["actions"] > 0
    assert result.json["elasticity"]["timeshare_under"] < 0.2


def test_a_recording_has_the_windows_each_with_its_events_after_it(recording: Path) -> None:
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    ends_s = [snapshot.at_s for snapshot in read_recording(recording).snapshots]

    assert ends_s == [line["at_s"] for line in lines if line["event"] == "snapshot"]
    first = next(index for index, line in enumerate(lines) if line["event"] == "decided")
    before = [line for line in lines[:first] if line["event"] == "snapshot"]
    assert before[-1]["at_s"] == lines[first]["at_s"]


def test_recording_again_begins_anew(run: Run, scenario: Path, recording: Path) -> None:
    before = recording.read_text()
    run("simulate", scenario, "--record", recording)
    assert recording.read_text() == before


def test_plan_for_a_given_rate(run: Run, recording: Path) -> None:
    result = run("plan", recording, "--rate", "source=2000", "--json")

    assert (result.status, result.err) == (0, "")
    assert result.json["parallelism"] == {"map": 20}
    assert result.json["source_rates"] == {"source": 2000}
    assert result.json["unknown"] == []
    assert result.json["operators"]["map"]["latest"]["target_per_s"] == pytest.approx(2000)


def test_plan_for_the_highest_rate_that_was_seen(run: Run, recording: Path) -> None:
    result = run("plan", recording)
    assert result.status == 0
    assert "to start with, for source at 500/s" in result.out


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("500", "--rate takes SOURCE=N, found '500'"),
        ("=500", "--rate takes SOURCE=N, found '=500'"),
        ("source=many", "--rate takes SOURCE=N, found 'source=many'"),
        ("map=500", "'map' is not a source of the recorded pipeline (known: source)"),
        ("source=-1", "'source' must be a number of at least 0, found -1.0"),
        ("source=nan", "'source' must be a number of at least 0, found nan"),
    ],
)
def test_a_bad_rate_is_refused(run: Run, recording: Path, rate: str, message: str) -> None:
    assert message in refused(run("plan", recording, "--rate", rate))


def test_replay_tells_what_would_have_been_decided(run: Run, recording: Path) -> None:
    result = run("replay", recording, "--json")

    assert (result.status, result.err) == (0, "")
    decided = [event for event in result.json if event["event"] == "decided"]
    assert decided[0]["dry_run"] is True
    assert decided[0]["decision"]["kind"] == "rescale"
    assert "would rescale map 1 → 5" in run("replay", recording, "--policy", "ds2-paper").out


def test_replay_is_set_as_the_run_was(run: Run, recording: Path) -> None:
    header, *windows = recording.read_text().splitlines()
    said = json.loads(header)
    said["knobs"] |= {"interval_s": 7.0, "warm_up_intervals": 3, "calendar": "gone.yaml"}
    recording.write_text("\n".join([json.dumps(said), *windows]) + "\n")

    def replayed(*settings: str) -> tuple[str, int]:
        told = run("replay", recording, *settings)
        left_out = [
            event for event in run("replay", recording, "--json", *settings).json if event["event"] == "ignored"
        ]
        return told.out.split("replayed with ")[1].split(" ─")[0], len(left_out)

    assert replayed() == ("ds2, every 7 s", 3)
    assert replayed("--set", "interval=9 s") == ("ds2, every 9 s", 3)
    assert replayed("--policy", "threshold")[0] == "threshold, every 7 s"
    assert replayed("--policy", "threshold")[1] < 3, "another policy is set as its authors have it"


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_a_recording_that_was_cut_off_can_be_read_up_to_there(run: Run, recording: Path, command: str) -> None:
    recording.write_text(recording.read_text()[:-9])

    assert "the last line is cut off" in refused(run(command, recording))
    assert run(command, recording, "--ignore-cut-off").status == 0


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_a_clock_that_was_set_back_costs_only_a_window(run: Run, recording: Path, command: str) -> None:
    before = run(command, recording, "--json")
    with recording.open("a") as file:
        file.write(recording.read_text().splitlines()[1] + "\n")  # its first window, a second time

    result = run(command, recording, "--json")

    assert (result.status, result.json) == (0, before.json)
    assert result.err == f"{recording}: 1 window left out, for ending no later than one before (at_s)\n"


@pytest.mark.parametrize("command", ["plan", "replay", "forecast", "report"])
def test_the_folder_of_a_run_stands_for_its_recording(run: Run, recording: Path, command: str) -> None:
    folder = recording.parent / "out" / "steady"
    folder.mkdir(parents=True)
    recording.rename(folder / "recording.jsonl")

    by_folder = run(command, folder, "--json")

    assert by_folder.status == 0, by_folder.err
    assert by_folder.json == run(command, folder / "recording.jsonl", "--json").json


@pytest.mark.parametrize("command", ["plan", "replay", "report", "serve"])
def test_a_folder_without_a_recording_names_the_runs_below_it(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "out" / "clicks").mkdir(parents=True)
    expected = "out: the folder of a run was expected, found no recording.jsonl in it"
    assert refused(run(command, "out")) == expected

    write(tmp_path / "out" / "clicks" / "recording.jsonl", "")
    assert refused(run(command, "out")) == f"{expected}; runs below: out/clicks"


# compare, policies


def test_compare_shows_the_policies_side_by_side(run: Run) -> None:
    result = run("compare", EXAMPLE, "--json")

    assert (result.status, result.err) == (0, "")
    assert list(result.json["policies"]) == ["ds2", "flink", "dhalion", "threshold", "lag"]
    assert Path(result.json["plot"]).exists()


def test_compare_prints_a_row_for_each_policy(run: Run, scenario: Path) -> None:
    result = run("compare", scenario, "--policies", "ds2, lag,ds2")
    assert [line.split("│")[1].strip() for line in result.out.splitlines() if "│" in line] == ["ds2", "lag"]


def test_compare_knows_gesscale_its_baselines_and_the_ideal(run: Run, scenario: Path) -> None:
    names = ["gesscale", "gesscale-paper", "mdl-nlunaware", "thr-nlaware", "thr-nlunaware", "ideal"]
    for file in (EXAMPLE, scenario):
        result = run("compare", file, "--policies", ",".join(names), "--json")
        assert (result.status, list(result.json["policies"])) == (0, names)
        assert result.json["policies"]["ideal"]["elasticity"]["timeshare_under"] == 0
        assert result.json["policies"]["gesscale"]["actions"] > 0


def test_compare_passes_over_options_that_only_another_of_the_policies_has(run: Run, scenario: Path) -> None:
    setting = ("--set", "target_utilization=0.5", "--json")

    result = run("compare", scenario, "--policies", "ds2,lag", *setting)

    assert result.json["policies"]["ds2"]["final_parallelism"]["map"] >= 10
    assert "no option of lag" in refused(run("compare", scenario, "--policies", "lag", *setting))


def test_policies_are_listed(run: Run) -> None:
    listed = run("policies", "--json").json

    assert [entry["name"] for entry in listed] == list(catalog())
    assert all(entry["summary"] and entry["needs"] and entry["good_for"] for entry in listed)
    assert all(name in run("policies").out for name in catalog())


def test_a_policy_is_shown_with_its_options_and_the_knobs(run: Run) -> None:
    out = run("policies", "ds2").out
    assert "target_utilization" in out
    assert "warm_up_intervals" in out


def test_what_a_policys_name_sets_is_its_default(run: Run) -> None:
    (entry,) = run("policies", "ds2-learned", "--json").json
    assert {option["name"]: option["default"] for option in entry["options"]}["learned_curve"] is True


# Where things are written


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_an_out_folder_that_cannot_be_made_is_told_before_the_run(run: Run, scenario: Path, command: str) -> None:
    Path("file").write_text("")
    assert refused(run(command, scenario, "--out", "file")) == "file: cannot be written: File exists"
    assert refused(run(command, scenario, "--out", "file/in")) == "file/in: cannot be written: Not a directory"


def test_a_plot_that_cannot_be_written_is_told(run: Run, scenario: Path) -> None:
    Path("out/steady-ds2.png").mkdir(parents=True)
    assert refused(run("simulate", scenario)) == "out/steady-ds2.png: cannot be written: Is a directory"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/run.jsonl", "File exists"),
        (".", "Is a directory"),
        pytest.param(
            "/dev/full",
            "No space left on device",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux"),
        ),
    ],
)
def test_a_recording_that_cannot_be_written_is_told(run: Run, scenario: Path, path: str, reason: str) -> None:
    Path("file").write_text("")
    assert refused(run("simulate", scenario, "--record", path)) == f"{path}: cannot be written: {reason}"
    assert Path(path).exists() == (path != "file/run.jsonl")


# Kafka


def test_another_kind_of_channel_is_refused_before_anything_is_deleted(run: Run) -> None:
    Path("pipeline.py").write_text(
        "from elastream import Pipeline\npipeline = Pipeline('p')\npipeline.feed('numbers', schema='id bigint')\n"
    )
    Path("out/p").mkdir(parents=True)
    said = refused(run("run", "pipeline.py", "--fresh", "--channels", "kafak"))
    assert said == "unknown kind of channels 'kafak' (did you mean 'kafka'?)"
    assert Path("out/p").is_dir()


def test_a_broker_without_its_jars_and_no_way_to_get_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("ELASTREAM_MAVEN_REPOSITORY", "file:///nowhere")
    assert "cannot be fetched" in refused(run("kafka", "start"))
    assert not list(Path("cache").rglob("*.jar"))


# Help

OPTIONS = {
    "evaluate": ["SNAPSHOT", "--policy", "--set", "--why", "--json"],
    "simulate": ["SCENARIO", "--policy", "--rules", "--set", "--out", "--record", "--json"],
    "compare": ["SCENARIO", "--policies", "--rules", "--set", "--out", "--json"],
    "plan": ["RECORDING", "--rate", "--policy", "--set", "--ignore-cut-off", "--json"],
    "replay": ["RECORDING", "--policy", "--rules", "--set", "--ignore-cut-off", "--json"],
    "report": ["RECORDING", "--out", "--against", "--set", "--rules", "--cost-per-instance-hour", "--json"],
    "policies": ["NAME", "--json"],
    "cluster": ["start"],
    "cluster start": ["--workers", "--cores", "--memory", "--port", "--web-port", "--host", "--folder", "--json"],
    "rules": ["check", "show", "schema", "metrics"],
    "rules check": ["FILE", "--scenario", "--strict", "--json"],
    "rules show": ["FILE", "--as"],
    "kafka": ["fetch", "start"],
    "kafka fetch": ["--json"],
    "kafka start": ["--port", "--folder", "--json"],
}


@pytest.mark.parametrize(("command", "options"), OPTIONS.items())
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_mentions_every_argument_and_option(run: Run, command: str, options: list[str], flag: str) -> None:
    result = run(*command.split(), flag)
    assert result.status == 0
    assert all(option.lower() in result.out.lower() for option in options)


def test_help_lists_every_command(run: Run) -> None:
    out = run("--help").out
    assert all(command.split()[0] in out for command in OPTIONS)


GROUPS = {
    "Start": ("new", "doctor"),
    "Run": ["run", "submit", "decentralized", "capacity"],
    "Ask": ["evaluate", "advise", "plan", "replay", "forecast", "policies"],
    "Show": ["show", "serve", "report"],
    "Scale by rules": ["rules", "master", "agent"],
    "Try out": ["simulate", "compare", "cluster", "kafka"],
}


def test_help_shows_the_commands_in_groups(run: Run) -> None:
    out = run("--help").out
    panels = re.split(r"^╭─ (.+?) ─+╮$", out, flags=re.MULTILINE)[1:]
    listed = {
        title: set(re.findall(r"^│ ([a-z]+) ", panel, flags=re.MULTILINE))
        for title, panel in zip(panels[::2], panels[1::2], strict=True)
        if title != "Options"
    }
    assert list(listed) == list(GROUPS)
    assert listed == {title: set(commands) for title, commands in GROUPS.items()}


def test_run_shows_its_options_in_groups(run: Run) -> None:
    out = run("run", "--help").out
    titles = re.findall(r"^╭─ (.+?) ─+╮$", out, flags=re.MULTILINE)
    assert titles == ["Arguments", "Options", "Run", "Policy", "Spark", "Cluster", "Channels", "Page"]


# Engines


def test_a_scenario_is_run_as_on_any_engine(run: Run, scenario: Path) -> None:
    options = ("--engine", "simulated", "--policy", "ds2-paper", "--no-serve", "--duration", "5 min", "--json")
    ran = run("run", scenario, *options)
    assert ran.status == 0
    assert ran.json["final_parallelism"] == {"map": 5}
    recorded = read_recording(Path("out/steady/recording.jsonl"))
    assert [(header.engine, header.policy) for header in recorded.headers] == [("simulated", "ds2-paper")]
    assert Path("out/steady/run.png").exists()


TWO_WINDOWS = ("--engine", "simulated", "--no-serve", "--duration", "2 min", "--interval", "1 min")


def test_a_plot_that_cannot_be_written_takes_no_summary_with_it(run: Run, scenario: Path) -> None:
    Path("out/steady/run.png").mkdir(parents=True)
    ran = run("run", scenario, "--engine", "simulated", "--no-serve", "--duration", "2 min")
    assert ran.status == 0
    assert "out/steady/run.png: cannot be written: Is a directory" in ran.err
    assert "recording: out/steady/recording.jsonl, no plot" in ran.out


def test_fresh_begins_anew(run: Run, scenario: Path) -> None:
    Path("out/steady").mkdir(parents=True)
    Path("out/steady/left").write_text("")
    assert run("run", scenario, *TWO_WINDOWS, "--dry-run", "--fresh").status == 0
    assert not Path("out/steady/left").exists()
    recorded = read_recording(Path("out/steady/recording.jsonl"))
    assert recorded.headers[0].knobs["dry_run"] is True
    assert len(recorded.snapshots) == 2


def test_it_learns_from_a_recording_or_a_trace(run: Run, scenario: Path) -> None:
    rows = "".join(f"{60 * row},{100 + row % 5}\n" for row in range(200))
    for name in ("source", "other"):
        Path(f"{name}.csv").write_text(f"time_s,records_per_s\n{rows}")
    command = ["run", scenario, *TWO_WINDOWS, "--policy", "ds2-forecast", "--learn-from"]
    assert run(*command, "source.csv").status == 0
    assert run(*command, "out/steady", "--folder", "again").status == 0
    for folder, learned in (("out/steady", 202), ("again", 4)):
        with Store(Path(folder) / "manager.sqlite") as store:
            state = store.load()
        assert state is not None
        history = state.knowledge.forecasters["source"].history
        assert len(history) + len(history.early) == pytest.approx(learned, abs=2)
    said = refused(run(*command, "other.csv"))
    assert said == "--learn-from other.csv: rates of source were expected, found those of other"


def test_an_engine_that_there_is_not_and_options_of_another(run: Run, scenario: Path) -> None:
    said = refused(run("run", scenario, "--engine", "simulatd"))
    assert said == "unknown engine 'simulatd' (did you mean 'simulated'?)"
    said = refused(run("run", scenario, "--engine", "simulated", "--master", "yarn", "--executor-cores", "2"))
    assert said == "--master, --executor-cores: for the engine spark, found --engine simulated"
    said = refused(run("run", scenario, "--engine", "simulated", "--set", "speed=2"))
    assert said.startswith("--set speed: no option of ds2 and no knob")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--start", "words"], "--start: OPERATOR=N with a whole number was expected, found 'words'"),
        (["--batch-interval", "soon"], "--batch-interval: a duration is a number of seconds"),
        (["--executor-cores", "0"], "--executor-cores must be at least 1, found 0"),
        (["--spare-executors", "1"], "--spare-executors: local[32] has no executors, only a cluster has"),
        (["--nodes", "gone.yaml"], "--nodes: gone.yaml: "),
        (["--channel-set", "x"], "--channel-set: NAME=VALUE was expected, each once, found 'x'"),
    ],
)
def test_options_of_spark_are_checked_before_anything_starts(run: Run, given: list[str], message: str) -> None:
    assert refused(run("run", "pipeline.py", *given)).startswith(message)


def test_the_version(run: Run) -> None:
    assert run("--version") == Result(0, f"elastream {__version__}\n", "")


def test_letters_that_the_terminal_lacks_do_not_end_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: Path
) -> None:
    with (tmp_path / "terminal").open("w", encoding="ascii") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert run("evaluate", snapshot).status == 0
    assert "flatmap" in (tmp_path / "terminal").read_text()


def test_what_is_for_whole_jobs_is_left_out_of_a_comparison_with_a_sentence(run: Run, scenario: Path) -> None:
    result = run("compare", scenario, "--policies", "ds2,spark-dra", "--json")
    assert (result.status, list(result.json["policies"])) == (0, ["ds2"])
    assert result.json["left_out"]["spark-dra"].startswith("for whole jobs only")
    told = run("compare", scenario, "--policies", "ds2,spark-dra").out
    assert "spark-dra is left out: it is for whole jobs only" in " ".join(told.split())


def test_what_is_for_whole_jobs_sizes_no_pipeline(run: Run, scenario: Path) -> None:
    result = run("simulate", scenario, "--policy", "elastic-scaling")
    assert result.status == 2
    assert "--policy elastic-scaling: for whole jobs only" in " ".join(result.err.split())
