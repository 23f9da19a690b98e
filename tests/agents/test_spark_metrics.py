"""What an agent beside a worker reads of Spark: tasks of the executors here, per instance, from the REST API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastream.agents.spark_metrics import SparkMetrics, executors_here
from elastream.errors import ElastreamError

URL = "http://driver:4040"
HEAP = 1_000


def task(executor: str, ran_ms: float, cpu_ms: float, waited_ms: float = 0.0) -> dict[str, Any]:
    shuffled = {"fetchWaitTime": waited_ms}
    metrics = {"executorRunTime": ran_ms, "executorCpuTime": cpu_ms * 1e6, "shuffleReadMetrics": shuffled}
    return {"executorId": executor, "taskMetrics": metrics}


class Driver:
    """Spark's REST API with the stages that a test adds, and a clock."""

    def __init__(self) -> None:
        self.application = "app-1"
        self.stages: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.now_s = 0.0

    def batch(
        self, operator: str, number: int, *tasks: Mapping[str, Any], status: str = "COMPLETE", **heaps: int
    ) -> None:
        """One of a single stage; `heaps` are peaks, by executor."""
        stage = {
            "stageId": len(self.stages),
            "attemptId": 0,
            "status": status,
            "description": f"{operator}<br/>id = 5a<br/>runId = 5b<br/>batch = {number}",
            "tasks": {str(place): one for place, one in enumerate(tasks)},
            "executorSummary": {
                name.removeprefix("e"): {"peakMemoryMetrics": {"JVMHeapMemory": peak}}
                for name, peak in heaps.items()
            },
        }
        self.stages.append(stage)

    def fetch(self, url: str) -> str:
        path = url.removeprefix(f"{URL}/api/v1/applications")
        self.asked.append(path)
        if not path:
            return json.dumps([{"id": self.application}])
        if not path.startswith(f"/{self.application}/"):
            raise ElastreamError(f"{url}: no such app")
        if path.endswith("/stages"):
            return json.dumps([{k: v for k, v in one.items() if k != "tasks"} for one in self.stages])
        return json.dumps(self.stages[int(path.split("/")[-2])])

    def agent(self, *here: str, operators: Sequence[str] = ("words", "counts")) -> SparkMetrics:
        return SparkMetrics(
            URL + "/", operators, lambda _: dict.fromkeys(here, HEAP), fetch=self.fetch, steady=lambda: self.now_s
        )


def test_an_instance_here_did_what_its_tasks_did_over_the_time_since_the_last_look() -> None:
    driver = Driver()
    driver.batch("words", 0, task("1", 9_000, 9_000))
    here, there = driver.agent("1"), driver.agent("2")
    assert (here(), there()) == ({}, {}), "what ended before the first look is of no known time"
    driver.now_s = 10.0
    driver.batch("words", 1, task("1", 2_100, 500, waited_ms=100), task("1", 2_000, 300), task("2", 1_000, 100))
    driver.batch("words", 2, task("1", 4_000, 1_000), task("1", 2_000, 200), e1=700, e2=100)
    driver.batch("another job", 0, task("1", 5_000, 5_000))

    found = here()["words"]  # two tasks of each batch
    assert found == {
        "utilization": pytest.approx(100 * (2 + 2 + 4 + 2) / 10 / 2),
        "cpu_utilization": pytest.approx(100 * (0.5 + 0.3 + 1.0 + 0.2) / 10 / 2),
        "heap_utilization": 70.0,
    }
    # one task of one of the two batches: half an instance
    assert there()["words"]["cpu_utilization"] == pytest.approx(100 * 0.1 / 10 / 0.5)


def test_an_operator_without_batches_did_nothing_but_of_a_long_one_nothing_is_known() -> None:
    driver = Driver()
    agent = driver.agent("1")
    agent()
    driver.now_s = 5.0
    driver.batch("words", 0, status="ACTIVE")
    assert agent() == {"counts": {"utilization": 0.0, "cpu_utilization": 0.0}}


def test_an_agent_where_none_of_its_tasks_ran_says_nothing_of_an_operator() -> None:
    driver = Driver()
    agent = driver.agent("2", operators=("words",))
    agent()
    driver.now_s = 5.0
    driver.batch("words", 0, task("1", 100, 100))
    assert agent() == {"words": {}}


def test_stages_that_were_read_are_not_asked_for_again() -> None:
    driver = Driver()
    agent = driver.agent("1")
    agent()
    driver.batch("words", 0, task("1", 100, 100))
    for second in (1.0, 2.0, 3.0):
        driver.now_s = second
        agent()
    assert driver.asked.count("/app-1/stages/0/0") == 1


def test_a_driver_that_was_started_again_is_read_anew() -> None:
    driver = Driver()
    agent = driver.agent("1", operators=("words",))
    agent()
    driver.application, driver.stages = "app-2", []
    with pytest.raises(ElastreamError, match="no such app"):
        agent()
    assert agent() == {}
    driver.now_s = 10.0
    driver.batch("words", 0, task("1", 1_000, 1_000))
    assert agent()["words"]["cpu_utilization"] == pytest.approx(10.0)


def test_what_is_no_spark_is_said() -> None:
    with pytest.raises(ElastreamError, match="Spark's applications were expected, found"):
        SparkMetrics(URL, ("words",), fetch=lambda _: '{"status": "ok"}')()


def test_executors_are_found_below_their_worker_with_the_heap_that_they_may_have(tmp_path: Path) -> None:
    """A process that is called as Spark calls an executor, below one that stands for its worker."""
    executor = ["-Xmx512M", "--executor-id", "7", "--app-id", "app-1"]
    child = f"subprocess.Popen([sys.executable, '-c', 'input()', *{executor}], stdin=subprocess.PIPE)"
    program = f"import subprocess, sys; child = {child}; print('ready', flush=True); input(); child.communicate()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        assert executors_here("app-1", worker.pid) == {"7": 512 * 2**20}
        assert executors_here("app-1")["7"] == 512 * 2**20
        assert executors_here("app-2", worker.pid) == {}
        worker.communicate("\n")
