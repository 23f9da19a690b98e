"""`elastream rules`, and `--rules` of the commands that run a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elastream.cli import app
from elastream.policies.rules.files import read_rules
from elastream.policies.rules.metrics import METRICS

RULES = """\
rules:
  - name: long queue
    scale_out: map
    by: 2
    never_above: 8
    when: [{metric: queue_length, above: 1000, for_at_least: 30 s}]
    unless_scaled_out_within: 1 min
  - name: idle
    scale_in: map
    by: 1
    when: [{metric: queue_length, below: 2000, for_at_least: 30 s}]
"""

SCENARIO = """\
name: steady
duration: 10 min
operators:
  source: {source: true, load: 500}
  map: {reads: source, capacity: 100, max_parallelism: 16}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "steady.yaml").write_text(SCENARIO)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_check_prints_each_rule_as_a_sentence_and_warns_with_its_line(folder: Path) -> None:
    result = run("rules", "check", "rules.yaml", "--scenario", "steady.yaml")
    assert result.exit_code == 0
    assert "long queue: Add 2 instances to map, never above 8 instances, when the queue length" in result.stdout
    assert "rules.yaml:8: warning: contradiction: 'long queue' and 'idle' both hold where" in result.stdout
    assert "2 rules, 1 warning" in result.stdout
    assert run("rules", "check", "rules.yaml", "--strict").exit_code == 1


def test_check_prints_json_and_nothing_else(folder: Path) -> None:
    found = json.loads(run("rules", "check", "rules.yaml", "--json").stdout)
    assert (found["usable"], found["errors"]) == (True, [])
    first, second = found["rules"]
    assert (first["line"], first["name"], first["by"], first["warnings"]) == (2, "long queue", 2, [])
    assert first["sentence"].startswith("Add 2 instances to map")
    assert len(second["warnings"]) == 1


def test_check_tells_every_error_with_its_line(folder: Path) -> None:
    (folder / "rules.yaml").write_text(RULES.replace("by: 2", "by: x").replace("below: 2000, ", ""))
    result = run("rules", "check", "rules.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("rules.yaml:4: error: rules[0].by: a whole number of instances")
    assert second == "rules.yaml:11: error: rules[1].when[0]: either above or below must be given, found none"
    found = json.loads(run("rules", "check", "rules.yaml", "--json").stdout)
    assert [error["line"] for error in found["errors"]] == [4, 11]
    assert (found["usable"], found["rules"]) == (False, [])


def test_what_is_no_set_of_rules_is_refused(folder: Path) -> None:
    assert "unknown key 'name'" in run("rules", "check", "steady.yaml").stderr
    assert "error: none.yaml: there is no such file" in run("rules", "check", "none.yaml").stderr


def test_show_turns_yaml_into_python_and_back(folder: Path) -> None:
    (folder / "rules.py").write_text(run("rules", "show", "rules.yaml", "--as", "python").stdout)
    (folder / "again.yaml").write_text(run("rules", "show", "rules.py").stdout)
    assert read_rules(Path("rules.py")) == read_rules(Path("again.yaml")) == read_rules(Path("rules.yaml"))


def test_schema_and_metrics_are_printed() -> None:
    assert "RuleEntry" in json.loads(run("rules", "schema").stdout)["$defs"]
    assert [metric["name"] for metric in json.loads(run("rules", "metrics", "--json").stdout)] == list(METRICS)
    assert all(name in run("rules", "metrics").stdout for name in METRICS)


def test_simulate_follows_rules(folder: Path) -> None:
    result = run("simulate", "steady.yaml", "--rules", "rules.yaml", "--json")
    found = json.loads(result.stdout)
    assert (found["policy"], result.stderr) == ("rules", "")
    decisions = [event["decision"] for event in found["events"] if event["event"] == "decided"]
    assert decisions[0]["at_s"] == 35  # looks every 5 s: above 1,000 from the first reading on, for 30 s
    assert decisions[0]["after"] == {"map": 3}
    assert "the rule 'long queue'" in decisions[0]["advice"][0]["reasons"][1]["text"]


def test_compare_and_replay_know_rules(folder: Path) -> None:
    found = json.loads(
        run("compare", "steady.yaml", "--policies", "ds2,lag", "--rules", "rules.yaml", "--json").stdout
    )
    assert list(found["policies"]) == ["ds2", "lag", "rules"]
    run("simulate", "steady.yaml", "--rules", "rules.yaml", "--record", "run.jsonl", "--json")
    told = json.loads(run("replay", "run.jsonl", "--rules", "rules.yaml", "--json").stdout)
    assert next(event["at_s"] for event in told if event["event"] == "decided") == 35


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "rules"), "the policy rules needs a file with rules: --rules FILE"),
        (("--policy", "lag", "--rules", "rules.yaml"), "--rules is for the policy rules, found --policy lag"),
        (("--rules", "none.yaml"), "policy rules: none.yaml: there is no such file"),
        (("--rules", "wrong.yaml"), "wrong.yaml: the rule 'long queue': unknown operator 'mpa'"),
        (("--rules", "odd.yaml"), "odd.yaml: the rule 'long queue': unknown metric 'queue_lenght' (did you mean"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_before_anything_runs(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    (folder / "wrong.yaml").write_text(RULES.replace("scale_out: map", "scale_out: mpa"))
    (folder / "odd.yaml").write_text(RULES.replace("queue_length", "queue_lenght"))
    result = run("simulate", "steady.yaml", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_evaluate_says_what_rules_wait_for(folder: Path) -> None:
    reading = {"window_s": 60, "useful_s": 30, "records_in": 100, "records_out": 100, "backlog": 5_000}
    snapshot = {
        "operators": [{"name": "source", "source": True}, {"name": "map"}],
        "edges": [["source", "map"]],
        "source_rates": {"source": 1},
        "readings": [{"operator": "map", **reading}],
    }
    (folder / "snapshot.json").write_text(json.dumps(snapshot))
    result = run("evaluate", "snapshot.json", "--policy", "rules", "--set", "file=rules.yaml", "--json")
    texts = [reason["text"] for reason in json.loads(result.stdout)["operators"]["map"]["reasons"]]
    assert any(text.endswith("above 1,000 records for 0 s of 30 s") for text in texts)
