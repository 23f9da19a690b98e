"""Attached to a real session with a local master: what it recommends, and that the job does not notice."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from running import wait_until

import elastream
from elastream.attached.policy import EXECUTORS
from elastream.manager.events import Acted, Decided, Proposed, Trouble
from elastream.measurement.recording import read_recording

QUICK = {"interval": "1 s", "warm_up_intervals": 0}


@contextmanager
def counting(
    spark: SparkSession, name: str, *, rows: int = 200, every: str = "1 second"
) -> Iterator[StreamingQuery]:
    """Rows that each wait for 2 ms."""
    slow = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", rows)
        .option("numPartitions", 4)
        .load()
        .selectExpr("value % 3 AS key", "reflect('java.lang.Thread', 'sleep', cast(2 as bigint)) AS slept")
    )
    query = slow.writeStream.queryName(name).format("noop").trigger(processingTime=every).start()
    try:
        yield query
    finally:
        query.stop()


class Seen:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def proposed(self) -> list[int]:
        wanted = [event.proposal.parallelism.get(EXECUTORS) for event in self.of(Proposed)]
        return [found for found in wanted if found is not None]

    def says(self, words: str) -> bool:
        return any(words in event.what for event in self.of(Trouble))


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, lambda: what)


def test_it_recommends_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    seen = Seen()
    with (
        elastream.attach(
            spark, latency="4 s", recommend=True, folder=tmp_path, knobs=QUICK, on_event=seen.events.append
        ) as attached,
        counting(spark, "came_later"),
    ):
        until(lambda: len(seen.proposed) >= 3, "three proposals")
        with pytest.raises(elastream.InvalidInput, match="attached to this session already"):
            elastream.attach(spark)
        assert attached.is_attached
        recorded = read_recording(tmp_path / "recording.jsonl", ignore_cut_off=True)
    assert not attached.is_attached
    attached.detach()  # once more
    assert all(1 <= found <= 8 for found in seen.proposed)
    assert min(seen.proposed) < 8, "0.4 s of waiting each second do not need eight cores"
    assert seen.of(Acted) == []
    assert all(event.dry_run for event in seen.of(Decided))
    assert recorded.headers[0].engine == "attached"
    assert "came_later" in recorded.snapshots[-1].source_rates
    assert recorded.snapshots[-1].plan[EXECUTORS] == 8
    assert attached.used.proposed_s < attached.used.had_s


def test_queries_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    seen = Seen()
    with (
        counting(spark, "first") as first,
        elastream.attach(spark, recommend=True, folder=tmp_path, knobs=QUICK, on_event=seen.events.append),
    ):
        until(lambda: _names(tmp_path) == {"first"}, "the query that was there before")
        with counting(spark, "second"):
            until(lambda: _names(tmp_path) == {"first", "second"}, "the one that came")
        until(lambda: _names(tmp_path) == {"first"}, "it has gone")
        assert first.isActive
    assert not seen.says("cannot measure"), "a query that has gone is no failure"


def _names(folder: Path) -> set[str]:
    try:
        found = read_recording(folder / "recording.jsonl", ignore_cut_off=True)
    except elastream.InvalidInput:  # nothing was written yet
        return set()
    return set(found.snapshots[-1].source_rates) if found.snapshots else set()


def test_a_query_that_ends_by_itself_is_left_alone_and_said_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("a\n" * 10)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    slow = lines.selectExpr("reflect('java.lang.Thread', 'sleep', cast(400 as bigint)) AS slept")
    query = slow.writeStream.queryName("all_there_is").format("noop").trigger(availableNow=True).start()
    with elastream.attach(spark, recommend=True, folder=tmp_path / "run", knobs={"interval": "0.5 s"}):
        assert query.awaitTermination(120)
        until(lambda: (tmp_path / "run" / "recording.jsonl").exists(), "a recording")
    assert query.exception() is None


def test_the_rest_api_may_be_away(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    real = urllib.request.urlopen
    away = threading.Event()

    def sometimes(*arguments: Any, **more: Any) -> Any:
        if away.is_set():
            raise OSError("away")
        return real(*arguments, **more)

    monkeypatch.setattr(urllib.request, "urlopen", sometimes)
    with counting(spark, "goes_on") as query:
        away.set()
        with elastream.attach(spark, recommend=True, folder=tmp_path, knobs=QUICK, on_event=seen.events.append):
            until(lambda: seen.says("cannot measure: Spark's REST API does not answer"), "it is told")
            away.clear()
            until(lambda: len(seen.proposed) >= 1, "a proposal afterwards")
        assert query.isActive


def test_a_job_that_fails_by_itself_raises_its_own_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    checked = rows.selectExpr("assert_true(value < 15, 'of the job itself')")
    with elastream.attach(spark, recommend=True, folder=tmp_path, knobs=QUICK) as attached:
        query = checked.writeStream.format("noop").trigger(processingTime="1 second").start()
        with pytest.raises(StreamingQueryException, match="of the job itself"):
            query.awaitTermination()
        assert attached.is_attached, "another query may come"


@pytest.mark.long
def test_twenty_queries_of_a_session(spark: SparkSession, tmp_path: Path) -> None:
    seen = Seen()
    with (
        ExitStack() as queries,
        elastream.attach(spark, recommend=True, folder=tmp_path, knobs=QUICK, on_event=seen.events.append),
    ):
        names = {f"query {number}" for number in range(20)}
        running = [queries.enter_context(counting(spark, name, rows=5, every="5 seconds")) for name in names]
        until(lambda: _names(tmp_path) == names, "all of them are seen")
        until(lambda: len(seen.proposed) >= 2, "they are sized together")
        assert all(query.isActive for query in running)
    assert all(1 <= found <= 8 for found in seen.proposed)


def test_what_is_wrong_is_said_before_anything_begins(spark: SparkSession) -> None:
    for wrong, words in (
        ({"latency": 0}, "latency must be a finite number above 0"),
        ({"latency": "soon"}, "latency: a duration is"),
        ({"min_executors": 3, "max_executors": 2}, r"max_executors must be at least min_executors \(3\), found 2"),
        ({"min_executors": 0}, "min_executors must be at least 1"),
        ({"knobs": {"intervall": 3}}, "unknown option 'intervall'"),
    ):
        with pytest.raises(elastream.InvalidInput, match=words):
            elastream.attach(spark, **wrong)  # type: ignore[arg-type]
    with pytest.raises(elastream.InvalidInput, match="a SparkSession was expected, found str"):
        elastream.attach("spark")
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("elastream")]
    assert not [thread for thread in ours if not thread.name.startswith("elastream-sync")], "of other tests"
