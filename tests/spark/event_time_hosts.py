"""Where a pipeline runs while it is rescaled and broken off: in this process, or in one of its own that is really
killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

import event_time_driver as program
from driver_process import PATIENCE_S, DriverProcess, in_words
from plain import settle
from pyspark.sql import SparkSession
from running import Running

from elastream.engines.spark import query
from elastream.engines.spark.channels import files, kafka, segments
from elastream.engines.spark.channels.kinds import ChannelKind, Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.pipeline import Pipeline

_POLL_S = 0.02


class Host(Protocol):
    def rescale(self, wanted: Mapping[str, int]) -> None: ...

    def size_batches(self, wanted: Mapping[str, int]) -> None:
        """The most records that a batch of each may hold, until it is sized by what it takes."""
        ...

    def break_off(self, how: str) -> None:
        """End it somehow, and start it again from what it left."""
        ...

    def wait_until(self, true: Callable[[], bool], what: str) -> None: ...

    def settle(self) -> None:
        """Wait until nothing is left to do, also none of the batches that only a watermark asks for."""
        ...


class InThisProcess:
    """Kills are imitated: queries stop in the middle of a batch, or a write fails where a crash would hurt."""

    def __init__(
        self, spark: SparkSession, declare: Callable[[], Pipeline], folder: Path, channels: ChannelKind
    ) -> None:
        self._spark, self._declare, self._folder, self._channels = spark, declare, folder, channels

    def __enter__(self) -> Self:
        self.running = Running(self._spark, self._declare(), self._folder, channels=self._channels)
        self.running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.__exit__()

    def rescale(self, wanted: Mapping[str, int]) -> None:
        outcome = self.running.rescale(**wanted)
        assert outcome.succeeded, outcome.detail

    def size_batches(self, wanted: Mapping[str, int]) -> None:
        size_batches(self.running, wanted)

    def break_off(self, how: str) -> None:
        if how == "interrupt":  # whatever they are at
            for step in self.running.engine._queries.values():
                step._stopping.set()
                step.query.stop()
        self.running.engine.stop()
        self.__enter__()

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        self.running.wait_until(true, what)

    def settle(self) -> None:
        settle_all(self.running)


class InItsOwnProcess:
    """Killed with everything that it has started; `crash_at` is a point at which it dies in its first life."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, channels: ChannelKind, *, crash_at: str | None = None
    ) -> None:
        servers = ["--kafka", channels.servers] if isinstance(channels, Kafka) else []
        self._arguments = [str(folder), *arguments, *servers]
        self._folder = folder
        self._crash_at = crash_at

    def __enter__(self) -> Self:
        self._driver = DriverProcess(
            program.__file__, self._arguments, log=self._folder / "driver.log", crash_at=self._crash_at
        )
        if self._crash_at is None:
            self._driver.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.kill()

    def rescale(self, wanted: Mapping[str, int]) -> None:
        self._driver.rescale(wanted)

    def size_batches(self, wanted: Mapping[str, int]) -> None:
        self._driver.ask(f"size {in_words(wanted)}", "sized")

    def break_off(self, how: str) -> None:
        if self._crash_at is not None:
            self._driver.wait_crashed()
        self._crash_at = None
        self._driver.kill()
        self.__enter__()

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        self._driver.wait_until(true, what)

    def settle(self) -> None:
        self._driver.ask("settle", "settled")


def size_batches(running: Running, wanted: Mapping[str, int]) -> None:
    for name, most in wanted.items():
        running.engine._queries[name]._change_control(
            lambda control, most=most: replace(control, most_records=most)
        )


def settle_all(running: Running) -> None:
    """In the order of the pipeline: what one step has done is there when the next is asked."""
    for name in running.pipeline.graph().order:
        if name in running.engine._queries:
            _settle_step(running, name)


def _settle_step(running: Running, name: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    step = running.engine._queries[name]
    while True:
        running.revive()
        settle(step.query)
        if step.failure() is None and step.query.isActive:
            return
        assert time.monotonic() < deadline_s, f"{name} fails again and again: {step.failure()}"
        time.sleep(_POLL_S)


@contextlib.contextmanager
def failing_at(point: CrashPoint, step: str) -> Iterator[list[str]]:
    """The first time that a step comes by this point it fails there, as if its driver had died: what happened."""
    happened: list[str] = []

    def fail(passed: CrashPoint, passing: str) -> None:
        if (passed, passing) == (point, step) and not happened:
            happened.append(f"{step} failed {point}")
            raise OSError(happened[0])

    modules = (files, kafka, query, segments)
    before = [module.crash_point for module in modules]
    for module in modules:
        module.crash_point = fail
    try:
        yield happened
    finally:
        for module, one in zip(modules, before, strict=True):
            module.crash_point = one
