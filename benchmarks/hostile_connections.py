"""What 10,000 connections, idle, slow and hostile, cost a pipeline on Spark and a master of agents.

The page: the pipeline of `serving-viewers` at full speed, in windows in each of which so many come (`crowd.py`),
and in as many without. A machine's speed changes by more between two windows than what is looked for, and those
who connect are on this machine, though they need not be. So what is bounded is the processor time that the
driver's Python, where the server is, takes more; the throughput of the pairs is shown beside it.

The master: a process of its own with agents that read once a second, of which no reading may be lost.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psutil

from benchmarks import monitoring_master, serving_viewers
from benchmarks.measure import Measure, Report
from benchmarks.spread import median_between, ratio_of_pairs
from elastream.web.address import LOOPBACK
from elastream.web.feed import Feed

CONNECTIONS = 10_000
MOST_PERCENT = 3.0
MOST_MB = 100.0
MOST_LINES = 100
_AGENTS = 20
_AFTERWARDS_S = 10.0  # all time-outs of connections are shorter, but that of a request


@dataclass
class _Memory:
    """Of a process, beyond what it had before; a look after each crowd has come, and one in the end."""

    process: psutil.Process
    before: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        self.before = self.process.memory_info().rss

    def look(self) -> float:
        grown = self.process.memory_info().rss - self.before
        self.most = max(self.most, grown)
        return grown / 1e6


def run(*, connections: int = CONNECTIONS, pairs: int = 7, window_s: float = 20.0) -> Report:
    page, notes = _page(connections, pairs, window_s)
    return Report(
        measures=(*page, *_master(connections, window_s)),
        notes=(f"{connections:,} connections within {window_s:g} s, {pairs} times; then at a master", *notes),
    )


# The page, beside Spark


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.name.startswith(("elastream", "uvicorn", "asyncio"))


def _page(connections: int, pairs: int, window_s: float) -> tuple[list[Measure], list[str]]:
    lines, this = _Lines(), psutil.Process()
    memory: list[_Memory] = []

    @contextmanager
    def crowded(_: Feed, port: int) -> Iterator[list[psutil.Process]]:
        memory[:] = memory or [_Memory(this)]
        with crowd(port, connections, window_s) as process:
            yield [this]
            _await_all(process)
            memory[0].look()

    logging.getLogger().addHandler(lines)
    try:
        found = serving_viewers.compared(crowded, pairs=pairs, window_s=window_s)
    finally:
        logging.getLogger().removeHandler(lines)
    lost = ratio_of_pairs([(on.records_per_s, off.records_per_s) for on, off in found]).minus_from(1.0)
    taken = median_between([on.page_share - off.page_share for on, off in found])
    measures = [
        Measure(what="throughput lost", value=100 * lost.value, unit="%", between=_percent(lost.between)),
        Measure(
            what="processor time that the server takes",
            value=100 * taken.value,
            unit="%",
            between=_percent(taken.between),
            at_most=MOST_PERCENT,
        ),
        Measure(
            what="memory of the driver's Python: most", value=memory[0].most / 1e6, unit="MB", at_most=MOST_MB
        ),
        Measure(what="the same afterwards", value=memory[0].look(), unit="MB", at_most=MOST_MB),
        Measure(what="lines in the log", value=lines.count, unit="", at_most=MOST_LINES),
    ]
    return measures, [f"throughput without: {median(off.records_per_s for _, off in found):,.0f} records/s"]


def _percent(between: tuple[float, float]) -> tuple[float, float]:
    return 100 * between[0], 100 * between[1]


@contextmanager
def crowd(port: int, connections: int, within_s: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.crowd", LOOPBACK, str(port), str(connections), str(within_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _await_all(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    came = process.stdout.readline().split()
    if len(came) != 2:
        raise RuntimeError("the connections were not made")
    return int(came[0])


# The master


def _master(connections: int, window_s: float) -> list[Measure]:
    memory: list[_Memory] = []
    came, left = 0, 0.0

    def meanwhile(pid: int, port: int) -> None:
        nonlocal came, left
        memory.append(_Memory(psutil.Process(pid)))
        with crowd(port, connections, window_s) as process:
            came = _await_all(process)
            memory[0].look()
        time.sleep(_AFTERWARDS_S)
        left = memory[0].look()

    with tempfile.TemporaryFile("w+") as said:
        seen = monitoring_master.observe("rules", agents=_AGENTS, duration_s=1.0, meanwhile=meanwhile, errors=said)
        said.seek(0)
        lines = len(said.readlines())
    return [
        Measure(what="connections that came to the master", value=came, unit="", at_least=0.99 * connections),
        Measure(what="readings of agents that were lost", value=seen.lost, unit="", at_most=0),
        Measure(what="memory of the master: most", value=memory[0].most / 1e6, unit="MB", at_most=MOST_MB),
        Measure(what="the same afterwards", value=left, unit="MB", at_most=MOST_MB),
        Measure(what="lines in its log", value=lines, unit="", at_most=MOST_LINES),
    ]
