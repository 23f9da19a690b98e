"""What the subcommands share: where they print, the options that mean the same everywhere, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from elastream.commands import console
from elastream.commands.waiting import waiting
from elastream.errors import ElastreamError

out = console.new_console()
err = console.new_console(stderr=True, enduring=True)

PolicyOption = Annotated[
    str, typer.Option("--policy", "-p", help="Which policy; `elastream policies` lists them.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="An option of the policy or a knob of the manager; repeatable."
    ),
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", help="Scale as the rules in this file say: short for --policy rules.")
]
CalendarOption = Annotated[
    Path | None, typer.Option("--calendar", help="What is known ahead, in YAML: short for --set calendar=FILE.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where plots and reports are written.")]


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Made before the work begins; what the file system refuses then or later is for the user to mend."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ElastreamError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error in a terminal, else a line now and then: tell it what is being done and the share
    behind it."""
    if not err.is_terminal:
        with waiting(err, what, quiet=quiet) as found:
            yield lambda detail, share: found.say(f"{what} {detail}".strip())
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=quiet,
    )
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda detail, share: bar.update(task, completed=share, description=f"{what} {detail}".strip())
