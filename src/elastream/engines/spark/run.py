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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, is_local, session_settings, starting_slots
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.session import start_session
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.events import Event, Trouble, event_to_json
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
    records: str = "sentences"
    """What kind of records it writes."""
    capacities: Mapping[str, float] = field(default_factory=dict)
    """Records per second that an instance of an operator can process, for instances that scale themselves."""


def read_pipeline(path: Path) -> PipelineFile:
    """Run a Python file that defines a `Pipeline`, and take it from there."""
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    name = f"pipeline_{path.stem}"  # not the stem: a file called numbers.py would take the place of Python's own
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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
    return PipelineFile(
        pipeline=found[0],
        load=getattr(module, "load", None),
        records=getattr(module, "records", "sentences"),
        capacities=dict(getattr(module, "capacities", {})),
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    folder: Path
    master: str
    duration_s: float
    batch_interval_s: float
    longest_batch_s: float
    start: Mapping[str, int]
    channel_bound: int | None
    generate: bool
    channels: ChannelKind
    executors: ExecutorOptions = field(default_factory=ExecutorOptions)

    def __post_init__(self) -> None:
        if self.executors.spare and is_local(self.master):
            raise InvalidInput(f"--spare-executors: {self.master} has no executors, only a cluster has")


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
    options.folder.mkdir(parents=True, exist_ok=True)
    on_phase("starting Spark")
    spark = start_session(
        file.pipeline.name,
        master=options.master,
        settings=_settings(file, options),
        jars=options.channels.jars(),
        log=options.folder / "spark.log",
    )
    clock = WallClock()
    try:
        with (
            _stopping_on_signals(clock),  # not before: Spark takes Ctrl-C for itself when it starts
            _running(file, options, spark, on_phase) as engine,
            _generator(file, options, on_phase),
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
            if engine.shortage is not None:
                record_event(Trouble(at_s=clock.now(), what=engine.shortage))
            manager.run(until_s=time.time() + options.duration_s, stopped=clock.stopped.is_set)
    except OSError as error:
        raise ElastreamError(
            f"{options.folder}: cannot be written ({error.strerror}); the run has ended, and nothing that was "
            "committed is lost: started again, it goes on where it stopped"
        ) from error
    finally:
        spark.stop()


@contextmanager
def _running(
    file: PipelineFile, options: RunOptions, spark: SparkSession, on_phase: Callable[[str], None]
) -> Iterator[SparkEngine]:
    engine = SparkEngine(
        file.pipeline,
        spark,
        options.folder,
        batch_interval_s=options.batch_interval_s,
        longest_batch_s=options.longest_batch_s,
        start=options.start,
        channel_bound=options.channel_bound,
        channels=options.channels,
        executors=options.executors,
        say=on_phase,
    )
    on_phase("starting the pipeline")
    engine.start()
    try:
        yield engine
    finally:
        on_phase("stopping after the batches under way")
        engine.stop()


def _settings(file: PipelineFile, options: RunOptions) -> dict[str, str]:
    if is_local(options.master):
        return {}
    return session_settings(options.executors, slots=starting_slots(file.pipeline))


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
def _generator(file: PipelineFile, options: RunOptions, on_phase: Callable[[str], None]) -> Iterator[None]:
    """The load generator in a process of its own, where the file asks for one."""
    feeds = [step.name for step in file.pipeline.steps if step.kind is Kind.FEED]
    if not (options.generate and file.load is not None and feeds):
        yield
        return
    command = [sys.executable, "-m", "elastream.workloads.generator"]
    command += [str(options.folder / "channels" / feeds[0]), "--load", json.dumps(file.load)]
    command += ["--records", file.records]
    # a session of its own: Ctrl-C in the terminal is for the run, which then ends the generator
    process = subprocess.Popen(command, start_new_session=True, env=dict(os.environ))
    try:
        yield
    finally:
        if process.poll() is not None:
            on_phase(f"the load generator had ended by itself, with status {process.returncode}")
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for its channel; what it did not publish is not there
            process.kill()
            process.wait()
