"""How many records per second one instance of an operator can process (the thesis, 4.3.1).

The operator runs as the data job of an instance, alone. What it reads is made before: the records of the feed's
generator, through the operators before it. They are put into its inbox over and over, at a rate that is held for
a while and then raised, until what is processed no longer follows.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from elastream.checked import Checked, Numbers, Positive
from elastream.decentralized.protocol.capacity_ramp import CapacityStep, ramp
from elastream.decentralized.protocol.load_meter import Arrived, LoadMeter
from elastream.decentralized.spark.data_job import DataJob
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder
from elastream.decentralized.spark.inbox import InstanceInbox
from elastream.decentralized.spark.settings import RunSettings, first_address
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.frames import frame_of
from elastream.engines.spark.pipeline import Kind
from elastream.engines.spark.run import PipelineFile
from elastream.errors import ElastreamError, InvalidInput, nearest
from elastream.workloads.generator import records_of

_SAMPLE = 2_000
_TICK_S = 0.25
_FIRST_BATCH_S = 300.0


@dataclass(frozen=True, kw_only=True)
class CapacityOptions(Checked):
    first_per_s: Positive = 20.0
    growth: Annotated[float, Numbers("above 1", lambda value: value > 1)] = 1.3
    step_s: Positive = 10.0
    batch_interval_s: Positive = 2.0


def measure_capacity(
    file: PipelineFile, path: Path, operator: str, options: CapacityOptions, *, cores: int
) -> Iterator[CapacityStep]:
    """One result for each rate; the last is the one that was not followed, and its throughput is the capacity."""
    _check(file, operator)
    with tempfile.TemporaryDirectory(prefix="elastream-capacity-") as scratch:
        run = RunFolder(Path(scratch))
        settings = RunSettings(
            pipeline=path, cores=cores, batch_interval_s=options.batch_interval_s, most_records=1_000_000
        )
        folder = run.instance(first_address(operator))
        job = DataJob(file.pipeline, run, folder, settings, lambda batch, records, came_s: None)
        job.start_spark()
        try:
            pump = _Pump(file, operator, job, folder)
            job.start()
            pump.warm_up()
            yield from ramp(
                lambda rate_per_s: pump.hold(rate_per_s, options.step_s),
                first_per_s=options.first_per_s,
                growth=options.growth,
            )
        finally:
            job.close()


class _Pump:
    """Fills the lanes of the operator's inbox, and sees what becomes of it."""

    def __init__(self, file: PipelineFile, operator: str, job: DataJob, folder: InstanceFolder) -> None:
        self._job = job
        self._inbox = InstanceInbox([folder.inbox / name for name in file.pipeline[operator].reads])
        self._meter = LoadMeter()
        self._read: dict[str, Arrived] = {}
        self._lanes = []
        for producer, sample in _samples(file, operator, job).items():
            lane = FileChannel(folder.lane(first_address(producer)))
            lane.create()
            self._lanes.append((lane, sample))
        self._next = 0

    def warm_up(self) -> None:
        """Until a batch is through: the first starts Python workers and compiles, and says nothing."""
        for _ in range(2):
            self._put(10)
            self._wait_until_read()

    def hold(self, rate_per_s: float, for_s: float) -> float:
        """Offer this rate so long; records per second that were processed in the last two thirds of it."""
        began_s, put = time.monotonic(), 0
        while (at_s := time.monotonic() - began_s) < for_s:
            due = int(rate_per_s * at_s) - put
            if due > 0:
                self._put(due)
                put += due
            self._look()
            time.sleep(_TICK_S)
        processed_per_s = self._meter.per_s(began_s + for_s / 3)
        if processed_per_s is None:  # one batch took longer than that: what it is worth shows when it is done
            self._wait_until_read()
            processed_per_s = put / (time.monotonic() - began_s)
        self._wait_until_read()  # the next rate begins without a backlog
        return processed_per_s

    def _put(self, count: int) -> None:
        for lane, sample in self._lanes:
            numbers = [(self._next + number) % sample.num_rows for number in range(count)]
            lane.append(sample.take(numbers))
        self._next += count

    def _look(self) -> None:
        if (failure := self._job.failure()) is not None:
            raise ElastreamError(f"the operator failed: {failure[:300]}")
        now_s = time.monotonic()
        for name, count in self._inbox.read().items():
            if name not in self._read or count > self._read[name].records:
                self._read[name] = Arrived(records=count, came_s=now_s)
        self._meter.observe(now_s, self._read)

    def _wait_until_read(self) -> None:
        deadline_s = time.monotonic() + _FIRST_BATCH_S
        while self._inbox.pending():
            if time.monotonic() > deadline_s:
                raise ElastreamError(f"a batch is not through after {_FIRST_BATCH_S:.0f} s")
            self._look()
            time.sleep(_TICK_S)
        self._look()


def _samples(file: PipelineFile, operator: str, job: DataJob) -> dict[str, pa.Table]:
    """What each operator before this one would send it."""
    pipeline, frames = file.pipeline, {}
    make = records_of(file.records)
    for name in itertools.takewhile(lambda name: name != operator, pipeline.graph().order):
        step = pipeline[name]
        if step.kind is Kind.FEED:
            frames[name] = job.session.createDataFrame(make(0, _SAMPLE, created_ms=0))
        elif step.kind is Kind.OPERATOR:
            assert step.function is not None
            frames[name] = frame_of(step, *(frames[read] for read in step.reads))
    return {name: frames[name].toArrow() for name in pipeline[operator].reads}


def _check(file: PipelineFile, operator: str) -> None:
    pipeline = file.pipeline
    names = [step.name for step in pipeline.steps if step.kind is Kind.OPERATOR]
    if operator not in names:
        raise InvalidInput(f"{operator!r} is no operator of {pipeline.name!r}{nearest(operator, names)}")
    if any(step.kind is Kind.SOURCE for step in pipeline.steps):
        raise InvalidInput("the capacity can be measured where the pipeline begins with feeds, found a source")
    records_of(file.records)  # refused before anything is started
