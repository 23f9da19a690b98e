"""Elastic-Scaling, a listener for Structured Streaming jobs by Amadeus: batches that just fit into their interval.

    shares = 0.6 · shares + time of a batch / interval,   weights = 0.6 · weights + 1,   m = shares / weights

and where m is above 1.0 or below 0.75, n' = ceil(n · m), from 1 to 10. Both sums begin at 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.options import check_bounds, option
from elastream.policies.catalog import policy
from elastream.policies.executors_memory import SmoothedLoad
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Proposal
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS, executors_asked_for, no_opinion


@policy(
    "elastic-scaling",
    summary="Amadeus' Elastic-Scaling: executors in proportion to the share of the interval that batches take",
    needs="the time of every batch, and the trigger interval",
    good_for="comparing whole jobs, and `elastream submit --policy elastic-scaling`",
    knobs={
        "warm_up_intervals": 0,
        "scale_down_delay_s": 0,
        "target_rate_ratio": 0,
        "rollback_drop": None,
        "decision_limit": 1_000_000,
    },
    whole_jobs=True,
)
@dataclass(frozen=True, kw_only=True)
class ElasticScaling:
    threshold_high: float = option(1.0, "more executors above this share of the interval", unit="share", least=0)
    threshold_low: float = option(0.75, "fewer below it", unit="share", least=0)
    min_executors: int = option(1, "executors.min", unit="executors", least=1)
    max_executors: int = option(10, "executors.max", unit="executors", least=1)
    smoothing_factor: float = option(0.6, "how much the batches before count", unit="share", least=0, most=1)

    def __post_init__(self) -> None:
        check_bounds(self)
        for low, high in (("threshold_low", "threshold_high"), ("min_executors", "max_executors")):
            if getattr(self, low) > getattr(self, high):
                raise InvalidInput(
                    f"{low} ({getattr(self, low):g}) must be at most {high} ({getattr(self, high):g})"
                )

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        if snapshot.job is None:
            return no_opinion(snapshot, "elastic-scaling", ONLY_WHOLE_JOBS)
        timed = [batch for batch in snapshot.job.batches if batch.interval_s > 0]
        if not timed:
            none = "no batch of a query with a trigger interval ended in this window"
            return no_opinion(snapshot, "elastic-scaling", none)
        (name,) = snapshot.dataflow.scalable
        current, mean = snapshot.plan[name], knowledge.executors.load.mean
        wanted = self.wanted(current, mean)
        why = f"batches take {mean:.0%} of their interval, so {current} become {wanted}"
        return executors_asked_for(snapshot, "elastic-scaling", wanted, why)

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        load = knowledge.executors.load
        for batch in snapshot.job.batches if snapshot.job is not None else ():
            if batch.interval_s > 0:
                load = self.taken_in(load, batch.took_s / batch.interval_s)
        return replace(knowledge, executors=replace(knowledge.executors, load=load))

    def taken_in(self, load: SmoothedLoad, share: float) -> SmoothedLoad:
        return load.with_share(share, self.smoothing_factor)

    def wanted(self, current: int, mean: float) -> int:
        if self.threshold_low <= mean <= self.threshold_high:
            return current
        return max(self.min_executors, min(math.ceil(current * mean), self.max_executors))
