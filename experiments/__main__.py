"""`python -m experiments`: those of the papers, repeated and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastream.cli import Command
from elastream.commands.as_json import print_json
from elastream.commands.shared import JsonOption, OutOption, out, progress, writing_to
from elastream.errors import InvalidInput
from experiments import frame, printing

app = typer.Typer(
    name="python -m experiments",
    cls=Command,
    help="The experiments repeat those of the papers, and put our numbers beside theirs.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(name="list")
def list_experiments(as_json: JsonOption = False) -> None:
    """List the experiments: what each repeats, and what it asks."""
    found = list(frame.experiments().values())
    if as_json:
        print_json(
            [{"name": e.name, "paper": e.paper, "question": e.question, "minutes": e.minutes} for e in found]
        )
    else:
        printing.print_experiments(out, found)


@app.command(name="run")
def run_experiments(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones; `python -m experiments list` lists them.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All of them, but for those that take many minutes.")
    ] = False,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run experiments, print our numbers beside the paper's, write JSON and plots.

    Exits with 0 only if every bound holds that the experiments set themselves, with 1 if one does not.
    """
    chosen = [frame.find(name) for name in (frame.short_ones() if every else names or ())]
    if not chosen:
        raise InvalidInput(f"name an experiment, or --all (known: {', '.join(frame.experiments())})")
    reports = {}
    for experiment in chosen:
        with writing_to(folder), progress(experiment.name, quiet=as_json) as tell:
            reports[experiment.name] = experiment.run(tell)
            written = frame.write(experiment.name, reports[experiment.name], folder)
        if not as_json:
            printing.print_report(out, experiment, reports[experiment.name])
            out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    if as_json:
        print_json([frame.report_as_json(name, report) for name, report in reports.items()])
    if not all(report.holds for report in reports.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
