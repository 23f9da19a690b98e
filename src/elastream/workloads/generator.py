"""Load for experiments: a process of its own that writes records to a pipeline's feed at a rate over time.

It is an open loop: it does not slow down when the pipeline does. What is due by the clock is written, also when
the machine was late, so the rate holds on average. Records are numbered from where an earlier generator stopped.

    python -m elastream.workloads.generator FOLDER --load 'steps: [[0, 400], [60, 800]]'
"""

from __future__ import annotations

import functools
import importlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast

import pyarrow as pa
import typer

from elastream.arrivals.load import Load
from elastream.arrivals.load_format import LoadEntry
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.kinds import open_channel
from elastream.errors import InvalidInput
from elastream.formats import parse, read_yaml
from elastream.workloads.feed_process import run_writer

SCHEMA = "id bigint, created_ms bigint, line string"
SENTENCES = "sentences"
MakeTable = Callable[..., pa.Table]
"""From the number of the first record, how many, and `created_ms`."""
_VOCABULARY = tuple(f"word{number:03d}" for number in range(500))


def sentence(number: int, words: int) -> str:
    """The same for the same number: what the counts must be can be computed afterwards."""
    return " ".join(_VOCABULARY[(number * 31 + index * 17) % len(_VOCABULARY)] for index in range(words))


def table(first: int, count: int, *, words: int, created_ms: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "created_ms": pa.array([created_ms] * count, pa.int64()),
            "line": pa.array([sentence(number, words) for number in numbers], pa.string()),
        }
    )


def records_of(name: str, *, words: int = 5) -> MakeTable:
    """What makes the records: `sentences` are ours, `MODULE:FUNCTION` names a function that makes others."""
    if name == SENTENCES:
        return functools.partial(table, words=words)
    module, _, function = name.partition(":")
    if not (module and function):
        raise InvalidInput(f"records: expected {SENTENCES!r} or MODULE:FUNCTION, found {name!r}")
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"records: {name!r} cannot be imported: {error}") from None
    if not callable(made):
        raise InvalidInput(f"records: expected a function, found {name} = {made!r}")
    return cast("MakeTable", made)


def generate(
    channel: DurableChannel,
    load: Load,
    *,
    make: MakeTable | None = None,
    tick_s: float,
    stopped: Callable[[], bool],
    duration_s: float = float("inf"),
) -> int:
    """Write until stopped; how many records there are now. They are sentences where `make` makes no others."""
    make = make or records_of(SENTENCES)
    channel.create()
    began, due, written = time.monotonic(), 0.0, 0
    first = channel.log.head().records
    at_s = 0.0
    while not stopped() and at_s < duration_s:
        time.sleep(max(0.0, began + at_s + tick_s - time.monotonic()))
        now_s = min(time.monotonic() - began, duration_s)
        due += load.rate_at((at_s + now_s) / 2) * (now_s - at_s)
        at_s = now_s
        count = int(due) - written
        if count > 0:
            channel.append(make(first + written, count, created_ms=round(time.time() * 1000)))
            written += count
    return channel.log.head().records


def main(
    folder: Annotated[Path, typer.Argument(help="The folder of the feed's channel.")],
    load: Annotated[str, typer.Option(help="As in a scenario, e.g. 'steps: [[0, 400], [60, 800]]' or '500'.")],
    words: Annotated[int, typer.Option(help="Words in a sentence.")] = 5,
    tick: Annotated[float, typer.Option(help="Seconds between two writes.")] = 0.25,
    records: Annotated[
        str, typer.Option(help="What to write: sentences, or what MODULE:FUNCTION makes.")
    ] = SENTENCES,
    duration: Annotated[float, typer.Option(help="Seconds; for ever where not given.")] = float("inf"),
) -> None:
    """Write records to a feed at a rate that follows a load, whatever the pipeline does."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    written = read_yaml(load, "--load")
    entry = parse(
        LoadEntry, {"constant": float(written)} if isinstance(written, int | float) else written, "--load"
    )
    generate(
        open_channel(folder),
        entry.load(Path.cwd()),
        make=records_of(records, words=words),
        tick_s=tick,
        duration_s=duration,
        stopped=lambda: bool(stopping),
    )


if __name__ == "__main__":
    run_writer(main, "the load")
