"""Pipelines that follow event time, of every kind that Spark has: what each is made of, what it must put out by
its own definition (in pandas), and what may differ where records are late.

A row begins with the event time by which it is compared: windows of the records that close a stream are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream.engines.spark.pipeline import Pipeline

Row = tuple[Any, ...]
Declare = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of the streams; each kind uses what it needs."""

    delay_ms: int
    declared_in: str = "operator"
    """Where the watermark is declared: in the `source`, `between` it and the operator, or in the `operator`."""
    second: str = "own"
    """Whether a second operator declares a watermark of its `own`, or has that of the first `carried` to it."""
    size_ms: int = 10_000
    slide_ms: int = 10_000
    gap_ms: int = 4_050
    within_ms: int = 5_000
    """Of an interval join: so much later than the left record the right one may be."""
    outer: bool = False
    state_partitions: int = 2

    def watermark(self, frame: DataFrame, place: str, column: str = "at") -> DataFrame:
        """Where it is declared here."""
        return self.delayed(frame, column, self.delay_ms) if place == self.declared_in else frame

    def again(self, frame: DataFrame, column: str, delay_ms: int, *, plain: bool) -> DataFrame:
        """In a second operator: a single query still has the watermark of the first, and refuses another."""
        return frame if plain or self.second == "carried" else self.delayed(frame, column, delay_ms)

    @staticmethod
    def delayed(frame: DataFrame, column: str, delay_ms: int) -> DataFrame:
        return frame.withWatermark(column, f"{delay_ms} milliseconds")


class Kind(Protocol):
    name: str
    inputs: int
    by_plain: bool
    """Whether plain Spark tells what must be there at least, where something is late. A join in a single query has
    its inputs in step; elastream's are on their own: there each input's own watermarks tell."""

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        """Add its operators; the name of the last."""
        ...

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        """What it puts out when every window is closed and nothing is late."""
        ...

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        """What is wrong where something is late, in words: less than the least, or more than the most."""
        ...


# What is compared


