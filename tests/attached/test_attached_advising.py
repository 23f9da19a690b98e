"""A job from outside, by recorded answers of a driver's REST API.

It counts 500 rows/s, each of which sleeps for 1 ms, every 3 s on local[4], on a machine that was busy.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from elastream.attached.advising import (
    Outside,
    batch_from_jobs,
    checkpoints_in,
    interval_of,
    watched,
    with_checkpoint,
)
from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.from_spark import batch_of, query_of, stages_by_batch
from elastream.errors import ElastreamError, InvalidInput

RECORDED = json.loads((Path(__file__).parent / "recorded" / "local_count.json").read_text(encoding="utf-8"))
RUN = RECORDED["progress"][0]["runId"]
QUERY = RECORDED["progress"][0]["id"]


def answers(url: str) -> Any:
    path = urllib.parse.urlsplit(url).path.removeprefix("/api/v1/applications")
    if path == "":
        return RECORDED["applications"]
    rest = path.split("/", 2)[2]
    if rest.endswith("/taskSummary"):
        stage = "/" + rest.removesuffix("/taskSummary")
        if stage not in RECORDED["taskSummary"]:
            raise ElastreamError("forgotten")
        return RECORDED["taskSummary"][stage]
    return RECORDED[rest]


def outside(**more: Any) -> Outside:
    return Outside(url="http://driver:4040/", get=answers, **more)


def test_the_batches_of_a_query_are_found_by_its_run() -> None:
    found = stages_by_batch(RECORDED["jobs"], RECORDED["stages"])
    assert {run for run, _ in found} == {RUN}
    assert sorted(number for _, number in found) == list(range(13)), "that of the newest batch still runs"
    stages = found[RUN, 5]
    assert [stage.tasks for stage in stages] == [4, 4]
    assert [stage.reads_shuffle for stage in stages] == [False, True]
    assert [stage.writes_shuffle for stage in stages] == [True, False]
    assert stages[0].rows_in == RECORDED["progress"][5]["numInputRows"]
    assert query_of(RECORDED["jobs"][0]) == ("counts", QUERY)
    assert query_of({"description": "id = 6702146c-c9fa\nrunId = 0d9e\nbatch = 1"}) == (
        "query-6702146c",
        "6702146c-c9fa",
    )
    assert batch_of({"description": "somebody's own job"}) is None


def test_it_says_the_size_that_the_job_needs() -> None:
    seen = outside()
    seen.look()
    seen.look()
    advice = seen.advice(target_utilization=0.8)
    (load,) = advice.loads
    assert load.name == "counts"
    assert load.interval_s == pytest.approx(3.0, abs=0.1)
    assert load.rows_per_s == pytest.approx(500.0, rel=0.1)
    assert load.model is not None
    assert 1.5 < load.model.stages[0].slot_s(1500) < 4.5, "the rows wait for 1.5 s, and a busy machine adds to it"
    assert (advice.local, advice.cores, advice.executors) == (True, 4, 1)
    assert advice.size is not None
    assert 1 <= advice.size.executors <= 4
    assert advice.size.predicted_s["counts"] < 3.0
    assert advice.saves == pytest.approx(1 - advice.size.executors / 4)
    assert advice.unknown == ()


def test_looking_again_counts_no_batch_twice() -> None:
    seen = outside()
    for _ in range(3):
        seen.look()
    (watch,) = seen.watches.values()
    numbers = [batch.batch for batch in watch.batches]
    assert numbers == list(range(1, 13)), "the first one starts everything, and tells nothing"


def test_a_latency_that_is_asked_for_counts_instead_of_the_interval() -> None:
    seen = outside(latency_s=1.0)
    seen.look()
    advice = seen.advice(target_utilization=0.8)
    assert advice.loads[0].latency_s == 1.0
    assert advice.size is not None
    assert advice.size.late == ("counts",)
    assert advice.size.executors == 4, "its stages have four tasks each: more do not help"
    (bound,) = advice.bounds
    assert "a stage has 4 tasks" in bound.text


def test_a_driver_without_queries_is_told_as_that() -> None:
    def none(url: str) -> Any:
        return [] if url.endswith("/jobs") or "/stages?" in url else answers(url)

    seen = Outside(url="http://driver:4040", get=none)
    seen.look()
    assert seen.advice(target_utilization=0.8).size is None


class Away:
    """A driver that does not answer the first times, and a clock that only waiting moves on."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.now_s = 0.0

    def get(self, url: str) -> Any:
        if self.times > 0:
            self.times -= 1
            raise ElastreamError("Spark's REST API does not answer")
        return answers(url)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def watched(self, *, for_s: float) -> Outside:
        outside = Outside(url="http://driver:4040", get=self.get)
        return watched(outside, for_s=for_s, every_s=1.0, wait=self.wait, clock=lambda: self.now_s)


def test_a_driver_that_is_away_for_a_while_is_waited_for_and_one_that_is_never_there_is_an_error() -> None:
    assert Away(times=1).watched(for_s=2.0).watches
    never = Away(times=1000)
    with pytest.raises(ElastreamError, match="does not answer"):
        never.watched(for_s=180.0)
    assert never.now_s <= 20, "who has mistyped an address does not wait for minutes"


def _batch(number: int, started_s: float, duration_s: float) -> BatchRun:
    stage = StageRun(tasks=1, slot_s=duration_s, submitted_s=started_s, completed_s=started_s + duration_s)
    return BatchRun(batch=number, started_s=started_s, duration_s=duration_s, rows=1, cores=1, stages=(stage,))


def test_the_interval_is_that_of_batches_that_wait_for_it() -> None:
    assert interval_of([_batch(n, 10.0 * n, 2.0) for n in range(5)]) == 10.0
    assert interval_of([_batch(n, 2.0 * n, 2.0) for n in range(5)]) == 0.0, "one after the other"
    assert interval_of([_batch(n, 10.0 * n, 2.0) for n in range(2)]) == 0.0, "too few to tell"


def test_the_checkpoint_tells_when_a_batch_was_triggered_and_committed(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text('{"id":"6702146c"}')
    (tmp_path / "offsets" / "7").write_text(
        'v1\n{"batchWatermarkMs":0,"batchTimestampMs":99000}\n{"logOffset":3}\n'
    )
    (tmp_path / "commits" / "7").write_text("v1\n{}")
    os.utime(tmp_path / "commits" / "7", (104.5, 104.5))
    found = with_checkpoint(_batch(7, 100.0, 3.0), tmp_path)
    assert (found.started_s, found.duration_s) == (99.0, 5.5)
    assert found.driver_s == pytest.approx(2.5)
    assert with_checkpoint(_batch(8, 100.0, 3.0), tmp_path) == _batch(8, 100.0, 3.0), "not there"
    assert with_checkpoint(_batch(7, 300.0, 3.0), tmp_path) == _batch(7, 300.0, 3.0), "of another run"
    assert checkpoints_in([tmp_path]) == {"6702146c": tmp_path}
    with pytest.raises(InvalidInput, match=r"--checkpoint .* expected the checkpoint of a query"):
        checkpoints_in([tmp_path / "offsets"])


def test_a_batch_lasts_from_its_first_job_to_its_last() -> None:
    jobs = [job for job in RECORDED["jobs"] if batch_of(job) == (RUN, 6)]
    stages = stages_by_batch(RECORDED["jobs"], RECORDED["stages"])[RUN, 6]
    batch = batch_from_jobs(6, jobs, stages, cores=4)
    assert batch.rows == RECORDED["progress"][6]["numInputRows"]
    assert 0 < batch.duration_s <= RECORDED["progress"][6]["durationMs"]["addBatch"] / 1000
