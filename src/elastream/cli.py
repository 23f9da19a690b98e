"""The command. Every subcommand prints tables for people, or with --json one JSON value and nothing else."""

from __future__ import annotations

import errno
import io
import sys
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from elastream._version import __version__
from elastream.commands import advice, advise, agents, doctor, new, report, serve, simulate, submit
from elastream.commands import run as run_commands
from elastream.commands.cluster import cluster_app
from elastream.commands.console import FULL_DISK
from elastream.commands.decentralized import capacity, decentralized_app
from elastream.commands.forecast import forecast
from elastream.commands.kafka import kafka_app
from elastream.commands.logs import show_log
from elastream.commands.pipeline_file import TakesArguments
from elastream.commands.rules import rules_app
from elastream.commands.shared import err
from elastream.errors import ElastreamError
from elastream.extras import extras_told


class Command(TyperGroup):
    """Errors that a user can act on are one line on standard error and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with extras_told():
                return super().invoke(ctx)
        except ElastreamError as error:
            err.print(Text.assemble(("error:", "bold red"), f" {error}"), soft_wrap=True)
            raise typer.Exit(2) from None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            err.print(Text.assemble(("error:", "bold red"), f" {_long_name(error)}"), soft_wrap=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            err.print("interrupted")
            raise typer.Exit(130) from None


def _long_name(error: OSError) -> str:
    """Wherever a path is looked at first, one that no file can have fails there."""
    name = str(error.filename or "")
    return f"{name[:60]}...: a shorter path was expected: {error.strerror}, found {len(name.encode()):,} bytes"


app = typer.Typer(
    name="elastream",
    cls=Command,
    help="Keeps a streaming pipeline at the smallest parallelism that keeps up with its input.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# panel by panel, in the order in which --help lists them
_START, _RUN, _ASK, _SHOW, _BY_RULES, _TRY_OUT = "Start", "Run", "Ask", "Show", "Scale by rules", "Try out"
app.command(rich_help_panel=_START)(new.new)
app.command(rich_help_panel=_START)(doctor.doctor)
app.command(rich_help_panel=_RUN, cls=TakesArguments)(run_commands.run)
app.command(rich_help_panel=_RUN, context_settings=submit.CONTEXT)(submit.submit)
app.add_typer(decentralized_app, name="decentralized", rich_help_panel=_RUN)
app.command(rich_help_panel=_RUN, cls=TakesArguments)(capacity)
app.command(rich_help_panel=_ASK)(advise.advise)
app.command(rich_help_panel=_ASK)(advice.evaluate)
app.command(rich_help_panel=_ASK)(advice.plan)
app.command(name="replay", rich_help_panel=_ASK)(advice.replay_command)
app.command(rich_help_panel=_ASK)(forecast)
app.command(rich_help_panel=_ASK)(advice.policies)
app.command(rich_help_panel=_SHOW, cls=TakesArguments)(run_commands.show)
app.command(rich_help_panel=_SHOW)(serve.serve)
app.command(rich_help_panel=_SHOW)(report.report)
app.add_typer(rules_app, name="rules", rich_help_panel=_BY_RULES)
app.command(rich_help_panel=_BY_RULES)(agents.master)
app.command(rich_help_panel=_BY_RULES)(agents.agent)
app.command(name="simulate", rich_help_panel=_TRY_OUT)(simulate.simulate_command)
app.command(rich_help_panel=_TRY_OUT)(simulate.compare)
app.add_typer(cluster_app, name="cluster", rich_help_panel=_TRY_OUT)
app.add_typer(kafka_app, name="kafka", rich_help_panel=_TRY_OUT)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"elastream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Before a command: also show what is being done; -vv shows everything.",
        ),
    ] = 0,
) -> None:
    show_log(verbose)


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a letter shows a question mark in its place
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except OSError as error:
        if error.errno not in FULL_DISK or error.filename is not None:
            raise
        err.print(f"error: what was to be printed cannot be written: {error.strerror}")
        sys.exit(1)
