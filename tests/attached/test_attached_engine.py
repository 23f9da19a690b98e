"""The engine of an attached job under the real manager, with a session that is not there."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attached_fakes import FakeHolder, FakeQueries, attached_of, engine_of

from elastream.attached import attaching
from elastream.attached.attaching import AttachOptions
from elastream.attached.batch import StageRun
from elastream.attached.from_spark import (
    batch_from_progress,
    interval_s,
    left_alone,
    quantiles_of,
    splits_by_cores,
    waiting_rows,
)
from elastream.attached.policy import EXECUTORS, BatchSchedule
from elastream.attached.session import check_session, shown_name
from elastream.attached.watch import Arrival, QueryWatch
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.engine import EngineFailed
from elastream.measurement.recording import read_recording
from elastream.measurement.whole_job import WholeJob
from elastream.policies.catalog import create
from elastream.policies.knowledge import NOTHING_KNOWN
from tests.patience import wait_until

RECORDED = json.loads((Path(__file__).parent / "recorded" / "local_count.json").read_text(encoding="utf-8"))


def test_the_manager_sizes_it_records_it_and_gives_back(tmp_path: Path) -> None:
    holder = FakeHolder(up=8)
    attached = attached_of(tmp_path, FakeQueries(), holder)
    wait_until(lambda: holder.up < 8)
    sized = holder.up
    assert 2 <= sized <= 4, "20 s of work every 10 s, in 8 s of them"
    attached.detach()
    assert (holder.up, holder.given_back) == (8, 1)
    assert not attached.is_attached
    recorded = read_recording(tmp_path / "recording.jsonl")
    assert {snapshot.plan[EXECUTORS] for snapshot in recorded.snapshots} >= {8}
    assert dict(recorded.snapshots[0].source_rates) == {"counts": 1000.0}


def test_a_recommendation_changes_nothing_and_tells_what_it_would_save(tmp_path: Path) -> None:
    holder = FakeHolder(up=8)
    attached = attached_of(tmp_path, FakeQueries(), holder, dry_run=True)
    wait_until(lambda: attached.used.proposed_s < 0.7 * attached.used.had_s)
    attached.detach()
    assert holder.asked == []


def test_a_cluster_that_gives_fewer_is_told_and_not_asked_for_ever(tmp_path: Path) -> None:
    holder = FakeHolder(up=1, room=2)
    attached = attached_of(tmp_path, FakeQueries(), holder)
    wait_until(lambda: len(holder.asked) >= 1)
    told = "were asked for, and 2 are there"
    wait_until(lambda: told in (tmp_path / "recording.jsonl").read_text(encoding="utf-8"), told)
    attached.detach()
    assert holder.up == 8


def test_a_session_that_is_stopped_ends_it_quietly(tmp_path: Path) -> None:
    holder = FakeHolder()
    attached = attached_of(tmp_path, FakeQueries(), holder)
    holder.gone = True
    wait_until(lambda: not attached.is_attached)
    with pytest.raises(EngineFailed, match="the session was stopped"):
        engine_of(FakeQueries(), holder).measure()


def test_a_manager_that_hangs_loses_the_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "_SILENT_S", 0.2)
    queries, holder, blocked = FakeQueries(), FakeHolder(up=8), threading.Event()
    attached = attached_of(tmp_path, queries, holder)
    wait_until(lambda: bool(holder.asked) or not attached.is_attached)  # a busy machine may hang it by itself
    queries.on_look = lambda: bool(blocked.wait(60)) and None
    wait_until(lambda: holder.given_back == 1)
    assert not attached.is_attached
    blocked.set()
    wait_until(lambda: not attached._manager.is_alive())
    assert (holder.up, holder.given_back) == (8, 1), "once it is heard of again, it changes nothing"


def _break(kind: str, folder: Path, queries: FakeQueries, holder: FakeHolder, blocked: threading.Event) -> None:
    def fail(error: BaseException) -> Callable[[], None]:
        def look() -> None:
            raise error

        return look

    match kind:
        case "bug":
            queries.on_look = fail(ZeroDivisionError("ours"))
        case "exit":
            queries.on_look = fail(SystemExit(3))
        case "no memory":
            queries.on_look = fail(MemoryError())
        case "refused":
            queries.on_look = fail(ElastreamError("not now"))
        case "blocked":
            queries.on_look = lambda: bool(blocked.wait(60)) and None
        case "disk":
            queries.on_look = lambda: _replace_by_folder(folder / "recording.jsonl")
        case "stopped":
            holder.gone = True


def _replace_by_folder(path: Path) -> None:
    raise OSError(28, "No space left on device", str(path))


@pytest.mark.parametrize("seed", range(50))
def test_whatever_fails_the_executors_end_as_configured(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_SILENT_S", 0.15)
    chance = random.Random(seed)
    kinds = ("bug", "exit", "no memory", "refused", "blocked", "disk", "stopped")
    queries, holder, blocked = FakeQueries(), FakeHolder(up=chance.randint(1, 12)), threading.Event()
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    attached = attached_of(tmp_path, queries, holder, interval_s=0.01)
    before = chance.randint(0, 8)
    wait_until(lambda: queries.looks >= before or not attached.is_attached)
    _break(kinds[seed % len(kinds)], tmp_path, queries, holder, blocked)
    if chance.random() < 0.5:  # else it is let go at once
        seen = queries.looks
        wait_until(lambda: queries.looks > seen or not attached.is_attached)
    if kinds[seed % len(kinds)] == "blocked":
        wait_until(lambda: not attached.is_attached)  # by the watchdog: nobody waits for a thread that hangs
    blocked.set()
    attached.detach()
    assert holder.given_back == 1
    assert holder.up == holder.configured
    assert raised == [], "nothing is printed as a failure of the job"


def test_what_the_jvm_does_not_answer_is_an_error_that_passes() -> None:
    queries = FakeQueries()

    def look() -> None:
        raise RuntimeError("py4j: connection refused\nat ...")

    queries.on_look = look
    with pytest.raises(ElastreamError, match="Spark does not answer: RuntimeError: py4j: connection refused"):
        engine_of(queries, FakeHolder()).measure()


def test_without_a_query_nothing_is_proposed() -> None:
    queries = FakeQueries()
    queries.sized = []
    snapshot = engine_of(queries, FakeHolder()).measure()
    assert dict(snapshot.source_rates) == {"no query yet": 0.0}
    proposal = BatchSchedule()(snapshot)
    assert dict(proposal.parallelism) == {}
    assert "no query runs that can be sized" in str(proposal.advice[EXECUTORS].reasons[0])


def test_twenty_queries_share_the_executors() -> None:
    queries = FakeQueries(rows=1000)
    queries.sized = [replace(queries.sized[0], name=f"query {number}") for number in range(20)]
    snapshot = engine_of(queries, FakeHolder(), most=64).measure()
    assert len(snapshot.loads) == 20
    began_s = time.process_time()
    proposal = BatchSchedule()(snapshot)
    assert time.process_time() - began_s < 5.0
    assert 4 <= proposal.parallelism[EXECUTORS] <= 10, "20 × 2.4 s of work in 8 s of every 10 s"
    assert len(proposal.advice[EXECUTORS].reasons) == 20


def test_another_engine_s_window_is_refused() -> None:
    snapshot = engine_of(FakeQueries(), FakeHolder()).measure()
    from elastream.measurement import Snapshot

    plain = Snapshot(
        dataflow=snapshot.dataflow,
        plan=snapshot.plan,
        source_rates=snapshot.source_rates,
        readings=snapshot.readings,
    )
    with pytest.raises(InvalidInput, match="is for attached jobs"):
        BatchSchedule()(plain)


# What Spark says


def test_a_batch_is_made_of_its_progress_and_its_stages() -> None:
    entry = RECORDED["progress"][6]
    stage = StageRun(tasks=4, slot_s=2.0, submitted_s=100.0, completed_s=100.5)
    batch = batch_from_progress(entry, (stage,), cores=4)
    assert (batch.batch, batch.rows) == (6, entry["numInputRows"])
    assert batch.duration_s == entry["durationMs"]["triggerExecution"] / 1000
    assert batch.parts_s["walCommit"] == entry["durationMs"]["walCommit"] / 1000
    assert batch.parts_s["addBatch"] == pytest.approx(entry["durationMs"]["addBatch"] / 1000 - 0.5)
    assert "triggerExecution" not in batch.parts_s
    assert splits_by_cores(entry)


@pytest.mark.parametrize(
    ("sources", "waits"),
    [
        ([{"latestOffset": '{"t":{"0":10,"1":7}}', "endOffset": '{"t":{"0":4,"1":7}}'}], 6.0),
        ([{"latestOffset": {"t": {"0": 10}}, "endOffset": {"t": {"0": 4}}}] * 2, 12.0),
        ([{"latestOffset": {"t": {"0": 10}}, "endOffset": {}}], 10.0),
        ([{"latestOffset": 35, "endOffset": 35}], None),
        ([{"latestOffset": None, "endOffset": {"logOffset": 3}}], None),
        ([{"latestOffset": "no json", "endOffset": "x"}], None),
        ([], None),
    ],
)
def test_what_waits_is_what_kafka_has_beyond_the_batch(sources: list[Any], waits: float | None) -> None:
    assert waiting_rows({"sources": sources}) == waits


@pytest.mark.parametrize(
    ("trigger", "every_s", "alone"),
    [
        ("ProcessingTimeTrigger(10000)", 10.0, None),
        ("ProcessingTimeTrigger(0)", 0.0, None),
        ("", None, None),
        ("AvailableNowTrigger", None, "once, availableNow"),
        ("OneTimeTrigger", None, "once, availableNow"),
        ("RealTimeTrigger(300000)", None, "as many cores as it has tasks"),
        ("ContinuousTrigger(1000)", None, "continuous"),
    ],
)
def test_triggers(trigger: str, every_s: float | None, alone: str | None) -> None:
    assert interval_s(trigger) == every_s
    found = left_alone(trigger)
    assert found is None if alone is None else alone in (found or "")


def test_quantiles_are_brought_to_equal_steps() -> None:
    summary = {"executorRunTime": [0, 100, 250, 500, 750, 900, 2000], "executorDeserializeTime": [0] * 7}
    found = quantiles_of(summary)
    assert len(found) == 11
    assert (found[0], found[5], found[9], found[10]) == (0.0, 0.5, 0.9, 2.0)


def test_what_arrives_is_what_was_taken_and_what_the_lag_grew_by() -> None:
    watch = QueryWatch(name="q", run="r")
    for number in range(7):
        watch.arrivals.append(Arrival(started_s=5.0 * number, rows=500.0, left=250.0 * number))
    assert watch.taken_per_s() == pytest.approx(100.0)
    assert watch.arriving_per_s() == pytest.approx(150.0)
    assert watch.limit_rows == 500.0, "rows were left three times in a row"
    assert watch.waiting == 1500.0
    assert watch.growth_per_s2() == pytest.approx(0.0, abs=1e-6)


def test_a_trend_is_told_from_noise() -> None:
    watch = QueryWatch(name="q", run="r")
    for number in range(12):
        watch.arrivals.append(Arrival(started_s=5.0 * number, rows=500.0 + 50.0 * number, left=None))
    assert watch.growth_per_s2() == pytest.approx(2.0, rel=0.05)


def test_looks_that_found_nothing_are_no_batches() -> None:
    watch = QueryWatch(name="q", run="r")
    entries = RECORDED["progress"]
    idle = {**entries[3], "durationMs": {"latestOffset": 1, "triggerExecution": 1}}
    watch.progressed([*entries[:3], idle, *entries[3:5], entries[4]])
    assert [arrival.rows for arrival in watch.arrivals] == [entry["numInputRows"] for entry in entries[:5]]
    assert sorted(watch.untold()) == [1, 2, 3, 4], "the first one of a run tells nothing"


def test_sessions_that_cannot_be_attached_to_are_refused_with_the_reason() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidInput, match="Spark Connect has no driver here"):
        check_session(connect)
    stopped = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    stopped.sparkContext = type("SparkContext", (), {"_jsc": None})()
    with pytest.raises(InvalidInput, match="this session is stopped"):
        check_session(stopped)
    assert shown_name(None, "6702146c-c9fa") == "query-6702146c"
    assert shown_name("a\nb", "6702146c") == "a?b"


# --- another policy than ours -----------------------------------------------------------------------------


def test_elastic_scaling_runs_with_the_knobs_of_its_authors() -> None:
    knobs = AttachOptions(policy="elastic-scaling", latency_s=20.0).settled()
    assert (knobs.scale_down_delay_s, knobs.rollback_drop, knobs.interval_s) == (0, None, 20.0)
    asked_for = AttachOptions(policy="elastic-scaling", knobs={"scale_down_delay": "30 s"}).settled()
    assert asked_for.scale_down_delay_s == 30


def test_elastic_scaling_counts_every_batch_of_a_window() -> None:
    queries = FakeQueries()
    (watch,) = queries.sized
    watch.progressed(
        {
            "batchId": number,
            "timestamp": f"2026-11-16T21:00:{number:02}.000Z",
            "numInputRows": 1,
            "durationMs": {"addBatch": 19_000, "triggerExecution": 20_000},
        }
        for number in (1, 2)
    )
    engine, policy = engine_of(queries, FakeHolder(up=4)), create("elastic-scaling")
    snapshot = engine.measure()
    assert snapshot.job is not None
    assert [batch.took_s for batch in snapshot.job.batches] == [20.0, 20.0]
    knowledge = policy.remember(snapshot, NOTHING_KNOWN)  # type: ignore[attr-defined]
    # 2.6 / 1.6, then (1.56 + 2) / 1.96 = 1.816: 7.27
    assert policy(snapshot, knowledge).parallelism == {EXECUTORS: 8}
    assert engine.measure().job == WholeJob()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("ds2", "sizes the operators of a pipeline, and this is a whole job"),
        ("spark-dra", "not from outside of Spark"),
        ("elastic-scalin", "did you mean 'elastic-scaling'"),
    ],
)
def test_policies_that_cannot_size_an_attached_job(policy: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AttachOptions(policy=policy)
