"""Spark as a kind of engine: `elastream run --engine spark`, the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elastream.engines.spark.options import SparkOptions
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import InvalidInput

if TYPE_CHECKING:
    from elastream.engines.spark.run import SparkJob


class Spark(SparkOptions):
    """Imports Spark only once something is read: the command needs the options before."""

    def read(self, target: Path | Pipeline) -> SparkJob:
        from elastream.engines.spark.channels.kinds import kind_of
        from elastream.engines.spark.function_checks import check_functions
        from elastream.engines.spark.on_nodes import check_placeable
        from elastream.engines.spark.run import PipelineFile, SparkJob, read_pipeline

        if isinstance(target, Pipeline):
            target.graph()
            check_functions(target)
            file = PipelineFile(pipeline=target, generator=None)
        else:
            file = read_pipeline(target, self.arguments)
        try:
            file.pipeline.starting_with(self.start)
        except InvalidInput as error:
            raise error.at("--start") from None
        if self.nodes is not None:
            check_placeable(self.nodes, file.pipeline)
        return SparkJob(file=file, options=self, channels=kind_of(self.channels))
