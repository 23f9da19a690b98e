"""What the function of a step gave: checked before anything is run."""

from __future__ import annotations

import traceback
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from elastream.engines.spark.failures import Failure, failure_of
from elastream.engines.spark.logical_plan import stateful_nodes
from elastream.engines.spark.pipeline import Kind, PipelineStep
from elastream.errors import ElastreamError, InvalidInput

NO_KAFKA = "KAFKA_DATA_SOURCE_NOT_ENABLED"
"""What Spark says where its connector for Kafka is not there."""
GET_KAFKA = "Spark's connector for it is not there; `elastream kafka fetch` brings it, once"


def frame_of(step: PipelineStep, *given: Any) -> DataFrame:
    """What the function of a source gives for the session, or that of an operator for its inputs."""
    assert step.function is not None
    try:
        found = step.function(*given)
    except AnalysisException as error:
        raise refused_by_spark(step, error) from error
    except (ElastreamError, ConnectionError):
        raise
    except Exception as error:
        if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
            raise  # Spark's Java process has ended
        raise InvalidInput(f"{step.name!r}: {_failure(error).text}") from error
    # not isinstance(found, DataFrame): Spark Connect and classic have classes of their own
    if not hasattr(found, "isStreaming"):
        raise InvalidInput(f"{step.name!r} must return a DataFrame, found {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def refused_by_spark(step: PipelineStep, error: AnalysisException) -> InvalidInput:
    """In Spark's own words, without its plan."""
    said = str(error).strip().split("\n", 1)[0]
    if NO_KAFKA in said:
        return InvalidInput(f"{step.name!r} uses Kafka: {GET_KAFKA}")
    if "watermark" in said:
        said += (
            " Declare a watermark in this function: what a join, or an operator with output_mode='update', puts "
            "out has none."
        )
    place = _failure(error).place
    return InvalidInput(f"{step.name!r}{f' ({place})' if place else ''}: {said}")


def _failure(error: Exception) -> Failure:
    """What a function of the user's raised, with the line of theirs."""
    return failure_of("".join(traceback.format_exception(error)))


def check_frame(step: PipelineStep, frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise InvalidInput(f"{step.name!r} must return a streaming DataFrame, found one that is not")
    if step.kind is not Kind.OPERATOR:
        return
    keeping = stateful_nodes(frame._jdf.queryExecution().analyzed())
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
