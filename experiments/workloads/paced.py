"""An operator on Spark whose every instance does so many records a second, whatever batches cost besides.

The SEEP thesis sets the processing rate of its operators (5.2.2). With a price for each record alone an instance
on Spark would be slower than that by what a batch costs, which differs from machine to machine. So every instance
has a clock: a record is done a certain time after the one before it, or after it has arrived, and a task waits
until its last record is. What passes between two batches is not lost, if records were waiting; after a long break,
and when an instance is new, its clock begins with the task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame

_BREAK_S = 10.0
"""Batches of a running instance follow each other faster, also on a busy machine."""


def done_s(arrived_s: Iterable[float], *, free_s: float | None, now_s: float, rate_per_s: float) -> float:
    """When an instance is done with these records, if it has been free since, and its task begins now."""
    clock_s = now_s if free_s is None or now_s - free_s > _BREAK_S else free_s
    for at_s in sorted(arrived_s):
        clock_s = max(clock_s, at_s) + 1 / rate_per_s
    return clock_s


def paced(frame: DataFrame, rate_per_s: float, clocks: Path) -> DataFrame:
    """The same records, of a stream with `created_ms`; `clocks` is a folder that its instances write to."""
    folder = str(clocks.absolute())

    def wait(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        records = list(batches)
        context = TaskContext.get()
        assert context is not None
        path, now_s = Path(folder) / f"{context.partitionId()}.json", time.time()
        arrived_s = [created_ms / 1000 for batch in records for created_ms in batch["created_ms"]]
        until_s = done_s(arrived_s, free_s=_read(path), now_s=now_s, rate_per_s=rate_per_s)
        time.sleep(max(0.0, until_s - time.time()))
        _write(path, until_s)
        yield from records

    return frame.mapInPandas(wait, frame.schema)


def _read(path: Path) -> float | None:
    try:
        return float(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _write(path: Path, free_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(free_s), encoding="utf-8")
    os.replace(beside, path)
