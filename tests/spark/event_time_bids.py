"""Bids over a backlog, counted by window and key: most of them were lost once.

python tests/spark/event_time_bids.py    all forms in full; `make event-time` runs it
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from event_time_hosts import Host, InItsOwnProcess, InThisProcess
from event_time_inputs import BEGIN_MS, SCHEMA, Incoming
from event_time_kinds import Row, differences
from event_time_surroundings import surroundings
from plain import PlainQuery, composed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import kept, records

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.workspace import Workspace

BIDS, FILES, SPAN_MS, KEYS = 60_000, 200, 100_000, 10
DELAY_MS = 10_000
PARTITIONS = 4
_NAME = "bids_by_window"


@dataclass(frozen=True, kw_only=True)
class Form:
    window_s: int
    how: str = "left alone"
    """Or `killed` in the middle, or `rescaled` in every second batch."""
    bids: int = BIDS
    files: int = FILES


# What goes in, and what must come out


def bids(count: int) -> pd.DataFrame:
    """In the order of their event time."""
    numbers = np.arange(count)
    at = BEGIN_MS + numbers * SPAN_MS // count
    return pd.DataFrame({"id": numbers, "uid": numbers, "key": numbers * 7 % KEYS, "value": 1, "at_ms": at})


def write_bids(folder: Path, form: Form) -> None:
    every, all_bids = form.bids // form.files, bids(form.bids)
    Incoming(folder / "bids").add(all_bids.iloc[first : first + every] for first in range(0, form.bids, every))


def closed_windows(form: Form) -> list[Row]:
    """By its start and key, how many bids a window has, of those that the watermark has passed in the end."""
    all_bids, size_ms = bids(form.bids), form.window_s * 1000
    starts = all_bids["at_ms"] - all_bids["at_ms"] % size_ms
    counts = Counter(zip(starts.tolist(), all_bids["key"].tolist(), strict=True))
    watermark_ms = int(all_bids["at_ms"].max()) - DELAY_MS
    return [(start, key, n) for (start, key), n in counts.items() if start + size_ms <= watermark_ms]


def bids_pipeline(folder: Path, *, window_s: int) -> Pipeline:
    pipeline = Pipeline(_NAME)

    @pipeline.source
    def bids(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).json(str(folder / "bids"))

    @pipeline.operator(reads="bids", max_parallelism=4)
    def real(bids: DataFrame) -> DataFrame:
        return bids.where("value > 0")

    @pipeline.operator(reads="real", state_partitions=PARTITIONS)
    def counts(real: DataFrame) -> DataFrame:
        timed = real.withWatermark("at", f"{DELAY_MS} milliseconds")
        windows = timed.groupBy(F.window("at", f"{window_s} seconds"), "key").count()
        return windows.select(F.unix_millis("window.start").alias("start"), "key", "count")

    pipeline.keep("all_counts", reads="counts", folder=kept(folder, "all_counts"))
    return pipeline


# Running it


def plain_counts(spark: SparkSession, folder: Path, form: Form) -> list[Row]:
    """The same functions as one query of plain Spark."""
    write_bids(folder, form)
    frame = composed(spark, bids_pipeline(folder, window_s=form.window_s), "counts")
    with PlainQuery(spark, frame, state_partitions=PARTITIONS) as query:
        query.settle()
        return query.rows()


def counts_here(spark: SparkSession, folder: Path, form: Form, channels: ChannelKind) -> list[Row]:
    write_bids(folder, form)
    watch = Watch(folder, channels)
    with _host(spark, folder, form, channels) as host:
        if form.how == "killed":
            host.break_off("kill")
        while form.how == "rescaled" and not watch.is_drained():
            _rescale(host, watch)
        host.settle()
    return list(records(FileChannel(kept(folder, "all_counts"))))


def _host(spark: SparkSession, folder: Path, form: Form, channels: ChannelKind) -> InThisProcess | InItsOwnProcess:
    if form.how != "killed":
        declare = partial(bids_pipeline, folder, window_s=form.window_s)
        return InThisProcess(spark, declare, folder, channels)
    # in Kafka the backlog is one commit, and so one batch of each
    in_the_middle = "real/1" if isinstance(channels, Kafka) else "counts/3"
    crash_at = f"{CrashPoint.AFTER_THE_PUBLICATION}/{in_the_middle}"
    return InItsOwnProcess(["--bids", str(form.window_s)], folder, channels, crash_at=crash_at)


def _rescale(host: Host, watch: Watch) -> None:
    """After two further batches, to another parallelism than now."""
    done = watch.batches()
    host.wait_until(lambda: watch.batches() >= done + 2 or watch.is_drained(), "two batches further")
    turn = 1 + done % 2
    host.rescale({"real": 2 * turn, "counts": PARTITIONS // turn})


class Watch:
    """What the folder of a run tells of how far it is."""

    def __init__(self, folder: Path, channels: ChannelKind) -> None:
        self._pipeline = bids_pipeline(folder, window_s=1)
        self._workspace = Workspace(folder / "run", _NAME, channels)

    def batches(self) -> int:
        """Of the windows, as far as Spark has noted that they are done."""
        return sum(1 for _ in self._workspace.checkpoint("counts").glob("commits/[0-9]*"))

    def is_drained(self) -> bool:
        log = self._workspace.channel
        taken = log("bids").log.head().records > 0  # all of it comes in the first batch
        return taken and not any(
            log(read).log.pending(name) for read, name in (("bids", "real"), ("real", "counts"))
        )


# All of it


def main() -> None:
    """In one session, with Kafka's connector in it: a Java keeps the class path with which it began."""
    failed = False
    with (
        tempfile.TemporaryDirectory(prefix="bids-") as name,
        surroundings("kafka", Path(name) / "spark.log") as (spark, broker),
    ):
        assert broker is not None
        kinds = {"kafka": Kafka(servers=broker.servers), "files": Files()}
        for kind, window_s, how in product(kinds, (10, 60), ("left alone", "killed", "rescaled")):
            folder = Path(name) / f"{kind}-{window_s}-{how.replace(' ', '-')}"
            failed |= not _tell(spark, folder, Form(window_s=window_s, how=how), kind, kinds[kind])
    sys.exit(1 if failed else None)


def _tell(spark: SparkSession, folder: Path, form: Form, kind: str, channels: ChannelKind) -> bool:
    plain = plain_counts(spark, folder / "plain", form)
    began_s = time.monotonic()
    found = counts_here(spark, folder / "elastream", form, channels)
    took_s = time.monotonic() - began_s
    faults = [*differences("by definition", found, closed_windows(form)), *differences("plain", found, plain)]
    counted, of = (sum(row[2] for row in rows) for rows in (found, plain))
    what = f"{form.window_s} s windows over {form.bids:,} bids, channels of {kind}, {form.how}"
    print(f"{what}: {counted:,} of {of:,} counted in {took_s:.0f} s; {'; '.join(faults) or 'ok'}", flush=True)
    return not faults


if __name__ == "__main__":
    main()
