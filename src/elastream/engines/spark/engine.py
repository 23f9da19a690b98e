"""The engine port over Spark: every operator a streaming query, all of them in one application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.dataflow import Dataflow, Plan
from elastream.dataflow.state_partitions import least_useful
from elastream.engines.spark.channels.control import Control, write_control
from elastream.engines.spark.channels.files_source import FORMAT
from elastream.engines.spark.channels.segments import SegmentLog
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
    ) -> None:
        self._pipeline = pipeline
        self._graph = pipeline.graph()
        self._spark = spark
        self._workspace = Workspace(folder, pipeline.name)
        self._batch_interval_s = batch_interval_s
        self._channel_bound = channel_bound
        self._schemas: dict[str, StructType] = {}
        self._queries: dict[str, StepQuery] = {}
        self._meters = {step.name: StepMeter(step.name, step.reads) for step in pipeline.steps}
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
        plan = self._pipeline.plan()
        for name in self._graph.order:
            self._prepare(self._pipeline[name], plan.get(name, 1))
        self._workspace.check_schemas({name: schema.simpleString() for name, schema in self._schemas.items()})
        for query in self._queries.values():
            query.start()
        self._mark()

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
        wanted = {
            change.operator: least_useful(change.after, self._graph[change.operator].state_partitions)
            for change in self.plan().changes_to(decision.after)
        }
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
        gaps = self._revive()
        now_s = time.time()
        window_s = now_s - self._marked_s
        gaps += self._stages.look()
        readings: list[Reading] = []
        for name in self._graph.order:
            readings += self._readings(name, window_s)
        self._learn()
        gaps += [f"{name}: too few batches yet to know what one costs" for name in self._too_new()]
        arrived = {name: self._workspace.channel(name).head().records for name in self._graph.sources}
        rates = {name: (count - self._arrived[name]) / window_s for name, count in arrived.items()}
        snapshot = Snapshot(
            dataflow=self._graph,
            plan=self.plan(),
            source_rates=rates,
            readings=tuple(readings),
            at_s=now_s,
            gaps=tuple(gaps),
            batch_costs=dict(self._costs),
        )
        self._marked_s, self._arrived = now_s, arrived
        self._forget()
        return snapshot

    # Building the queries

    def _prepare(self, step: Step, parallelism: int) -> None:
        control = self._workspace.control(step.name)
        if not control.exists():  # else the pipeline goes on with the parallelism that it had
            write_control(control, Control(parallelism=parallelism))
        output = self._output(step)
        if output is not None:
            output.create()
        if step.kind is Kind.FEED:
            schema = StructType.fromDDL(step.schema or "")
            assert isinstance(schema, StructType)
            self._schemas[step.name] = schema
            return
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

    def _output(self, step: Step) -> SegmentLog | None:
        """The channel that a step writes; none where nobody would read it."""
        if step.folder is not None:
            return SegmentLog(step.folder)
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
        return (
            self._spark.readStream.format(FORMAT)
            .schema(self._schemas[producer])
            .option("path", str(self._workspace.channel(producer).folder))
            .option("reader", reader)
            .option("control", str(self._workspace.control(reader)))
            .load()
        )

    # Measuring

    def _mark(self) -> None:
        """From here on the next measurement counts."""
        self._marked_s = time.time()
        self._arrived = {name: self._workspace.channel(name).head().records for name in self._graph.sources}
        for name, query in self._queries.items():
            # take in what is finished, so that it is not counted as having happened after the action
            self._meters[name].take(query.query.recentProgress, query.outputs, self._stages)
            self._meters[name].forget_window()

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

    def _readings(self, name: str, window_s: float) -> list[Reading]:
        if name not in self._queries:  # a feed: another process writes it, and nothing holds it back
            arrived = self._workspace.channel(name).head().records - self._arrived[name]
            return [Reading(operator=name, window_s=window_s, useful_s=0, records_in=arrived, records_out=arrived)]
        query, meter = self._queries[name], self._meters[name]
        meter.take(query.query.recentProgress, query.outputs, self._stages)
        return meter.readings(
            window_s=window_s,
            instances=1 if self._graph[name].source else query.parallelism,
            backlog=self._backlog(name),
            held_back_s=query.held_back_s,
        )

    def _backlog(self, name: str) -> int:
        done = self._meters[name].done
        return sum(
            self._workspace.channel(read).head().records - done.get(read, 0) for read in self._pipeline[name].reads
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
            self._workspace.channel(step.name).forget(self._pipeline.readers(step.name))


def _result(step: Step, found: object) -> DataFrame:
    # not isinstance(found, DataFrame): Spark Connect and classic have classes of their own
    if not hasattr(found, "writeStream"):
        raise InvalidInput(f"{step.name!r} must return a DataFrame, found {type(found).__name__}")
    return found  # type: ignore[return-value]


def _check_frame(step: Step, frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise InvalidInput(f"{step.name!r} must return a streaming DataFrame, found one that is not")
    if step.kind is not Kind.OPERATOR:
        return
    plan = frame._jdf.queryExecution().analyzed().toString()
    keeping = [node for line in plan.splitlines() for node in _STATEFUL if line.lstrip(" :+-~").startswith(node)]
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


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
