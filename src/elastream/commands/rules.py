"""`elastream rules`: what can be done with a file of rules without running anything."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from elastream.commands import console
from elastream.commands.as_json import print_json
from elastream.commands.shared import JsonOption, err, out
from elastream.dataflow import Dataflow
from elastream.engines.simulated.scenario import read_scenario
from elastream.policies.rules.check import Doubt, doubts
from elastream.policies.rules.files import read_document, read_rules
from elastream.policies.rules.metrics import METRICS
from elastream.policies.rules.python_form import rules_to_python
from elastream.policies.rules.sentences import sentence
from elastream.policies.rules.yaml_form import Document, json_schema, rule_entry, rules_to_yaml

rules_app = typer.Typer(
    help="Rules that people write: check them, see what they may look at, turn YAML into Python and back.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


RulesFile = Annotated[Path, typer.Argument(help="The rules, in YAML or in Python (.py).")]


class Form(StrEnum):
    YAML = "yaml"
    PYTHON = "python"


@rules_app.command()
def check(
    file: RulesFile,
    scenario: Annotated[
        Path | None, typer.Option(help="The pipeline that they are for: its operators are looked up, too.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a warning.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print each rule back as an English sentence; warn of those that contradict or can never fire.

    Exits with 2 if the file is not a set of rules, and says in which lines.

    Example: `elastream rules check rules.yaml --scenario scenario.yaml`
    """
    document = read_document(file)
    dataflow = None if scenario is None else read_scenario(scenario).model.dataflow
    found = doubts(document.rules, dataflow)
    if as_json:
        print_json(_check_json(document, found))
    else:
        _print_check(file, document, found, dataflow)
    if document.problems:
        raise typer.Exit(2)
    if strict and found:
        raise typer.Exit(1)


@rules_app.command()
def show(
    file: RulesFile,
    form: Annotated[Form, typer.Option("--as", help="In which of the two forms.")] = Form.YAML,
) -> None:
    """Print the rules of a file in YAML or in Python, whichever they were written in.

    Example: `elastream rules show examples/rules.yaml --as python`
    """
    rules = read_rules(file)
    print(rules_to_yaml(rules) if form is Form.YAML else rules_to_python(rules), end="")


@rules_app.command()
def schema() -> None:
    """Print the JSON Schema of rules in YAML, for editors and other tools.

    Example: `elastream rules schema > rules.schema.json`
    """
    print_json(json_schema())


@rules_app.command()
def metrics(as_json: JsonOption = False) -> None:
    """List what rules may look at, with its unit.

    Example: `elastream rules metrics`
    """
    if as_json:
        print_json([{"name": m.name, "unit": m.unit, "meaning": m.meaning} for m in METRICS.values()])
        return
    for metric in METRICS.values():
        out.print(f"{metric.name:<20}{metric.unit:<12}{metric.meaning}", soft_wrap=True)


def _check_json(document: Document, found: tuple[Doubt, ...]) -> dict[str, Any]:
    lines = document.lines or (None,) * len(document.rules)
    return {
        "usable": not document.problems,
        "errors": [{"line": problem.line, "text": problem.text} for problem in document.problems],
        "rules": [
            {
                "line": line,
                "sentence": sentence(rule),
                **rule_entry(rule),
                "warnings": [doubt.text for doubt in found if doubt.rule == index],
            }
            for index, (rule, line) in enumerate(zip(document.rules.rules, lines, strict=True))
        ],
    }


def _print_check(file: Path, document: Document, found: tuple[Doubt, ...], dataflow: Dataflow | None) -> None:
    for problem in document.problems:
        line = "" if problem.line is None else f":{problem.line}"
        err.print(Text.assemble(f"{file}{line}: ", ("error:", "bold red"), f" {problem.text}"), soft_wrap=True)
    for index, rule in enumerate(document.rules.rules):
        out.print(Text.assemble((rule.name, "bold"), f": {sentence(rule)}"), soft_wrap=True)
        line = f":{document.lines[index]}" if document.lines else ""
        for doubt in (doubt for doubt in found if doubt.rule == index):
            place = f"  {file}{line}: "
            out.print(Text.assemble(place, ("warning:", "bold yellow"), f" {doubt.text}"), soft_wrap=True)
    if not document.problems:
        known = "" if dataflow is not None else " (--scenario looks up the operators, too)"
        rules, doubted = console.counted(len(document.rules), "rule"), console.counted(len(found), "warning")
        out.print(f"{rules}, {doubted}{known}", soft_wrap=True)
