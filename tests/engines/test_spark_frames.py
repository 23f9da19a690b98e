"""What a user's function raises while the pipeline starts: told in a sentence, with the line of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from elastream.engines.spark.frames import frame_of
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import ElastreamError, InvalidInput


class Frame:
    """What a function is given."""

    isStreaming = True  # noqa: N815 - as Spark calls it


def misspelt(bids: Any) -> Any:
    return bids.withColum("score", 1)


def no_file(bids: Any) -> Any:
    return Path("/nowhere/model.bin").read_bytes()


def no_column(bids: Any) -> Any:
    raise AnalysisException("[UNRESOLVED] no column `biddr`, did you mean `bidder`?\nProject ...")


def error_of(function: Callable[..., Any]) -> str:
    pipeline = Pipeline("bids")
    pipeline.feed("bids", schema="bidder string")
    pipeline.operator(reads="bids")(function)
    with pytest.raises(InvalidInput) as error:
        frame_of(pipeline.steps[-1], Frame())
    return str(error.value)


def line_of(function: Callable[..., Any]) -> str:
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + 1}, in {function.__name__}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (misspelt, "AttributeError: 'Frame' object has no attribute 'withColum'"),
        (no_file, "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/model.bin'"),
    ],
)
def test_what_a_function_raises_is_told_with_its_line(function: Callable[..., Any], message: str) -> None:
    assert error_of(function) == f"{function.__name__!r}: {message} ({line_of(function)})"


def test_what_spark_refuses_is_told_with_the_line_that_asked() -> None:
    place = line_of(no_column)
    assert error_of(no_column) == f"'no_column' ({place}): [UNRESOLVED] no column `biddr`, did you mean `bidder`?"


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ElastreamError("our own")])
def test_what_is_no_fault_of_the_function_stays_as_it_is(error: Exception) -> None:
    def fails(bids: Any) -> Any:
        raise error

    pipeline = Pipeline("bids")
    pipeline.feed("bids", schema="bidder string")
    pipeline.operator(reads="bids")(fails)
    with pytest.raises(type(error)) as raised:
        frame_of(pipeline.steps[-1], Frame())
    assert raised.value is error
