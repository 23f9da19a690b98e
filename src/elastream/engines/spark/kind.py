"""Spark as a kind of engine: `elastream run --engine spark`, the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elastream.engines.spark.options import SparkOptions
from elastream.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from elastream.engines.spark.run import SparkJob


class Spark(SparkOptions):
    """Imports Spark only once something is read: the command needs the options before."""

    def read(self, target: Path | Pipeline) -> SparkJob:
        from elastream.engines.spark.channels.kinds import kind_of
        from elastream.engines.spark.run import PipelineFile, SparkJob, read_pipeline

        if isinstance(target, Pipeline):
            target.graph()
            file = PipelineFile(pipeline=target, generator=None)
        else:
            file = read_pipeline(target)
        return SparkJob(file=file, options=self, channels=kind_of(self.channels))
