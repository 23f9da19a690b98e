"""From the end-to-end latency that a user asks for to how long a batch may take.

A record that comes just after a batch has begun waits for its end, and is in the next one: it is through a step
after two batches at most. With k steps one after another on the longest path, batches of L / 2k keep a latency
of L; a step with a trigger of its own that is longer takes that much of L, and the others share the rest. What
that costs in instances the batch-cost model says: the shorter a batch, the more its fixed cost weighs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep
from elastream.errors import InvalidInput
from elastream.measurement.batch_cost import BatchCost
from elastream.texts import number_text

DEFAULT_LONGEST_BATCH_S = 3.0
_BATCHES = 2  # that a record waits for in each step, at most
_HALVINGS = 60


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How batches follow each other in a run."""

    batch_interval_s: float
    longest_batch_s: float
    latency_s: float | None = None
    """What was asked for, where it was."""

    def interval_of_s(self, step: PipelineStep) -> float:
        return self.batch_interval_s if step.trigger_s is None else step.trigger_s

    def longest_of_s(self, step: PipelineStep) -> float:
        return of_step_s(step, self.longest_batch_s)


def of_step_s(step: PipelineStep, longest_s: float) -> float:
    """How long a batch of a step may take, in a run whose batches may take so long: until its next trigger."""
    return max(step.trigger_s or 0.0, longest_s)


def latency_kept_s(pipeline: Pipeline, longest_s: float) -> float:
    """From end to end, with batches of this length; a feed takes none."""
    longest: dict[str, float] = {}
    for name in pipeline.graph().order:
        step = pipeline[name]
        before_s = max((longest[read] for read in step.reads), default=0.0)
        own_s = 0.0 if step.kind is Kind.FEED else _BATCHES * of_step_s(step, longest_s)
        longest[name] = before_s + own_s
    return max(longest.values())


def longest_batch_s(pipeline: Pipeline, latency_s: float) -> float:
    """The longest with which the latency is kept; refused where the triggers of the steps do not allow it."""
    least_s = latency_kept_s(pipeline, 0.0)
    if least_s >= latency_s:
        raise InvalidInput(
            f"a latency of {number_text(latency_s)} s cannot be kept with the triggers of the pipeline: a record "
            f"may wait for {number_text(least_s)} s, two triggers in every step"
        )
    low_s, high_s = 0.0, latency_s
    for _ in range(_HALVINGS):  # what is kept grows with the length of the batches
        middle_s = (low_s + high_s) / 2
        kept = latency_kept_s(pipeline, middle_s) <= latency_s
        low_s, high_s = (middle_s, high_s) if kept else (low_s, middle_s)
    return low_s


def out_of_reach(pipeline: Pipeline, latency_s: float, costs: Mapping[str, BatchCost]) -> tuple[str, ...]:
    """What to tell where no number of instances keeps the latency."""
    asked_s = longest_batch_s(pipeline, latency_s)
    too_long = {
        name: cost
        for name, cost in costs.items()
        if cost.longest_batch_s > of_step_s(pipeline[name], asked_s) * 1.001
    }
    if not too_long:
        return ()
    slowest = max(too_long, key=lambda name: too_long[name].longest_batch_s)
    best_s = latency_kept_s(pipeline, costs[slowest].longest_batch_s)
    return (
        f"a latency of {number_text(latency_s)} s cannot be kept: a batch of {slowest} takes "
        f"{number_text(costs[slowest].fixed_s)} s before its first record; {number_text(best_s)} s can be kept",
    )
