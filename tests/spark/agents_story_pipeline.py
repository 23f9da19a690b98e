"""Four operators beside each other, each of which another metric tells apart in a load that rises and falls.

A file of its own, for `elastream run`: the rules that scale it are in `agents_story.py`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from elastream import Pipeline
from elastream.workloads.generator import SCHEMA

LOW_PER_S, HIGH_PER_S = 2, 20
RISES_S, FALLS_S = 40.0, 100.0
_FIRST, _LAST = round(LOW_PER_S * RISES_S), round(LOW_PER_S * RISES_S + HIGH_PER_S * (FALLS_S - RISES_S))
"""Records of the time in which much arrives, by their numbers."""
_HELD_BYTES, _HELD_MS = 300_000_000, 1_200

load = {"steps": [[0, LOW_PER_S], [RISES_S, HIGH_PER_S], [FALLS_S, LOW_PER_S]]}
pipeline = Pipeline("agents-story")
pipeline.feed("numbers", schema=SCHEMA)


def waiting_for(frame: DataFrame, milliseconds: int) -> DataFrame:
    """Every record takes so long, without using a core."""
    return frame.where(F.expr(f"reflect('java.lang.Thread', 'sleep', {milliseconds}L) != ''"))


@pipeline.operator(reads="numbers", max_parallelism=2)
def computing(numbers: DataFrame) -> DataFrame:
    """Some 20 ms of a core for each record, in the JVM."""
    sum_of_roots = "aggregate(sequence(1, 1000000 + cast(id % 2 as int)), 0D, (sum, x) -> sum + sqrt(x))"
    return numbers.select("id", F.expr(sum_of_roots).alias("sum"))


@pipeline.operator(reads="numbers", max_parallelism=2)
def holding(numbers: DataFrame) -> DataFrame:
    """Every thirtieth record of the busy time holds much of the heap while it waits; the others hold nothing."""
    held = f"space(cast({_HELD_BYTES} + id % 2 as int))"
    waits = f"reflect('java.lang.Thread', 'sleep', {_HELD_MS}L)"
    holds = F.expr(f"array_contains(array({held}, {waits}), 'never')")
    is_busy = F.col("id").between(_FIRST, _LAST) & (F.col("id") % 30 == 0)
    return numbers.select("id", F.when(is_busy, holds).otherwise(F.lit(False)).alias("held"))


@pipeline.operator(reads="numbers", max_parallelism=3)
def queueing(numbers: DataFrame) -> DataFrame:
    """An instance can do twelve records a second."""
    return waiting_for(numbers, 80).select("id")


@pipeline.operator(reads="numbers", max_parallelism=2)
def asked_for(numbers: DataFrame) -> DataFrame:
    """Its utilization is what Prometheus is asked for."""
    return waiting_for(numbers, 40).select("id")
