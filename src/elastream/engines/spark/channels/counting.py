"""How many records a batch really has: counted by the tasks that put them out."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F


def counting(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The frame to write, and what tells afterwards how many records its tasks put out.

    It is to be written as it is: in the last stage Spark counts each partition once, however often it was tried.
    """
    counted = Observation()
    # in SQL, as every part of an expression is a call to the JVM
    return frame.observe(counted, F.expr("count(1) AS records")), lambda: int(counted.get["records"])
