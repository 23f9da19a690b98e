"""What the engine measures of a pipeline whose every record is known, and what a rescale leaves alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import LONGEST_BATCH_S, PATIENCE_S, Running, costing, wait_until

from elastream.engines.spark.pipeline import Pipeline
from elastream.measurement import Snapshot
from elastream.policies.imbalance import imbalance
from elastream.policies.proposal import ReasonKind
from elastream.web.feed import Feed
from elastream.web.metrics import RunCollector

RECORD_MS = 5
WORDS = 3
ROUNDS = 8
RECORDS = 40  # of a round


def declare() -> Pipeline:
    pipeline = Pipeline("measured")
    pipeline.feed("sentences", schema="line string")

    @pipeline.operator(reads="sentences", parallelism=2, max_parallelism=4)
    def words(sentences: DataFrame) -> DataFrame:
        return costing(sentences, RECORD_MS).select(F.explode(F.split("line", " ")).alias("word"))

    @pipeline.operator(reads="sentences", parallelism=2, max_parallelism=4)
    def shuffled(sentences: DataFrame) -> DataFrame:
        # skew is told of the stage that loses most time by it, so there must be some to lose
        return costing(sentences.repartition(4, "line"), 1)

    @pipeline.operator(reads="words", state_partitions=4, output_mode="update")
    def counts(words: DataFrame) -> DataFrame:
        return words.groupBy("word").count()

    return pipeline


@pytest.fixture(scope="module")
def running(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(spark, declare(), tmp_path_factory.mktemp("measured")) as running:
        yield running


@pytest.fixture(scope="module")
def snapshots(running: Running) -> list[Snapshot]:
    """Small and large rounds in turn, so that a machine which gets quicker does not show in the price of a record;
    nothing is rescaled, so no window is forgotten."""
    found = []
    half = range(1, ROUNDS // 2 + 1)
    for size in (size for small in half for size in (small, ROUNDS + 1 - small)):
        running.put("sentences", [("one two three",)] * (RECORDS * size))
        running.drain()
        found += running.measured()
    wait_until(lambda: all_told(running, found), "all batches are in the measurements")
    return found


SENTENCES = RECORDS * ROUNDS * (ROUNDS + 1) // 2


def all_told(running: Running, found: list[Snapshot]) -> bool:
    """A batch is told of when its progress is there, a moment after what it wrote."""
    if total(found, "counts", "records_in") < SENTENCES * WORDS:
        found += running.measured()
        return False
    return True


def total(snapshots: list[Snapshot], operator: str, what: str) -> float:
    return sum(float(getattr(s.measurements[operator].totals, what)) for s in snapshots)


def test_every_record_is_counted_once(snapshots: list[Snapshot]) -> None:
    counted = {
        (name, what): total(snapshots, name, what)
        for name in ("sentences", "words", "counts")
        for what in ("records_in", "records_out")
    }
    assert counted == pytest.approx(
        {
            ("sentences", "records_in"): SENTENCES,
            ("sentences", "records_out"): SENTENCES,
            ("words", "records_in"): SENTENCES,
            ("words", "records_out"): SENTENCES * WORDS,
            ("counts", "records_in"): SENTENCES * WORDS,
            ("counts", "records_out"): 0,  # nobody reads them
        }
    )


def test_the_rates_of_the_source_are_what_came(snapshots: list[Snapshot]) -> None:
    came = sum(s.source_rates["sentences"] * s.measurements["sentences"].totals.window_s for s in snapshots)
    assert came == pytest.approx(SENTENCES)


def test_useful_time_is_what_the_records_cost_and_a_little_more(snapshots: list[Snapshot]) -> None:
    useful_s = total(snapshots, "words", "useful_s")
    assert useful_s >= SENTENCES * RECORD_MS / 1000
    assert useful_s <= total(snapshots, "words", "window_s") * snapshots[0].plan["words"]


def test_a_drained_pipeline_has_no_backlog_and_readings_of_every_instance(snapshots: list[Snapshot]) -> None:
    last = snapshots[-1]
    assert last.plan == {"words": 2, "shuffled": 2, "counts": 1}
    assert [(reading.instance, reading.instances) for reading in last.measurements["words"].readings] == [(0, 2)]
    assert all(last.measurements[name].totals.backlog == 0 for name in ("words", "counts"))


def test_the_price_of_a_record_is_learned(running: Running, snapshots: list[Snapshot]) -> None:
    """Sooner or later: a machine that is busy during the few small batches makes a batch look dear and a record
    cheap, until further ones have come."""
    cost = snapshots[-1].batch_costs["words"]

    def is_learned() -> bool:
        nonlocal cost
        if RECORD_MS / 1000 * 0.7 <= cost.per_record_s <= RECORD_MS / 1000 * 3:
            return True
        for size in (1, ROUNDS):
            running.put("sentences", [("one two three",)] * (RECORDS * size))
            running.drain()
        cost = running.engine.measure().batch_costs["words"]
        return False

    wait_until(is_learned, lambda: f"about {RECORD_MS} ms a record are found: {cost}")
    assert cost.longest_batch_s == LONGEST_BATCH_S
    assert 0 < cost.balance <= 1


def test_what_rules_look_at_is_measured(snapshots: list[Snapshot]) -> None:
    told = [s for s in snapshots if s.measurements["counts"].totals.records_in > 0]
    assert told
    for reading in (s.measurements["counts"].totals for s in told):
        assert reading.overdue == 0, "it keeps up"
        assert reading.latency_s is not None
        assert reading.latency_s > 0
        assert reading.heap_utilization is not None
        assert 0 < reading.heap_utilization < 1
    assert 0 < total(told, "counts", "cpu_utilization") <= len(told)


@pytest.mark.parametrize("set_by_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_changes_no_rate(
    running: Running, snapshots: list[Snapshot], monkeypatch: pytest.MonkeyPatch, set_by_s: float
) -> None:
    del snapshots  # only to come after them
    running.engine.measure()
    really = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: really() + set_by_s)
        running.put("sentences", [("one two three",)] * RECORDS)
        found = running.engine.measure()
    (reading,) = found.measurements["sentences"].readings
    assert 0 < reading.window_s < PATIENCE_S, "as long as it took"
    assert found.source_rates["sentences"] * reading.window_s == pytest.approx(RECORDS)
    assert abs(found.at_s - really() - set_by_s) < PATIENCE_S, "what the clock says now"
    running.drain()


def test_a_task_with_half_of_the_records_is_seen_in_the_measurement_and_by_prometheus(
    running: Running, snapshots: list[Snapshot]
) -> None:
    """Half of the lines are the same one, and go to one of four tasks; the others are all different."""
    del snapshots  # only to come after them
    lines = [("the same",) if number % 2 else (str(number),) for number in range(600)]
    found: list[Snapshot] = []

    def is_seen() -> bool:
        running.put("sentences", lines)
        running.drain()
        found.append(running.engine.measure())
        tasks = found[-1].measurements["shuffled"].totals.tasks
        return tasks is not None and tasks.records_total >= len(lines) / 2

    wait_until(is_seen, "a batch with many of them was measured")
    measured = found[-1].measurements["shuffled"]
    spread = measured.totals.tasks
    assert spread is not None
    assert (spread.tasks, measured.skew) == (4, pytest.approx(4 * (measured.largest_share or 0)))
    assert 0.5 <= (measured.largest_share or 0) < 0.85, "half, and what of the others comes to the same task"
    assert [reason.kind for reason in imbalance(measured)] == [ReasonKind.SKEW] * (
        (measured.largest_share or 0) >= 0.75
    )
    feed = Feed("measured")
    feed.snapshot(found[-1])
    gauges = {metric.name: metric for metric in RunCollector(feed).collect()}
    (told,) = (
        sample.value
        for sample in gauges["elastream_operator_largest_share_ratio"].samples
        if sample.labels["operator"] == "shuffled"
    )
    assert told == measured.largest_share


def test_a_backlog_is_what_was_not_read_yet(running: Running, snapshots: list[Snapshot]) -> None:
    del snapshots  # only to come after them
    count = 4_000  # ten seconds of work

    def measured() -> tuple[float, float]:
        found = running.engine.measure().measurements["words"].totals
        return found.backlog or 0, found.overdue or 0

    running.put("sentences", [("one two three",)] * count)
    assert 0 < measured()[0] <= count
    wait_until(lambda: measured()[1] > 0, "some of it has waited for longer than a batch")
    backlog, overdue = measured()
    assert overdue < backlog or backlog == 0, "a batch has some of it"
    running.rescale(words=4)
    running.drain()


def test_a_rescale_restarts_nothing_and_the_next_batch_has_it(running: Running) -> None:
    before = running.runs()
    assert running.rescale(words=3, counts=4).succeeded
    running.put("sentences", [("one two three",)] * 30)
    running.drain()
    assert running.runs() == before, "with state or without, it changes between two batches"
    assert running.engine.plan() == {"words": 3, "shuffled": 2, "counts": 4}
    wait_until(lambda: [last_tasks(running, name) for name in ("words", "counts")] == [3, 4], "as many tasks")
    assert running.engine.measure().gaps == ()


def last_tasks(running: Running, name: str) -> int:
    """Of the last stage of its newest batch, which in a stateful operator is the one that has the state."""
    running.engine.measure()
    query = running.engine._queries[name].query
    told = [entry for entry in query.recentProgress if entry["numInputRows"]]
    work = running.engine._stages.work(str(query.runId), int(told[-1]["batchId"]))
    return 0 if work is None else work.stages[-1].tasks


def test_two_engines_do_not_share_a_folder(running: Running, spark: SparkSession, tmp_path: Path) -> None:
    """In one process, too: a second driver on the same checkpoints would corrupt them."""
    second = Running(spark, declare(), running.folder)
    with pytest.raises(Exception, match="another process runs this pipeline here"):
        second.engine.start()
    assert running.workspace.folder.exists()
    assert all(query.failure() is None for query in running.engine._queries.values())
