"""A pipeline file as a job of Spark: read, and started with all that it needs around it."""

from __future__ import annotations

import difflib
import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from elastream.dataflow import Dataflow
from elastream.engines.spark.beside import importing_from, started_beside
from elastream.engines.spark.channels.kinds import ChannelKind, check_reachable, delete_topics
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.executors import is_local, session_settings, starting_slots
from elastream.engines.spark.function_checks import check_functions
from elastream.engines.spark.java import check_java
from elastream.engines.spark.latency import DEFAULT_LONGEST_BATCH_S, longest_batch_s
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.on_nodes import OnWorkers, delays_text, settings_on
from elastream.engines.spark.options import SparkOptions
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.plain_checkpoint import PlainStream
from elastream.engines.spark.ports import check_answers
from elastream.engines.spark.reading_files import types_without_session, unreadable
from elastream.engines.spark.session import AS_IN_PLAIN_SPARK, GONE, start_session, still_runs, stop_session
from elastream.engines.spark.session_conf import merged_packages
from elastream.engines.spark.take_over import streams_to_take
from elastream.engines.spark.workspace import Workspace, check_unused
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.engine import TAKES_TIME
from elastream.manager.signals import interruptible
from elastream.texts import listed_text

_log = logging.getLogger(__name__)

_WITHOUT_PIPELINE = (
    "; `elastream new NAME` writes a file that has one, and `elastream submit` runs a job of plain Spark as it is"
)


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    pipeline: Pipeline
    generator: tuple[str, ...] | None
    """The module that writes to the feed while the pipeline runs, and its arguments; none where others write."""
    records: str = "sentences"
    """What the load generator writes: `sentences`, or what `MODULE:FUNCTION` makes."""
    capacities: Mapping[str, float] = field(default_factory=dict)
    """Records per second that an instance of an operator can process, for instances that scale themselves."""
    called_as: tuple[str, ...] = ()
    """The file and its arguments, where it was read from one."""


def read_pipeline(path: Path, arguments: Sequence[str] = ()) -> PipelineFile:
    """Run a Python file that defines a `Pipeline`, and take it from there. It finds the modules beside it, and the
    arguments in `sys.argv`, as with `python FILE ARGUMENTS...`; so do its functions while the pipeline runs."""
    if path.is_dir():
        raise InvalidInput(f"{path}: a Python file with a Pipeline was expected, found a folder")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file{_near(path)}")
    name = f"pipeline_{path.stem}"  # not the stem: a file called numbers.py would take the place of Python's own
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path}: not a Python file")
    called_as = (str(path), *arguments)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Spark's Python workers do not find the file: what they are to run of it is sent to them
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        with (
            importing_from(path.parent.absolute()),
            _called_with(called_as),
            types_without_session(),
        ):
            spec.loader.exec_module(module)
    except Exception as error:
        raise unreadable(path, error) from (None if isinstance(error, InvalidInput) else error)
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        names = listed_text(tuple(repr(pipeline.name) for pipeline in found))
        many = f"{len(found)}: {names}; a file for each can be run" if found else f"0{_WITHOUT_PIPELINE}"
        raise InvalidInput(f"{path}: one Pipeline was expected at the top of the file, found {many}")
    try:
        found[0].graph()
        check_functions(found[0])
    except InvalidInput as error:
        raise error.at(str(path)) from None
    records = getattr(module, "records", "sentences")
    return PipelineFile(
        pipeline=found[0],
        generator=_generator_of(module, records, path),
        records=records,
        capacities=dict(getattr(module, "capacities", {})),
        called_as=called_as,
    )


def _near(path: Path) -> str:
    """A file beside it with a name like this one."""
    like = difflib.get_close_matches(path.name, [file.name for file in path.parent.glob("*.py")], n=1)
    return f" (did you mean {str(path.with_name(like[0]))!r}?)" if like else ""


