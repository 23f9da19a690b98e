"""Event times that are wrong, missing or far apart, and columns that do not come through: as in plain Spark, never
with fewer records, and never without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from event_time_cases import read_files
from event_time_hosts import InThisProcess
from event_time_inputs import BEGIN_MS, Incoming, together
from event_time_kinds import Row, amounts_within, differences, in_windows
from plain import PlainQuery, composed
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept, records, wait_until

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import Files
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot

HOUR_MS = 3_600_000
SIZE_MS = 10_000
FILES = 3
PER_FILE = 500  # so that a commit of all is worth cutting
Window = tuple[int, int, int]  # its start, the key, how many


def stream(*, begin_ms: int = BEGIN_MS, first_id: int = 0) -> list[pd.DataFrame]:
    """Three files of 20 s each, in the order of event time; the last record of each closes nothing of its own."""
    files = []
    for file in range(FILES):
        ids = range(first_id + file * PER_FILE, first_id + (file + 1) * PER_FILE)
        at = [begin_ms + file * 20_000 + number * 20_000 // PER_FILE for number in range(PER_FILE)]
        files.append(records_at(at, first_id=ids[0]))
    return files


def records_at(at_ms: Sequence[int | None], *, first_id: int, key: int | None = None) -> pd.DataFrame:
    ids = range(first_id, first_id + len(at_ms))
    keys = [number % 3 if key is None else key for number in ids]
    at = pd.array(list(at_ms), dtype="Int64")
    return pd.DataFrame({"id": ids, "uid": ids, "key": keys, "value": 1, "at_ms": at})


def closing(*, begin_ms: int = BEGIN_MS, first_id: int = 1_000_000) -> pd.DataFrame:
    """A record that is late for nobody, and closes what the others have opened."""
    return records_at([begin_ms + 10 * 60_000], first_id=first_id, key=9)


def counted(frame: DataFrame) -> DataFrame:
    """By window and key; the watermark is declared by now."""
    windows = frame.groupBy(F.window("at", f"{SIZE_MS} milliseconds"), "key").count()
    return windows.select(F.unix_millis("window.start").alias("start"), "key", "count")


def by_definition(files: Sequence[pd.DataFrame]) -> list[Row]:
    """Of the windows that are not opened by the records which close them."""
    timed = together(files).dropna(subset="at_ms").astype({"at_ms": "int64"})
    counts = in_windows(timed[timed["key"] != 9], SIZE_MS, SIZE_MS).groupby(["start", "key"]).size()
    return [(start, key, count) for (start, key), count in counts.items()]


@dataclass(frozen=True, kw_only=True)
class Both:
    plain: list[Row]
    plain_late: int
    found: list[Row]
    snapshots: list[Snapshot]

    @property
    def late(self) -> float:
        """As the readings tell, of all operators."""
        return sum(reading.records_late or 0 for one in self.snapshots for reading in one.readings)

    @property
    def notes(self) -> set[str]:
        return {note for one in self.snapshots for note in one.notes}


def run_both(
    spark: SparkSession,
    folder: Path,
    declare: Callable[[Path], Pipeline],
    inputs: dict[str, list[pd.DataFrame]],
    *,
    strict: bool = False,
) -> Both:
    """In plain Spark and here; strictly, each file is given when everything before it is done."""
    plain_rows, plain_late = _in_plain_spark(spark, folder / "plain", declare, inputs, strict=strict)
    incoming = {name: Incoming(folder / name) for name in inputs}
    if not strict:
        for name, files in inputs.items():
            incoming[name].add(files)
    snapshots = []
    with InThisProcess(spark, lambda: declare(folder), folder, Files()) as host:
        for files in zip(*inputs.values(), strict=True) if strict else ():
            for one, file in zip(incoming.values(), files, strict=True):
                one.add([file])
            host.settle()
            snapshots.append(host.running.engine.measure())
        host.settle()
        wait_until(lambda: _is_told(host.running, snapshots), "the last batches are told of")
    found = _without_closing(list(records(FileChannel(kept(folder, "all")))))
    return Both(plain=_without_closing(plain_rows), plain_late=plain_late, found=found, snapshots=snapshots)


def _in_plain_spark(
    spark: SparkSession,
    folder: Path,
    declare: Callable[[Path], Pipeline],
    inputs: dict[str, list[pd.DataFrame]],
    *,
    strict: bool,
) -> tuple[list[Row], int]:
    incoming = {name: Incoming(folder / name) for name in inputs}
    if not strict:
        for name, files in inputs.items():
            incoming[name].add(files)
    pipeline = declare(folder)
    with PlainQuery(spark, composed(spark, pipeline, pipeline["all"].reads[0])) as query:
        for files in zip(*inputs.values(), strict=True) if strict else ():
            for one, file in zip(incoming.values(), files, strict=True):
                one.add([file])
            query.settle()
        query.settle()
        return query.rows(), query.late()


def _is_told(running: Running, snapshots: list[Snapshot]) -> bool:
    """A batch is told of when its progress is there, a moment after what it wrote."""
    snapshots.append(running.engine.measure())
    read = sum(reading.records_in for one in snapshots for reading in one.measurements["all"].readings)
    return read >= len(list(records(FileChannel(kept(running.folder, "all")))))


def _without_closing(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] != 9]


def source(pipeline: Pipeline, folder: Path, name: str = "records", *, delay: str | None = None) -> None:
    def function(spark: SparkSession) -> DataFrame:
        frame = read_files(spark, folder / name)
        return frame if delay is None else frame.withWatermark("at", delay)

    function.__name__ = name
    pipeline.source(function)


def windows_of(folder: Path, delay: str = "10 seconds") -> Pipeline:
    """The plainest of them all."""
    pipeline = Pipeline("windows")
    source(pipeline, folder)

    @pipeline.operator(reads="records", state_partitions=2)
    def counts(records: DataFrame) -> DataFrame:
        return counted(records.withWatermark("at", delay))

    pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
    return pipeline


def assert_as_in_plain_spark(both: Both, expected: list[Row]) -> None:
    assert differences("beside plain Spark", both.found, both.plain) == []
    assert differences("by definition", both.found, expected) == []
    assert (both.plain_late, both.late) == (0, 0)


# Columns that do not come through


def behind(
    folder: Path, between: Callable[[DataFrame], DataFrame], then: Callable[[DataFrame], DataFrame]
) -> Pipeline:
    """A source that declares a watermark, an operator between, and one that keeps state."""
    pipeline = Pipeline("behind")
    source(pipeline, folder, delay="10 seconds")

    @pipeline.operator(reads="records")
    def passed(records: DataFrame) -> DataFrame:
        return between(records)

    @pipeline.operator(reads="passed", state_partitions=2)
    def counts(passed: DataFrame) -> DataFrame:
        return then(passed)

    pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
    return pipeline


@pytest.mark.parametrize(
    ("between", "then"),
    [
        (lambda records: records.drop("at"), counted),
        (lambda records: records.drop("at"), lambda passed: passed.groupBy("key").count()),
        (lambda records: records.withColumn("at", F.expr("at + INTERVAL 1 HOUR")), counted),
    ],
    ids=["dropped", "dropped and not asked for", "changed"],
)
def test_a_watermark_that_does_not_come_through_is_refused_as_in_plain_spark(
    spark: SparkSession,
    tmp_path: Path,
    between: Callable[[DataFrame], DataFrame],
    then: Callable[[DataFrame], DataFrame],
) -> None:
    Incoming(tmp_path / "records")
    pipeline = behind(tmp_path, between, then)
    with pytest.raises(AnalysisException), PlainQuery(spark, composed(spark, pipeline, "counts")):
        pass
    with pytest.raises(InvalidInput, match="counts"), Running(spark, pipeline, tmp_path):
        pass


def test_a_watermark_of_the_source_holds_behind_an_operator_that_renames_its_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    def renamed(records: DataFrame) -> DataFrame:
        return records.select(F.col("at").alias("seen"), "key").where("key < 100")

    def back(passed: DataFrame) -> DataFrame:
        return counted(passed.withColumnRenamed("seen", "at"))

    files = stream()
    both = run_both(
        spark, tmp_path, lambda folder: behind(folder, renamed, back), {"records": [*files, closing()]}
    )
    assert_as_in_plain_spark(both, by_definition(files))


def test_one_on_a_column_that_an_operator_between_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    """Into one that many records share, so that there is no place to stop among them."""

    def declare(folder: Path) -> Pipeline:
        pipeline = Pipeline("changed")
        source(pipeline, folder)

        @pipeline.operator(reads="records")
        def coarse(records: DataFrame) -> DataFrame:
            return records.withColumn("at", F.expr("date_trunc('SECOND', at) + INTERVAL 2 HOURS"))

        @pipeline.operator(reads="coarse", state_partitions=2)
        def counts(coarse: DataFrame) -> DataFrame:
            return counted(coarse.withWatermark("at", "1 second"))

        pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
        return pipeline

    files = stream()
    both = run_both(spark, tmp_path, declare, {"records": [*files, closing()]})
    later = [file.assign(at_ms=file["at_ms"] + 2 * HOUR_MS) for file in files]
    assert_as_in_plain_spark(both, by_definition(later))


@pytest.mark.parametrize("delay", ["0 seconds", "10 seconds"])
def test_an_operator_may_declare_a_watermark_of_its_own_behind_one_that_has_one(
    spark: SparkSession, tmp_path: Path, delay: str
) -> None:
    """Plain Spark refuses it in a single query; here each operator is a query of its own."""

    def declare(folder: Path) -> Pipeline:
        pipeline = Pipeline("of_its_own")
        source(pipeline, folder)

        @pipeline.operator(reads="records", state_partitions=2)
        def distinct(records: DataFrame) -> DataFrame:
            return records.withWatermark("at", "10 seconds").dropDuplicates(["uid", "at"])

        @pipeline.operator(reads="distinct", state_partitions=2)
        def counts(distinct: DataFrame) -> DataFrame:
            return counted(distinct.withWatermark("at", delay))

        pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
        return pipeline

    files = stream()
    Incoming(tmp_path / "records").add([*files, closing()])
    with InThisProcess(spark, lambda: declare(tmp_path), tmp_path, Files()) as host:
        host.settle()
    found = _without_closing(list(records(FileChannel(kept(tmp_path, "all")))))
    assert differences("by definition", found, by_definition(files)) == []


@pytest.mark.parametrize("by", ["window", "closed_at", "both"])
def test_windows_of_windows_without_a_watermark_of_their_own(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """What the first operator has closed, the second gets as a window, as the time of one, or as both."""

    def declare(folder: Path) -> Pipeline:
        pipeline = Pipeline("windows_of_windows")
        source(pipeline, folder)

        @pipeline.operator(reads="records", state_partitions=2)
        def each(records: DataFrame) -> DataFrame:
            windows = records.withWatermark("at", "10 seconds").groupBy(F.window("at", "1 second"), "key").count()
            times = {"window": ["window"], "closed_at": ["closed_at"], "both": ["window", "closed_at"]}[by]
            return windows.withColumn("closed_at", F.window_time("window")).select(*times, "key", "count")

        @pipeline.operator(reads="each", state_partitions=2)
        def counts(each: DataFrame) -> DataFrame:
            time = "window" if by == "window" else "closed_at"
            larger = each.groupBy(F.window(time, f"{SIZE_MS} milliseconds").alias("larger"), "key")
            total = larger.agg(F.sum("count").alias("count"))
            return total.select(F.unix_millis("larger.start").alias("start"), "key", "count")

        pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
        return pipeline

    files = stream()
    ends = [closing(), closing(begin_ms=BEGIN_MS + HOUR_MS, first_id=2_000_000)]
    both = run_both(spark, tmp_path, declare, {"records": [*files, *ends]})
    assert_as_in_plain_spark(both, by_definition(files))


# Event times


def test_a_delay_of_zero(spark: SparkSession, tmp_path: Path) -> None:
    files = stream()
    both = run_both(
        spark, tmp_path, lambda folder: windows_of(folder, "0 seconds"), {"records": [*files, closing()]}
    )
    assert_as_in_plain_spark(both, by_definition(files))


def test_nulls_are_left_out_and_hold_nobody_up(spark: SparkSession, tmp_path: Path) -> None:
    files = stream()
    nulls = records_at([None] * PER_FILE, first_id=100_000)
    mixed = together([files[1].iloc[::2], nulls.iloc[::2], files[1].iloc[1::2]])
    both = run_both(spark, tmp_path, windows_of, {"records": [files[0], nulls, mixed, files[2], closing()]})
    assert_as_in_plain_spark(both, by_definition(files))


@pytest.mark.parametrize("strict", [False, True], ids=["in a backlog", "live"])
def test_one_event_time_in_the_far_future(spark: SparkSession, tmp_path: Path, strict: bool) -> None:
    """Of one batch with all others it does no harm; else what comes after it is late, and that is told."""
    files = stream()
    wrong = records_at([BEGIN_MS + 10 * 365 * 24 * HOUR_MS], first_id=500_000, key=9)
    inputs = {"records": [files[0], together([files[1], wrong]), files[2], closing()]}
    both = run_both(spark, tmp_path, windows_of, inputs, strict=strict)
    assert amounts_within(both.found, both.plain, by_definition(files), 2) == []
    if not strict:
        assert_as_in_plain_spark(both, by_definition(files))
        return
    assert both.plain_late > 0
    assert 0 < both.late <= len(files[2]) + 1
    assert any("ahead of this machine's clock" in note for note in both.notes), both.notes


def test_a_source_that_goes_back_in_time(spark: SparkSession, tmp_path: Path) -> None:
    files = stream()
    inputs = {"records": [files[0], files[2], files[1], closing()]}
    both = run_both(spark, tmp_path, windows_of, inputs, strict=True)
    assert amounts_within(both.found, both.plain, by_definition(files), 2) == []
    assert both.plain_late > 0
    assert both.late > 0


# Two clocks


def an_hour_apart() -> tuple[list[pd.DataFrame], dict[str, list[pd.DataFrame]]]:
    """What is to be counted, and what the two sources bring."""
    ahead, behind_it = stream(begin_ms=BEGIN_MS + HOUR_MS), stream(first_id=50_000)
    last = closing(begin_ms=BEGIN_MS + HOUR_MS)
    return [*ahead, *behind_it], {"ahead": [*ahead, last], "behind": [*behind_it, last]}


def union_of(folder: Path, *, declared_in: str) -> Pipeline:
    """The watermark is declared in each source, in the operator on each input, or in it on both together."""
    pipeline = Pipeline("union_of_clocks")
    for name in ("ahead", "behind"):
        source(pipeline, folder, name, delay="10 seconds" if declared_in == "source" else None)

    @pipeline.operator(reads=("ahead", "behind"), state_partitions=2)
    def counts(ahead: DataFrame, behind: DataFrame) -> DataFrame:
        if declared_in == "each":
            ahead, behind = (one.withWatermark("at", "10 seconds") for one in (ahead, behind))
        both = ahead.union(behind)
        return counted(both.withWatermark("at", "10 seconds") if declared_in == "both" else both)

    pipeline.keep("all", reads="counts", folder=kept(folder, "all"))
    return pipeline


@pytest.mark.parametrize("declared_in", ["source", "each", "both"])
def test_a_union_of_clocks_an_hour_apart_follows_the_one_that_is_behind(
    spark: SparkSession, tmp_path: Path, declared_in: str
) -> None:
    """All of a backlog is one batch in plain Spark, so nothing is late there."""
    expected, inputs = an_hour_apart()
    both = run_both(spark, tmp_path, lambda folder: union_of(folder, declared_in=declared_in), inputs)
    assert_as_in_plain_spark(both, by_definition(expected))


def test_a_union_before_the_operator_that_counts_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its watermark would follow the source that runs ahead, as both are read at their own paces."""
    pipeline = Pipeline("union_between")
    for name in ("ahead", "behind"):
        Incoming(tmp_path / name)
        source(pipeline, tmp_path, name, delay="10 seconds")

    @pipeline.operator(reads=("ahead", "behind"))
    def together(ahead: DataFrame, behind: DataFrame) -> DataFrame:
        return ahead.union(behind)

    @pipeline.operator(reads="together", state_partitions=2)
    def counts(together: DataFrame) -> DataFrame:
        return counted(together)

    pipeline.keep("all", reads="counts", folder=kept(tmp_path, "all"))
    with pytest.raises(InvalidInput, match="'together' puts ahead and behind together, each read at its own pace"):
        SparkEngine(pipeline, spark, tmp_path / "run").start()


