"""The job of the documentation, before and after it is ported: both count the same."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from running import Running, kept

from elastream.engines.spark.pipeline import Pipeline
from examples.page_views import plain, ported

BEGIN = datetime(2026, 11, 15, 12, tzinfo=UTC)
MINUTES = 4
PAGES = ("/", "/cart", "/help")


def view(at: datetime, number: int) -> dict[str, object]:
    page = PAGES[number % len(PAGES)] if number % 7 else ""  # without one it is no page, and not counted
    return {"at": at.isoformat(), "visitor": "v", "url": f"https://shop.example{page}?x=1", "load_ms": number % 50}


def files_of_views() -> list[list[dict[str, object]]]:
    """Four minutes of views, out of order by some seconds; then two that let the watermark pass them all."""
    views = [
        view(BEGIN + timedelta(seconds=number // 2 - 10 * (number % 3)), number) for number in range(120 * MINUTES)
    ]
    later = [[view(BEGIN + timedelta(minutes=minutes), 1)] for minutes in (60, 61)]
    return [views[begin : begin + 240] for begin in range(0, len(views), 240)] + later


def write(folder: Path, number: int, entries: Sequence[dict[str, object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{number:03}.json"
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    os.utime(path, (number, number))  # Spark reads the oldest first
    path.rename(folder / f"{number:03}.json")


def source_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(plain.SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def counted_by_the_plain_job(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    for number, entries in enumerate(files_of_views()):
        write(folder / "views", number, entries)
    rows: list[tuple[Any, ...]] = []
    query = (
        plain.per_minute(plain.pages(source_of(spark, folder / "views")))
        .writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted((at.astimezone(UTC), *rest) for at, *rest in rows)


def ported_between(views: Path, results: Path) -> Pipeline:
    """Its own steps, with a source and a sink of the test."""
    steps = {step.name: step for step in ported.pipeline.steps}
    pipeline = Pipeline("page_views")

    @pipeline.source
    def views_(spark: SparkSession) -> DataFrame:
        return source_of(spark, views)

    pipeline.operator(reads="views_", max_parallelism=steps["pages"].max_parallelism)(ported.pages)
    pipeline.operator(reads="pages", state_partitions=steps["per_minute"].state_partitions)(ported.per_minute)
    pipeline.keep("kept", reads="per_minute", folder=results)
    return pipeline


def counted_by_the_ported_one(spark: SparkSession, folder: Path, *, expected: int) -> list[tuple[Any, ...]]:
    """Rescaled in the middle. A query of Spark's that was started again puts windows out only when more comes."""
    *files, last = enumerate(files_of_views())
    for number, entries in files:
        write(folder / "views", number, entries)
    with Running(spark, ported_between(folder / "views", kept(folder, "kept")), folder) as running:
        running.rescale(pages=3, per_minute=2)
        write(folder / "views", *last)
        running.wait_until(
            lambda: len(running.kept("kept")) >= expected,
            lambda: f"{expected} counts were expected, there are {len(running.kept('kept'))}",
        )
        return sorted(running.kept("kept"))


def test_the_ported_job_counts_what_the_plain_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    expected = counted_by_the_plain_job(spark, tmp_path / "plain")
    assert len(expected) >= MINUTES * len(PAGES)
    assert counted_by_the_ported_one(spark, tmp_path / "ported", expected=len(expected)) == expected