@contextmanager
def _called_with(called_as: Sequence[str]) -> Iterator[None]:
    """What the user's code finds in `sys.argv`; as it is where that is nothing."""
    before, sys.argv = sys.argv, list(called_as) or sys.argv
    try:
        yield
    finally:
        sys.argv = before


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
class SparkJob:
    file: PipelineFile
    options: SparkOptions
    channels: ChannelKind

    @property
    def name(self) -> str:
        return self.file.pipeline.name

    def graph(self) -> Dataflow:
        return self.file.pipeline.graph()

    @property
    def latency_s(self) -> float | None:
        if self.options.longest_batch_s is not None:
            return None
        return self.file.pipeline.latency_s if self.options.latency_s is None else self.options.latency_s

    @property
    def _longest_batch_s(self) -> float:
        if self.latency_s is None:
            return self.options.longest_batch_s or DEFAULT_LONGEST_BATCH_S
        return longest_batch_s(self.file.pipeline, self.latency_s)

    @contextmanager
    def running(self, folder: Path) -> Iterator[SparkEngine]:
        """Its cluster where it has one of its own, a session, the engine, and what writes to its feed.

        What can be refused is refused before Spark is started, which takes a while.
        """
        folder = local_folder(folder)
        self._check()
        with (
            _called_with(self.file.called_as),
            self._workspace(folder) as workspace,
            nullcontext(self._streams_to_take(workspace)) as streams,  # between the lock and Spark
            self._cluster(folder) as (master, workers),
            self._session(folder, master) as spark,
        ):
            try:
                with self._engine(folder, spark, workers, workspace, streams) as engine:
                    yield engine
            except GONE as error:
                if still_runs(spark) and not isinstance(error, OSError):
                    raise
                raise _ended(folder, error if still_runs(spark) else None) from error

    def delete_elsewhere(self, folder: Path) -> None:
        self._check()  # nothing is deleted for a run that cannot begin
        check_unused(folder)
        for left in delete_topics(folder / "channels"):
            _log.warning("%s", left)

    def _check(self) -> None:
        """Refuse what cannot begin, in less than a second where all is well."""
        _ = self._longest_batch_s  # which may have triggers against it
        check_java()
        check_answers(self.options.master)
        self.channels.jars()
        check_reachable(self.channels)

    @contextmanager
    def _workspace(self, folder: Path) -> Iterator[Workspace]:
        """Its lock is held from now on, so that of two that are started in one folder one is refused at once."""
        workspace = Workspace(folder, self.name, self.channels, state_url=self.options.state_folder)
        workspace.open()
        try:
            yield workspace
        finally:
            workspace.close()

    @contextmanager
    def _session(self, folder: Path, master: str) -> Iterator[SparkSession]:
        _log.info("starting Spark", extra=TAKES_TIME)
        with interruptible():  # Spark takes Ctrl-C for itself when it starts
            spark = start_session(
                self.name,
                master=master,
                settings={**({} if self.channels.name == "kafka" else AS_IN_PLAIN_SPARK), **self._settings()},
                jars=self.channels.jars(),
                conf={**self.file.pipeline.conf, **self.options.conf},
                packages=merged_packages(self.file.pipeline.packages, self.options.packages),
                log=folder / "spark.log",
            )
        try:
            yield spark
        finally:
            stop_session(spark)

    @contextmanager
    def _cluster(self, folder: Path) -> Iterator[tuple[str, OnWorkers | None]]:
        """The master, and the workers that are ours to start: those of nodes, on a cluster that may be ours."""
        nodes, master = self.options.nodes, self.options.master
        if nodes is None:
            yield master, None
            return
        _log.info("%s", delays_text(nodes))
        cluster = StandaloneCluster(ClusterOptions(folder=folder / "cluster", port=0, web_port=0))
        try:
            if is_local(master):
                _log.info("starting a cluster on this machine", extra=TAKES_TIME)
                with interruptible():
                    cluster.start_master()
                master = cluster.master_url
            else:
                cluster.daemons.make_folder()
            yield master, OnWorkers(nodes=nodes, daemons=cluster.daemons)
        finally:
            cluster.stop()

    @contextmanager
    def _engine(
        self,
        folder: Path,
        spark: SparkSession,
        workers: OnWorkers | None,
        workspace: Workspace,
        streams: Mapping[str, PlainStream],
    ) -> Iterator[SparkEngine]:
        generator = _Generator(self._generator_command(folder))
        engine = SparkEngine(
            self.file.pipeline,
            spark,
            folder,
            batch_interval_s=min(self.options.batch_interval_s, self._longest_batch_s),
            longest_batch_s=self._longest_batch_s,
            latency_s=self.latency_s,
            start=self.options.start,
            channel_bound=self.options.channels.bound,
            channels=self.channels,
            executors=self.options.executors,
            on_nodes=workers,
            before_halt=generator.end,
            workspace=workspace,
            take_over=streams,
            poisoned=self.options.poisoned,
        )
        _log.info("starting the pipeline", extra=TAKES_TIME)
        engine.start()
        try:
            generator.start()
            yield engine
        finally:
            engine.stop()

    def _streams_to_take(self, workspace: Workspace) -> dict[str, PlainStream]:
        try:
            return streams_to_take(self.file.pipeline, self.options.from_checkpoint, workspace)
        except InvalidInput as error:
            raise error.at("--from-checkpoint") from None

    def _settings(self) -> dict[str, str]:
        pipeline, options = self.file.pipeline, self.options
        if options.nodes is not None:
            return settings_on(options.nodes, pipeline, options.executors)
        if is_local(options.master):
            return {}
        return session_settings(options.executors, slots=starting_slots(pipeline))

    def _generator_command(self, folder: Path) -> Sequence[str]:
        """What writes to the first feed; nothing where the file, or the user, does not ask for it."""
        feeds = [step.name for step in self.file.pipeline.steps if step.kind is Kind.FEED]
        if not (self.options.generate and self.file.generator is not None and feeds):
            return ()
        module, *arguments = self.file.generator
        return [sys.executable, "-m", module, str(folder / "channels" / feeds[0]), *arguments]


def _ended(folder: Path, error: BaseException | None) -> ElastreamError:
    """By an error of the file system, or because Spark's Java process is gone."""
    if isinstance(error, OSError):
        return ElastreamError(
            f"{folder}: cannot be written ({error.strerror}); the run has ended, and nothing that was committed "
            "is lost: started again, it goes on where it stopped"
        )
    return ElastreamError(
        f"Spark's Java process has ended (killed, or out of memory?), see {folder / 'spark.log'}; the run is "
        "over, and nothing that was committed is lost: started again, it goes on where it stopped"
    )


class _Generator:
    """The load generator in a process of its own, where there is one."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._command:
            # a session of its own: Ctrl-C in the terminal is for the run, which then ends the generator
            self._process = subprocess.Popen(self._command, start_new_session=True, env=dict(os.environ))

    def end(self) -> None:
        """It does no harm a second time."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is not None and process.returncode != 0:
            _log.warning("the load generator had ended by itself, with status %s", process.returncode)
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for its channel; what it did not publish is not there
            process.kill()
            process.wait()