def test_a_join_of_clocks_an_hour_apart(spark: SparkSession, tmp_path: Path) -> None:
    """The pairs are those of records an hour apart."""

    def declare(folder: Path) -> Pipeline:
        pipeline = Pipeline("join_of_clocks")
        source(pipeline, folder, "ahead")
        source(pipeline, folder, "behind")

        @pipeline.operator(reads=("ahead", "behind"), state_partitions=2)
        def pairs(ahead: DataFrame, behind: DataFrame) -> DataFrame:
            left = ahead.withWatermark("at", "10 seconds").alias("a")
            right = behind.withWatermark("at", "10 seconds").alias("b")
            near = F.expr(
                "a.key = b.key AND a.at >= b.at + INTERVAL 1 HOUR AND a.at < b.at + INTERVAL 3601 SECONDS"
            )
            return left.join(right, near).select("a.id", "a.key", F.col("b.id").alias("other"))

        pipeline.keep("all", reads="pairs", folder=kept(folder, "all"))
        return pipeline

    expected, inputs = an_hour_apart()
    both = run_both(spark, tmp_path, declare, inputs)
    every = together(expected)
    left, right = every[every["id"] < 50_000], every[every["id"] >= 50_000]
    near = left.merge(right, on="key", suffixes=("", "_b"))
    apart = near["at_ms"] - near["at_ms_b"] - HOUR_MS
    near = near[(apart >= 0) & (apart < 1000)]
    assert_as_in_plain_spark(both, list(zip(near["id"], near["key"], near["id_b"], strict=True)))
