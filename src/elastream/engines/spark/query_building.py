"""From the declared steps of a pipeline to their queries: what each step puts out, the watermarks that hold for
its readers, and the frame that its query runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.control import Control, read_control, write_control
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.event_time import (
    EventTimes,
    below_the_union,
    carried_delays,
    event_time_of,
    with_watermarks,
    without_marks,
)
from elastream.engines.spark.frames import check_frame, frame_of, refused_by_spark
from elastream.engines.spark.latency import Pace
from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.state import RepartitionRefused, take_up_wanted
from elastream.engines.spark.workspace import Workspace
from elastream.errors import InvalidInput


class QueryBuilder:
    """Every step is declared, in the order of the pipeline; then comes `follow_event_time`, then the queries."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        workspace: Workspace,
        *,
        pace: Pace,
        channel_bound: int | None,
        start: Mapping[str, int],
    ) -> None:
        """`start` is the parallelism to begin with, whatever a step had before."""
        self.schemas: dict[str, StructType] = {}
        """Of what each step puts out."""
        self.event_time = EventTimes()
        self._spark = spark
        self._pipeline = pipeline
        self._workspace = workspace
        self._pace = pace
        self._channel_bound = channel_bound
        self._start = start
        self._carried: dict[str, Mapping[str, int]] = {}
        """Watermarks that hold for the readers of a step: the delay in milliseconds, by column."""
        self._inherited: dict[str, Mapping[str, Mapping[str, int]]] = {}
        """Of those, what is declared again on each input of a step."""
        self._frames: dict[str, DataFrame] = {}

    def declare(self, step: PipelineStep, parallelism: int) -> DataFrame | None:
        """Find out what a step puts out, and make its channel ready; a feed has no frame."""
        self._take_up(step, parallelism)
        if step.kind is Kind.FEED:
            self._workspace.channel(step.name).log.make_folders()
            schema = StructType.fromDDL(step.schema or "")
            assert isinstance(schema, StructType)
            self.schemas[step.name] = schema
            return None
        output = self.output(step)
        if output is not None:
            output.create()
        frame = self._declared_frame(step)
        check_frame(step, frame)
        self._frames[step.name] = frame
        if step.kind is not Kind.SINK:
            self.schemas[step.name] = without_marks(frame.schema)
            self._carried[step.name] = carried_delays(frame, output_mode=step.output_mode)
        return frame

    def follow_event_time(self) -> None:
        """Find out which columns hold event time, of all steps that were declared."""
        folders = self._folders()
        reads = {name: self._pipeline[name].reads for name in self._pipeline.graph().order}
        self.event_time = EventTimes.of(
            {name: event_time_of(frame, folders) for name, frame in self._frames.items()}, reads
        )
        self.event_time.check()
        self._frames.clear()

    def query(self, step: PipelineStep) -> StepQuery:
        return StepQuery(
            self._spark,
            step,
            self._workspace,
            build=lambda: self._build(step),
            output=self.output(step),
            cut_by=self._cut_by(step),
            readers=self._pipeline.readers(step.name),
            batch_interval_s=self._pace.interval_of_s(step),
            longest_batch_s=self._pace.longest_of_s(step),
            channel_bound=self._channel_bound,
        )

    def output(self, step: PipelineStep) -> DurableChannel | None:
        """The channel that a step writes; none where nobody would read it."""
        if step.folder is not None:
            return FileChannel(step.folder, writer=self._workspace.writer(step.name))
        return self._workspace.channel(step.name) if self._pipeline.readers(step.name) else None

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

    def _cut_by(self, step: PipelineStep) -> str | None:
        """Only what a source brings may be far more than a batch should hold."""
        if step.kind is not Kind.SOURCE:
            return None
        return self.event_time.column_to_cut_by(step.name, self.schemas[step.name])

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

    def _build(self, step: PipelineStep) -> DataFrame:
        if step.kind is Kind.SINK:
            return self._read(step.reads[0], step.name)
        if step.kind is Kind.SOURCE:
            return frame_of(step, self._spark)
        shared = self.event_time.shared_by(step.name)
        declared = {**self._inherited.get(step.name, {}), **shared}
        inputs = [with_watermarks(self._read(n, step.name), declared.get(n, {})) for n in step.reads]
        frame = frame_of(step, *inputs)
        return below_the_union(frame, shared, self._folders()) if shared else frame

    def _read(self, producer: str, reader: str) -> DataFrame:
        return self._workspace.channel(producer).stream(
            self._spark,
            self.schemas[producer],
            reader=reader,
            control=self._workspace.control(reader),
            at_cuts=self.event_time.follows(reader, producer),
        )


def start_first(query: StepQuery) -> None:
    """As the first thing of a run: the state then has the partitions that the pipeline declares."""
    try:
        query.start()
    except AnalysisException as error:
        raise refused_by_spark(query.step, error) from error
    except RepartitionRefused as error:
        if query.state_partitions != query.step.state_partitions:
            query.keep_state()  # a rescale was killed before it was refused
            query.start()
            return
        raise InvalidInput(
            f"{query.step.name!r}: {error}; declare the state_partitions that it has, or choose another folder"
        ) from error
