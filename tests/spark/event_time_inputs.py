"""Streams of records with an event time, drawn at random: how far they are out of order, and in which files they
come, is known.

A stream is a list of groups, what one batch of a source brings where it is told how many files to take; a group is
a list of files. All files of a group cover the same span of event time, as the partitions of a topic do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd

SCHEMA = "id bigint, uid bigint, key bigint, value bigint, at timestamp"
BEGIN_MS = int(datetime(2026, 11, 15, 6, 0, tzinfo=UTC).timestamp() * 1000)
TICK_MS = 100
"""All event times are multiples of it; gaps of sessions are not, so that no session touches another."""
_HOUR_MS = 3_600_000
_FIRST_WRITTEN_S = 1_700_000_000  # Spark takes files in the order in which they were written, by their own times


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a stream is to be."""

    records: int
    span_s: float
    keys: int
    groups: int
    files: int
    """Of each group."""
    out_of_order_s: float = 0.0
    """So much later than its event time a record may come."""
    repeated: float = 0.0
    """The share of records that come a second time, with another id and the same uid."""
    repeats_after_s: float = 0.0
    """So much later, at the most, is the event time of the second; 0 where it is the same."""
    bursts: bool = False
    """Groups of very different sizes, and event times that crowd together."""


@dataclass(frozen=True)
class Stream:
    groups: tuple[tuple[pd.DataFrame, ...], ...]

    @cached_property
    def files(self) -> tuple[pd.DataFrame, ...]:
        return tuple(file for group in self.groups for file in group)

    @cached_property
    def records(self) -> pd.DataFrame:
        return together(self.files)

    @property
    def last_ms(self) -> int:
        return int(self.records["at_ms"].max())

    def closed(self, *, after_ms: int) -> Stream:
        """With a few records at its end, each an hour after the other, that let every watermark pass the rest."""
        closing = [
            pd.DataFrame(
                {"id": [-n], "uid": [-n], "key": [-1], "value": [1], "at_ms": [after_ms + n * _HOUR_MS]},
                dtype="int64",
            )
            for n in (1, 2, 3)
        ]
        return Stream((*self.groups, *((file,) for file in closing)))

    def until(self, groups: int) -> Stream:
        """Only its first groups: then it is idle."""
        return Stream(self.groups[:groups])


def together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(list(frames), ignore_index=True)


def draw_stream(chance: Random, shape: Shape) -> Stream:
    numbers = np.random.default_rng(chance.getrandbits(64))
    records = _draw_records(numbers, shape)
    order = np.argsort(records.pop("comes_ms"), kind="stable")
    records = records.iloc[order].reset_index(drop=True)
    records.insert(0, "id", np.arange(len(records)))
    return Stream(tuple(_in_files(numbers, group, shape.files) for group in _in_groups(numbers, records, shape)))


def _draw_records(numbers: np.random.Generator, shape: Shape) -> pd.DataFrame:
    """With the time at which each comes."""
    count, ticks = shape.records, int(shape.span_s * 1000 / TICK_MS)
    at = numbers.integers(0, ticks, count)
    if shape.bursts:  # half of them around a few moments
        moments = numbers.integers(0, ticks, 5)
        crowded = moments[numbers.integers(0, 5, count)] + numbers.integers(0, 10, count)
        at = np.where(numbers.random(count) < 0.5, np.minimum(crowded, ticks - 1), at)
    records = pd.DataFrame(
        {
            "uid": np.arange(count),
            "key": numbers.integers(0, shape.keys, count),
            "value": numbers.integers(1, 100, count),
            "at_ms": BEGIN_MS + at * TICK_MS,
        }
    )
    if shape.repeated > 0:
        again = records[numbers.random(count) < shape.repeated].copy()
        most = int(shape.repeats_after_s * 1000 / TICK_MS)
        again["at_ms"] += numbers.integers(0, most + 1, len(again)) * TICK_MS
        records = together([records, again])
    records["comes_ms"] = records["at_ms"] + numbers.random(len(records)) * shape.out_of_order_s * 1000
    return records


def _in_groups(numbers: np.random.Generator, records: pd.DataFrame, shape: Shape) -> list[pd.DataFrame]:
    sizes = numbers.dirichlet(np.full(shape.groups, 0.7 if shape.bursts else 20.0))
    edges = np.round(np.cumsum(sizes)[:-1] * len(records)).astype(int)
    edges = [0, *edges.tolist(), len(records)]
    return [records.iloc[first:last] for first, last in pairwise(edges) if first < last]


def _in_files(numbers: np.random.Generator, group: pd.DataFrame, files: int) -> tuple[pd.DataFrame, ...]:
    """Always as many, so that a source which takes so many files has a group in each batch; some may be empty."""
    owner = numbers.integers(0, files, len(group))
    return tuple(group[owner == file].reset_index(drop=True) for file in range(files))


# Lateness


def out_of_order_ms(batches: Iterable[pd.DataFrame]) -> int:
    """How far a record lies behind the newest of the batches before its own, at the most."""
    newest, most = None, 0
    for batch in (batch for batch in batches if len(batch)):
        if newest is not None:
            most = max(most, newest - int(batch["at_ms"].min()))
        newest = max(newest or 0, int(batch["at_ms"].max()))
    return most


def punctual(batches: Iterable[pd.DataFrame], delay_ms: int) -> pd.DataFrame:
    """The records that are not behind the watermark of the batches before their own."""
    newest, found = None, []
    for batch in (batch for batch in batches if len(batch)):
        found.append(batch if newest is None else batch[batch["at_ms"] > newest - delay_ms])
        newest = max(newest or 0, int(batch["at_ms"].max()))
    return together(found)


# Files, for a source of Spark's


class Incoming:
    """A folder that files come into, whole and in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._beside = folder.with_name(f"{folder.name}-beside")
        self._count = 0
        for path in (self.folder, self._beside):
            path.mkdir(parents=True, exist_ok=True)

    def add(self, files: Iterable[pd.DataFrame]) -> None:
        for file in files:
            name, written_s = f"{self._count:05d}.json", _FIRST_WRITTEN_S + self._count
            self._count += 1
            (self._beside / name).write_text(as_lines(file), encoding="utf-8")
            os.utime(self._beside / name, (written_s, written_s))
            os.rename(self._beside / name, self.folder / name)


def as_lines(file: pd.DataFrame) -> str:
    times = [None if pd.isna(at) else time_text(int(at)) for at in file["at_ms"]]
    rows = file.drop(columns="at_ms").assign(at=pd.Series(times, index=file.index, dtype=object))
    return "".join(f"{json.dumps(row)}\n" for row in rows.to_dict(orient="records"))


def as_rows(file: pd.DataFrame) -> list[tuple[object, ...]]:
    """In the order of the schema, for a feed."""
    times = [datetime.fromtimestamp(at / 1000, UTC) for at in file["at_ms"]]
    return list(zip(*(file[name].tolist() for name in ("id", "uid", "key", "value")), times, strict=True))


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
