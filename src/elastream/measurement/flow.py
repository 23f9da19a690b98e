"""How the sources' rates spread through the graph: equation 8 of DS2, in one traversal.

What an operator must process is the sum of what the operators before it put out when they keep up, and what it
puts out is that times its selectivity. Where an operator was not measured, what its neighbours counted on the
channel stands in for its selectivity, so that one silent operator does not silence those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf

from elastream.measurement.snapshot import Snapshot, once
from elastream.measurement.thresholds import BUSY, HELD_BACK

_LEAST_RECORDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Records per second that each operator must process for the sources' rates to be sustained."""

    required_per_s: Mapping[str, float]
    """Operators whose load cannot be known, for want of readings, are not in it."""
    inferred: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    """Channels whose flow was taken from the neighbours' counts, as their producer was not measured."""


@once
def flow(snapshot: Snapshot) -> Flow:
    """At the rates that the sources have."""
    return flow_at(snapshot)


def flow_at(
    snapshot: Snapshot,
    *,
    source_rates: Mapping[str, float] | None = None,
    extra_per_s: Mapping[str, float] | None = None,
    limit_per_s: Mapping[str, float] | None = None,
) -> Flow:
    """What each operator must process at other rates of the sources, or with more or less to do.

    `extra_per_s` is asked of an operator on top of what reaches it (a backlog to be worked off);
    `limit_per_s` is the most that an operator can process, so nothing beyond it is asked of it, nor reaches
    those behind it.
    """
    at_sources = snapshot.source_rates if source_rates is None else source_rates
    extra, limit = extra_per_s or {}, limit_per_s or {}
    required: dict[str, float] = {}
    inferred: set[tuple[str, str]] = set()
    for name in snapshot.dataflow.order:
        arriving: list[float | None] = [extra.get(name, 0.0)]
        if snapshot.dataflow[name].source:
            arriving.append(at_sources[name])
        for producer in snapshot.dataflow.upstream(name):
            known = _on_channel(snapshot, producer, name, required.get(producer))
            if known is None:
                known = _counted_on_channel(snapshot, producer, name, required.get(producer))
                inferred.add((producer, name))
            arriving.append(known)
        if None not in arriving:
            total = fsum(known for known in arriving if known is not None)
            required[name] = min(total, limit.get(name, inf))
    return Flow(required_per_s=required, inferred=frozenset(inferred))


def channel_selectivity(snapshot: Snapshot, producer: str, consumer: str) -> float | None:
    """Records on the channel for each record that its producer processes; a source passes on what it has."""
    rates = snapshot.measurements.get(producer)
    if not snapshot.dataflow[producer].source:
        return None if rates is None else rates.selectivity(consumer)
    if rates is None or not rates.observed_per_s:
        return 1.0
    return rates.observed_output_per_s[consumer] / rates.observed_per_s


@once
def throughput(snapshot: Snapshot) -> Mapping[str, float]:
    """Records per second of each source that went through all of the pipeline, by the slowest operator behind it.

    More than arrive while a backlog is worked off. A source behind which too little was measured is not in it.
    """
    arriving = snapshot.source_rates
    if not any(arriving.values()):  # then only what waited is worked on, and all sources count alike
        arriving = dict.fromkeys(arriving, 1.0)
    required = flow_at(snapshot, source_rates=arriving).required_per_s
    shares = {
        name: rates.observed_per_s / required[name]
        for name, rates in snapshot.measurements.items()
        if required.get(name) and _is_enough(snapshot, name, max(required[name], rates.observed_per_s))
    }
    slowest = {
        source: min((shares[name] for name in behind(snapshot, source) if name in shares), default=None)
        for source in arriving
    }
    return {source: arriving[source] * share for source, share in slowest.items() if share is not None}


def behind(snapshot: Snapshot, source: str) -> set[str]:
    """The operators that records of a source may reach."""
    reached: set[str] = set()
    for name in snapshot.dataflow.order:
        if any(producer == source or producer in reached for producer in snapshot.dataflow.upstream(name)):
            reached.add(name)
    return reached


@once
def end_to_end_s(snapshot: Snapshot) -> float | None:
    """The latency on the slowest path, as far as operators tell theirs; None where none does."""
    longest: dict[str, float] = {}
    known = False
    for name in snapshot.dataflow.order:
        found = snapshot.measurements[name].totals.latency_s if name in snapshot.measurements else None
        known = known or found is not None
        before = max((longest[producer] for producer in snapshot.dataflow.upstream(name)), default=0.0)
        longest[name] = before + (found or 0.0)
    return max(longest.values()) if known else None


@once
def achieved_share(snapshot: Snapshot) -> float | None:
    """The share of the required rate that the slowest operator really processed, at most 1.

    None where nothing can be said at all.
    """
    found = slowest(snapshot)
    return None if found is None else found[1]


@once
def slowest(snapshot: Snapshot) -> tuple[str, float] | None:
    """The operator that did the least of what it was to process, and the share that it did.

    None also where something fails: what the others do says little of a pipeline that does not work.
    """
    if snapshot.failing:
        return None
    found = shares(snapshot, flow(snapshot).required_per_s)
    return min(found.items(), key=lambda one: one[1], default=None)