def differences(what: str, found: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """In words; none where both have the same rows, each as often."""
    here, there = Counter(found), Counter(expected)
    texts = [(there - here, "lacks"), (here - there, "has too much")]
    return [
        f"{what}: {text} {rows.total()} of {there.total()} rows: {sorted(rows.elements(), key=repr)[:5]}"
        for rows, text in texts
        if rows
    ]


def repeated(found: Iterable[Row]) -> list[str]:
    twice = [row for row, count in Counter(found).items() if count > 1]
    return [f"{len(twice)} rows came more than once: {twice[:5]}"] if twice else []


def within(found: Iterable[Row], least: Iterable[Row], most: Iterable[Row]) -> list[str]:
    """Rows of which the second set has some and the third all."""
    missing, more = set(least) - set(found), set(found) - set(most)
    return [f"lacks {len(missing)} rows that must be there: {sorted(missing)[:5]}"] * bool(missing) + [
        f"has {len(more)} rows that cannot be: {sorted(more)[:5]}"
    ] * bool(more)


def amounts_within(found: list[Row], least: list[Row], most: list[Row], keys: int) -> list[str]:
    """Rows of so many columns that say of what, and of amounts that late records make less."""
    here, low, high = ({row[:keys]: row[keys:] for row in rows} for rows in (found, least, most))
    texts = [f"{len(found) - len(here)} of {len(found)} rows came again with other amounts"] * (
        len(found) > len(here)
    )
    for key in sorted(set(here) | set(low)):
        if key not in here:
            texts.append(f"lacks {key}, of which there are {low[key]} at least")
        elif key not in high:
            texts.append(f"has {key}, which cannot be")
        elif any(not a <= b <= c for a, b, c in zip(low.get(key, here[key]), here[key], high[key], strict=True)):
            texts.append(f"has {here[key]} of {key}, it should be {low.get(key, 0)} to {high[key]}")
    return texts[:5]


# One operator


class Windows:
    """Tumbling or sliding: counts and sums by window and key."""

    inputs = 1
    by_plain = True

    def __init__(self, name: str) -> None:
        self.name = name

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def counts(records: DataFrame) -> DataFrame:
            window = F.window("at", _ms(question.size_ms), _ms(question.slide_ms))
            grouped = question.watermark(records, "operator").groupBy(window, "key")
            return _amounts(grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total")))

        return "counts"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        opened = in_windows(records[0], question.size_ms, question.slide_ms)
        return _rows(opened.groupby(["start", "key"])["value"].agg(["count", "sum"]).reset_index())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return amounts_within(found, least, most, 2)


class Sessions:
    name = "session windows"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def sessions(records: DataFrame) -> DataFrame:
            session = F.session_window("at", _ms(question.gap_ms))
            counted = question.watermark(records, "operator").groupBy(session, "key").count()
            ends = (F.unix_millis(f"session_window.{edge}").alias(edge) for edge in ("start", "end"))
            return counted.select(*ends, "key", "count")

        return "sessions"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        ordered = records[0].sort_values(["key", "at_ms"], kind="stable")
        begins = ordered.groupby("key")["at_ms"].diff().fillna(question.gap_ms + 1) > question.gap_ms
        of_key = ordered.assign(session=begins.cumsum()).groupby("session")
        found = of_key.agg(
            start=("at_ms", "min"), end=("at_ms", "max"), key=("key", "first"), n=("id", "count")
        ).reset_index(drop=True)
        return _rows(found.assign(end=found["end"] + question.gap_ms))

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        """A late record that is dropped makes a session shorter, or two of one."""
        return [
            *(f"{text}: those with fewer records" for text in _sessions_inside(least, found)),
            *(f"{text}: those of elastream" for text in _sessions_inside(found, most)),
        ]


def _sessions_inside(smaller: list[Row], larger: list[Row]) -> list[str]:
    """Every session of the first must lie in one of the second, which has at least as many records."""
    counts: Counter[Row] = Counter()
    for start, end, key, count in smaller:
        around = [row for row in larger if row[2] == key and row[0] <= start and end <= row[1]]
        if len(around) != 1:
            return [f"the session {(start, end, key, count)} lies in {around}"]
        counts[around[0]] += count
    return [f"{row} holds sessions of {n} records" for row, n in counts.items() if n > row[3]][:5]


class Joins:
    """Of two streams, by window or by interval, inner or left outer; without a match the right has no id."""

    inputs = 2
    by_plain = False

    def __init__(self, name: str, *, by_window: bool) -> None:
        self.name = name
        self._by_window = by_window

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=tuple(inputs), state_partitions=question.state_partitions)
        def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
            sides = (question.watermark(side, "operator") for side in (left, right))
            time = "l.window.start" if self._by_window else "l.at"
            joined = self._join(*sides, question)
            return joined.select(F.unix_millis(time).alias("at"), F.col("l.id"), F.col("r.id").alias("right"))

        return "pairs"

    def _join(self, left: DataFrame, right: DataFrame, question: Question) -> DataFrame:
        how = "left_outer" if question.outer else "inner"
        same_key = F.col("l.key") == F.col("r.key")
        if self._by_window:
            # without the time itself: Spark refuses two columns with a watermark
            window = F.window("at", _ms(question.size_ms)).alias("window")
            left, right = (side.select("id", "key", window) for side in (left, right))
            same_window = F.col("l.window") == F.col("r.window")
            return left.alias("l").join(right.alias("r"), same_key & same_window, how)
        left, right = left.alias("l"), right.alias("r")
        latest = F.col("l.at") + F.expr(f"INTERVAL {question.within_ms} MILLISECONDS")
        return left.join(right, same_key & (F.col("r.at") >= F.col("l.at")) & (F.col("r.at") <= latest), how)

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        every = question.size_ms if self._by_window else 1
        both = matches(records[0], records[1], question, by_window=self._by_window)
        pairs = list(zip(both["at_ms_l"] // every * every, both["id_l"], both["id_r"], strict=True))
        if not question.outer:
            return pairs
        alone = records[0][~records[0]["id"].isin(both["id_l"])]
        times = alone["at_ms"] // every * every
        return [*pairs, *((at, one, None) for at, one in zip(times, alone["id"], strict=True))]

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        """`least` is of the punctual records only: one of them may have found a late one and so be matched."""
        pairs, low, high = ([row for row in rows if row[2] is not None] for rows in (found, least, most))
        texts = within(pairs, low, high)
        alone = {row[:2] for row in found if row[2] is None}
        matched = {row[:2] for row in pairs}
        if both := alone & matched:
            texts.append(f"{len(both)} rows came with a match and without: {sorted(both)[:5]}")
        if lost := {row[:2] for row in least if row[2] is None} - alone - matched:
            texts.append(f"lacks {len(lost)} rows without a match: {sorted(lost)[:5]}")
        return texts


class Duplicates:
    """Every uid once; the second of two may have another event time, within the watermark's delay."""

    name = "duplicates within the watermark"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def distinct(records: DataFrame) -> DataFrame:
            first = question.watermark(records, "operator").dropDuplicatesWithinWatermark(["uid"])
            return first.select(F.lit(0).alias("at"), "uid")  # which of two comes first is left to Spark

        return "distinct"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        return [(0, uid) for uid in records[0]["uid"].unique().tolist()]

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return within(found, least, most)


class SameTimeDuplicates:
    name = "duplicates of the same event time"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def distinct(records: DataFrame) -> DataFrame:
            first = question.watermark(records, "operator").dropDuplicates(["uid", "at"])
            return first.select(F.unix_millis("at").alias("at"), "uid")

        return "distinct"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        return _rows(records[0][["at_ms", "uid"]].drop_duplicates())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return within(found, least, most)


# Two operators


class TotalsOfWindows:
    """Counts by small windows, and their sums by windows three times as large."""

    name = "totals of windows"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def counts(records: DataFrame) -> DataFrame:
            windows = question.watermark(records, "operator").groupBy(F.window("at", _ms(question.size_ms)), "key")
            return windows.count().select(F.window_time("window").alias("closed_at"), "key", "count")

        @pipeline.operator(reads="counts", state_partitions=question.state_partitions)
        def totals(counts: DataFrame) -> DataFrame:
            again = question.again(counts, "closed_at", 0, plain=plain)
            larger = again.groupBy(F.window("closed_at", _ms(3 * question.size_ms)), "key")
            return _amounts(larger.agg(F.sum("count").alias("n"), F.count("*").alias("total")))

        return "totals"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        size = question.size_ms
        counts = in_windows(records[0], size, size).groupby(["start", "key"]).size().reset_index(name="n")
        counts["start"] -= counts["start"] % (3 * size)
        return _rows(counts.groupby(["start", "key"])["n"].agg(["sum", "count"]).reset_index())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return amounts_within(found, least, most, 2)


class HotKeys:
    """As in Nexmark's Q5: counts by sliding window and key, and the most of each window."""

    name = "the most of sliding windows"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        own = question.second == "own" and not plain

        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def counts(records: DataFrame) -> DataFrame:
            window = F.window("at", _ms(question.size_ms), _ms(question.slide_ms))
            counted = question.watermark(records, "operator").groupBy(window, "key").count()
            return counted.withColumn("closed_at", F.window_time("window")) if own else counted

        @pipeline.operator(reads="counts", state_partitions=question.state_partitions)
        def most(counts: DataFrame) -> DataFrame:
            again = question.again(counts, "closed_at", 0, plain=plain)
            windows = again.groupBy("window", *(["closed_at"] if own else []))
            found = windows.agg(F.max("count").alias("most"), F.count("*").alias("keys"))
            return found.select(F.unix_millis("window.start").alias("start"), "most", "keys")

        return "most"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        opened = in_windows(records[0], question.size_ms, question.slide_ms)
        counts = opened.groupby(["start", "key"]).size().reset_index(name="n")
        return _rows(counts.groupby("start")["n"].agg(["max", "count"]).reset_index())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return amounts_within(found, least, most, 1)


class DistinctWindows:
    """Duplicates are dropped, and what is left is counted by window."""

    name = "windows of distinct records"
    inputs = 1
    by_plain = True

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=inputs[0], state_partitions=question.state_partitions)
        def distinct(records: DataFrame) -> DataFrame:
            return question.watermark(records, "operator").dropDuplicates(["uid", "at"])

        @pipeline.operator(reads="distinct", state_partitions=question.state_partitions)
        def counts(distinct: DataFrame) -> DataFrame:
            again = question.again(distinct, "at", question.delay_ms, plain=plain)
            windows = again.groupBy(F.window("at", _ms(question.size_ms)), "key")
            return _amounts(windows.agg(F.count("*").alias("n"), F.sum("value").alias("total")))

        return "counts"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        distinct = records[0].drop_duplicates(["uid", "at_ms"])
        opened = in_windows(distinct, question.size_ms, question.size_ms)
        return _rows(opened.groupby(["start", "key"])["value"].agg(["count", "sum"]).reset_index())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return amounts_within(found, least, most, 2)


class CountsOfPairs:
    """An interval join, and its pairs by window.

    A pair comes with the later of its records. So behind the join the event time of the left one is out of order
    by what the join allows, beside what its inputs are: the second operator declares a longer delay.
    """

    name = "windows of pairs"
    inputs = 2
    by_plain = False

    def declare(self, pipeline: Pipeline, inputs: Sequence[str], question: Question, *, plain: bool) -> str:
        @pipeline.operator(reads=tuple(inputs), state_partitions=question.state_partitions)
        def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
            left = question.watermark(left, "operator").alias("l")
            right = question.watermark(right, "operator").alias("r")
            latest = F.col("l.at") + F.expr(f"INTERVAL {question.within_ms} MILLISECONDS")
            near = (F.col("r.at") >= F.col("l.at")) & (F.col("r.at") <= latest)
            return left.join(right, (F.col("l.key") == F.col("r.key")) & near).select("l.at", "l.key", "r.value")

        @pipeline.operator(reads="pairs", state_partitions=question.state_partitions)
        def counts(pairs: DataFrame) -> DataFrame:
            if not plain:
                pairs = question.delayed(pairs, "at", question.within_ms + 2 * question.delay_ms)
            windows = pairs.groupBy(F.window("at", _ms(question.size_ms)), "key")
            return _amounts(windows.agg(F.count("*").alias("n"), F.sum("value").alias("total")))

        return "counts"

    def truth(self, records: Sequence[pd.DataFrame], question: Question) -> list[Row]:
        both = matches(records[0], records[1], question, by_window=False)
        both["start"] = both["at_ms_l"] - both["at_ms_l"] % question.size_ms
        return _rows(both.groupby(["start", "key"])["value_r"].agg(["count", "sum"]).reset_index())

    def beyond(self, found: list[Row], least: list[Row], most: list[Row]) -> list[str]:
        return amounts_within(found, least, most, 2)


KINDS: tuple[Kind, ...] = (
    Windows("tumbling windows"),
    Joins("interval join", by_window=False),
    Sessions(),
    TotalsOfWindows(),
    Joins("windowed join", by_window=True),
    Duplicates(),
    Windows("sliding windows"),
    HotKeys(),
    CountsOfPairs(),
    SameTimeDuplicates(),
    DistinctWindows(),
)


# Shared


def in_windows(records: pd.DataFrame, size_ms: int, slide_ms: int) -> pd.DataFrame:
    """Every record once for each window that it lies in, which begins at `start`."""
    newest = records["at_ms"] - records["at_ms"] % slide_ms
    parts = [records.assign(start=newest - back) for back in range(0, size_ms, slide_ms)]
    found = pd.concat(parts, ignore_index=True)
    return found[found["at_ms"] < found["start"] + size_ms]


def matches(left: pd.DataFrame, right: pd.DataFrame, question: Question, *, by_window: bool) -> pd.DataFrame:
    both = left.merge(right, on="key", suffixes=("_l", "_r"))
    at, right_at = both["at_ms_l"], both["at_ms_r"]
    if by_window:
        return both[at // question.size_ms == right_at // question.size_ms].copy()
    return both[(right_at >= at) & (right_at <= at + question.within_ms)].copy()


def _amounts(frame: DataFrame) -> DataFrame:
    return frame.select(F.unix_millis("window.start").alias("start"), "key", "n", "total")


def _rows(frame: pd.DataFrame) -> list[Row]:
    return list(zip(*(frame[name].tolist() for name in frame.columns), strict=True))


def _ms(milliseconds: int) -> str:
    return f"{milliseconds} milliseconds"
