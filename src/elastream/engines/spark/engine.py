"""The engine port over Spark: every operator a streaming query, all of them in one application."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.spark.channels.channel import Channel
from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind
from elastream.engines.spark.measurements import StepMeter
from elastream.engines.spark.pipeline import Kind, Pipeline, Step
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.stages import Stages
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.engine import Outcome
from elastream.monitor import Reading, Snapshot
from elastream.monitor.batch_cost import BatchCost

_MOST_FAILURES = 4  # of a query in a row; after as many the run ends
_STATEFUL = ("Aggregate", "Deduplicate", "Join", "FlatMapGroups", "TransformWithState")


class PipelineFailed(Exception):  # noqa: N818 - not an ElastreamError: nothing but ending the run helps
    pass


class SparkEngine:
    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        folder: Path,
        *,
        batch_interval_s: float = 1.0,
        channel_bound: int | None = None,
        channels: ChannelKind | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._graph = pipeline.graph()
        self._spark = spark
        self._workspace = Workspace(folder, pipeline.name, channels)
        self._batch_interval_s = batch_interval_s
        self._channel_bound = channel_bound
        self._schemas: dict[str, StructType] = {}
        self._queries: dict[str, StepQuery] = {}
        self._meters = {step.name: StepMeter(step.name) for step in pipeline.steps}
        self._costs: dict[str, BatchCost] = {}
        self._marked_s = 0.0
        self._arrived: dict[str, int] = {}
        url = spark.sparkContext.uiWebUrl
        if url is None:
            raise ElastreamError("elastream measures through Spark's REST API: set spark.ui.enabled=true")
        self._stages = Stages(url, spark.sparkContext.applicationId)

    # The life of the pipeline

    def start(self) -> None:
        """Start every query, each from its checkpoint if it has one."""
        self._workspace.open()
        try:
            self._workspace.channels.check(self._spark)
            plan = self._pipeline.plan()
            for name in self._graph.order:
                self._prepare(self._pipeline[name], plan.get(name, 1))
            self._workspace.check_schemas({name: schema.simpleString() for name, schema in self._schemas.items()})
            for query in self._queries.values():
                # one after the other: each starts a Python process, which Spark gives ten seconds to come up
                query.start()
                query.wait_until_begun()
            self._mark()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every query right after a batch, those at the end of the pipeline first."""
        for name in reversed(self._graph.order):
            if name in self._queries:
                self._queries[name].stop()
        self._workspace.close()

    # The port

    def graph(self) -> Dataflow:
        return self._graph

    def plan(self) -> Plan:
        return Plan({name: self._queries[name].parallelism for name in self._graph.scalable})

    def rescale(self, decision: Decision) -> Outcome:
        """All operators at once: each is restarted, where it must be, in a thread of its own."""
        began = time.monotonic()
        before = self.plan()
        changes = before.changes_to(before.with_changes(decision.after))
        for asked in changes:
            _check_bounds(self._graph[asked.operator], asked.after)
        wanted = {asked.operator: asked.after for asked in changes}
        failures: list[str] = []

        def change(name: str, parallelism: int) -> None:
            try:
                self._queries[name].rescale(parallelism)
            except Exception as error:
                failures.append(f"{name}: {_first_line(error)}")

        threads = [threading.Thread(target=change, args=item) for item in wanted.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._mark()
        took_s = time.monotonic() - began
        return Outcome(plan=self.plan(), succeeded=not failures, took_s=took_s, detail="; ".join(failures))

    def measure(self) -> Snapshot:
        trouble = self._workspace.channels.trouble()
        gaps = self._take_in() + ([f"{trouble}: the pipeline waits"] if trouble else self._revive())
        now_s = time.time()
        window_s = now_s - self._marked_s
        counts = self._count_arrived()
        arrived = {name: count - self._arrived[name] for name, count in counts.items()}
        readings: list[Reading] = []
        for name in self._graph.order:
            readings += self._readings(name, window_s, arrived)
        self._learn()
        gaps += [f"{name}: too few batches yet to know what one costs" for name in self._too_new()]
        snapshot = Snapshot(
            dataflow=self._graph,
            plan=self.plan(),
            source_rates={name: count / window_s for name, count in arrived.items()},
            readings=tuple(readings),
            at_s=now_s,
            gaps=tuple(gaps),
            batch_costs=dict(self._costs),
        )
        self._marked_s, self._arrived = now_s, counts
        if trouble is None:
            self._forget()
        return snapshot

    # Building the queries

    def _prepare(self, step: Step, parallelism: int) -> None:
        control = self._workspace.control(step.name)
        if not control.exists():  # else the pipeline goes on with the parallelism that it had
            write_control(control, Control(parallelism=parallelism))
        output = self._output(step)
        if step.kind is Kind.FEED:
            self._workspace.channel(step.name).log.make_folders()
            schema = StructType.fromDDL(step.schema or "")
            assert isinstance(schema, StructType)
            self._schemas[step.name] = schema
            return
        if output is not None:
            output.create()
        build = self._builder(step)
        frame = build()
        _check_frame(step, frame)
        if step.kind is not Kind.SINK:
            self._schemas[step.name] = frame.schema
        self._queries[step.name] = StepQuery(
            self._spark,
            step,
            self._workspace,
            build=build,
            output=output,
            readers=self._pipeline.readers(step.name),
            batch_interval_s=self._batch_interval_s,
            channel_bound=self._channel_bound,
        )

    def _output(self, step: Step) -> Channel | None:
        """The channel that a step writes; none where nobody would read it."""
        if step.folder is not None:
            return FileChannel(step.folder)
        return self._workspace.channel(step.name) if self._pipeline.readers(step.name) else None

    def _builder(self, step: Step) -> Callable[[], DataFrame]:
        def build() -> DataFrame:
            if step.kind is Kind.SOURCE:
                assert step.function is not None
                return _result(step, step.function(self._spark))
            inputs = [self._read(name, step.name) for name in step.reads]
            if step.kind is Kind.SINK:
                return inputs[0]
            assert step.function is not None
            return _result(step, step.function(*inputs))

        return build

    def _read(self, producer: str, reader: str) -> DataFrame:
        channel = self._workspace.channel(producer)
        control = self._workspace.control(reader)
        return channel.stream(self._spark, self._schemas[producer], reader=reader, control=control)

    # Measuring

    def _mark(self) -> None:
        """From here on the next measurement counts."""
        self._take_in()  # so that it is not counted as having happened after the action
        self._marked_s = time.time()
        self._arrived = self._count_arrived()
        for name, query in self._queries.items():
            self._meters[name].forget_window(held_back_s=query.held_back_s)

    def _take_in(self) -> list[str]:
        """Take in the batches that ended since the last time; what was missed, in words."""
        # in this order: of a batch that has ended all stages are known, of one that is about to only some
        progress = {name: query.query.recentProgress for name, query in self._queries.items()}
        gaps = self._stages.look()
        for name, entries in progress.items():
            self._meters[name].take(entries, self._queries[name].written, self._stages)
        return gaps

    def _count_arrived(self) -> dict[str, int]:
        """Records of each source, from the beginning."""
        return {name: self._workspace.channel(name).log.head().records for name in self._graph.sources}

    def _revive(self) -> list[str]:
        """Start queries again that failed; what failed, in words. One that fails again and again ends the run."""
        failed = []
        for name, query in self._queries.items():
            error = query.failure()
            if error is None:
                continue
            trace = self._workspace.folder / f"{name}.error.txt"
            trace.write_text(error, encoding="utf-8")
            line = _first_line(error)
            if query.failures >= _MOST_FAILURES:
                raise PipelineFailed(
                    f"{name!r} failed {query.failures + 1} times, the last time with: {line} (all of it: {trace})"
                )
            time.sleep(min(30.0, 2.0**query.failures))
            query.failures += 1
            query.start()
            failed.append(f"{name} failed and was started again: {line}")
        return failed

    def _readings(self, name: str, window_s: float, arrived: Mapping[str, int]) -> list[Reading]:
        if name not in self._queries:  # a feed: another process writes it, and nothing holds it back
            count = arrived[name]
            return [Reading(operator=name, window_s=window_s, useful_s=0, records_in=count, records_out=count)]
        query = self._queries[name]
        return self._meters[name].readings(
            window_s=window_s,
            instances=1 if self._graph[name].source else query.parallelism,
            backlog=sum(self._workspace.channel(read).log.pending(name) for read in self._pipeline[name].reads),
            held_back_s=query.held_back_s,
        )

    def _learn(self) -> None:
        for name in self._graph.scalable:
            partitions = self._graph[name].state_partitions or 0
            cost = self._meters[name].cost(state_partitions=partitions, longest_batch_s=self._batch_interval_s)
            if cost is not None:
                self._costs[name] = cost

    def _too_new(self) -> list[str]:
        return [name for name in self._graph.scalable if self._meters[name].is_too_new]

    def _forget(self) -> None:
        """Delete what every reader is done with."""
        for step in self._pipeline.steps:
            if readers := self._pipeline.readers(step.name):
                self._workspace.channel(step.name).forget(readers)


def _result(step: Step, found: object) -> DataFrame:
    # not isinstance(found, DataFrame): Spark Connect and classic have classes of their own
    if not hasattr(found, "isStreaming"):
        raise InvalidInput(f"{step.name!r} must return a DataFrame, found {type(found).__name__}")
    return found  # type: ignore[return-value]


def _check_frame(step: Step, frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise InvalidInput(f"{step.name!r} must return a streaming DataFrame, found one that is not")
    if step.kind is not Kind.OPERATOR:
        return
    keeping = _keeping_state(frame._jdf.queryExecution().analyzed())
    if len(keeping) > 1:
        raise InvalidInput(
            f"{step.name!r} keeps state in {len(keeping)} places ({', '.join(keeping)}): only the last would "
            "follow its parallelism; make an operator of each"
        )
    if keeping and step.state_partitions is None:
        raise InvalidInput(
            f"{step.name!r} keeps state ({keeping[0]}): declare its state_partitions, for example 12"
        )
    if not keeping and step.state_partitions is not None:
        raise InvalidInput(f"{step.name!r} has state_partitions, but keeps no state")


def _keeping_state(node: Any) -> list[str]:
    """The names of the nodes of a logical plan, of the JVM, that keep state.

    An aggregate of a table keeps none, nor does a join of a stream with one.
    """
    children = [node.children().apply(index) for index in range(node.children().size())]
    found = [name for child in children for name in _keeping_state(child)]
    name, streaming = node.nodeName(), [child.isStreaming() for child in children]
    if name.startswith(_STATEFUL) and (all(streaming) if name == "Join" else any(streaming)):
        found.append(name)
    return found


def _check_bounds(operator: Operator, parallelism: int) -> None:
    if operator.fixed:
        raise InvalidInput(f"plan: {operator.name!r} is fixed, its parallelism cannot be changed")
    if operator.clamp(parallelism) != parallelism:
        most = "any number of" if math.isinf(operator.most) else f"{operator.most:g}"
        bounds = f"{operator.min_parallelism} to {most}"
        raise InvalidInput(f"plan: {operator.name!r} may have {bounds} instances, found {parallelism}")


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