def shares(snapshot: Snapshot, required_per_s: Mapping[str, float]) -> Mapping[str, float]:
    """Of what each operator was to process in the window, the share that it did.

    What it did not do, and what does not wait for it either, was not missing: it came late in the window, or did
    not come. Operators from which the window could expect only a handful of records say nothing about throughput
    and are passed over, and so are those of which some instances did not report, and those that fail. Of one whose
    batches may take as long as the window, which then may have none, only what is overdue was missing.
    """
    found, waiting = {}, waiting_records(snapshot)
    for name, rates in snapshot.measurements.items():
        expected = required_per_s.get(name, 0.0)
        judged = snapshot.is_complete_for(name) and name not in snapshot.failing
        if judged and _is_enough(snapshot, name, expected):
            # an engine may count what a source brings in, what it puts out, or both
            from_source = rates.observed_output_per_s.values() if snapshot.dataflow[name].source else ()
            observed = max(rates.observed_per_s, *from_source, 0.0)
            missing = max(0.0, expected - observed)
            overdue = rates.totals.overdue if _may_have_no_batch(snapshot, name) else None
            if waiting is not None and name in waiting:
                waits = waiting[name] if overdue is None else overdue
                missing = min(missing, waits / rates.totals.window_s)
            found[name] = 1.0 - missing / expected
    return found


@once
def waiting_records(snapshot: Snapshot) -> Mapping[str, float] | None:
    """Records that wait, by operator; None where they may wait where nobody counts them."""
    found = {}
    for name in snapshot.dataflow.scalable:
        rates = snapshot.measurements.get(name)
        if rates is None or rates.totals.backlog is None or (rates.wait_out_share or 0.0) > HELD_BACK:
            return None
        found[name] = rates.totals.backlog
    return found


def _is_enough(snapshot: Snapshot, name: str, records_per_s: float) -> bool:
    """Whether a window with so many records says something about throughput: a handful does not."""
    return records_per_s * snapshot.measurements[name].totals.window_s >= _LEAST_RECORDS


def _may_have_no_batch(snapshot: Snapshot, name: str) -> bool:
    cost = snapshot.batch_costs.get(name)
    return cost is not None and cost.longest_batch_s >= snapshot.measurements[name].totals.window_s


def _on_channel(snapshot: Snapshot, producer: str, consumer: str, processed: float | None) -> float | None:
    """What a producer that was measured puts on the channel when it processes so much."""
    if processed is None or processed == 0:
        return processed
    ratio = channel_selectivity(snapshot, producer, consumer)
    return None if ratio is None else processed * ratio


def _counted_on_channel(snapshot: Snapshot, producer: str, consumer: str, processed: float | None) -> float | None:
    """What the consumer took in that its measured producers do not explain, grown as the producer's load is.

    Of a producer that was measured, but had nothing to do, nobody knows what it will put out.
    """
    rates = snapshot.measurements.get(consumer)
    if rates is None or producer in snapshot.measurements:
        return None
    counts = [_observed_output(snapshot, other, consumer) for other in snapshot.dataflow.upstream(consumer)]
    unexplained = rates.observed_per_s - fsum(count for count in counts if count is not None)
    silent = sum(count is None for count in counts)
    return max(0.0, unexplained) / max(1, silent) * _growth(snapshot, producer, processed)


def _observed_output(snapshot: Snapshot, producer: str, consumer: str) -> float | None:
    rates = snapshot.measurements.get(producer)
    if rates is not None:
        return rates.observed_output_per_s[consumer]
    return snapshot.source_rates[producer] if snapshot.dataflow[producer].source else None


def _growth(snapshot: Snapshot, producer: str, required_of_producer: float | None) -> float:
    """By how much a silent operator's load is to grow, from what reaches it now; 1 where that is not known."""
    if required_of_producer is None:
        return 1.0
    reaching = [_observed_output(snapshot, before, producer) for before in snapshot.dataflow.upstream(producer)]
    now = fsum(known for known in reaching if known is not None)
    return required_of_producer / now if now > 0 and None not in reaching else 1.0


def gain_to(snapshot: Snapshot, target: str, ratio: Callable[[str, str], float | None]) -> Mapping[str, float]:
    """Records that reach `target` for each record that an operator before it processes, over all paths."""
    gain = {target: 1.0}
    pending = [target]
    ancestors: set[str] = set()
    while pending:
        for before in snapshot.dataflow.upstream(pending.pop()):
            if before not in ancestors:
                ancestors.add(before)
                pending.append(before)
    for name in reversed(snapshot.dataflow.order):
        if name in ancestors:
            gain[name] = fsum(
                (ratio(name, after) or 0.0) * gain[after]
                for after in snapshot.dataflow.downstream(name)
                if after in gain
            )
    return gain


def is_saturated(snapshot: Snapshot, name: str) -> bool:
    """Whether the operator was busy throughout, with records waiting for it and nothing holding it back.

    What it then processed is its capacity, whatever the instrumentation took for useful time.
    """
    rates = snapshot.measurements[name]
    if rates.utilization < BUSY or (rates.wait_out_share or 0.0) > HELD_BACK:
        return False
    waiting = (rates.totals.backlog or 0.0) >= rates.observed_per_s
    before = (snapshot.measurements.get(other) for other in snapshot.dataflow.upstream(name))
    return waiting or any(other is not None and (other.wait_out_share or 0.0) > HELD_BACK for other in before)


def is_at_its_limit(snapshot: Snapshot, name: str) -> bool:
    """Whether what the operator processed in this window is the most that it can.

    One that works in micro-batches is never busy throughout: the driver has its part of every batch. It is at its
    limit where it was as busy as in the longest batches that it may make, with more than such a batch waiting.
    """
    cost = snapshot.batch_costs.get(name)
    if cost is None:
        return is_saturated(snapshot, name)
    rates = snapshot.measurements[name]
    if (rates.wait_out_share or 0.0) > HELD_BACK:
        return False
    waiting = (rates.totals.backlog or 0.0) >= cost.longest_batch_s * rates.observed_per_s
    return waiting and rates.utilization >= BUSY * cost.most_busy
