"""While the file of a pipeline is read there is no session yet: what works all the same, what to say of the rest.

A session takes seconds to start, and its settings depend on what the file says. But files of Spark jobs have
functions such as `@F.udf("string")` at their top, whose type Spark reads in its JVM. While a file is read such
types are read here instead (`ddl.py`). A column (`F.col("x")`) does need the session: the error names its line.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark.sql.types
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from elastream.engines.spark.ddl import parse_ddl
from elastream.errors import InvalidInput

_NEEDS_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"


class _NoSession:
    """Stands in for the context of a session, where Spark asks it to read a type."""

    def _parse_ddl(self, ddl: str) -> pyspark.sql.types.DataType:
        try:
            return parse_ddl(ddl)
        except InvalidInput as error:
            raise InvalidInput(
                f"{error}; where it is one that elastream does not know, give the type itself, such as "
                "ArrayType(StringType()) of pyspark.sql.types"
            ) from None

    def __getattr__(self, name: str) -> Any:
        raise PySparkRuntimeError(errorClass=_NEEDS_SESSION, messageParameters={})


@contextmanager
def types_without_session() -> Iterator[None]:
    """Within it types in DDL are read without a session, where there is none."""
    module: Any = pyspark.sql.types
    before = module.get_active_spark_context

    def active_or_none() -> Any:
        return _NoSession() if SparkContext._active_spark_context is None else before()

    module.get_active_spark_context = active_or_none
    try:
        yield
    finally:
        module.get_active_spark_context = before


def unreadable(path: Path, error: Exception) -> InvalidInput:
    """What to say of a file that raised this when it was run: the line, and what to change."""
    place = f"{path}{_line(path, error)}"
    if isinstance(error, InvalidInput):
        return error.at(place)
    if _needs_session(error):
        return InvalidInput(
            f"{place}: this needs Spark's session, which starts only after the file was read; move it into the "
            "function of the source, operator or sink that uses it"
        )
    return InvalidInput(f"{place}: {type(error).__name__}: {error}")


def _line(path: Path, error: Exception) -> str:
    """Where in the file, as `:12`; the innermost place of it. Frames have its absolute path."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == os.path.realpath(path)]
    return f":{here[-1]}" if here else ""


def _needs_session(error: Exception) -> bool:
    if isinstance(error, PySparkRuntimeError):
        return error.getCondition() == _NEEDS_SESSION
    # a function such as F.col only asserts that there is one
    frames = traceback.extract_tb(error.__traceback__)
    return (
        isinstance(error, AssertionError) and bool(frames) and "_active_spark_context" in (frames[-1].line or "")
    )
