"""What Spark tells of executors, read without Spark: entries as its REST API has them."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import pytest

from elastream.engines.spark.executor_readings import ExecutorMeter, alone_with, if_told
from elastream.engines.spark.rest import RestApi
from elastream.measurement.executor import ExecutorReading
from elastream.testing import alike

MIB = 1024 * 1024


def entry(name: str = "driver", **changes: Any) -> dict[str, Any]:
    """As of `--master local[4]`, with those of its fields that are read, and one that is not."""
    return {
        "id": name,
        "hostPort": "10.0.0.7:40123",
        "isActive": True,
        "totalCores": 4,
        "activeTasks": 1,
        "totalDuration": 2_000,
        "memoryUsed": 3 * MIB,
        "maxMemory": 400 * MIB,
        "peakMemoryMetrics": {"JVMHeapMemory": 250 * MIB, "ProcessTreeJVMVMemory": 0},
        "rddBlocks": 0,
        **changes,
    }


def one(meter: ExecutorMeter, now_s: float, name: str = "1", **changes: Any) -> ExecutorReading:
    [found] = meter.readings([entry(name, **changes)], now_s=now_s)
    return found


def test_a_local_master_is_one_executor_with_its_slots_and_the_cores_of_this_machine() -> None:
    assert one(ExecutorMeter(), 100.0, "driver") == ExecutorReading(
        id="driver",
        host="10.0.0.7",
        cores=4,
        processors=len(os.sched_getaffinity(0)),
        active_tasks=1,
        busy_cores=None,
        memory_used_bytes=3 * MIB,
        memory_bytes=400 * MIB,
        peak_heap_bytes=250 * MIB,
    )


def test_on_a_cluster_the_driver_runs_no_tasks_and_those_that_are_gone_or_about_to_come_are_left_out() -> None:
    entries = [
        entry(totalCores=0),
        entry("0", isActive=False),
        entry("1"),
        entry("2", hostPort=""),
        entry("3", hostPort="[fe80::1]:40123"),
    ]
    found = ExecutorMeter().readings(entries, now_s=0.0, taking_tasks={"1", "3"})
    assert [(executor.id, executor.host) for executor in found] == [("1", "10.0.0.7"), ("3", "[fe80::1]")]


def test_one_that_is_given_no_more_tasks_is_leaving() -> None:
    found = ExecutorMeter().readings([entry("1"), entry("2")], now_s=0.0, taking_tasks={"2"})
    assert [(executor.id, executor.leaving) for executor in found] == [("1", True), ("2", False)]


def test_busy_cores_are_the_time_of_tasks_that_ended_since_the_look_before() -> None:
    meter = ExecutorMeter()
    assert one(meter, 100.0).busy_cores is None, "since when, nobody knows"
    assert one(meter, 110.0, totalDuration=17_000).busy_cores == pytest.approx(15 / 10)
    assert one(meter, 120.0, totalDuration=17_000).busy_cores == 0.0
    assert one(meter, 121.0, totalDuration=90_000).busy_cores == 4.0, "a task of long ago has ended"
    assert one(meter, 121.0, totalDuration=91_000).busy_cores is None, "no time has passed"


def test_of_the_driver_spark_tells_how_long_it_has_been_up_which_is_not_taken_for_work() -> None:
    meter = ExecutorMeter()
    one(meter, 100.0, "driver")
    assert one(meter, 110.0, "driver", totalDuration=12_000).busy_cores is None


def test_the_only_executor_is_busy_with_all_that_the_instances_do() -> None:
    readings = [*alike("map", instances=2, window_s=10, useful_share=0.75), *alike("sink", useful_share=0.25)]
    readings[0] = replace(readings[0], wait_core_s=1.0)
    [driver] = alone_with(readings, (one(ExecutorMeter(), 0.0, "driver"),))
    assert driver.busy_cores == pytest.approx(0.75 + 0.75 + 0.1 + 0.25)
    [full] = alone_with(alike("map", instances=9), (driver_of_four := replace(driver, busy_cores=None),))
    assert full.busy_cores == driver_of_four.cores == 4
    told = replace(driver, id="1", busy_cores=2.0)
    assert alone_with(readings, (told,)) == (told,), "Spark knows better"
    both = (told, replace(told, id="2", busy_cores=None))
    assert alone_with(readings, both) == both, "nobody knows which of them did it"
    assert alone_with(readings, ()) == ()


def test_an_executor_that_came_since_has_done_all_of_its_work_since() -> None:
    meter = ExecutorMeter()
    meter.readings([entry("1")], now_s=100.0)
    _, new = meter.readings([entry("1"), entry("2", totalDuration=5_000)], now_s=110.0)
    assert new.busy_cores == pytest.approx(0.5)


@pytest.mark.parametrize("heap", [None, {}, {"JVMHeapMemory": 0}])
def test_a_heap_that_no_heartbeat_told_of_is_not_known(heap: dict[str, int] | None) -> None:
    assert one(ExecutorMeter(), 0.0, peakMemoryMetrics=heap).peak_heap_bytes is None


@pytest.mark.parametrize(
    "answer",
    [[{"id": "1"}], [entry(totalCores="many")], [entry(activeTasks=None)], [entry(activeTasks=-1)], ["1"], 7],
    ids=["fields missing", "text", "nothing", "negative", "no object", "no list"],
)
def test_an_answer_that_makes_no_sense_leaves_them_out(answer: Any) -> None:
    assert if_told(lambda: ExecutorMeter().readings(answer, now_s=0.0)) == ()


def test_no_answer_leaves_them_out_and_what_is_told_is_passed_on() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        api = RestApi(f"http://127.0.0.1:{taken.getsockname()[1]}", "app")
        assert if_told(lambda: ExecutorMeter().readings(api.get("/executors"), now_s=0.0)) == ()
    assert len(if_told(lambda: ExecutorMeter().readings([entry()], now_s=0.0))) == 1
