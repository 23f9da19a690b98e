"""`elastream advise`: the size that a running job needs, from outside."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from elastream.attached.advising import JobAdvice, Outside, checkpoints_in, watched
from elastream.attached.load import QueryLoad
from elastream.commands import console
from elastream.commands.as_json import print_json
from elastream.commands.shared import JsonOption, out, progress
from elastream.durations import seconds, text
from elastream.errors import InvalidInput


def advise(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the job's own page, such as http://DRIVER:4040.")],
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="The checkpoint of a query, to see when its batches were triggered; repeatable."),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="How long a batch may take, e.g. '10 s'; else the trigger interval.")
    ] = None,
    duration: Annotated[str, typer.Option("--for", help="How long to watch.")] = "3 min",
    target_utilization: Annotated[
        float,
        typer.Option(
            min=0.1, max=1, metavar="SHARE", help="The share of the latency that a batch is meant to use."
        ),
    ] = 0.8,
    as_json: JsonOption = False,
) -> None:
    """What size a running Structured Streaming job needs, what bounds it and what that saves. Touches nothing.

    It watches the job through Spark's own REST API for a few minutes. What waits at the sources cannot be seen
    from there: `elastream.attach(spark, recommend=True)` in the job sees that, too.

    Example: `elastream advise http://localhost:4040 --latency '10 s'`
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"URL is that of the job's page, such as http://127.0.0.1:4040, found {url!r}")
    outside = Outside(
        url=url,
        latency_s=latency_s(latency),
        checkpoints=checkpoints_in(checkpoint or ()),
    )
    watch_s = _duration_s("--for", duration)
    with progress(f"watching {url}", quiet=as_json):
        watched(outside, for_s=watch_s, every_s=min(15.0, max(1.0, watch_s / 10)))
    found = outside.advice(target_utilization=target_utilization)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)


def latency_s(written: str | None) -> float | None:
    found = None if written is None else _duration_s("--latency", written)
    if found == 0:
        raise InvalidInput("--latency must be above 0, found 0: no batch takes no time")
    return found


def _duration_s(option: str, written: str) -> float:
    try:
        return seconds(float(written) if written.replace(".", "", 1).isdigit() else written)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from None


def _as_json(found: JobAdvice) -> dict[str, object]:
    return {
        "application": found.application,
        "sized": "cores" if found.local else "executors",
        "now": found.had,
        "cores_of_an_executor": found.cores,
        "needs": None if found.size is None else found.size.executors,
        "saves": found.saves,
        "queries": {load.name: dataclasses.asdict(load) for load in found.loads},
        "predicted_s": {} if found.size is None else dict(found.size.predicted_s),
        "late": [] if found.size is None else list(found.size.late),
        "bounds": [dataclasses.asdict(bound) for bound in found.bounds],
        "unknown": list(found.unknown),
    }


def _print(found: JobAdvice) -> None:
    unit = "cores" if found.local else "executors"
    if not found.loads:
        which = f" ({', '.join(found.unknown)})" if found.unknown else ""
        out.print(
            f"too few batches of streaming queries were seen to say anything{which}: watch longer, with --for"
        )
        return
    table = console.number_table("query", "rows/s", "every", "batch\nmay take", "takes\nthen", "±", "batches")
    for load in found.loads:
        table.add_row(*_row(load, found))
    console.print_table(out, f"{found.application}: what its queries need", table)
    if found.size is not None:
        console.print_hanging(out, "• ", _verdict(found, unit))
    for name in found.unknown:
        console.print_hanging(out, "• ", f"{name}: too few batches were seen, so nothing is said of the whole job")
    late = set(found.size.late) if found.size else set()
    for bound in found.bounds:
        told = "does not keep its latency" if bound.query in late else "with more cores it would be bounded here"
        console.print_hanging(out, "• ", f"{bound} ({told})")


def _row(load: QueryLoad, found: JobAdvice) -> list[str]:
    assert load.model is not None, "only queries with a model are told of"
    takes = "" if found.size is None else text(found.size.predicted_s[load.name])
    every = text(load.interval_s) if load.interval_s else "at once"
    scatter = f"{load.model.scatter:.0%}"
    return [
        load.name,
        f"{load.rows_per_s:,.0f}",
        every,
        text(load.latency_s),
        takes,
        scatter,
        str(load.model.batches),
    ]


def _verdict(found: JobAdvice, unit: str) -> str:
    assert found.size is not None
    needs = found.size.executors
    each = "" if found.local else f" of {found.cores} core{'s' if found.cores > 1 else ''}"
    told = f"it needs {needs} {unit if needs > 1 else unit.removesuffix('s')}{each}, and has {found.had}"
    saves = found.saves or 0.0
    if saves > 0:
        return f"{told}: {saves:.0%} could be saved"
    return f"{told}: no more than it needs" if saves == 0 else f"{told}: too few"
