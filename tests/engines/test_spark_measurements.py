"""From the answers of a driver's REST API and the progress of queries to readings, without a Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from elastream.engines.spark.measurements import StepMeter
from elastream.engines.spark.query import Written
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.stages import Stages, StageWork, Work
from elastream.errors import ElastreamError
from elastream.measurement import Reading
from elastream.measurement.batch_cost import LEAST_BATCHES, BatchCost
from elastream.measurement.tasks import QUANTILES

_APPLICATION = "local-1763200000000"
_MIDNIGHT = datetime(2026, 11, 15, tzinfo=UTC)


@dataclass
class Driver:
    """Answers as the REST API of a Spark 4.3 driver does, as far as elastream asks."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    longest_ms: float = 300.0
    longest_of: dict[int, float] = field(default_factory=dict)
    """Of single stages."""
    ran_on: dict[int, list[str]] = field(default_factory=dict)
    """By stage, the executor of each task."""
    url: str = ""
    _read: dict[int, dict[str, Any]] = field(default_factory=dict)

    def job(
        self,
        *busy_ms: float,
        run: str,
        batch: int,
        tasks: int = 1,
        lasted_s: float = 1.0,
        fetch_wait_ms: float = 0.0,
        cpu_ms: float = 0.0,
        status: str = "SUCCEEDED",
    ) -> None:
        """A job of a batch, with a stage for each busy time."""
        first = len(self.stages)
        for index, busy in enumerate(busy_ms):
            begin = _MIDNIGHT + timedelta(seconds=first + index)
            self.stages.append(
                {
                    "stageId": first + index,
                    "attemptId": 0,
                    "status": "COMPLETE",
                    "numCompleteTasks": tasks,
                    "executorRunTime": busy,
                    "executorCpuTime": cpu_ms * 1_000_000,
                    "shuffleFetchWaitTime": fetch_wait_ms if index else 0,
                    "submissionTime": _written(begin),
                    "completionTime": _written(begin + timedelta(seconds=lasted_s)),
                }
            )
        newest = self.jobs[0]["jobId"] if self.jobs else -1
        job = {
            "jobId": newest + 1,
            "description": f"words\nid = 85fb0ecd\nrunId = {run}\nbatch = {batch}",
            "jobGroup": run,
            "stageIds": list(range(first, first + len(busy_ms))),
            "status": status,
        }
        self.jobs.insert(0, job)  # the API tells of the newest first

    def reads(self, *, stage: int, records: int, of_tasks: tuple[float, ...], shuffled: bool = False) -> None:
        """What the tasks of a stage read: quantiles, from a source or from the stage before it."""
        kind = ("shuffleReadMetrics", "readRecords") if shuffled else ("inputMetrics", "recordsRead")
        self.stages[stage]["shuffleReadRecords" if shuffled else "inputRecords"] = records
        self._read[stage] = {kind[0]: {kind[1]: list(of_tasks)}}

    def answer(self, path: str) -> Any:
        place = path.removeprefix(f"/api/v1/applications/{_APPLICATION}")
        if place == "/jobs":
            return self.jobs
        if place == "/stages?status=complete":
            return self.stages
        if place.startswith("/stages/") and "/taskList?" in place:
            return [{"executorId": name} for name in self.ran_on.get(int(place.split("/")[2]), ())] or None
        if place.endswith("/taskSummary?quantiles=0.0,0.25,0.5,0.75,1.0"):
            stage = int(place.split("/")[2])
            longest_ms = self.longest_of.get(stage, self.longest_ms)
            run_ms = [longest_ms / 2] * 4 + [longest_ms]
            return {"quantiles": list(QUANTILES), "executorRunTime": run_ms, **self._read.get(stage, {})}
        return None


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "GMT"


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = driver.answer(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        driver.url = f"http://127.0.0.1:{server.server_port}"
        yield driver
        server.shutdown()


@pytest.fixture
def stages(driver: Driver) -> Stages:
    return Stages(RestApi(driver.url, _APPLICATION))


# --- stages -----------------------------------------------------------------------------------------------------


def test_useful_time_is_that_of_all_stages_less_waiting_for_shuffled_data(driver: Driver, stages: Stages) -> None:
    driver.job(400, 250, run="a", batch=3, tasks=4, fetch_wait_ms=50, lasted_s=0.2)
    assert stages.look() == []
    assert stages.work("a", 3) == Work(
        busy_s=pytest.approx(0.6),
        tasks=4,
        running_s=pytest.approx(0.4),
        stages=(
            StageWork(stage=0, attempt=0, tasks=4, records=0),
            StageWork(stage=1, attempt=0, tasks=4, records=0),
        ),
        evenly_s=pytest.approx(0.65 / 4),
    )


def test_where_the_tasks_of_the_newest_batch_of_a_run_were(driver: Driver, stages: Stages) -> None:
    driver.job(100, 100, run="a", batch=3)
    driver.job(100, 100, run="a", batch=4)
    driver.job(100, run="b", batch=9)
    driver.ran_on = {0: ["7"], 1: ["7", "7"], 2: ["7"], 3: ["0", "2", "2"]}
    stages.look()
    assert stages.last_tasks("a") == {"0": 1, "2": 2}
    assert stages.last_tasks("b") == {}, "Spark has forgotten the stage"
    assert stages.last_tasks("another") == {}


def test_several_jobs_of_a_batch_are_its_work_together(driver: Driver, stages: Stages) -> None:
    driver.job(100, run="a", batch=3)
    driver.job(200, run="a", batch=3, tasks=2)
    stages.look()
    work = stages.work("a", 3)
    assert work is not None
    assert (work.busy_s, work.tasks) == (pytest.approx(0.3), 2)


def test_batches_of_other_runs_and_jobs_of_others_are_told_apart(driver: Driver, stages: Stages) -> None:
    driver.job(100, run="a", batch=3)
    driver.job(200, run="b", batch=3)
    driver.jobs.insert(0, {"jobId": 2, "stageIds": [0], "status": "SUCCEEDED"})  # somebody's own
    driver.jobs.insert(0, {"jobId": 3, "stageIds": [0], "status": "SUCCEEDED", "description": "batch = 3"})
    stages.look()
    found = [stages.work(run, 3) for run in ("a", "b", "c")]
    assert [work and work.busy_s for work in found] == [pytest.approx(0.1), pytest.approx(0.2), None]


def test_a_batch_that_still_runs_is_not_known_by_a_part(driver: Driver, stages: Stages) -> None:
    driver.job(100, run="a", batch=3, status="RUNNING")
    stages.look()
    assert stages.work("a", 3) is None
    driver.jobs[0]["status"] = "SUCCEEDED"
    stages.look()
    assert stages.work("a", 3) is not None


def test_stages_that_were_skipped_or_are_gone_do_not_count(driver: Driver, stages: Stages) -> None:
    driver.job(100, 200, run="a", batch=3)
    del driver.stages[0]
    stages.look()
    work = stages.work("a", 3)
    assert work is not None
    assert work.busy_s == pytest.approx(0.2)


def test_work_is_remembered_after_the_driver_has_forgotten_it(driver: Driver, stages: Stages) -> None:
    driver.job(100, run="a", batch=3)
    stages.look()
    driver.stages.clear()
    stages.look()
    assert stages.work("a", 3) is not None


def test_jobs_that_were_gone_before_a_look_are_a_gap(driver: Driver, stages: Stages) -> None:
    driver.job(100, run="a", batch=0)
    assert stages.look() == []
    for batch in range(1, 6):
        driver.job(100, run="a", batch=batch)
    del driver.jobs[-3:]  # 0, 1 and 2
    assert stages.look() == ["jobs 1 to 2 were gone before a look at them"]
    assert stages.look() == [], "it is told of once"


def test_the_balance_is_over_all_stages(driver: Driver, stages: Stages) -> None:
    driver.job(400, 800, run="a", batch=0, tasks=4)  # 0.1 and 0.2 s on average, the longest 0.3 s in both
    stages.look()
    work = stages.work("a", 0)
    assert work is not None
    assert stages.spread(work)[0] == pytest.approx(0.5)


def test_a_batch_too_short_to_be_timed_is_balanced(driver: Driver, stages: Stages) -> None:
    driver.job(0, run="a", batch=0)
    driver.longest_ms = 0
    stages.look()
    work = stages.work("a", 0)
    assert work is not None
    assert stages.spread(work)[0] == 1.0


def test_a_driver_that_does_not_answer(stages: Stages) -> None:
    nobody = Stages(RestApi("http://127.0.0.1:1", _APPLICATION))
    with pytest.raises(ElastreamError, match=r"Spark's REST API does not answer: http://127.0.0.1:1/api/v1"):
        nobody.look()


# --- the meter of a step ----------------------------------------------------------------------------------------


def entry(batch: int, *, run: str = "a", records: int = 100, duration_s: float = 0.5) -> dict[str, Any]:
    """The part of a query's progress that is looked at."""
    return {
        "runId": run,
        "batchId": batch,
        "numInputRows": records,
        "durationMs": {"triggerExecution": duration_s * 1000},
    }


class Measured:
    """A meter with the queries that it would be told of."""

    def __init__(self, driver: Driver, stages: Stages) -> None:
        self.meter = StepMeter("words", batch_interval_s=1.0)
        self.progress: list[dict[str, Any]] = []
        self.written: dict[int, Written] = {}
        self._driver = driver
        self._stages = stages

    def batch(
        self,
        batch: int,
        *,
        run: str = "a",
        records: int = 100,
        out: int = 0,
        busy_s: float | tuple[float, ...] = 0.2,
        tasks: int = 1,
        lasted_s: float = 0.2,
        held_back_s: float = 0.0,
        cpu_s: float = 0.0,
    ) -> None:
        self.progress.append(entry(batch, run=run, records=records, duration_s=lasted_s + 0.1 + held_back_s))
        self.written[batch] = Written(records=out, held_back_s=held_back_s)
        busy_ms = [1000 * stage_s for stage_s in (busy_s if isinstance(busy_s, tuple) else (busy_s,))]
        self._driver.job(*busy_ms, run=run, batch=batch, tasks=tasks, lasted_s=lasted_s, cpu_ms=cpu_s * 1000)

    def take(self, core_wait: float | None = None) -> list[str]:
        self._stages.look()
        return self.meter.take(self.progress, self.written, self._stages, core_wait)

    def reading(
        self,
        *,
        window_s: float = 10.0,
        instances: int = 1,
        backlog: float = 0.0,
        held_back_s: float = 0.0,
        **others: float,
    ) -> Reading:
        self.take()
        return self.meter.reading(
            window_s=window_s, instances=instances, backlog=backlog, held_back_s=held_back_s, **others
        )

    def cost(self) -> BatchCost | None:
        return self.meter.cost(state_partitions=0, longest_batch_s=1.0)


@pytest.fixture
def measured(driver: Driver, stages: Stages) -> Measured:
    return Measured(driver, stages)


def test_waiting_for_a_core_is_not_useful_time(measured: Measured) -> None:
    """Four tasks that only compute, on two cores: each computes half of the time."""
    measured.batch(0, busy_s=8.0, cpu_s=4.0, tasks=4)
    measured.take(core_wait=1.0)
    reading = measured.reading(instances=4)
    assert (reading.useful_s, reading.wait_core_s) == (pytest.approx(4.0), pytest.approx(4.0))
    assert reading.wait_in_s == pytest.approx(32.0)


def test_idling_is_not_taken_for_waiting_for_a_core(measured: Measured) -> None:
    measured.batch(0, busy_s=8.0, cpu_s=0.1)
    measured.take(core_wait=3.0)
    reading = measured.reading()
    assert (reading.useful_s, reading.wait_core_s) == (pytest.approx(7.7), pytest.approx(0.3))


def test_no_more_is_taken_for_waiting_than_did_not_compute(measured: Measured) -> None:
    measured.batch(0, busy_s=5.0, cpu_s=4.0)
    measured.take(core_wait=3.0)
    reading = measured.reading()
    assert (reading.useful_s, reading.wait_core_s) == (pytest.approx(4.0), pytest.approx(1.0))


def test_the_price_of_a_record_is_the_same_however_many_share_the_cores(measured: Measured) -> None:
    measured._driver.longest_ms = 400
    for batch, records in enumerate((100, 100, 200, 400, 800)):
        cpu_s = 0.001 * records
        measured.batch(batch, records=records, busy_s=4 * cpu_s, cpu_s=cpu_s, tasks=8)
    measured.take(core_wait=3.0)
    cost = measured.cost()
    assert cost is not None
    assert cost.per_record_s == pytest.approx(0.001)


def test_what_the_batches_did_is_one_reading_of_all_instances(measured: Measured) -> None:
    measured.batch(0, records=100, out=500, busy_s=1.0)
    measured.batch(1, records=300, out=1500, busy_s=2.0)
    assert measured.reading(instances=2, backlog=50) == Reading(
        operator="words",
        instances=2,
        window_s=10.0,
        useful_s=3.0,
        records_in=400,
        records_out=2000,
        backlog=50,
        wait_in_s=17.0,
        wait_out_s=0.0,
        latency_s=0.8,  # half of the batch interval, and the batch
        cpu_utilization=0.0,
    )


def test_how_the_newest_batch_was_spread_over_its_tasks_is_told_once(driver: Driver, measured: Measured) -> None:
    """As Spark summarizes 800 records over 4 tasks, of which one has half; the stage before it is even."""
    measured.batch(0)  # a cold one says nothing
    measured.batch(1, records=800, tasks=4, busy_s=(0.4, 0.6))
    driver.reads(stage=1, records=800, of_tasks=(200, 200, 200, 200, 200))
    driver.reads(stage=2, records=800, of_tasks=(100, 130, 135, 200, 400), shuffled=True)
    found = measured.reading(instances=4).tasks
    assert found is not None
    assert (found.tasks, found.records_total, found.records) == (4, 800, (100, 130, 135, 200, 400))
    assert found.largest_share == 0.5
    assert found.busy_s[-1] == pytest.approx(0.3)
    assert measured.reading(instances=4).tasks is None, "no batch has ended since"


def test_a_stage_that_costs_next_to_nothing_may_be_as_uneven_as_it_likes(
    driver: Driver, measured: Measured
) -> None:
    measured.batch(0)
    measured.batch(1, records=800, tasks=4, busy_s=(0.8, 0.04))
    driver.longest_of = {1: 210, 2: 10}
    driver.reads(stage=1, records=800, of_tasks=(190, 195, 200, 205, 210))
    driver.reads(stage=2, records=80, of_tasks=(5, 5, 5, 5, 65), shuffled=True)
    found = measured.reading(instances=4).tasks
    assert found is not None
    assert found.records_total == 800


def test_the_latency_is_waiting_for_a_batch_and_the_batch(measured: Measured) -> None:
    measured.batch(0, records=300, lasted_s=3.9)  # 4 s with the driver's time; before it the interval of 1 s
    measured.batch(1, records=100, lasted_s=1.9)  # 2 s, and before it a batch of 4 s
    reading = measured.reading()
    assert reading.latency_s == pytest.approx((300 * (0.5 + 4.0) + 100 * (2.0 + 2.0)) / 400)
    reading = measured.reading()
    assert reading.latency_s is None, "no batch has ended since"


def test_what_is_overdue_has_waited_and_has_a_batch_before_it(measured: Measured) -> None:
    measured.batch(0, records=100, lasted_s=0.9)
    reading = measured.reading(window_s=10.0, instances=2, backlog=260, overdue=250, waits_s=25.0)
    assert reading.overdue == 250
    assert reading.latency_s == pytest.approx(25.0 + 1.0)
    assert measured.reading(overdue=250, waits_s=35.0).latency_s == pytest.approx(36.0), "also without a batch"
    measured.batch(1, records=100, lasted_s=0.9)
    assert measured.reading(overdue=0, waits_s=2.0).latency_s == pytest.approx(0.5 + 1.0), "it is not overdue"


def test_the_cores_of_an_instance_are_those_of_the_jvm_and_of_python(measured: Measured) -> None:
    measured.batch(0, busy_s=8.0, cpu_s=2.0, tasks=2)
    measured.take()
    assert measured.meter.other_s == pytest.approx(6.0)
    reading = measured.reading(instances=2, python_cpu_s=3.0, heap_utilization=0.25)
    assert reading.cpu_utilization == pytest.approx(0.25)
    assert reading.heap_utilization == 0.25
    assert measured.meter.other_s == 0


def test_the_heap_that_executors_tell_of_is_the_most_of_a_window(driver: Driver, measured: Measured) -> None:
    measured.batch(0)
    driver.stages[-1]["peakExecutorMetrics"] = {"JVMHeapMemory": 300}
    measured.batch(1)
    driver.stages[-1]["peakExecutorMetrics"] = {"JVMHeapMemory": 200}
    measured.take()
    assert measured.meter.heap_bytes == 300
    measured.reading()
    assert measured.meter.heap_bytes == 0


def test_a_batch_counts_once_however_often_it_is_told_of(measured: Measured) -> None:
    measured.batch(0)
    measured.reading()
    measured.batch(1, records=70, out=7)
    reading = measured.reading()
    assert (reading.records_in, reading.records_out) == (70, 7)
    reading = measured.reading()
    assert (reading.records_in, reading.records_out, reading.useful_s) == (0, 0, 0)


def test_batches_whose_progress_is_gone_are_a_gap(measured: Measured) -> None:
    for batch in range(4):
        measured.batch(batch)
    del measured.progress[:3]  # Spark keeps only so many
    assert measured.take() == ["3 batches of words were gone before a look at them"]
    assert measured.take() == [], "it is told of once"


def test_a_batch_longer_than_the_window_is_split_over_windows(measured: Measured) -> None:
    """25 s of work are told of in windows of 10 s: the rate of an instance is the same in all of them."""
    measured.batch(0, records=1000, out=5000, busy_s=25.0, lasted_s=25.0)
    found = [measured.reading() for _ in range(4)]
    assert [reading.useful_s for reading in found] == pytest.approx([10, 10, 5, 0])
    assert [reading.records_in for reading in found] == pytest.approx([400, 400, 200, 0])
    assert [reading.records_out for reading in found] == pytest.approx([2000, 2000, 1000, 0])


def test_several_instances_have_as_much_more_time(measured: Measured) -> None:
    measured.batch(0, records=1000, busy_s=25.0, tasks=3)
    reading = measured.reading(instances=3)
    assert (reading.useful_s, reading.records_in) == (pytest.approx(25), pytest.approx(1000))


def test_a_new_run_begins_its_own_count_of_batches(measured: Measured) -> None:
    for batch in range(3):
        measured.batch(batch, run="a")
    assert measured.reading().records_in == 300
    measured.progress.clear()
    measured.batch(2, run="b", records=10)  # run again, after a restart
    measured.batch(3, run="b", records=20)
    assert measured.reading().records_in == 30


def test_idle_triggers_are_no_batches(measured: Measured) -> None:
    """Spark tells of them with the number of the batch that is to come."""
    measured.batch(0)
    measured.reading()
    measured.progress.append(entry(1, records=0))
    assert measured.reading().records_in == 0
    measured.batch(1, records=40)
    assert measured.reading().records_in == 40


def test_a_batch_without_input_may_have_output(measured: Measured) -> None:
    """A watermark that moved on lets windows out, in a batch of its own."""
    measured.progress.append(entry(0, records=0))
    measured.written[0] = Written(records=12, held_back_s=0.0)
    reading = measured.reading()
    assert (reading.records_in, reading.records_out) == (0, 12)


def test_being_held_back_is_waiting_and_counts_in_its_window(measured: Measured) -> None:
    assert measured.reading(held_back_s=4.0).wait_out_s == pytest.approx(4.0)
    assert measured.reading(held_back_s=6.5).wait_out_s == pytest.approx(2.5)
    measured.meter.forget_window(held_back_s=9.0)
    assert measured.reading(held_back_s=9.5).wait_out_s == pytest.approx(0.5)
    reading = measured.reading(held_back_s=60.0)
    assert (reading.wait_out_s, reading.wait_in_s) == (10.0, 0.0)


def test_after_an_action_the_window_begins_anew(measured: Measured) -> None:
    measured.batch(0, out=5)
    measured.take()
    measured.meter.forget_window(held_back_s=0.0)
    reading = measured.reading()
    assert (reading.records_in, reading.records_out, reading.useful_s) == (0, 0, 0)


@pytest.mark.parametrize(("begun", "rest_s"), [("00:09", 0.0), ("00:11", 10.0)])
def test_a_batch_that_an_action_fell_into_leaves_no_rest(measured: Measured, begun: str, rest_s: float) -> None:
    """Of 16 tasks for 30 s each: with the one instance that is left, they were told of for eight minutes."""
    measured.meter.forget_window(held_back_s=0.0, now_s=(_MIDNIGHT + timedelta(seconds=10)).timestamp())
    measured.batch(0, records=480, busy_s=480.0, tasks=16, lasted_s=30.0)
    measured.progress[0]["timestamp"] = f"2026-11-15T00:{begun}.000Z"
    assert measured.reading().records_in == pytest.approx(10)
    assert measured.reading().useful_s == pytest.approx(rest_s)


# --- late records -----------------------------------------------------------------------------------------------


def dropping(batch: int, late: int, *, run: str = "a", at: str = "00:00", records: int = 100) -> dict[str, Any]:
    watermarked = {"eventTime": {"watermark": "2026-11-15T00:00:00.000Z"}, "timestamp": f"2026-11-15T00:{at}.000Z"}
    operators = [{"numRowsDroppedByWatermark": late, "numShufflePartitions": 2}]
    return {**entry(batch, run=run, records=records), **watermarked, "stateOperators": operators}


def test_late_records_are_counted_once_however_long_spark_tells_of_them(measured: Measured) -> None:
    measured.progress = [dropping(0, 4), dropping(1, 6, at="00:01")]
    assert measured.reading(instances=2).records_late == 10.0
    measured.progress.append(dropping(2, 0, at="00:02", records=0))  # a look that finds nothing to do
    assert measured.reading().records_late == 0.0
    measured.progress.append(dropping(2, 3, at="00:03", run="b"))  # the query was started again
    assert measured.reading().records_late == 3.0


def test_what_was_dropped_before_an_action_is_told_after_it(measured: Measured) -> None:
    measured.progress = [dropping(0, 7)]
    measured.take()
    measured.meter.forget_window(held_back_s=0.0)
    assert measured.reading().records_late == 7.0


def test_a_query_without_event_time_cannot_drop_records_as_late(measured: Measured) -> None:
    measured.progress = [{**dropping(0, 0), "eventTime": {}}]
    assert measured.reading().records_late is None
    measured.progress.append({**dropping(1, 0, at="00:01"), "stateOperators": []})
    assert measured.reading().records_late is None


# --- learning what a batch costs --------------------------------------------------------------------------------


def test_the_prices_are_learned_and_the_cold_first_batch_is_ignored(measured: Measured) -> None:
    measured.batch(0, records=10, busy_s=30.0, tasks=1, lasted_s=30.0)
    for batch in range(1, 9):
        measured.batch(batch, records=100 * batch, busy_s=0.1 + 0.2 * batch, tasks=1)
    measured.take()
    cost = measured.cost()
    assert cost is not None
    assert cost.per_record_s == pytest.approx(0.002)
    assert cost.per_task_s == pytest.approx(0.1)
    assert cost.driver_s == pytest.approx(0.1)


def test_every_run_has_a_cold_first_batch(measured: Measured) -> None:
    for run in ("a", "b", "c"):
        measured.batch(0, run=run, records=10, busy_s=30.0)
        for batch in range(1, 4):
            measured.batch(batch, run=run, records=100 * batch, busy_s=0.2 * batch)
        measured.take()
        measured.progress.clear()
    cost = measured.cost()
    assert cost is not None
    assert cost.per_record_s == pytest.approx(0.002)


def test_too_few_batches_are_said_to_be_too_few(measured: Measured) -> None:
    assert not measured.meter.is_too_new, "it has not worked at all"
    for batch in range(LEAST_BATCHES + 1):
        assert measured.cost() is None
        measured.batch(batch, records=100 + batch)
        measured.take()
        # 1 → 12 by a first batch that took half a minute on a busy machine
        assert measured.meter.is_too_new == (batch < LEAST_BATCHES)
    assert measured.cost() is not None


def test_waiting_for_readers_is_not_the_drivers_time(measured: Measured) -> None:
    for batch in range(8):
        measured.batch(batch, records=100 + 10 * batch, held_back_s=20.0)
    measured.take()
    cost = measured.cost()
    assert cost is not None
    assert cost.driver_s == pytest.approx(0.1)


def test_the_balance_is_the_mean_task_over_the_longest(driver: Driver, measured: Measured) -> None:
    driver.longest_ms = 400
    for batch in range(8):
        measured.batch(batch, records=100 + 10 * batch, busy_s=0.8, tasks=4)  # 200 ms a task
    measured.take()
    cost = measured.cost()
    assert cost is not None
    assert cost.balance == pytest.approx(0.5)


def test_the_longest_task_of_a_cold_batch_says_nothing_of_an_older_one(driver: Driver, measured: Measured) -> None:
    for batch in range(8):
        measured.batch(batch, records=100 + 10 * batch, busy_s=0.8, tasks=4)  # 200 ms a task
    driver.longest_ms = 200
    measured.take()
    measured.progress.clear()
    driver.longest_ms = 30_000
    measured.batch(8, run="b", busy_s=30.0)
    measured.take()
    cost = measured.cost()
    assert cost is not None
    assert cost.balance == 1.0


def test_batches_whose_stages_are_gone_count_their_records_only(driver: Driver, measured: Measured) -> None:
    measured.batch(0, records=100)
    driver.stages.clear()
    reading = measured.reading()
    assert (reading.records_in, reading.useful_s) == (100, 0)
    assert not measured.meter.is_too_new
