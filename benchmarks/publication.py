"""What it costs to be sure that a publication holds what Spark wrote, and that all see the same folder.

The same batch is written to a channel of files with its records counted by the tasks and without, in turn; what
the counting costs is the median of what each pair differs by. The folder is checked once in a Spark that has run
nothing yet, as at the start of a pipeline, and then again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import session, temporary_folder
from benchmarks.spread import median_between, ratio_of_pairs
from elastream.engines.spark.channels import files as files_module
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.same_folder import check_same_folder

MOST_RATIO = 1.15
MOST_CHECK_S = 1.0
_SLOTS = 4
_TASKS = 2
_WARM_UP = 5


def run(*, batches: int = 60, sizes: tuple[int, ...] = (2_000, 1_000_000)) -> Report:
    with session("publication", slots=_SLOTS) as spark, temporary_folder() as folder:
        first_s, *later_s = (_took_s(lambda: _check(spark, folder)) for _ in range(6))
        measures = [measure for size in sizes for measure in _counting(spark, folder / str(size), size, batches)]
    checks = (
        Measure(what="checking a folder, before Spark has run anything", value=first_s, unit="s"),
        _estimate("checking a folder again", later_s, at_most=MOST_CHECK_S),
    )
    return Report(measures=(*measures, *checks), notes=(f"{_TASKS} tasks for each batch",))


def _counting(spark: SparkSession, folder: Path, records: int, batches: int) -> tuple[Measure, ...]:
    channel = FileChannel(folder)
    channel.create()
    numbers = iter(range(2 * (batches + _WARM_UP)))

    def write() -> float:
        frame = spark.range(0, records, 1, _TASKS)
        return _took_s(lambda: channel.write(frame, next(numbers)))

    def write_uncounted() -> float:
        def uncounted(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
            return frame, lambda: records

        with patch.object(files_module, "counting", uncounted):
            return write()

    pairs = [
        _in_turn(write, write_uncounted, counted_first=number % 2 == 0) for number in range(batches + _WARM_UP)
    ]
    pairs = pairs[_WARM_UP:]
    what = f"a batch of {records:,} records"
    ratio = ratio_of_pairs(pairs)
    return (
        _estimate(f"{what}, counted", [counted for counted, _ in pairs]),
        _estimate(f"{what}: what counting adds", [counted - other for counted, other in pairs]),
        Measure(
            what=f"{what}: counted by uncounted",
            value=ratio.value,
            unit="times",
            at_most=MOST_RATIO,
            between=ratio.between,
        ),
    )


def _in_turn(
    counted: Callable[[], float], uncounted: Callable[[], float], *, counted_first: bool
) -> tuple[float, float]:
    if counted_first:
        return counted(), uncounted()
    other_s = uncounted()
    return counted(), other_s


def _check(spark: SparkSession, folder: Path) -> None:
    check_same_folder(spark, [folder], on_executors=[folder])


def _took_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _estimate(what: str, values_s: list[float], *, at_most: float | None = None) -> Measure:
    found = median_between(values_s)
    return Measure(what=what, value=found.value, unit="s", at_most=at_most, between=found.between)
