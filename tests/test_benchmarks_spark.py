"""What the benchmarks on Spark compute from what they saw; they themselves run only when they are asked for."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from benchmarks.batches import (
    Around,
    Batch,
    Marks,
    batch_of,
    breakdown_s,
    ended_between,
    mean_parts_s,
    median_breakdown_s,
    parts_text,
    pause_s,
    records_per_s,
)
from benchmarks.channel_throughput import drained
from benchmarks.cpu_bound import Seen, report, says_no_more
from benchmarks.measure import Measure
from benchmarks.measuring_overhead import window_of
from benchmarks.spark_runs import ends_s, put_backlog, size_bytes, watched
from benchmarks.spread import median_between, p95, ratio_of_pairs
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import SegmentLog, StreamPosition
from elastream.manager.events import PhaseChanged
from elastream.manager.phase import ManagerPhase
from elastream.measurement import Reading, Snapshot


def _batch(**given: Any) -> Batch:
    usual = {
        "query": "counts",
        "run": "r",
        "number": 1,
        "records": 100,
        "began_s": 10.0,
        "took_s": 1.0,
        "parts_s": {"addBatch": 0.8, "latestOffset": 0.1},
    }
    return Batch(**{**usual, **given})


# Spread


def test_the_interval_of_a_median_holds_it_and_narrows_with_more_values() -> None:
    few = median_between([1.0, 2.0, 3.0, 4.0, 5.0])
    many = median_between([1.0, 2.0, 3.0, 4.0, 5.0] * 40)
    assert few.low <= few.value == 3.0 <= few.high
    assert many.high - many.low < few.high - few.low


def test_the_same_values_give_the_same_interval() -> None:
    assert median_between([3.0, 1.0, 2.0, 9.0]) == median_between([3.0, 1.0, 2.0, 9.0])


def test_ratios_are_taken_within_pairs_so_what_both_share_does_not_count() -> None:
    pairs = [(0.9 * slowness, slowness) for slowness in (1.0, 5.0, 0.2, 17.0)]
    ratio = ratio_of_pairs(pairs)
    assert ratio.value == pytest.approx(0.9)
    assert ratio.high - ratio.low == pytest.approx(0.0, abs=1e-9)


def test_what_is_lost_is_the_rest_with_its_interval_turned_round() -> None:
    lost = ratio_of_pairs([(0.8, 1.0), (0.9, 1.0), (1.0, 1.0)]).minus_from(1.0)
    assert lost.value == pytest.approx(0.1)
    assert lost.low <= lost.value <= lost.high


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="at least one"):
        median_between([])


def test_the_95th_percentile_lies_between_the_two_highest_of_twenty_one() -> None:
    assert p95(list(range(21))) == 19
    assert p95([4.0]) == 4.0


@pytest.mark.parametrize(("value", "holds"), [(1.9, False), (2.0, True), (3.0, True), (3.1, False)])
def test_a_measure_may_be_bound_on_both_sides(value: float, holds: bool) -> None:
    assert Measure(what="it", value=value, unit="", at_least=2, at_most=3).holds is holds


def test_what_is_no_number_holds_no_bound() -> None:
    assert not Measure(what="it", value=float("nan"), unit="", at_most=3).holds


# Batches


def test_a_batch_is_read_from_what_spark_tells_of_it() -> None:
    progress = {
        "runId": "r",
        "batchId": 7,
        "numInputRows": 20,
        "timestamp": "1970-01-01T00:01:40.500Z",
        "durationMs": {"addBatch": 400, "walCommit": 30, "commitOffsets": 20, "triggerExecution": 500},
    }
    batch = batch_of("counts", progress)
    assert (batch.number, batch.records, batch.began_s, batch.ended_s) == (7, 20, 100.5, 101.0)
    assert batch.bookkeeping_s == pytest.approx(0.05)
    assert "triggerExecution" not in batch.parts_s


def test_a_rate_counts_no_batch_by_halves() -> None:
    batches = [_batch(began_s=at_s, took_s=0.5, records=100) for at_s in (0.0, 1.0, 2.0)]
    assert records_per_s(batches) == pytest.approx(100)
    with pytest.raises(ValueError, match="at least two"):
        records_per_s(batches[:1])


def test_batches_of_a_window_are_those_that_ended_in_it() -> None:
    batches = [_batch(number=n, began_s=float(n), took_s=1.0) for n in (3, 1, 2)]
    assert [batch.number for batch in ended_between(batches, 2.0, 4.0)] == [1, 2]


def test_what_spark_does_not_name_is_told_as_other() -> None:
    parts = mean_parts_s([_batch(), _batch(parts_s={"addBatch": 0.6}, took_s=0.8)])
    assert parts == pytest.approx({"addBatch": 0.7, "other": 0.15, "latestOffset": 0.05})
    assert list(parts) == ["addBatch", "other", "latestOffset"]
    assert parts_text({"addBatch": 0.7, "getBatch": 0.0}) == "addBatch 700 ms"


def test_the_speed_of_a_run_is_that_of_its_first_query_until_the_last_has_ended() -> None:
    batches = [
        _batch(query="keyed", began_s=0.0, records=100),
        _batch(query="keyed", began_s=1.0, records=100),
        _batch(query="counts", began_s=3.0, records=200),
    ]
    assert drained(batches).records_per_s == pytest.approx(50)


def test_a_window_has_the_rate_of_the_first_operator_and_the_batches_of_all() -> None:
    batches = [_batch(query=name, began_s=float(n), took_s=0.25) for name in ("a", "b") for n in range(3)]
    window = window_of(batches, ("a", "b"))
    assert window.records_per_s == pytest.approx(100)
    assert window.batch_s == pytest.approx(0.5)


# A rescale


def _marks(**given: Any) -> Marks:
    usual = {
        "last_end_s": 10.0,
        "asked_s": 10.2,
        "stop_s": 10.3,
        "stopped_s": 10.4,
        "moved_s": 10.45,
        "started_s": 10.6,
        "first": _batch(began_s=11.6, took_s=1.0, parts_s={"addBatch": 0.9}),
        "first_end_s": 12.7,
        "usual_s": 1.0,
        "usual_work_s": 0.3,
    }
    return Marks(**{**usual, **given})


def test_the_parts_of_a_move_add_up_to_the_time_between_two_batches() -> None:
    parts = breakdown_s(_marks())
    assert sum(parts.values()) == pytest.approx(2.7)
    assert list(parts.values()) == pytest.approx([0.2, 0.1, 0.1, 0.05, 0.15, 1.0, 0.1, 0.3, 0.6, 0.1])
    assert pause_s(_marks()) == pytest.approx(1.7)


def test_a_batch_that_was_under_way_is_the_last_before_the_action() -> None:
    parts = breakdown_s(_marks(last_end_s=10.29))
    assert parts["until the action was asked for"] == 0
    assert parts["waiting for the batch under way"] == pytest.approx(0.01)
    assert sum(parts.values()) == pytest.approx(12.7 - 10.29)


def test_a_move_that_is_as_quick_as_a_batch_is_no_pause() -> None:
    assert pause_s(_marks(usual_s=5.0)) == 0


def test_the_median_is_taken_phase_by_phase() -> None:
    middle = median_breakdown_s([_marks(), _marks(started_s=10.5), _marks(started_s=10.9)])
    assert middle["start of the query"] == pytest.approx(0.15)


def test_a_rescale_is_compared_with_the_batches_before_it() -> None:
    around = Around(before_s=[0, 1, 2, 3, 4, 5.1, 6], after_s=[7, 8.3, 20])
    assert (around.usual_s, around.pause_s) == (1, pytest.approx(0.3)), "of the batch under way and the next"
    assert around.pause_without_s == pytest.approx(0.1)
    assert Around(before_s=[0, 1, 2, 3, 3.5], after_s=[4, 4.5]).pause_s == 0


# Files


def test_a_long_backlog_takes_the_room_of_one_file(tmp_path: Path) -> None:
    put_backlog(tmp_path, commits=5, records_each=10)
    log = SegmentLog(tmp_path)
    assert log.head().records == 50
    assert len({path.stat().st_ino for path in tmp_path.rglob("*.parquet")}) == 1
    log.acknowledge("reader", StreamPosition(record=30, commit=3))
    assert FileChannel(tmp_path).forget(["reader"]) == 3
    rest = list(
        log.commits(StreamPosition(record=30, commit=3), log.position(StreamPosition(record=30, commit=3)))
    )
    assert [(tmp_path / segment.path).exists() for commit in rest for segment in commit.segments] == [True, True]


def test_the_size_of_a_folder_is_that_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"56")
    assert size_bytes(tmp_path) == 6


def test_the_ends_of_batches_leave_out_what_is_no_batch(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    for name in ("0", "1", ".1.crc", "metadata"):
        (tmp_path / "commits" / name).touch()
    assert len(ends_s(tmp_path)) == 2


def test_a_watched_function_does_as_before_and_is_watched_no_longer_than_asked() -> None:
    owner = types.SimpleNamespace(double=lambda number: 2 * number)
    original = owner.double
    with watched(owner, "double") as watch:
        assert owner.double(4) == 8
    assert len(watch.took_s) == 1
    assert owner.double is original


# A machine without cores to spare


def _seen(*parallelism: int, said: str | None) -> Seen:
    dataflow = Dataflow.of([Operator(name="feed", source=True), Operator(name="hashed")], [("feed", "hashed")])
    snapshots = [
        Snapshot(
            dataflow=dataflow,
            plan=Plan({"hashed": instances}),
            source_rates={"feed": 100.0},
            readings=(Reading(operator="hashed", window_s=10, useful_s=1, records_in=500, records_out=500),),
            at_s=10.0 * number,
        )
        for number, instances in enumerate(parallelism)
    ]
    events = (
        []
        if said is None
        else [PhaseChanged(at_s=1, before=ManagerPhase.VERIFYING, after=ManagerPhase.GIVEN_UP, why=said)]
    )
    return Seen(snapshots=snapshots, events=[*events])


@pytest.mark.parametrize(
    ("parallelism", "said", "holds"),
    [
        ((1, 3, 3, 3, 3, 3), "no more cores", True),
        ((1, 3, 3, 3, 3, 3), None, False),  # right, but nobody is told why it falls behind
        ((1, 3, 6, 9, 12, 16), "no more cores", False),  # a runaway
        ((1, 3, 2, 3, 2, 3), "no more cores", False),  # never at rest
    ],
)
def test_settling_is_being_at_the_cores_at_rest_and_saying_why(
    parallelism: tuple[int, ...], said: str | None, holds: bool
) -> None:
    seen = _seen(*parallelism, said=said)
    assert says_no_more(seen.events) == ([] if said is None else [said])
    found = report(seen, 2, "two cores")
    assert all(measure.holds for measure in found.measures) is holds
