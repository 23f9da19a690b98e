"""What an engine reports about a span of simulated time: one reading for each instance, one for each source.

An instance's useful time is the work that it was given over its own rate, so that without noise the true rates
which a monitor computes are the capacities of the model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from elastream.engines.simulated.engine_model import InstanceSet
from elastream.engines.simulated.stages import Counters, OperatorStage, SourceStage
from elastream.measurement import Reading


class Noise:
    """Factors for measured times: never negative, with a mean of 1 and the given relative standard deviation."""

    def __init__(self, relative_std: float, rng: random.Random) -> None:
        self._sigma = math.sqrt(math.log1p(relative_std**2))
        self._rng = rng

    def factor(self) -> float:
        if not self._sigma:
            return 1.0
        return self._rng.lognormvariate(-(self._sigma**2) / 2, self._sigma)


def operator_readings(
    operator: OperatorStage, span: Counters, window_s: float, instances: InstanceSet, noise: Noise
) -> Iterator[Reading]:
    """One for each instance: its part of the records, and the time that it took for them."""
    queued = operator.queued()
    latency_s = _waiting_s(queued, span.taken / window_s)
    common_factor = noise.factor()
    for instance in range(instances.n):
        share, rate_per_s = instances.share(instance), instances.rate_per_s(instance)
        busy_s = span.worked * share / rate_per_s if rate_per_s > 0 else 0.0
        useful_s = min(window_s, busy_s * common_factor * noise.factor())
        yield Reading(
            operator=operator.name,
            instance=instance,
            window_s=window_s,
            useful_s=useful_s,
            records_in=span.taken * share,
            records_out={consumer: count * share for consumer, count in span.put.items()},
            backlog=queued * share,
            wait_in_s=max(0.0, window_s - useful_s - span.held_s),
            wait_out_s=span.held_s,
            latency_s=latency_s,
            cpu_utilization=useful_s / window_s,
        )


def source_reading(source: SourceStage, span: Counters, window_s: float) -> Reading:
    useful_s = min(window_s, span.taken / source.max_rate_per_s)
    return Reading(
        operator=source.name,
        window_s=window_s,
        useful_s=useful_s,
        records_in=span.taken,
        records_out=span.put,
        backlog=source.backlog,
        wait_in_s=max(0.0, window_s - useful_s - span.held_s),
        wait_out_s=span.held_s,
        latency_s=_waiting_s(source.backlog, span.taken / window_s),
        cpu_utilization=useful_s / window_s,
    )


def _waiting_s(waiting: float, per_s: float) -> float | None:
    """By Little's law; not known where records wait and none was taken."""
    if waiting <= 0:
        return 0.0
    return waiting / per_s if per_s > 0 else None
