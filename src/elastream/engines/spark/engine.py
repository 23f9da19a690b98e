"""The engine port over Spark: every operator a streaming query, all of them in one application."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import StructType

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.accounts import Books
from elastream.engines.spark.allocation import Allocation, allocation_for
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.control import Control, read_control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.core_waits import CoreWaits
from elastream.engines.spark.event_time import (
    EventTimes,
    below_the_union,
    carried_delays,
    event_time_of,
    with_watermarks,
    without_marks,
)
from elastream.engines.spark.executor_readings import alone_with, if_told
from elastream.engines.spark.executor_use import Heap, python_cores
from elastream.engines.spark.executors import ExecutorOptions, is_local
from elastream.engines.spark.frames import check_frame, frame_of, refused_by_spark
from elastream.engines.spark.jvm_lock import JvmLock
from elastream.engines.spark.latency import DEFAULT_LONGEST_BATCH_S, out_of_reach
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.measurements import StepMeter
from elastream.engines.spark.on_nodes import OnWorkers
from elastream.engines.spark.on_nodes import on_nodes as placed_on
from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep, check_bounds
from elastream.engines.spark.plan_reads import plan_reads
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.query_failures import MOST_FAILURES, QueryFailures
from elastream.engines.spark.query_watch import QueryWatch
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.same_folder import check_same_folder
from elastream.engines.spark.source_folders import SourceFolders, paths_read, there_for
from elastream.engines.spark.stages import Stages
from elastream.engines.spark.state import RepartitionRefused, take_up_wanted
from elastream.engines.spark.watermark_watch import WatermarkWatch
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import TAKES_TIME, EngineFailed, RescaleOutcome
from elastream.measurement import Reading, Snapshot
from elastream.measurement.accounts import Accounts, drops_text
from elastream.measurement.batch_cost import BatchCost
from elastream.nodes.places import NoNodeLeftError

_log = logging.getLogger(__name__)


class SparkEngine:
    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        folder: Path,
        *,
        batch_interval_s: float = 1.0,
        longest_batch_s: float = DEFAULT_LONGEST_BATCH_S,
        latency_s: float | None = None,
        channel_bound: int | None = None,
        channels: ChannelKind | None = None,
        executors: ExecutorOptions | None = None,
        on_nodes: OnWorkers | None = None,
        start: Mapping[str, int] | None = None,
        before_halt: Callable[[], None] = lambda: None,
        workspace: Workspace | None = None,
    ) -> None:
        """`start` is the parallelism to begin with, where that of the pipeline or of its folder is not wanted.
        `on_nodes` are the workers of a cluster that are started and stopped; without them executors run where the
        cluster puts them. `before_halt` is called before queries are stopped, to end what writes to their feeds.
        `workspace` is that of the folder, where it was opened before Spark was started.
        """
        self._pipeline = pipeline
        self._graph = pipeline.graph()
        """With the state partitions of this moment: they may be more than were declared."""
        self._spark = spark
        folder = local_folder(folder)  # absolute: executors on a cluster have working folders of their own
        self._workspace = workspace or Workspace(folder, pipeline.name, channels)
        self._books = Books(pipeline, self._workspace, local=is_local(str(spark.sparkContext.master)))
        self._jvm_lock = JvmLock(spark, folder / "lock.jvm")
        self._batch_interval_s = batch_interval_s
        self._longest_batch_s = max(batch_interval_s, longest_batch_s)
        self._latency_s = latency_s
        self._start = start or {}
        self._before_halt = before_halt
        self._channel_bound = channel_bound
        self._schemas: dict[str, StructType] = {}
        self._carried: dict[str, Mapping[str, int]] = {}
        """Watermarks that hold for the readers of a step: the delay in milliseconds, by column."""
        self._inherited: dict[str, Mapping[str, Mapping[str, int]]] = {}
        """Of those, what is declared again on each input of a step."""
        self._frames: dict[str, DataFrame] = {}
        self._event_time = EventTimes()
        self._watermarks: dict[str, WatermarkWatch] = {}
        self._queries: dict[str, StepQuery] = {}
        self._failures = QueryFailures(self._workspace, self._queries, self._schemas)
        self._watch = QueryWatch(self._failures.look)
        self._source_folders = SourceFolders(there_for(spark))
        self._meters = {step.name: StepMeter(step.name, batch_interval_s) for step in pipeline.steps}
        self._costs: dict[str, BatchCost] = {}
        self._marked_s = 0.0
        self._arrived: dict[str, int] = {}
        url = spark.sparkContext.uiWebUrl
        if url is None:
            raise ElastreamError("elastream measures through Spark's REST API: set spark.ui.enabled=true")
        api = RestApi(url, spark.sparkContext.applicationId)
        self._stages = Stages(api)
        self._allocation = _allocation(spark, api, pipeline, executors or ExecutorOptions(), on_nodes)
        self.halted = False
        self.shortage: str | None = None
        """Why the plan in force has more slots than there are, as text."""
        self._lacked_at_start: tuple[str, ...] = ()
        self._core_waits = _core_waits(spark)
        self._python_cores = python_cores(spark)
        self._heap = Heap(spark, (executors or ExecutorOptions()).memory)

    # The life of the pipeline

    def start(self) -> None:
        """Start every query, each from its checkpoint if it has one."""
        plan = self._pipeline.starting_with(self._start)
        self._workspace.open()
        try:
            self._jvm_lock.take()
            self._workspace.channels.check(self._spark)
            for name in self._graph.order:
                self._declare(self._pipeline[name], plan.get(name, 1))
            self._event_time = self._event_times()
            followers = [name for name, step in self._event_time.steps.items() if step.followed]
            self._watermarks = {name: WatermarkWatch(name) for name in followers}
            for name in self._graph.order:
                self._prepare(self._pipeline[name])
            self._workspace.check_schemas({name: schema.simpleString() for name, schema in self._schemas.items()})
            self._allocation.choose(self.plan(), {})
            self.shortage = self._allocation.begin(self._slots({}))
            self._lacked_at_start = () if self.shortage is None else (self.shortage,)
            self._set_fetches()
            self._check_folders()
            for number, query in enumerate(self._queries.values(), start=1):
                place = f"{number} of {len(self._queries)}"
                _log.info("starting the pipeline: %s (%s)", query.step.name, place, extra=TAKES_TIME)
                # one after the other: each starts a Python process, which Spark gives ten seconds to come up
                _start(query)
                query.wait_until_begun()
            self._graph = self._present_graph()
            self._mark()
            self._source_folders.look()
            self._watch.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it, and give its folder back."""
        self.halt()
        self._jvm_lock.release()
        self._workspace.close()

    def halt(self) -> None:
        """Stop every query right after a batch, those at the end of the pipeline first."""
        if not self.halted:
            _log.info("stopping after the batches under way", extra=TAKES_TIME)
            self._watch.stop()
            self._failures.before_halt()
            self._source_folders.look()
        self._before_halt()
        for name in reversed(self._graph.order):
            if name in self._queries:
                self._queries[name].stop()
        with contextlib.suppress(ElastreamError):  # a checkpoint that cannot be read: the accounts say so
            self._books.acknowledge()
        self.halted = True

    def accounts(self) -> Accounts:
        """Where every record went since the folder began; for a pipeline that is halted, and not yet stopped."""
        for name, query in self._queries.items():
            self._books.take(name, query.recent_progress())
        return self._books.accounts()

    def new_faults(self) -> tuple[str, ...]:
        """Since the last call: slots that the plan lacked at the start, steps that failed, batches that read
        another input."""
        lacked, self._lacked_at_start = self._lacked_at_start, ()
        return (*lacked, *self._failures.take(), *self._books.new_faults())

    def wake_on_fault(self, wake: Callable[[], None]) -> None:
        self._watch.tell(wake)

    def unsettled(self) -> tuple[str, ...]:
        """What did not work up to the end, a sentence each; for a pipeline that is halted."""
        return (*self._failures.unsettled(), *self._source_folders.gone())

    # The port

    def graph(self) -> Dataflow:
        return self._graph

    def plan(self) -> Plan:
        return Plan({name: self._queries[name].parallelism for name in self._graph.scalable})

    def rescale(self, decision: Decision) -> RescaleOutcome:
        """All operators at once: each is restarted, where it must be, in a thread of its own.

        Executors come before their tasks and go after them.
        """
        began = time.monotonic()
        before = self.plan()
        changes = before.changes_to(before.with_changes(decision.after))
        for asked in changes:
            check_bounds(self._graph[asked.operator], asked.after)
        wanted = {asked.operator: asked.after for asked in changes}
        try:
            chosen = self._allocation.choose(before.with_changes(wanted), decision.nodes)
            self.shortage = self._allocation.make_room(self._slots(wanted))
        except NoNodeLeftError as error:
            took_s = time.monotonic() - began
            return RescaleOutcome(plan=before, succeeded=False, took_s=took_s, detail=str(error))
        failures: list[str] = []

        def change(name: str, parallelism: int) -> None:
            try:
                self._queries[name].rescale(parallelism, self._graph[name].partitions_with(parallelism))
            except Exception as error:
                failures.append(f"{name}: {_first_line(error)}")

        threads = [threading.Thread(target=change, args=item) for item in wanted.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            self._allocation.choose(self.plan(), {})
        kept = self._allocation.release(self._slots({}), self._state_tasks)
        self._set_fetches()
        self._graph = self._present_graph()
        self._mark()
        took_s = time.monotonic() - began
        detail = "; ".join(filter(None, (*failures, chosen, self.shortage, kept)))
        return RescaleOutcome(plan=self.plan(), succeeded=not failures, took_s=took_s, detail=detail)

    def measure(self) -> Snapshot:
        trouble = self._workspace.channels.trouble()
        gaps = self._tend() + self._take_in() + ([f"{trouble}: the pipeline waits"] if trouble else self._revive())
        now_s = time.monotonic()  # a clock that is set would make a window of any length
        window_s = now_s - self._marked_s
        counts = self._count_arrived()
        arrived = {name: count - self._arrived[name] for name, count in counts.items()}
        python_share = self._python_share()
        readings = tuple(self._reading(name, window_s, arrived, python_share) for name in self._graph.order)
        self._learn()
        failing = self._failures.failing()
        unknown = dict.fromkeys(self._too_new(), "too few batches yet to know what one costs")
        unknown |= {name: f"it does not work: {why}" for name, why in failing.items()}
        nodes, placement = self._allocation.nodes()
        snapshot = Snapshot(
            dataflow=self._graph,
            plan=self.plan(),
            source_rates={name: count / window_s for name, count in arrived.items()},
            readings=readings,
            at_s=time.time(),
            gaps=tuple(gaps),
            unknown={name: why for name, why in unknown.items() if name in self._graph.scalable},
            notes=(
                *_late_notes(readings),
                *self._watermark_notes(),
                *self._source_folders.look(),
                *(() if self._latency_s is None else out_of_reach(self._pipeline, self._latency_s, self._costs)),
            ),
            failing=self._source_folders.failing() | failing,
            batch_costs=dict(self._costs),
            nodes=nodes,
            placement=placement,
            executors=alone_with(readings, if_told(self._allocation.executor_readings)),
        )
        self._marked_s, self._arrived = now_s, counts
        if trouble is None:
            self._forget()
        return snapshot

    def progress_of(self, name: str) -> list[StreamingQueryProgress]:
        """What Spark tells of the last batches of an operator, for experiments."""
        return list(self._queries[name].query.recentProgress)

    # Slots

    def _slots(self, wanted: Mapping[str, int]) -> int:
        """Of the plan in force with these changes; a source has one."""
        return sum(wanted.get(name, query.parallelism) for name, query in self._queries.items())

    def _state_tasks(self) -> Counter[str]:
        """On how many tasks' worth of state each executor sits."""
        stateful = [query for query in self._queries.values() if query.step.state_partitions is not None]
        return sum((self._stages.last_tasks(str(query.query.runId)) for query in stateful), Counter())

    def _tend(self) -> list[str]:
        """Replace nodes that are gone; what that spoils, as text."""
        told = self._allocation.tend()
        for text in told:
            _log.warning("%s", text)
        self._set_fetches()
        return told

    def _set_fetches(self) -> None:
        for name, fetches in self._allocation.fetches().items():
            self._queries[name].set_fetches(fetches)

    # Building the queries

    def _check_folders(self) -> None:
        """Refuse to run where not all see the same folder, before anything is read."""
        run = self._workspace.folder
        kept = [step.folder for step in self._pipeline.steps if step.folder is not None]
        state = any(step.state_partitions is not None for step in self._pipeline.steps)
        shared = [run, *kept] if state or self._workspace.channels.records_in_folder else kept
        check_same_folder(self._spark, [run, *kept], on_executors=shared)

    def _declare(self, step: PipelineStep, parallelism: int) -> None:
        """Find out what a step puts out, and make its channel ready."""
        self._take_up(step, parallelism)
        if step.kind is Kind.FEED:
            self._workspace.channel(step.name).log.make_folders()
            schema = StructType.fromDDL(step.schema or "")
            assert isinstance(schema, StructType)
            self._schemas[step.name] = schema
            return
        output = self._output(step)
        if output is not None:
            output.create()
        frame = self._declared_frame(step)
        check_frame(step, frame)
        self._frames[step.name] = frame
        self._books.open(step, plan_reads(frame), output)
        if step.kind is Kind.SOURCE:
            self._source_folders.declare(step.name, paths_read(frame))
        if step.kind is not Kind.SINK:
            self._schemas[step.name] = without_marks(frame.schema)
            self._carried[step.name] = carried_delays(frame, output_mode=step.output_mode)

    def _declared_frame(self, step: PipelineStep) -> DataFrame:
        """With the watermarks that hold for its inputs, but where it declares one of its own."""
        frame = self._build(step)
        if step.kind is not Kind.OPERATOR:
            return frame
        own = event_time_of(frame, self._folders()).followed
        inherited = {read: self._carried.get(read, {}) for read in step.reads if read not in own}
        self._inherited[step.name] = inherited
        return self._build(step) if any(inherited.values()) else frame

    def _folders(self) -> dict[str, str]:
        return {str(self._workspace.channel(step.name).log.folder): step.name for step in self._pipeline.steps}

    def _event_times(self) -> EventTimes:
        folders = self._folders()
        reads = {name: self._pipeline[name].reads for name in self._graph.order}
        found = EventTimes.of({n: event_time_of(frame, folders) for n, frame in self._frames.items()}, reads)
        found.check()
        self._frames.clear()
        return found

    def _prepare(self, step: PipelineStep) -> None:
        if step.kind is Kind.FEED:
            return
        self._queries[step.name] = StepQuery(
            self._spark,
            step,
            self._workspace,
            build=lambda: self._build(step),
            output=self._output(step),
            cut_by=self._cut_by(step),
            readers=self._pipeline.readers(step.name),
            batch_interval_s=self._batch_interval_s,
            longest_batch_s=self._longest_batch_s,
            channel_bound=self._channel_bound,
        )

    def _cut_by(self, step: PipelineStep) -> str | None:
        """Only what a source brings may be far more than a batch should hold."""
        if step.kind is not Kind.SOURCE:
            return None
        return self._event_time.column_to_cut_by(step.name, self._schemas[step.name])

    def _take_up(self, step: PipelineStep, parallelism: int) -> None:
        """Go on with the parallelism and the state partitions that it had, if the pipeline still allows them."""
        operator, path = step.operator(), self._workspace.control(step.name)
        if step.state_partitions is not None:
            wanted = take_up_wanted(self._workspace.state(step.name), declared=step.state_partitions)
            operator = replace(operator, state_partitions=wanted.partitions)
        if step.name in self._start or not path.exists():
            write_control(path, Control(parallelism=parallelism))
            return
        control = read_control(path)
        within = min(control.parallelism, operator.state_partitions or control.parallelism)
        within = parallelism if operator.fixed else operator.clamp(within)
        if within != control.parallelism:
            write_control(path, replace(control, parallelism=within))

    def _present_graph(self) -> Dataflow:
        present = tuple(self._present_operator(operator) for operator in self._graph.operators)
        return Dataflow(present, self._graph.channels)

    def _present_operator(self, operator: Operator) -> Operator:
        if operator.state_partitions is None:
            return operator
        query = self._queries[operator.name]
        movable = operator.movable_state and query.state_can_move
        return replace(operator, state_partitions=query.state_partitions, movable_state=movable)

    def _output(self, step: PipelineStep) -> DurableChannel | None:
        """The channel that a step writes; none where nobody would read it."""
        if step.folder is not None:
            return FileChannel(step.folder, writer=self._workspace.writer(step.name))
        return self._workspace.channel(step.name) if self._pipeline.readers(step.name) else None

    def _build(self, step: PipelineStep) -> DataFrame:
        if step.kind is Kind.SINK:
            return self._read(step.reads[0], step.name)
        if step.kind is Kind.SOURCE:
            return frame_of(step, self._spark)
        shared = self._event_time.shared_by(step.name)
        declared = {**self._inherited.get(step.name, {}), **shared}
        inputs = [with_watermarks(self._read(n, step.name), declared.get(n, {})) for n in step.reads]
        frame = frame_of(step, *inputs)
        return below_the_union(frame, shared, self._folders()) if shared else frame

    def _read(self, producer: str, reader: str) -> DataFrame:
        return self._workspace.channel(producer).stream(
            self._spark,
            self._schemas[producer],
            reader=reader,
            control=self._workspace.control(reader),
            at_cuts=self._event_time.follows(reader, producer),
        )

    # Measuring

    def _mark(self) -> None:
        """From here on the next measurement counts."""
        self._take_in()  # so that it is not counted as having happened after the action
        self._marked_s = time.monotonic()
        self._arrived = self._count_arrived()
        for name, query in self._queries.items():
            self._meters[name].forget_window(held_back_s=query.held_back_s)
        self._python_share()  # as above

    def _python_share(self) -> float:
        """What Python workers computed since the last call, for each second in which the JVM's tasks did not."""
        python_s = 0.0 if self._python_cores is None else self._python_cores.look()
        other_s = sum(meter.other_s for meter in self._meters.values())
        return min(1.0, python_s / other_s) if other_s > 0 else 0.0

    def _take_in(self) -> list[str]:
        """Take in the batches that ended since the last time; what was missed, as text."""
        # in this order: of a batch that has ended all stages are known, of one that is about to only some
        progress = {name: query.recent_progress() for name, query in self._queries.items()}
        for name, entries in progress.items():
            self._books.take(name, entries)
        try:
            gaps = self._stages.look()
        except (
            ElastreamError
        ) as error:  # on a machine with far too much to do; the batches are still there next time
            return [str(error)]
        core_wait = None if self._core_waits is None else self._core_waits.look()
        for name, entries in progress.items():
            if name in self._watermarks:
                self._watermarks[name].progress(entries)
            gaps += self._meters[name].take(entries, self._queries[name].written, self._stages, core_wait)
            self._queries[name].forget_ended()
        return gaps

    def _count_arrived(self) -> dict[str, int]:
        """Records of each source, from the beginning."""
        return {name: self._workspace.channel(name).log.head().records for name in self._graph.sources}

    def _watermark_notes(self) -> list[str]:
        notes: list[str] = []
        for name, watch in self._watermarks.items():
            followed = self._event_time.steps[name].followed
            brought = {read: self._workspace.channel(read).log.head().records for read in followed}
            watch.inputs(brought, now_s=time.monotonic())
            notes += watch.notes(clock_s=time.time(), now_s=time.monotonic())
        return notes

    def _revive(self) -> list[str]:
        """Start queries again that failed; what failed, as text. One that fails again and again ends the run."""
        failed = []
        for name, query in self._queries.items():
            found = self._failures.of(name)
            if found is None:
                continue
            if query.failures >= MOST_FAILURES:
                raise EngineFailed(f"{found.last} (all of it: {self._failures.trace(name)})")
            time.sleep(min(30.0, 2.0**query.failures))
            query.failures += 1
            query.start()
            failed.append(f"{name} failed and was started again: {found.failure.text}")
        return failed

    def _reading(self, name: str, window_s: float, arrived: Mapping[str, int], python_share: float) -> Reading:
        if name not in self._queries:  # a feed: another process writes it, and nothing holds it back
            count = arrived[name]
            return Reading(operator=name, window_s=window_s, useful_s=0, records_in=count, records_out=count)
        query, meter = self._queries[name], self._meters[name]
        logs = [self._workspace.channel(read).log for read in self._pipeline[name].reads]
        since_s = time.time() - self._longest_batch_s
        return meter.reading(
            window_s=window_s,
            instances=1 if self._graph[name].source else query.parallelism,
            backlog=sum(log.pending(name) for log in logs),
            overdue=sum(log.overdue(name, since_s=since_s) for log in logs) if logs else None,
            held_back_s=query.held_back_s,
            python_cpu_s=meter.other_s * python_share,
            heap_utilization=self._heap.utilization(meter.heap_bytes),
        )

    def _learn(self) -> None:
        for name in self._graph.scalable:
            partitions = self._graph[name].state_partitions or 0
            cost = self._meters[name].cost(state_partitions=partitions, longest_batch_s=self._longest_batch_s)
            if cost is not None:
                self._costs[name] = cost if self._latency_s is None else cost.with_room()

    def _too_new(self) -> list[str]:
        return [name for name in self._graph.scalable if self._meters[name].is_too_new]

    def _forget(self) -> None:
        """Delete what every reader is done with."""
        for step in self._pipeline.steps:
            if readers := self._pipeline.readers(step.name):
                self._workspace.channel(step.name).forget(readers)


def _allocation(
    spark: SparkSession, api: RestApi, pipeline: Pipeline, executors: ExecutorOptions, on_nodes: OnWorkers | None
) -> Allocation:
    if on_nodes is None:
        return allocation_for(spark, api, executors)
    return placed_on(spark, api, pipeline, executors, on_nodes)


def _core_waits(spark: SparkSession) -> CoreWaits | None:
    """Only where the tasks run in the driver's own process: what other machines count is not known here."""
    if not str(spark.sparkContext.master).startswith("local["):
        return None
    jvm: Any = spark.sparkContext._jvm
    return CoreWaits(int(jvm.java.lang.ProcessHandle.current().pid()))


def _late_notes(readings: Sequence[Reading]) -> Iterator[str]:
    return (drops_text(reading.operator) for reading in readings if reading.records_late)


def _start(query: StepQuery) -> None:
    """As the first thing of a run: the state then has the partitions that the pipeline declares."""
    try:
        query.start()
    except AnalysisException as error:
        raise refused_by_spark(query.step, error) from error
    except RepartitionRefused as error:
        if (
            query.state_partitions != query.step.state_partitions
        ):  # a rescale that was killed before it was refused
            query.keep_state()
            query.start()
            return
        raise InvalidInput(
            f"{query.step.name!r}: {error}; declare the state_partitions that it has, or choose another folder"
        ) from error


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
