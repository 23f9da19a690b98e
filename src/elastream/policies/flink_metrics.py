"""What Flink's autoscaler computes of each vertex from its window of metrics.

    source target     = max(0, d(in)/dt + d(lag)/dt);   catch-up = lag / catch-up duration
    downstream target = Σ over inputs of target · (records on the edge / records in);   catch-up likewise
    true rate         = in / busy share of the busiest instance
    observed rate     = in / (1 − share held back), of looks with a lag
    capacity(u)       = catch-up [+ target · restart time / catch-up duration] + target / u

Rates are those from the first look of the window to the last. Here a source only brings in records, and what Flink
calls a source is an operator that reads one: its lag is what waits for it and at the sources before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from elastream.dataflow import Dataflow
from elastream.measurement import Measurement, Snapshot
from elastream.policies.flink_memory import FlinkSample, VertexSample


@dataclass(frozen=True, kw_only=True, slots=True)
class Vertex:
    """What is known of an operator or a source over the window; None is what nobody measured."""

    in_per_s: float | None = None
    target_per_s: float | None = None
    catch_up_per_s: float = 0.0
    lag: float = 0.0
    """Records that wait for it, and at the sources that it reads."""
    true_per_s: float | None = None
    by_busy_per_s: float | None = None
    observed_true_per_s: float | None = None

    @property
    def lag_s(self) -> float:
        """In seconds of what it takes in."""
        if self.lag <= 0:
            return 0.0
        return self.lag / self.in_per_s if self.in_per_s else math.inf

    def capacity(self, utilization: float, *, restart_s: float = 0.0, catch_up_s: float = 0.0) -> float:
        """What it must be able to do at such a utilization, and to work off in time what a restart leaves."""
        target = self.target_per_s or 0.0
        restart = target * restart_s / catch_up_s if catch_up_s > 0 else 0.0
        steady = target / utilization if utilization > 0 else math.inf
        return self.catch_up_per_s + restart + steady


@dataclass(frozen=True, kw_only=True, slots=True)
class Observing:
    """When the true rate that is observed under lag counts in place of that by busy time."""

    lag_s: float
    least_looks: int
    switch: float


def sample_of(snapshot: Snapshot, now_s: float) -> FlinkSample:
    lasts_s = snapshot.window_s
    vertices = {name: _vertex_sample(found) for name, found in snapshot.measurements.items()}
    for name, rate in snapshot.source_rates.items():
        if name not in vertices:
            vertices[name] = VertexSample(records_in=rate * lasts_s)
    return FlinkSample(at_s=now_s, lasts_s=lasts_s, vertices=vertices)


def _vertex_sample(found: Measurement) -> VertexSample:
    totals = found.totals
    return VertexSample(
        records_in=totals.records_in,
        records_out={consumer: totals.records_out_to(consumer) for consumer in found.consumers},
        busy=None if totals.metrics is not None else _busiest(found),
        held_back=min(1.0, found.wait_out_share or 0.0),
        lag=totals.backlog,
    )


def _busiest(found: Measurement) -> float:
    """Where instances have one reading together, how their tasks differed tells how busy the longest was."""
    mean, balance = found.utilization, found.balance
    return min(1.0, mean / balance) if balance else mean


def evaluated(
    dataflow: Dataflow, samples: Sequence[FlinkSample], *, catch_up_s: float, observing: Observing
) -> Mapping[str, Vertex]:
    """Every vertex over the window; there is at least one look."""
    trails = {name: _Trail.of(samples, name) for name in dataflow.order}
    found: dict[str, Vertex] = {}
    for name in dataflow.order:
        trail = trails[name]
        arriving = _arriving(dataflow, trails, found, name)
        own_catch_up = trail.lag / catch_up_s if catch_up_s > 0 else 0.0
        before = [one for one in dataflow.upstream(name) if dataflow[one].source]
        by_busy, observed = trail.true_per_s, _observed(trail, [trails[one] for one in before], observing)
        found[name] = Vertex(
            in_per_s=trail.in_per_s,
            target_per_s=None if arriving is None else arriving[0],
            catch_up_per_s=own_catch_up + (0.0 if arriving is None else arriving[1]),
            lag=trail.lag + fsum(trails[one].lag for one in before),
            true_per_s=_chosen(by_busy, observed, observing.switch),
            by_busy_per_s=by_busy,
            observed_true_per_s=observed,
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trail:
    """The looks at one vertex."""

    looks: tuple[tuple[FlinkSample, VertexSample], ...]

    @classmethod
    def of(cls, samples: Sequence[FlinkSample], name: str) -> _Trail:
        return cls(looks=tuple((one, one.vertices[name]) for one in samples if name in one.vertices))

    @property
    def _counted(self) -> tuple[tuple[FlinkSample, VertexSample], ...]:
        """From the first look to the last."""
        return self.looks[1:] or self.looks

    def rate(self, records: float) -> float:
        return records / fsum(sample.lasts_s for sample, _ in self._counted)

    @property
    def in_per_s(self) -> float | None:
        return self.rate(fsum(look.records_in for _, look in self._counted)) if self.looks else None

    def out_per_s(self, consumer: str) -> float:
        return self.rate(fsum(look.records_out.get(consumer, 0.0) for _, look in self._counted))

    @property
    def lag(self) -> float:
        return (self.looks[-1][1].lag or 0.0) if self.looks else 0.0

    @property
    def lag_growth_per_s(self) -> float:
        known = [(sample.at_s, look.lag) for sample, look in self.looks if look.lag is not None]
        if len(known) < 2 or known[-1][0] <= known[0][0]:
            return 0.0
        (first_s, first), (last_s, last) = known[0], known[-1]
        return (last - first) / (last_s - first_s)

    @property
    def asked_per_s(self) -> float | None:
        """What would have been taken in, had nothing come to wait or been worked off."""
        rate = self.in_per_s
        return None if rate is None else max(0.0, rate + self.lag_growth_per_s)

    @property
    def true_per_s(self) -> float | None:
        """By its busy time; without input it could do anything."""
        rate, timed = self.in_per_s, [(s.lasts_s, v.busy) for s, v in self.looks if v.busy is not None]
        if rate is None or not timed:
            return None
        busy = fsum(lasts_s * share for lasts_s, share in timed) / fsum(lasts_s for lasts_s, _ in timed)
        return rate / busy if rate > 0 and busy > 0 else math.inf


def _arriving(
    dataflow: Dataflow, trails: Mapping[str, _Trail], found: Mapping[str, Vertex], name: str
) -> tuple[float, float] | None:
    """What a vertex must process, and what reaches it while a lag is worked off; None where that is not known."""
    if dataflow[name].source:
        asked = trails[name].asked_per_s
        return None if asked is None else (asked, 0.0)
    target = catch_up = 0.0
    for producer in dataflow.upstream(name):
        before = found[producer]
        ratio = _ratio(dataflow, trails, producer, name)
        if before.target_per_s is None or (ratio is None and before.target_per_s > 0):
            return None
        target += before.target_per_s * (ratio or 0.0)
        catch_up += before.catch_up_per_s * (ratio or 0.0)
    return target, catch_up


def _ratio(dataflow: Dataflow, trails: Mapping[str, _Trail], producer: str, consumer: str) -> float | None:
    """Records on the edge for each one that its producer takes in."""
    taken = trails[producer].in_per_s
    if dataflow[producer].source:
        counted = trails[producer].out_per_s(consumer) if trails[producer].looks else 0.0
        return counted / taken if taken and counted else 1.0
    edge = edge_per_s(dataflow, trails, producer, consumer)
    return edge / taken if taken and edge is not None else None


def edge_per_s(dataflow: Dataflow, trails: Mapping[str, _Trail], producer: str, consumer: str) -> float | None:
    """As Flink, which counts what a vertex puts out in all, finds what goes over one edge.

    What waits in a channel is on its way: it counts as taken in.
    """
    others = [one for one in dataflow.upstream(consumer) if one != producer]
    reached = trails[consumer].asked_per_s
    if not others:
        return reached
    if reached is not None and all(len(dataflow.downstream(one)) == 1 and trails[one].looks for one in others):
        return max(0.0, reached - fsum(trails[one].out_per_s(consumer) for one in others))
    return trails[producer].out_per_s(consumer) if trails[producer].looks else None


def _observed(trail: _Trail, sources: Sequence[_Trail], observing: Observing) -> float | None:
    """The mean over the looks in which enough waited for it to be at its limit; None where those are too few."""
    waited = {sample.at_s: 0.0 for sample, _ in trail.looks}
    for one in (trail, *sources):
        for sample, look in one.looks:
            if sample.at_s in waited:
                waited[sample.at_s] += look.lag or 0.0
    rates = []
    for sample, look in trail.looks:
        rate = look.records_in / sample.lasts_s
        if rate > 0 and look.held_back < 1 and waited[sample.at_s] >= observing.lag_s * rate:
            rates.append(rate / (1 - look.held_back))
    return fsum(rates) / len(rates) if len(rates) >= observing.least_looks else None


def _chosen(by_busy: float | None, observed: float | None, switch: float) -> float | None:
    if by_busy is None or observed is None:
        return by_busy
    return observed if by_busy > observed * (1 + switch) else by_busy


def aligned(wanted: int, partitions: int | None, most: float) -> int:
    """From what is wanted upwards, the first parallelism that divides the partitions, or with which the instance
    that has the least has fewer; what is wanted where there is none."""
    if partitions is None or wanted >= partitions:
        return wanted if partitions is None else min(wanted, partitions)
    for parallelism in range(wanted, int(min(partitions, most)) + 1):
        if partitions % parallelism == 0 or partitions // parallelism < partitions // wanted:
            return parallelism
    return wanted


def scalability(points: Sequence[tuple[int, float]]) -> float:
    """How linearly an operator was seen to scale: the slope of its rates over that at its smallest parallelism."""
    if len(points) < _LEAST_POINTS:
        return 1.0
    smallest, rate = min(points)
    each = rate / smallest
    slope = fsum(n * r for n, r in points) / fsum(n * n for n, _ in points)
    return min(1.0, max(_LEAST_SCALABILITY, slope / each)) if each > 0 else 1.0


_LEAST_POINTS = 3
_LEAST_SCALABILITY = 0.5
