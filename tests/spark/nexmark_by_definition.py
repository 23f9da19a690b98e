"""What the queries of Nexmark must put out, from their definitions, in pandas: nothing of the pipelines is used.

A row is a tuple of numbers and texts; times are milliseconds. Where a query says the same again with every change,
its last word counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Events:
    """With `at` and `expires` in milliseconds."""

    persons: pd.DataFrame
    auctions: pd.DataFrame
    bids: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Definition:
    rows: Callable[[Events], list[Row]]
    found: Callable[[Iterable[Row]], list[Row]] = list
    """What is compared of the rows that came out, in their order."""


def frame_of(table: pa.Table) -> pd.DataFrame:
    return in_ms(table).to_pandas()


def in_ms(table: pa.Table) -> pa.Table:
    """With times as milliseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table.column(place).cast(pa.timestamp("ms", field.type.tz)).cast(pa.int64())
            table = table.set_column(place, field.name, times)
    return table


# One record at a time


def _passed(events: Events) -> list[Row]:
    return _rows(events.bids)


def _in_euros(events: Events) -> list[Row]:
    return _rows(events.bids.assign(price=events.bids["price"] * 908 // 1000))


def _asked_for(events: Events) -> list[Row]:
    return _rows(events.bids[events.bids["auction"] % 123 == 0][["auction", "price"]])


def _described(events: Events) -> list[Row]:
    bids = events.bids[["auction", "bidder", "price", "at"]].copy()
    return _rows(bids.assign(value=[f"side-{auction % 10_000}" for auction in bids["auction"]]))


def _computed(events: Events) -> list[Row]:
    euros = events.bids["price"] * 908
    bids = events.bids[(euros > 1_000_000_000) & (euros < 50_000_000_000)]
    hours = bids["at"] // 3_600_000 % 24
    names = ["day" if 8 <= hour <= 18 else "other" if 6 < hour < 20 else "night" for hour in hours]
    letters = [extra.count("c") for extra in bids["extra"]]
    frame = bids.assign(price=bids["price"] * 908 // 1000, time=names, letters=letters)
    return _rows(frame[["auction", "bidder", "price", "time", "at", "letters"]])


def _with_channel(events: Events) -> list[Row]:
    large = {"Google": "0", "Facebook": "1", "Baidu": "2", "Apple": "3"}
    bids = events.bids
    said = [
        large.get(channel) or (url.split("&channel_id=")[1] if "&channel_id=" in url else None)
        for channel, url in zip(bids["channel"], bids["url"], strict=True)
    ]
    frame = bids[["auction", "bidder", "price", "channel"]].assign(number=said)
    return _rows(frame[frame["number"].notna()])


def _folders(events: Events) -> list[Row]:
    bids = events.bids
    rows = _rows(bids[["auction", "bidder", "price", "channel"]])
    return [(*row, *url.split("/")[3:6]) for row, url in zip(rows, bids["url"], strict=True)]


# Joins of all that came


def _local_sellers(events: Events) -> list[Row]:
    persons = events.persons[events.persons["state"].isin(["OR", "ID", "CA"])]
    auctions = events.auctions[events.auctions["category"] == 10]
    both = auctions.merge(persons, left_on="seller", right_on="id", suffixes=("_auction", ""))
    return _rows(both[["name", "city", "state", "id_auction"]])


def _expanded(events: Events) -> list[Row]:
    auctions = events.auctions[events.auctions["category"] == 10][["id", "item", "seller", "reserve"]]
    both = events.bids[["auction", "bidder", "price", "at"]].merge(auctions, left_on="auction", right_on="id")
    return _rows(both.drop(columns="id"))


def _bids_of_sellers(events: Events) -> list[Row]:
    auctions = events.auctions[["id", "seller", "item"]].rename(columns={"id": "sells"})
    sellers = events.persons[["id", "name"]].merge(auctions, left_on="id", right_on="seller")
    both = events.bids[["bidder", "auction", "price", "at"]].merge(sellers, left_on="bidder", right_on="id")
    return _rows(both[["bidder", "auction", "price", "at", "name", "sells", "item"]])


# Windows and auctions that end


def _hottest(events: Events) -> list[Row]:
    """Of every ten seconds that begin at an even one, the auctions with the most bids."""
    size_ms, slide_ms = 10_000, 2_000
    begins = events.bids["at"] // slide_ms * slide_ms
    opened = pd.concat(
        [events.bids[["auction"]].assign(start=begins - back) for back in range(0, size_ms, slide_ms)]
    )
    counts = opened.groupby(["start", "auction"]).size().reset_index(name="n")
    return _rows(counts[counts["n"] == counts.groupby("start")["n"].transform("max")])


def _highest(events: Events) -> list[Row]:
    bids = events.bids[["auction", "bidder", "price", "at"]]
    most = bids.groupby(bids["at"] // 10_000)["price"].transform("max")
    return _rows(bids[bids["price"] == most])


def _new_sellers(events: Events) -> list[Row]:
    persons = events.persons.assign(start=events.persons["at"] // 10_000 * 10_000)
    auctions = events.auctions.assign(start=events.auctions["at"] // 10_000 * 10_000)[["seller", "start"]]
    both = persons.merge(auctions.drop_duplicates(), left_on=["id", "start"], right_on=["seller", "start"])
    return _rows(both[["id", "name", "start"]])


def _sessions(events: Events) -> list[Row]:
    gap_ms = 10_000
    bids = events.bids[["bidder", "at"]].sort_values(["bidder", "at"])
    begins = (bids["bidder"] != bids["bidder"].shift()) | (bids["at"] - bids["at"].shift() > gap_ms)
    grouped = bids.groupby(begins.cumsum()).agg({"bidder": ["first", "size"], "at": ["min", "max"]})
    return [(bidder, count, first, last + gap_ms) for bidder, count, first, last in _rows(grouped)]


def _winning(events: Events) -> list[Row]:
    return _rows(_winners(events))


def _averages(events: Events) -> list[Row]:
    return _rows(_winners(events).groupby("category")["price"].agg(["sum", "size"]).reset_index())


def _winners(events: Events) -> pd.DataFrame:
    auctions = events.auctions[["id", "category", "at", "expires"]]
    both = auctions.merge(events.bids, left_on="id", right_on="auction", suffixes=("_auction", ""))
    in_time = both[(both["at"] >= both["at_auction"]) & (both["at"] <= both["expires"])]
    best = in_time.sort_values(["price", "at", "bidder"], ascending=[False, True, False]).groupby("id").first()
    return best.reset_index()[["id", "category", "expires", "price", "bidder"]]


# Aggregates whose last word counts


def _statistics(events: Events) -> list[Row]:
    bids = events.bids.assign(day=events.bids["at"] // 86_400_000)
    low, high = bids["price"] < 10_000, bids["price"] >= 1_000_000
    bids = bids.assign(low=low, middle=~low & ~high, high=high)
    grouped = bids.groupby(["auction", "day"])
    counts = grouped.agg({"price": "size", "low": "sum", "middle": "sum", "high": "sum"})
    return _rows(counts.join(grouped["price"].agg(["min", "max", "sum"])).reset_index())


def _last_bids(events: Events) -> list[Row]:
    ordered = events.bids.sort_values(["at", "price"])
    return _rows(ordered.groupby(["bidder", "auction"])[["at", "price"]].last().reset_index())


def _ten_highest(events: Events) -> list[Row]:
    ordered = events.bids.sort_values(["price", "at", "bidder"], ascending=False)
    return _rows(ordered.groupby("auction").head(10)[["auction", "price", "at", "bidder"]])


def _bids_by_bidder(events: Events) -> list[Row]:
    return _rows(events.bids.groupby("bidder").size().reset_index())


# What is compared of what came out


def _last_of(keys: int) -> Callable[[Iterable[Row]], list[Row]]:
    return lambda rows: list({row[:keys]: row for row in rows}.values())


def _flat(rows: Iterable[Row]) -> list[Row]:
    last = dict(rows)
    return [
        (auction, bid["price"], round(bid["at"].timestamp() * 1000), bid["bidder"])
        for auction, bids in last.items()
        for bid in bids
    ]


def _summed(rows: Iterable[Row]) -> list[Row]:
    """Which window of the clock a bid fell into is nobody's to say: that each is in one is."""
    counts: Counter[int] = Counter()
    for bidder, count, start in rows:
        assert start % 10_000 == 0
        counts[bidder] += count
    return list(counts.items())


def _rows(frame: pd.DataFrame) -> list[Row]:
    columns: Iterator[list[Any]] = (frame.iloc[:, place].tolist() for place in range(frame.shape[1]))
    return list(zip(*columns, strict=True))


DEFINITIONS: Mapping[str, Definition] = {
    "q0": Definition(rows=_passed),
    "q1": Definition(rows=_in_euros),
    "q2": Definition(rows=_asked_for),
    "q3": Definition(rows=_local_sellers),
    "q4": Definition(rows=_averages, found=_last_of(1)),
    "q5": Definition(rows=_hottest),
    "q7": Definition(rows=_highest),
    "q8": Definition(rows=_new_sellers),
    "q9": Definition(rows=_winning),
    "q11": Definition(rows=_sessions),
    "q12": Definition(rows=_bids_by_bidder, found=_summed),
    "q13": Definition(rows=_described),
    "q14": Definition(rows=_computed),
    "q17": Definition(rows=_statistics, found=_last_of(2)),
    "q18": Definition(rows=_last_bids, found=_last_of(2)),
    "q19": Definition(rows=_ten_highest, found=_flat),
    "q20": Definition(rows=_expanded),
    "q21": Definition(rows=_with_channel),
    "q22": Definition(rows=_folders),
    "q23": Definition(rows=_bids_of_sellers),
}
