"""What Spark's Python side prints of its own accord, and elastream says better.

A batch that fails is told of in one line, with all of it in a file (`query_failures.py`). Meanwhile py4j logs that
a call from Java failed, and pyspark prints the error with its stack as a line of JSON, right into what is shown.
Python workers, and what a user's functions print in them, write to the standard error of Spark's process. Where
that process is gone, which ends the run with a sentence, py4j and the server of accumulators say so, too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pyspark.accumulators import AccumulatorTCPServer
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

_TOLD_OTHERWISE = ("There was an exception while executing the Python Proxy", "Exception while sending command")


def quiet_loggers() -> None:
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_is_not_told_otherwise)
    setattr(AccumulatorTCPServer, "handle_error", _say_nothing)  # noqa: B010 - of socketserver, which prints it
    PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True


def workers_print_to(spark: SparkSession, log: Path) -> None:
    """From now on: a worker that comes up after Spark has given up on it would print its traceback."""
    jvm: Any = spark.sparkContext._jvm
    system = jvm.java.lang.System
    system.setErr(jvm.java.io.PrintStream(jvm.java.io.FileOutputStream(str(log.absolute()), True), True))


def _is_not_told_otherwise(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_TOLD_OTHERWISE)


def _say_nothing(*_: object) -> None:
    """A connection from Java that has ended in the middle."""
