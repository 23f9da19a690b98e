"""What a simulation leaves behind for plots and for measures of elasticity: one sample for each step."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from elastream.dataflow import Plan
from elastream.engines.simulated.stages import Queue, SourceStage


class SimulatedHistory:
    """Samples, each taken at the end of a step; all the arrays have the same length."""

    times_s: array[float]
    arriving_per_s: Mapping[str, array[float]]
    """Of each source: what comes in from outside."""
    emitted_per_s: Mapping[str, array[float]]
    """Of each source: what the pipeline takes in."""
    source_backlog: array[float]
    """Records that wait in all sources together."""
    queued: array[float]
    """Records that wait in all channels together."""
    plans: list[tuple[float, Plan]]
    """From when each plan was in force."""
    downtimes_s: list[tuple[float, float]]
    """Start and end of each action."""

    def __init__(self, sources: Sequence[SourceStage], queues: Sequence[Queue]) -> None:
        self.times_s, self.source_backlog, self.queued = array("d"), array("d"), array("d")
        self.arriving_per_s = {source.name: array("d") for source in sources}
        self.emitted_per_s = {source.name: array("d") for source in sources}
        self.plans = []
        self.downtimes_s = []
        self._queues = queues
        self._sources = [(s, self.arriving_per_s[s.name], self.emitted_per_s[s.name]) for s in sources]

    def sample(self, now_s: float, dt_s: float) -> None:
        self.times_s.append(now_s)
        backlog = 0.0
        for source, arriving_per_s, emitted_per_s in self._sources:
            arriving_per_s.append(source.arriving_per_s)
            emitted_per_s.append(source.emitted / dt_s)
            backlog += source.backlog
        self.source_backlog.append(backlog)
        queued = 0.0
        for queue in self._queues:
            queued += queue.queued
        self.queued.append(queued)
