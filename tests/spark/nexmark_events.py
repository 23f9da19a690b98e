"""Persons, auctions and bids as the generator of Nexmark makes them, as columns: what its windowed queries need.

Of 50 events one is a person, three are auctions and 46 bids. Events come at an even rate, out of order within
groups. Half of the bids go to the hot auction, three of four auctions belong to the hot seller: the first of the
newest hundred; the others to any of the last ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from event_time_inputs import BEGIN_MS

SCHEMAS = {
    "persons": "id bigint, at timestamp",
    "auctions": "id bigint, seller bigint, at timestamp",
    "bids": "auction bigint, bidder bigint, price bigint, at timestamp",
}
_OF_A_GROUP = 500
_HOT = 100
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Events:
    persons: pd.DataFrame
    auctions: pd.DataFrame
    bids: pd.DataFrame
    """Each in the order in which they come."""

    def write(self, folder: Path, *, files: int) -> None:
        for name in SCHEMAS:
            (folder / name).mkdir(parents=True)
            frame = getattr(self, name)
            for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
                part = frame.iloc[rows]
                times = pa.array(part["at_ms"].to_numpy(), pa.timestamp("ms", tz="UTC"))
                table = pa.Table.from_pandas(part.drop(columns="at_ms"), preserve_index=False)
                pq.write_table(table.append_column("at", times), folder / name / f"{number:05d}.parquet")


def draw_events(count: int, *, span_s: float, seed: int) -> Events:
    """So many, evenly over so many seconds."""
    chance = np.random.default_rng(seed)
    number = np.arange(count)
    mixed = number // _OF_A_GROUP * _OF_A_GROUP + number * 953 % _OF_A_GROUP  # adjusted for the order of events
    at = BEGIN_MS + (mixed * span_s * 1000 / count).astype(np.int64)
    epoch, place = mixed // 50, mixed % 50
    newest_auction = np.where(place == 0, epoch * 3 - 1, epoch * 3 + np.minimum(place - 1, 2))
    person, auction, bid = place == 0, (place > 0) & (place < 4), place >= 4
    return Events(
        persons=pd.DataFrame({"id": epoch[person], "at_ms": at[person]}),
        auctions=pd.DataFrame(
            {
                "id": newest_auction[auction],
                "seller": _one_of(chance, epoch[auction], hot=0.75, last=1000),
                "at_ms": at[auction],
            }
        ),
        bids=pd.DataFrame(
            {
                "auction": _one_of(chance, newest_auction[bid], hot=0.5, last=100),
                "bidder": _one_of(chance, epoch[bid], hot=0.75, last=1000),
                "price": np.round(10 ** (6 * chance.random(int(bid.sum()))) * 100).astype(np.int64),
                "at_ms": at[bid],
            }
        ),
    )


def _one_of(chance: np.random.Generator, newest: Numbers, *, hot: float, last: int) -> Numbers:
    """With this probability the hot one, else any of the last so many."""
    any_one = newest - (chance.random(len(newest)) * np.minimum(newest + 1, last)).astype(np.int64)
    return np.where(chance.random(len(newest)) < hot, newest // _HOT * _HOT, any_one)
