"""Running a pipeline file under the manager: what `elastream run` does, without the printing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.session import start_session
from elastream.errors import InvalidInput
from elastream.manager.events import Event, event_to_json
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.store import Store
from elastream.monitor import Snapshot
from elastream.monitor.recording import RecordingWriter
from elastream.policies.catalog import Policy


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    pipeline: Pipeline
    load: Mapping[str, Any] | None
    """What a generator is to write to the feed while the pipeline runs; none where others write it."""


def read_pipeline(path: Path) -> PipelineFile:
    """Run a Python file that defines a `Pipeline`, and take it from there."""
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # Spark's Python workers do not find the file: what they are to run of it is sent to them
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spec.loader.exec_module(module)
    except InvalidInput as error:
        raise error.at(str(path)) from None
    except Exception as error:
        raise InvalidInput(f"{path}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        raise InvalidInput(f"{path}: one Pipeline was expected at the top of the file, found {len(found)}")
    found[0].graph()
    return PipelineFile(pipeline=found[0], load=getattr(module, "load", None))


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    folder: Path
    master: str
    duration_s: float
    batch_interval_s: float
    channel_bound: int | None
    generate: bool
    channels: ChannelKind


def run(
    file: PipelineFile,
    policy: Policy,
    knobs: Knobs,
    options: RunOptions,
    *,
    on_snapshot: Callable[[Snapshot], None],
    on_event: Callable[[Event], None],
    on_phase: Callable[[str], None],
) -> None:
    """Run until the time is up or someone stops it; afterwards it can be started again where it stopped."""
    clock = WallClock()
    options.folder.mkdir(parents=True, exist_ok=True)
    with _stopping_on_signals(clock):
        on_phase("starting Spark")
        spark = start_session(file.pipeline.name, master=options.master, jars=options.channels.jars())
        engine = SparkEngine(
            file.pipeline,
            spark,
            options.folder,
            batch_interval_s=options.batch_interval_s,
            channel_bound=options.channel_bound,
            channels=options.channels,
        )
        on_phase("starting the pipeline")
        engine.start()
        try:
            with (
                _generator(file, options),
                Store(options.folder / "manager.sqlite") as store,
                RecordingWriter(options.folder / "recording.jsonl") as recording,
            ):

                def record_snapshot(snapshot: Snapshot) -> None:
                    recording.snapshot(snapshot)
                    on_snapshot(snapshot)

                def record_event(event: Event) -> None:
                    recording.write(event_to_json(event))
                    on_event(event)

                manager = Manager(
                    engine=engine,
                    policy=policy,
                    knobs=knobs,
                    clock=clock,
                    store=store,
                    on_snapshot=record_snapshot,
                    on_event=record_event,
                )
                on_phase("running")
                manager.run(until_s=time.time() + options.duration_s, stopped=clock.stopped.is_set)
        finally:
            on_phase("stopping after the batches under way")
            engine.stop()
            spark.stop()


@contextmanager
def _stopping_on_signals(clock: WallClock) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the batches under way, not in the middle of one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: clock.stopped.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _generator(file: PipelineFile, options: RunOptions) -> Iterator[None]:
    """The load generator in a process of its own, where the file asks for one."""
    feeds = [step.name for step in file.pipeline.steps if step.kind is Kind.FEED]
    if not (options.generate and file.load is not None and feeds):
        yield
        return
    command = [sys.executable, "-m", "elastream.workloads.generator"]
    command += [str(options.folder / "channels" / feeds[0]), "--load", json.dumps(file.load)]
    # a session of its own: Ctrl-C in the terminal is for the run, which then ends the generator
    process = subprocess.Popen(command, start_new_session=True, env=dict(os.environ))
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for its channel; what it did not publish is not there
            process.kill()
            process.wait()
