"""What the experiments print: the list of them, and our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from elastream.commands.console import print_hanging, print_table, text_table
from experiments.frame import Check, Experiment, Report


def print_experiments(console: Console, found: Sequence[Experiment]) -> None:
    table = text_table("name", "repeats", "question")
    for experiment in found:
        takes = f" (about {experiment.minutes} minutes)" if experiment.minutes else ""
        table.add_row(Text(experiment.name, style="bold"), experiment.paper, experiment.question + takes)
    print_table(console, "experiments", table)


def print_report(console: Console, experiment: Experiment, report: Report) -> None:
    console.rule(f"{experiment.name} ({experiment.paper})")
    console.print(experiment.question)
    table = text_table("what", "ours", "paper", "bound", "")
    for check in report.checks:
        table.add_row(check.what, check.ours, check.paper, check.bound, _mark(check))
    console.print(table)
    for note in report.differs:
        print_hanging(console, "• ", note)


def _mark(check: Check) -> Text:
    if not check.holds:
        return Text("FAILS", style="bold red")
    return Text("holds" if check.bound else "", style="green")
