"""`elastream submit`: a streaming job as it is, with executors that follow its load."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated

import typer

from elastream.attached.attaching import Attached, AttachOptions
from elastream.attached.policy import NAME
from elastream.commands.advise import latency_s
from elastream.commands.logs import show_only_ours
from elastream.commands.settings import pairs_of
from elastream.commands.shared import SetOption, err
from elastream.errors import InvalidInput

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""What stands after the script is the script's."""


def submit(
    ctx: typer.Context,
    script: Annotated[
        Path, typer.Argument(metavar="JOB.PY [ARGUMENTS...]", help="A PySpark program that streams.")
    ],
    latency: Annotated[
        str | None, typer.Option(help="How long a batch may take, e.g. '10 s'; else the trigger interval.")
    ] = None,
    max_executors: Annotated[
        int | None, typer.Option(help="At most so many; else as Spark is configured.")
    ] = None,
    min_executors: Annotated[int, typer.Option(help="At least so many.")] = 1,
    recommend: Annotated[
        bool, typer.Option("--recommend", help="Change nothing: say what would be done.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the recording is kept; else out/NAME.")] = None,
    policy: Annotated[
        str, typer.Option(help="Who sizes it; `elastic-scaling` is Amadeus' rule, for comparing.")
    ] = NAME,
    settings: SetOption = None,
) -> None:
    """Run a PySpark job, unchanged, in place of `python job.py`, and keep its executors as few as needed.

    The options of elastream stand before the script, those of the script after it. Results, errors and the exit
    status are the job's own. `elastream report out/NAME` tells of the run afterwards.

    Example: `elastream submit --latency '10 s' job.py incoming`
    """
    if not script.is_file():
        raise InvalidInput(f"{script}: no such file")
    knobs = pairs_of(settings)
    AttachOptions(
        latency_s=latency_s(latency),
        min_executors=min_executors,
        max_executors=max_executors,
        policy=policy,
        knobs=knobs,
    ).settled()
    import pyspark  # noqa: F401 - that it is missing is told before the job begins

    from elastream.attached.submitting import submit as submitted

    show_only_ours()
    try:
        attached = submitted(
            script,
            ctx.args,
            latency=latency_s(latency),
            max_executors=max_executors,
            min_executors=min_executors,
            recommend=recommend,
            folder=folder,
            policy=policy,
            knobs=knobs,
        )
    except Exception:  # as Python itself ends a program: what the job raises is not ours to translate
        traceback.print_exc()
        raise typer.Exit(1) from None
    if attached is not None:
        _tell(attached)


def _tell(attached: Attached) -> None:
    used = attached.used
    if used.had_s > 0:
        share = used.proposed_s / used.had_s
        err.print(f"executor-seconds: {used.had_s:,.0f}, at the size that was proposed {share:.0%} of it")
    err.print(f"recording: {attached.folder}", soft_wrap=True)
