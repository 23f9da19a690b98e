"""Inputs that are small to write down and huge to work on: refused at once, in a sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from elastream.cli import app
from elastream.dataflow import Operator
from elastream.engines.simulated.scenario import scenario_from
from elastream.errors import InvalidInput
from elastream.formats import read_yaml
from elastream.manager.loop import WallClock
from elastream.measurement.executor import ExecutorReading
from elastream.nodes.pool import Node
from elastream.policies.rules.yaml_form import parse_rules

RUNNER = CliRunner()
SCENARIO = {
    "name": "huge",
    "duration": 60,
    "operators": {
        "in": {"source": True, "load": 5},
        "out": {"reads": "in", "capacity": {"per_instance": 10}, "parallelism": 2},
    },
}


def laughs(levels: int) -> str:
    """Ten times as much on each level as on the one before."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join([*lines, f"rules: *a{levels - 1}"])


@pytest.mark.parametrize("text", [laughs(9), "a: &a [*a]", "rules: &r\n  - {<<: {name: *r}}"])
def test_aliases_that_stand_for_too_much_are_refused(text: str, tmp_path: Path) -> None:
    began_s = time.process_time()
    with pytest.raises(InvalidInput, match="aliases may stand for 10,000 parts"):
        read_yaml(text, "here")
    assert parse_rules(text, "here").problems
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    assert RUNNER.invoke(app, ["rules", "check", str(file)]).exit_code != 0
    assert time.process_time() - began_s < 5.0


def test_a_few_aliases_are_fine() -> None:
    assert read_yaml("a: &a {x: 1}\nb: [*a, *a]", "here")["b"] == [{"x": 1}, {"x": 1}]
    assert read_yaml(laughs(3), "here")["a1"][9] == ["x"] * 10
    assert read_yaml(yaml.safe_dump(list(range(12_000))), "here")[-1] == 11_999, "what is written out may be long"
    assert read_yaml("", "here") is None


def test_many_mistakes_in_rules_are_told_quickly() -> None:
    began_s = time.process_time()
    assert 0 < len(parse_rules("rules:\n" + "- {}\n" * 4_000, "here").problems) <= 100
    assert time.process_time() - began_s < 10.0


def test_an_exponent_that_no_number_can_hold_is_refused() -> None:
    capacity = {"per_instance": 10, "exponent": 2.0**64}
    operators = {**SCENARIO["operators"], "out": {**SCENARIO["operators"]["out"], "capacity": capacity}}
    with pytest.raises(InvalidInput, match="exponent must be above 0 and at most 10"):
        scenario_from({**SCENARIO, "operators": operators}, place="here", folder=Path())


def test_a_simulation_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="duration: at most"):
        scenario_from({**SCENARIO, "duration": 1e14}, place="here", folder=Path())
    assert scenario_from(SCENARIO, place="here", folder=Path()).duration_s == 60


def test_a_wait_of_any_length_can_be_ended() -> None:
    clock = WallClock()
    clock.wake()
    began_s = clock.steady()
    clock.wait(9e14)
    assert clock.steady() - began_s < 600, "woken long before"


@pytest.mark.parametrize(
    "command",
    [["serve"], ["replay"], ["evaluate"], ["report"], ["rules", "check"], ["simulate"], ["show"], ["run"]],
)
def test_a_file_name_that_no_file_can_have_is_an_error_of_one_line(command: list[str]) -> None:
    found = RUNNER.invoke(app, [*command, "x" * 300])
    assert found.exit_code == 2
    assert found.exception is None or isinstance(found.exception, SystemExit)
    assert len(found.output) < 1_000


@pytest.mark.parametrize(
    "make",
    [
        lambda name: Operator(name=name),
        lambda name: Node(name=name),
        lambda name: ExecutorReading(id=name, host="h", cores=1, active_tasks=0),
        lambda name: ExecutorReading(id="1", host=name, cores=1, active_tasks=0),
    ],
)
def test_names_are_short(make: object) -> None:
    make("x" * 200)  # type: ignore[operator]
    with pytest.raises(InvalidInput, match="at most 200 characters, found 900,000"):
        make("x" * 900_000)  # type: ignore[operator]
