"""Instances as processes, each with its own Spark, that scale themselves and are killed while they do.

Numbers go through one operator that scales to a sink that keeps them. The rate asks for more instances; a new
one is killed while it starts. Then the rate falls; one that leaves is killed before it is gone. Nothing but the
policy decides who scales, so counts are waited for, and every number must be in the sink once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import running
from running import kept, records

from elastream.arrivals.load import Load
from elastream.decentralized.protocol.decision import ScalingPolicy
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.decentralized.spark.events import all_events
from elastream.decentralized.spark.folders import RunFolder, read_whole
from elastream.decentralized.spark.launch import living, start, stop
from elastream.decentralized.spark.overview import InstanceView, counts, look
from elastream.decentralized.spark.settings import RunSettings
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.run import read_pipeline
from elastream.workloads.generator import generate

_PIPELINE = """
from pathlib import Path
from pyspark.sql import functions as F
from elastream.engines.spark.pipeline import Pipeline

pipeline = Pipeline("numbers")
pipeline.feed("numbers", schema="id bigint")

@pipeline.operator(reads="numbers")
def slow(numbers):
    return numbers.where(F.expr("reflect('java.lang.Thread', 'sleep', 5L) != ''"))

pipeline.keep("all", reads="slow", folder=Path({folder!r}))
"""
wait_until = partial(running.wait_until, patience_s=600.0)  # several Sparks start, two at a time
_CAPACITY_PER_S, _HIGH_PER_S, _LOW_PER_S = 40.0, 56.0, 8.0


class _Rate:
    """A load that the test changes when it has seen what it waited for."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s

    def rate_at(self, t_s: float) -> float:
        return self.per_s


def _numbers(first: int, count: int, *, created_ms: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def _feed(run: RunFolder, load: Load, stopped: Callable[[], bool]) -> threading.Thread:
    channel = FileChannel(run.feed("numbers"))
    arguments = {"tick_s": 0.25, "stopped": stopped, "make": _numbers}
    thread = threading.Thread(target=generate, args=(channel, load), kwargs=arguments, daemon=True)
    thread.start()
    return thread


def _copies(run: RunFolder) -> list[InstanceView]:
    return [view for view in look(run) if view.operator == "slow" and view.address != "slow/0"]


def _one_killed(run: RunFolder, phases: Iterable[InstancePhase], story: Callable[[], str]) -> str:
    """Kill the first copy that is seen in one of these phases, and is still there."""
    killed: list[str] = []

    def kill() -> bool:
        for view in _copies(run):
            endpoint = read_whole(run.instance(view.address).endpoint)
            if view.phase in phases and endpoint is not None and not killed:
                with suppress(ProcessLookupError):
                    os.kill(endpoint["pid"], signal.SIGKILL)
                    killed.append(view.address)
        return bool(killed)

    wait_until(kill, story)
    return killed[0]


@pytest.fixture(params=["tcp and files", pytest.param("kafka", marks=pytest.mark.long)])
def between(request: pytest.FixtureRequest) -> dict[str, str]:
    """What lies between instances, as settings of a run."""
    if request.param != "kafka":
        return {}
    broker: Broker = request.getfixturevalue("broker")
    return {"control": "kafka", "data": "kafka", "kafka_servers": broker.servers}


def test_instances_scale_themselves_and_survive_kills_while_they_do(
    tmp_path: Path, between: dict[str, str]
) -> None:
    run, sink = RunFolder(tmp_path / "run"), FileChannel(kept(tmp_path, "all"))
    file = tmp_path / "numbers.py"
    file.write_text(_PIPELINE.format(folder=str(sink.log.folder)))
    settings = RunSettings(
        pipeline=file,
        capacities={"slow": _CAPACITY_PER_S},
        # with these rates one more is wanted, then one less; the dice have little to say
        policy=ScalingPolicy(target_load=0.7, upper_load=0.9, lower_load=0.2),
        period_s=4.0,
        batch_interval_s=0.5,
        dead_after_s=3600.0,  # who is killed here comes back, on a busy machine after minutes
        **between,
    )
    rate, fed = _Rate(_HIGH_PER_S), threading.Event()

    def story() -> str:
        return f"{look(run)}, {all_events(run)[-30:]}"

    start(run, read_pipeline(file), settings)
    try:
        feeding = _feed(run, rate, fed.is_set)  # what piles up until they run is no load of its own
        new = _one_killed(run, InstancePhase, story)
        wait_until(lambda: any(view.address == new and view.incarnation > 1 for view in _copies(run)), story)
        wait_until(lambda: counts(look(run))["slow"] > 1 and sink.log.head().records > 0, story)

        rate.per_s = _LOW_PER_S
        _one_killed(run, (InstancePhase.LEAVING, InstancePhase.DRAINING), story)
        wait_until(lambda: not _copies(run), story)
        fed.set()
        feeding.join()
        written = FileChannel(run.feed("numbers")).log.head().records
        wait_until(lambda: sink.log.head().records >= written, story)
    finally:
        fed.set()
        stop(run)
    assert sorted(number for (number,) in records(sink)) == list(range(written)), "every number once"
    assert counts(look(run)) == {"all": 1, "numbers": 1, "slow": 1}
    assert not living(run)
    most = len(run.instances()) - 3
    assert most <= 4, f"{most} copies were made in all, where one was right"
    died = [event for event in all_events(run) if event["event"] == "died"]
    assert len(died) >= 2, "both who were killed were started again"
