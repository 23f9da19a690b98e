"""The engine port over Spark: every operator a streaming query, all of them in one application."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.accounts import Books
from elastream.engines.spark.allocation import Allocation, allocation_for
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.executor_readings import alone_with, if_told
from elastream.engines.spark.executors import ExecutorOptions, is_local
from elastream.engines.spark.failure_watch import FailureWatch
from elastream.engines.spark.jvm_lock import JvmLock
from elastream.engines.spark.lasting_checkpoint import sync_committed
from elastream.engines.spark.latency import DEFAULT_LONGEST_BATCH_S, Pace, out_of_reach
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.on_nodes import OnWorkers
from elastream.engines.spark.on_nodes import on_nodes as placed_on
from elastream.engines.spark.options import WhenPoisoned
from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep, check_bounds
from elastream.engines.spark.plain_checkpoint import PlainStream
from elastream.engines.spark.plan_reads import plan_reads
from elastream.engines.spark.poisoned import Poisoned
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.query_building import QueryBuilder, start_first
from elastream.engines.spark.query_failures import QueryFailures
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.same_folder import check_same_folder
from elastream.engines.spark.source_folders import SourceFolders, paths_read, there_for
from elastream.engines.spark.stages import Stages
from elastream.engines.spark.take_over import check_fits, take_over
from elastream.engines.spark.window_meter import WindowMeter
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import TAKES_TIME, RescaleOutcome
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts
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
        take_over: Mapping[str, PlainStream] | None = None,
        poisoned: WhenPoisoned = WhenPoisoned.ASIDE,
        state_url: str | None = None,
    ) -> None:
        """`start` is the parallelism to begin with, where that of the pipeline or of its folder is not wanted.
        `on_nodes` are the workers of a cluster that are started and stopped; without them executors run where the
        cluster puts them. `before_halt` is called before queries are stopped, to end what writes to their feeds.
        `workspace` is that of the folder, where it was opened before Spark was started. `take_over` are streams of
        plain jobs that sources go on with. `state_url` is where state lies that is not to be in the folder.
        """
        url = spark.sparkContext.uiWebUrl
        if url is None:
            raise ElastreamError("elastream measures through Spark's REST API: set spark.ui.enabled=true")
        api = RestApi(url, spark.sparkContext.applicationId)
        executors = executors or ExecutorOptions()
        pace = Pace(
            batch_interval_s=batch_interval_s,
            longest_batch_s=max(batch_interval_s, longest_batch_s),
            latency_s=latency_s,
        )
        folder = local_folder(folder)  # absolute: executors on a cluster have working folders of their own
        self._pipeline = pipeline
        self._graph = pipeline.graph()
        """With the state partitions of this moment: they may be more than were declared."""
        self._spark = spark
        self._workspace = workspace or Workspace(folder, pipeline.name, channels, state_url=state_url)
        self._books = Books(pipeline, self._workspace, local=is_local(str(spark.sparkContext.master)))
        self._jvm_lock = JvmLock(spark, folder / "lock.jvm")
        self._latency_s = latency_s
        self._start = start or {}
        self._take_over = take_over or {}
        self._before_halt = before_halt
        self._builder = QueryBuilder(
            spark, pipeline, self._workspace, pace=pace, channel_bound=channel_bound, start=self._start
        )
        self._queries: dict[str, StepQuery] = {}
        self._poisoned = Poisoned(spark, self._workspace, pipeline, self._builder.schemas)
        aside = self._poisoned if poisoned is WhenPoisoned.ASIDE else None
        self._failures = QueryFailures(self._workspace, self._queries, self._builder.schemas, aside)
        self._watch = FailureWatch(self._failures.look)
        self._source_folders = SourceFolders(there_for(spark))
        self._stages = Stages(api)
        self._meter = WindowMeter(
            spark,
            pipeline,
            self._workspace,
            self._queries,
            self._books,
            self._stages,
            pace=pace,
            executor_memory=executors.memory,
        )
        self._allocation = _allocation(spark, api, pipeline, executors, on_nodes)
        self.halted = False
        self.shortage: str | None = None
        """Why the plan in force has more slots than there are, as text."""
        self._lacked_at_start: tuple[str, ...] = ()

    # The life of the pipeline

    def start(self) -> None:
        """Start every query, each from its checkpoint if it has one."""
        plan = self._pipeline.starting_with(self._start)
        self._workspace.open()
        try:
            self._jvm_lock.take()
            self._workspace.channels.check(self._spark)
            self._mount_state()
            for name in self._graph.order:
                self._declare(self._pipeline[name], plan.get(name, 1))
            self._builder.follow_event_time()
            self._meter.watch(self._builder.event_time)
            for name in self._graph.order:
                if self._pipeline[name].kind is not Kind.FEED:
                    self._queries[name] = self._builder.query(self._pipeline[name])
                    self._queries[name].own_batch = partial(self._allocation.own_batch, name)
            schemas = {name: schema.simpleString() for name, schema in self._builder.schemas.items()}
            self._workspace.check_schemas(schemas)
            self._allocation.choose(self.plan(), {})
            self.shortage = self._allocation.begin(self._slots({}))
            self._lacked_at_start = () if self.shortage is None else (self.shortage,)
            self._set_fetches()
            self._check_folders()
            for name, stream in self._take_over.items():
                take_over(name, stream, self._workspace)
            for number, query in enumerate(self._queries.values(), start=1):
                place = f"{number} of {len(self._queries)}"
                _log.info("starting the pipeline: %s (%s)", query.step.name, place, extra=TAKES_TIME)
                # one after the other: each starts a Python process, which Spark gives ten seconds to come up
                start_first(query)
                query.wait_until_begun()
            self._graph = self._present_graph()
            self._meter.mark()
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
        """All operators at once, from their next batches on: where state has to be moved, in a thread of its own.

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
        self._meter.mark()
        took_s = time.monotonic() - began
        detail = "; ".join(filter(None, (*failures, chosen, self.shortage, kept)))
        return RescaleOutcome(plan=self.plan(), succeeded=not failures, took_s=took_s, detail=detail)

    def measure(self) -> Snapshot:
        trouble = self._workspace.channels.trouble() or self._trouble_with_state()
        gaps = self._tend() + self._meter.take_in()
        revived: dict[str, str] = {}
        if trouble:
            gaps.append(f"{trouble}: the pipeline waits")
        else:
            revived = self._failures.revive()
            # without a source nobody knows what is to be done; an operator silences nobody but itself
            gaps += [f"{name} {text}" for name, text in revived.items() if self._graph[name].source]
        window = self._meter.window(self._graph)
        failing = self._failures.failing()
        too_new = self._meter.too_new(self._graph.scalable)
        unknown = dict.fromkeys(too_new, "too few batches yet to know what one costs")
        unknown |= {name: f"it does not work: {why}" for name, why in failing.items()} | revived
        nodes, placement = self._allocation.nodes()
        snapshot = Snapshot(
            dataflow=self._graph,
            plan=self.plan(),
            source_rates=window.source_rates,
            newest_rates=window.newest_rates,
            readings=window.readings,
            at_s=time.time(),
            gaps=tuple(gaps),
            unknown={name: why for name, why in unknown.items() if name in self._graph.scalable},
            notes=(*window.notes, *self._poisoned.notes(), *self._source_folders.look(), *self._out_of_reach()),
            failing=self._source_folders.failing() | failing,
            batch_costs=dict(self._meter.costs),
            nodes=nodes,
            placement=placement,
            executors=alone_with(window.readings, if_told(self._allocation.executor_readings)),
            latency_target_s=self._latency_s,
        )
        if trouble is None:
            self._forget()
        return snapshot

    def progress_of(self, name: str) -> list[StreamingQueryProgress]:
        """What Spark tells of the last batches of an operator, for experiments."""
        return list(self._queries[name].query.recentProgress)

    # The parts of it

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

    def _check_folders(self) -> None:
        """Refuse to run where not all see the same folder, before anything is read."""
        run = self._workspace.folder
        kept = [step.folder for step in self._pipeline.steps if step.folder is not None]
        state = any(step.state_partitions is not None for step in self._pipeline.steps)
        in_run = (state and not self._workspace.state_folder) or self._workspace.channels.records_in_folder
        check_same_folder(self._spark, [run, *kept], on_executors=[run, *kept] if in_run else kept)
        if self._workspace.state_folder and state:
            self._workspace.state_folder.check(self._spark)

    def _trouble_with_state(self) -> str | None:
        """Looked for only where something has failed; that is not started again until it has passed."""
        folder = self._workspace.state_folder
        if folder is None or not any(query.failure() for query in self._queries.values()):
            return None
        return folder.trouble(self._spark)

    def _mount_state(self) -> None:
        if self._workspace.state_folder:
            self._workspace.state_folder.mount(self._spark, (step.name for step in self._pipeline.steps))

    def _declare(self, step: PipelineStep, parallelism: int) -> None:
        """Find out what a step reads and puts out."""
        frame = self._builder.declare(step, parallelism)
        if frame is None:
            return
        self._books.open(step, plan_reads(frame), self._builder.output(step))
        if step.kind is Kind.SOURCE:
            self._source_folders.declare(step.name, paths_read(frame))
            if step.name in self._take_over:
                check_fits(step.name, frame, self._take_over[step.name])

    def _present_graph(self) -> Dataflow:
        present = tuple(self._present_operator(operator) for operator in self._graph.operators)
        return Dataflow(present, self._graph.channels)

    def _present_operator(self, operator: Operator) -> Operator:
        if operator.state_partitions is None:
            return operator
        query = self._queries[operator.name]
        movable = operator.movable_state and query.state_can_move
        return replace(operator, state_partitions=query.state_partitions, movable_state=movable)

    def _out_of_reach(self) -> tuple[str, ...]:
        if self._latency_s is None:
            return ()
        return out_of_reach(self._pipeline, self._latency_s, self._meter.costs)

    def _forget(self) -> None:
        """Delete what every reader is done with."""
        read = {
            step.name: readers for step in self._pipeline.steps if (readers := self._pipeline.readers(step.name))
        }
        channels = {name: self._workspace.channel(name) for name in read}
        for name, channel in channels.items():
            channel.log.note_acknowledged(read[name])
        for step in self._pipeline.steps:  # that it was read has to outlast it
            if step.reads:
                sync_committed(self._workspace.checkpoint(step.name))
        for name, channel in channels.items():
            channel.forget(read[name])


def _allocation(
    spark: SparkSession, api: RestApi, pipeline: Pipeline, executors: ExecutorOptions, on_nodes: OnWorkers | None
) -> Allocation:
    if on_nodes is None:
        return allocation_for(spark, api, executors)
    return placed_on(spark, api, pipeline, executors, on_nodes)


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
