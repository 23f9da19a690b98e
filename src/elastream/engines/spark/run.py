"""Running a pipeline file under the manager: what `elastream run` does, without the printing."""

from __future__ import annotations

import importlib.util
import json
import os
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

from elastream.engines.spark.beside import importing_from, started_beside
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import ExecutorOptions, is_local, session_settings, starting_slots
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.on_nodes import OnWorkers, delays_text, executors_on, placed_operator
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.session import start_session
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.events import Accounted, Event, Trouble, event_to_json
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.signals import stopping_on_signals
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, RunHeader
from elastream.nodes.files import WorkerNodes
from elastream.policies.catalog import Policy

_STOPPING = "stopping after the batches under way"


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    pipeline: Pipeline
    generator: tuple[str, ...] | None
    """The module that writes to the feed while the pipeline runs, and its arguments; none where others write."""
    records: str = "sentences"
    """What the load generator writes: `sentences`, or what `MODULE:FUNCTION` makes."""
    capacities: Mapping[str, float] = field(default_factory=dict)
    """Records per second that an instance of an operator can process, for instances that scale themselves."""


def read_pipeline(path: Path) -> PipelineFile:
    """Run a Python file that defines a `Pipeline`, and take it from there. It finds the modules beside it."""
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
        with importing_from(path.parent.absolute()):
            spec.loader.exec_module(module)
    except InvalidInput as error:
        raise error.at(str(path)) from None
    except Exception as error:
        raise InvalidInput(f"{path}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        raise InvalidInput(f"{path}: one Pipeline was expected at the top of the file, found {len(found)}")
    found[0].graph()
    records = getattr(module, "records", "sentences")
    return PipelineFile(
        pipeline=found[0],
        generator=_generator_of(module, records, path),
        records=records,
        capacities=dict(getattr(module, "capacities", {})),
    )


def records_at(load: Mapping[str, Any], records: str = "sentences") -> tuple[str, ...]:
    """The load generator, at the rates of a load."""
    return ("elastream.workloads.generator", "--load", json.dumps(load), "--records", records)


def _generator_of(module: object, records: str, path: Path) -> tuple[str, ...] | None:
    """`load` is what the load generator writes; `generator` is another one, with its arguments."""
    load: Mapping[str, Any] | None = getattr(module, "load", None)
    given: Any = getattr(module, "generator", None)
    if given is None:
        return None if load is None else started_beside(path.parent.absolute(), records_at(load, records))
    if load is not None:
        raise InvalidInput(f"{path}: either `load` or `generator` was expected, found both")
    if isinstance(given, str) or not given or not all(isinstance(word, str) for word in given):
        raise InvalidInput(f"{path}: generator: a module and its arguments, as strings, found {given!r}")
    return started_beside(path.parent.absolute(), tuple(given))


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
    nodes: WorkerNodes | None = None
    """On which the instances of an operator are placed; without a cluster as the master the run starts one."""

    def __post_init__(self) -> None:
        local_folder(self.folder)
        if self.nodes is not None and not (is_local(self.master) or self.master.startswith("spark://")):
            raise InvalidInput(f"--nodes starts workers of a standalone cluster, found --master {self.master}")
        if self.executors.spare and is_local(self.master):
            raise InvalidInput(f"--spare-executors: {self.master} has no executors, only a cluster has")


def run(
    file: PipelineFile,
    policy: Policy,
    knobs: Knobs,
    options: RunOptions,
    *,
    header: RunHeader,
    on_snapshot: Callable[[Snapshot], None],
    on_event: Callable[[Event], None],
    on_phase: Callable[[str], None],
    clock: WallClock | None = None,
    inbox: Inbox | None = None,
) -> None:
    """Run until the time is up or someone stops it; afterwards it can be started again where it stopped."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with _cluster(file, options, on_phase) as (master, workers):
        on_phase("starting Spark")
        spark = start_session(
            file.pipeline.name,
            master=master,
            settings=_settings(file, options),
            jars=options.channels.jars(),
            log=options.folder / "spark.log",
        )
        clock = clock or WallClock()
        try:
            with (
                stopping_on_signals(clock),  # not before: Spark takes Ctrl-C for itself when it starts
                _running(file, options, spark, workers, on_phase) as engine,
                Store(options.folder / "manager.sqlite") as store,
                RecordingWriter(options.folder / "recording.jsonl") as recording,
            ):
                recording.begin(header)

                def record_event(event: Event) -> None:
                    recording.write(event_to_json(event))
                    on_event(event)

                def record_faults() -> None:
                    for fault in engine.new_faults():
                        record_event(Trouble(at_s=clock.now(), what=fault))

                def record_snapshot(snapshot: Snapshot) -> None:
                    recording.snapshot(snapshot)
                    on_snapshot(snapshot)
                    record_faults()

                manager = Manager(
                    engine=engine,
                    policy=policy,
                    knobs=knobs,
                    clock=clock,
                    store=store,
                    on_snapshot=record_snapshot,
                    on_event=record_event,
                    inbox=inbox,
                )
                with _generator(file, options, on_phase):
                    on_phase("running")
                    if engine.shortage is not None:
                        record_event(Trouble(at_s=clock.now(), what=engine.shortage))
                    manager.run(until_s=time.time() + options.duration_s, stopped=clock.stopped.is_set)
                on_phase(_STOPPING)
                engine.halt()
                accounts = engine.accounts()
                record_faults()
                record_event(Accounted(at_s=clock.now(), accounts=accounts))
        except OSError as error:
            raise ElastreamError(
                f"{options.folder}: cannot be written ({error.strerror}); the run has ended, and nothing that was "
                "committed is lost: started again, it goes on where it stopped"
            ) from error
        finally:
            spark.stop()


@contextmanager
def _cluster(
    file: PipelineFile, options: RunOptions, on_phase: Callable[[str], None]
) -> Iterator[tuple[str, OnWorkers | None]]:
    """The master, and the workers that are ours to start: those of nodes, on a cluster that may be ours too."""
    if options.nodes is None:
        yield options.master, None
        return
    placed_operator(file.pipeline)  # before anything is started
    on_phase(delays_text(options.nodes))
    cluster = StandaloneCluster(ClusterOptions(folder=options.folder / "cluster", port=0, web_port=0))
    try:
        if is_local(options.master):
            on_phase("starting a cluster on this machine")
            cluster.start_master()
        else:
            cluster.daemons.make_folder()
        master = cluster.master_url if is_local(options.master) else options.master
        yield master, OnWorkers(nodes=options.nodes, daemons=cluster.daemons)
    finally:
        cluster.stop()


@contextmanager
def _running(
    file: PipelineFile,
    options: RunOptions,
    spark: SparkSession,
    workers: OnWorkers | None,
    on_phase: Callable[[str], None],
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
        on_nodes=workers,
        say=on_phase,
    )
    on_phase("starting the pipeline")
    engine.start()
    try:
        yield engine
    finally:
        if not engine.halted:
            on_phase(_STOPPING)
        engine.stop()


def _settings(file: PipelineFile, options: RunOptions) -> dict[str, str]:
    if options.nodes is not None:
        return session_settings(executors_on(options.nodes, file.pipeline, options.executors), slots=1)
    if is_local(options.master):
        return {}
    return session_settings(options.executors, slots=starting_slots(file.pipeline))


@contextmanager
def _generator(file: PipelineFile, options: RunOptions, on_phase: Callable[[str], None]) -> Iterator[None]:
    """The load generator in a process of its own, where the file asks for one."""
    feeds = [step.name for step in file.pipeline.steps if step.kind is Kind.FEED]
    if not (options.generate and file.generator is not None and feeds):
        yield
        return
    module, *arguments = file.generator
    command = [sys.executable, "-m", module, str(options.folder / "channels" / feeds[0]), *arguments]
    # a session of its own: Ctrl-C in the terminal is for the run, which then ends the generator
    process = subprocess.Popen(command, start_new_session=True, env=dict(os.environ))
    try:
        yield
    finally:
        if process.poll() is not None and process.returncode != 0:
            on_phase(f"the load generator had ended by itself, with status {process.returncode}")
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for its channel; what it did not publish is not there
            process.kill()
            process.wait()
