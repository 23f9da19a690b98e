"""Bids over a backlog: counts by window and key, of which most were lost once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from event_time_inputs import BEGIN_MS, SCHEMA, Incoming
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import kept

from elastream.engines.spark.pipeline import Pipeline

BIDS, FILES, SPAN_MS, KEYS = 60_000, 200, 100_000, 10
DELAY_MS = 10_000
PARTITIONS = 4


def bids(count: int = BIDS, span_ms: int = SPAN_MS) -> pd.DataFrame:
    """In the order of their event time."""
    numbers = np.arange(count)
    at = BEGIN_MS + numbers * span_ms // count
    return pd.DataFrame({"id": numbers, "uid": numbers, "key": numbers * 7 % KEYS, "value": 1, "at_ms": at})


def write_bids(folder: Path, count: int = BIDS, files: int = FILES) -> None:
    every = count // files
    all_bids = bids(count)
    Incoming(folder / "bids").add(all_bids.iloc[first : first + every] for first in range(0, count, every))


def closed_windows(window_s: int, count: int = BIDS) -> Counter[tuple[int, int]]:
    """By its start and key, how many bids a window has, of those that the watermark has passed in the end."""
    all_bids, size_ms = bids(count), window_s * 1000
    starts = all_bids["at_ms"] - all_bids["at_ms"] % size_ms
    counts = all_bids.groupby([starts, "key"]).size()
    watermark_ms = int(all_bids["at_ms"].max()) - DELAY_MS
    return Counter({of: int(n) for of, n in counts.items() if of[0] + size_ms <= watermark_ms})


def bids_pipeline(folder: Path, *, window_s: int) -> Pipeline:
    pipeline = Pipeline("bids_by_window")

    @pipeline.source
    def bids(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).json(str(folder / "bids"))

    @pipeline.operator(reads="bids", max_parallelism=4)
    def real(bids: DataFrame) -> DataFrame:
        return bids.where("value > 0")

    @pipeline.operator(reads="real", state_partitions=PARTITIONS)
    def counts(real: DataFrame) -> DataFrame:
        windows = real.withWatermark("at", f"{DELAY_MS} milliseconds").groupBy(
            F.window("at", f"{window_s} seconds"), "key"
        )
        return windows.count().select(F.unix_millis("window.start").alias("start"), "key", "count")

    pipeline.keep("all_counts", reads="counts", folder=kept(folder, "all_counts"))
    return pipeline
