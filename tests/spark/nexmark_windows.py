"""Windows like those of Nexmark's Q5 (hot items) and Q8 (new users) over a backlog, beside one in pandas.

python tests/spark/nexmark_windows.py --events 1000000    `make event-time` runs it
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from event_time_hosts import InThisProcess
from event_time_kinds import Row, differences, in_windows
from event_time_surroundings import surroundings
from nexmark_events import SCHEMAS, Events, draw_events
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import kept, records

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind, Files
from elastream.engines.spark.pipeline import Pipeline

SPAN_S = 100.0
DELAY_MS = 2_000
SIZE_MS, SLIDE_MS = 10_000, 2_000
_DELAY, _SIZE, _SLIDE = (f"{milliseconds} milliseconds" for milliseconds in (DELAY_MS, SIZE_MS, SLIDE_MS))


def _source(pipeline: Pipeline, folder: Path, name: str) -> None:
    def source(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMAS[name]).parquet(str(folder / name))

    source.__name__ = name
    pipeline.source(source)


def hot_items(folder: Path) -> Pipeline:
    """Q5: of each sliding window the auction with the most bids, by its number where there are several."""
    pipeline = Pipeline("hot_items")
    _source(pipeline, folder, "bids")

    @pipeline.operator(reads="bids", state_partitions=2)
    def counts(bids: DataFrame) -> DataFrame:
        return bids.withWatermark("at", _DELAY).groupBy(F.window("at", _SIZE, _SLIDE), "auction").count()

    @pipeline.operator(reads="counts", state_partitions=2)
    def hottest(counts: DataFrame) -> DataFrame:
        most = counts.groupBy("window").agg(F.max(F.struct("count", "auction")).alias("most"))
        return most.select(F.unix_millis("window.start").alias("start"), "most.auction", "most.count")

    pipeline.keep("all", reads="hottest", folder=kept(folder, "all"))
    return pipeline


def hottest_by_definition(events: Events) -> list[Row]:
    """Of the windows that are closed in the end, in their order."""
    opened = in_windows(events.bids, SIZE_MS, SLIDE_MS)
    counts = opened.groupby(["start", "auction"]).size().reset_index(name="n")
    most = counts.sort_values(["n", "auction"]).groupby("start").last().reset_index()
    closed = most[most["start"] + SIZE_MS <= events.bids["at_ms"].max() - DELAY_MS]
    return list(zip(closed["start"].tolist(), closed["auction"].tolist(), closed["n"].tolist(), strict=True))


def new_users(folder: Path) -> Pipeline:
    """Q8: persons who opened an auction in the window in which they came, each once."""
    pipeline = Pipeline("new_users")
    _source(pipeline, folder, "persons")
    _source(pipeline, folder, "auctions")

    @pipeline.operator(reads=("persons", "auctions"), state_partitions=2)
    def sellers(persons: DataFrame, auctions: DataFrame) -> DataFrame:
        window = F.window("at", _SIZE)
        came = persons.withWatermark("at", _DELAY).select("id", window.alias("window"))
        sold = auctions.withWatermark("at", _DELAY).select(F.col("seller"), window.alias("opened"))
        same = (F.col("id") == F.col("seller")) & (F.col("window") == F.col("opened"))
        return came.join(sold, same).select("id", F.col("window.start").alias("start"))

    @pipeline.operator(reads="sellers", state_partitions=2)
    def once(sellers: DataFrame) -> DataFrame:
        """A pair comes with the later of the two, so windows overlap by one."""
        first = sellers.withWatermark("start", f"{2 * SIZE_MS} milliseconds").dropDuplicates(["id", "start"])
        return first.select(F.unix_millis("start").alias("start"), "id")

    pipeline.keep("all", reads="once", folder=kept(folder, "all"))
    return pipeline


def new_users_by_definition(events: Events) -> list[Row]:
    windows = [
        frame.assign(start=frame["at_ms"] // SIZE_MS * SIZE_MS) for frame in (events.persons, events.auctions)
    ]
    both = pd.merge(windows[0], windows[1], left_on=["id", "start"], right_on=["seller", "start"])
    pairs = both[["start", "id_x"]].drop_duplicates()
    return list(zip(pairs["start"].tolist(), pairs["id_x"].tolist(), strict=True))


def run_pipeline(spark: SparkSession, pipeline: Pipeline, folder: Path, channels: ChannelKind) -> list[Row]:
    with InThisProcess(spark, lambda: pipeline, folder, channels) as host:
        host.settle()
    return list(records(FileChannel(kept(folder, "all"))))


def hot_item_faults(found: list[Row], expected: list[Row]) -> list[str]:
    """The last windows may still be open in the second operator, whose watermark follows those that it saw."""
    least = SIZE_MS // SLIDE_MS
    if len(found) < len(expected) - least:
        return [f"{len(found)} windows of {len(expected)} came out"]
    return differences("by definition", found, expected[: len(found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexmark-") as name:
        folder = Path(name)
        with surroundings("files", folder / "spark.log") as (spark, _):
            failed = _tell(spark, folder, draw_events(given.events, span_s=SPAN_S, seed=given.seed))
    sys.exit(1 if failed else None)


def _tell(spark: SparkSession, folder: Path, events: Events) -> bool:
    failed = False
    for title, declare in (("hot items (Q5)", hot_items), ("new users (Q8)", new_users)):
        place = folder / declare.__name__
        events.write(place, files=100)
        began_s = time.monotonic()
        found = run_pipeline(spark, declare(place), place, Files())
        took_s = time.monotonic() - began_s
        if declare is hot_items:
            faults = hot_item_faults(found, hottest_by_definition(events))
        else:
            faults = differences("by definition", found, new_users_by_definition(events))
        total = sum(len(frame) for frame in (events.persons, events.auctions, events.bids))
        said = "; ".join(faults) or "as by definition"
        print(f"{title} over {total:,} events: {len(found):,} rows in {took_s:.0f} s, {said}", flush=True)
        failed |= bool(faults)
    return failed


if __name__ == "__main__":
    main()
