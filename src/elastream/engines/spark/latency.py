"""From the end-to-end latency that a user asks for to how long a batch may take.

A record that comes just after a batch has begun waits for its end, and is in the next one: it is through a step
after two batches at most. With k steps one after another on the longest path, batches of L / 2k keep a latency
of L. What that costs in instances the batch-cost model says: the shorter a batch, the more its fixed cost weighs.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.measurement.batch_cost import BatchCost
from elastream.texts import number_text

DEFAULT_LONGEST_BATCH_S = 3.0
_BATCHES = 2  # that a record waits for in each step, at most


def steps_in_a_row(pipeline: Pipeline) -> int:
    """Steps that take batches, on the longest path; a feed takes none."""
    longest: dict[str, int] = {}
    for name in pipeline.graph().order:
        step = pipeline[name]
        before = max((longest[read] for read in step.reads), default=0)
        longest[name] = before + (step.kind is not Kind.FEED)
    return max(1, *longest.values())


def longest_batch_s(pipeline: Pipeline, latency_s: float) -> float:
    return latency_s / (_BATCHES * steps_in_a_row(pipeline))


def out_of_reach(pipeline: Pipeline, latency_s: float, costs: Mapping[str, BatchCost]) -> tuple[str, ...]:
    """What to tell where no number of instances keeps the latency."""
    asked_s = longest_batch_s(pipeline, latency_s)
    slowest = max(costs, key=lambda name: costs[name].longest_batch_s, default=None)
    if slowest is None or costs[slowest].longest_batch_s <= asked_s * 1.001:
        return ()
    best_s = _BATCHES * steps_in_a_row(pipeline) * costs[slowest].longest_batch_s
    return (
        f"a latency of {number_text(latency_s)} s cannot be kept: a batch of {slowest} takes "
        f"{number_text(costs[slowest].fixed_s)} s before its first record; {number_text(best_s)} s can be kept",
    )
