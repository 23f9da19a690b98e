"""The events of Nexmark as a load, in a process of its own: to the feeds of a pipeline, to files, or to Kafka.

    python -m elastream.workloads.nexmark_load out/events --files parquet --load 20000
    python -m elastream.workloads.nexmark_load nexmark --kafka 127.0.0.1:9092 --load 'sine: {mean: 900, ...}'
    python -m elastream.workloads.nexmark_load FEED --streams bids     as `elastream run` starts it

The load is in events a second, of all three streams together; each stream that is asked for gets its share. It is
an open loop: what is due by the clock is written, whatever the reader does. A rate that the machine cannot hold is
told with the one that it held. Started again, it goes on behind what it wrote.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from elastream.arrivals.load import Load
from elastream.arrivals.load_format import LoadEntry
from elastream.arrivals.schedule import Schedule
from elastream.errors import InvalidInput, nearest
from elastream.formats import parse, read_yaml
from elastream.workloads.feed_process import run_writer
from elastream.workloads.nexmark import SCHEMAS, Nexmark, Times, place_after
from elastream.workloads.nexmark_targets import Feeds, FilesOf, Target, Topics

_MOST_AT_ONCE = 200_000
"""Events of a write: a machine that is late catches up in pieces that its memory holds."""
_TELL_EVERY_S = 5.0


@dataclass(kw_only=True)
class RateHeld:
    """The rate that was asked for, and the one that was held."""

    asked: int = 0
    written: int = 0
    asked_s: float = 0.0
    """How long the load was."""
    over_s: float = 0.0
    """How long it took."""

    def text(self) -> str:
        per_s, asked_per_s = (
            round(count / time_s) if time_s else 0
            for count, time_s in ((self.written, self.over_s), (self.asked, self.asked_s))
        )
        text = f"{self.written:,} events in {self.over_s:.1f} s: {per_s:,} a second"
        if not self.is_late:
            return text
        return (
            f"{text}, where {asked_per_s:,} were asked for: {self.asked - self.written:,} are due and not written"
        )

    @property
    def is_late(self) -> bool:
        """By more than a second of the load."""
        return self.asked - self.written > max(1, self.asked / max(self.asked_s, 1.0))


def write_load(
    target: Target,
    nexmark: Nexmark,
    load: Load,
    streams: Sequence[str],
    *,
    tick_s: float,
    stopped: Callable[[], bool],
    duration_s: float = float("inf"),
    tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> RateHeld:
    """Write until stopped; what was held."""
    schedule = Schedule(load)
    places = {stream: place_after(nexmark, stream, target.written(stream)) for stream in streams}
    first = max(places.values())  # one that was killed may have left the others behind
    skipped_s = float(schedule.due_s(np.array([first]))[0])
    began_s, told_s = time.monotonic(), 0.0
    times = _times(schedule, begin_ms=time.time() * 1000 - skipped_s * 1000)
    held, at_s = RateHeld(), 0.0
    while not stopped() and at_s < duration_s:
        time.sleep(max(0.0, began_s + at_s + tick_s - time.monotonic()))
        at_s = min(time.monotonic() - began_s, duration_s)
        _write_due(target, nexmark, schedule.due(skipped_s + at_s), places, times)
        over_s = time.monotonic() - began_s
        asked_s = min(over_s, duration_s)
        asked = schedule.due(skipped_s + asked_s) - first
        held = RateHeld(asked=asked, asked_s=asked_s, written=min(places.values()) - first, over_s=over_s)
        if held.is_late and over_s - told_s > _TELL_EVERY_S:
            told_s = over_s
            tell(held.text())
    return held


def _write_due(target: Target, nexmark: Nexmark, due: int, places: dict[str, int], times: Times) -> None:
    """Of each stream what comes from its place up to what is due, or a part of it; it is then behind that."""
    for stream, place in places.items():
        until = max(place, min(due, place + _MOST_AT_ONCE))
        events = nexmark.table(stream, place, until, times)
        if len(events):
            target.write(stream, events)
        places[stream] = until


def _times(schedule: Schedule, *, begin_ms: float) -> Times:
    return lambda numbers: begin_ms + schedule.due_s(numbers) * 1000


def feed_load(
    *streams: str, load: str | Mapping[str, Any] | float, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """For the `generator` of a pipeline's file: what writes these of its feeds, at so many events a second."""
    written = load if isinstance(load, str) else json.dumps(load)
    return (__name__, "--streams", ",".join(streams), "--load", written, *options)


def main(
    where: Annotated[str, typer.Argument(help="The folder of a feed or of files, or what topics begin with.")],
    load: Annotated[str, typer.Option(help="Events a second, as in a scenario: '500', 'steps: [[0, 400]]'.")],
    streams: Annotated[str, typer.Option(help="Which are written.")] = ",".join(SCHEMAS),
    files: Annotated[str | None, typer.Option(help="To folders of files: parquet or json.")] = None,
    kafka: Annotated[str | None, typer.Option(help="To topics of Kafka: its servers.")] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    group: Annotated[int, typer.Option(help="Out of order within so many events.")] = 1,
    delayed: Annotated[float, typer.Option(help="The share of events that come late.")] = 0.0,
    delay: Annotated[float, typer.Option(help="By up to so many seconds.")] = 3.0,
    hot_auctions: Annotated[float, typer.Option(help="All bids but one in so many are for the hot one.")] = 2.0,
    hot_sellers: Annotated[float, typer.Option(help="All auctions but one in so many are of the hot one.")] = 4.0,
    hot_bidders: Annotated[float, typer.Option(help="All bids but one in so many are of the hot one.")] = 4.0,
    tick: Annotated[float, typer.Option(help="Seconds between two writes.")] = 0.25,
    duration: Annotated[float, typer.Option(help="Seconds; for ever where not given.")] = float("inf"),
) -> None:
    """Write the events of Nexmark at a rate that follows a load, whatever the pipeline does."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    asked = streams_of(streams)
    nexmark = Nexmark(
        seed=seed,
        group=group,
        delayed=delayed,
        delay_s=delay,
        hot_auctions=hot_auctions,
        hot_sellers=hot_sellers,
        hot_bidders=hot_bidders,
    )
    written = read_yaml(load, "--load")
    entry = {"constant": float(written)} if isinstance(written, int | float) else written
    rates = parse(LoadEntry, entry, "--load").load(Path.cwd())
    held = write_load(
        _target(where, files, kafka, asked),
        nexmark,
        rates,
        asked,
        tick_s=tick,
        duration_s=duration,
        stopped=lambda: bool(stopping),
    )
    if held.is_late or not stopping:
        print(held.text(), file=sys.stderr, flush=True)


def streams_of(written: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip() for name in written.split(",")))
    for name in found:
        if name not in SCHEMAS:
            raise InvalidInput(f"--streams: there is no stream {name!r}{nearest(name, SCHEMAS)}")
    return found


def _target(where: str, files: str | None, kafka: str | None, streams: Sequence[str]) -> Target:
    if files is not None and kafka is not None:
        raise InvalidInput("either --files or --kafka was expected, found both")
    if files is not None:
        return FilesOf(Path(where), files, streams)
    return Feeds(Path(where), streams) if kafka is None else Topics(where, kafka, streams)


if __name__ == "__main__":
    run_writer(main, "the events")
