"""How many events of Nexmark a core can make, as columns, and write to files: it is not to be what is measured."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import Measure, Report, median_cpu_s
from elastream.workloads.nexmark import SCHEMAS, Nexmark, evenly
from elastream.workloads.nexmark_targets import FilesOf

_AT_ONCE = 25_000
_LEAST_PER_S = 100_000.0


def run(*, events: int = 1_000_000, repeats: int = 5) -> Report:
    nexmark = Nexmark(group=500, delayed=0.1)
    due_ms = evenly(events_per_s=_LEAST_PER_S, begin_ms=0)

    def make() -> None:
        for first in range(0, events, _AT_ONCE):
            for stream in SCHEMAS:
                nexmark.table(stream, first, first + _AT_ONCE, due_ms)

    def write(target: FilesOf) -> None:
        for first in range(0, events, _AT_ONCE):
            for stream in SCHEMAS:
                target.write(stream, nexmark.table(stream, first, first + _AT_ONCE, due_ms))

    def per_s(cpu_s: float) -> float:
        return events / cpu_s

    with tempfile.TemporaryDirectory(prefix="elastream-bench-") as folder:
        made_s = median_cpu_s(lambda _: make(), prepare=lambda: None, repeats=repeats)
        written_s = {
            kind: median_cpu_s(
                write, prepare=lambda kind=kind: FilesOf(Path(folder), kind, tuple(SCHEMAS)), repeats=repeats
            )
            for kind in ("parquet", "json")
        }
    unit = "/s"
    return Report(
        measures=(
            Measure(what="events made", value=per_s(made_s), unit=unit, at_least=_LEAST_PER_S),
            Measure(
                what="made and written as Parquet",
                value=per_s(written_s["parquet"]),
                unit=unit,
                at_least=_LEAST_PER_S,
            ),
            Measure(what="made and written as JSON", value=per_s(written_s["json"]), unit=unit),
        ),
        notes=(f"{events:,} events, {_AT_ONCE:,} at once, per second of processor time of one core",),
    )
