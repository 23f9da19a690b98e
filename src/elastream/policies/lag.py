"""Instances by backlog: what Kubernetes' horizontal autoscaler does with the lag that KEDA reports to it.

    desired = ceil(p · (backlog / p) / lag_per_instance) = ceil(backlog / lag_per_instance)

with no change while backlog / (p · lag_per_instance) is within `tolerance` of 1. The formula and the tolerance
of 0.1 are Kubernetes' (Horizontal Pod Autoscaling, *Algorithm details*); lag as the metric is KEDA's Kafka scaler,
whose lagThreshold is `lag_per_instance`.

What waits in a durable source waits for the operators that read it, as a Kafka consumer's lag does. So the
source's own backlog counts as theirs too, and where several operators read one source each has the whole of it:
every one of them must read every record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

from elastream.measurement import Snapshot
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data, whole
from elastream.policies.catalog import policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.texts import number_text


@policy(
    "lag",
    summary="As KEDA on Kafka: one instance for so many records that wait",
    needs="backlog, of the operator or of the source that it reads",
    good_for="a baseline to compare with; queues that may be worked off at leisure",
)
@dataclass(frozen=True, kw_only=True)
class Lag:
    lag_per_instance: float = option(10_000, "backlog that one instance is meant to have", unit="records", least=1)
    tolerance: float = option(
        0.1, "no change while backlog per instance is this near to what is meant", unit="share", least=0, most=1
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        advice = {name: self._advice(snapshot, name) for name in snapshot.dataflow.scalable}
        return Proposal(policy="lag", advice=advice)

    def _advice(self, snapshot: Snapshot, name: str) -> Advice:
        advice = measured(snapshot, name)
        if advice.parallelism is None:
            return advice
        waiting = _waiting(snapshot, name)
        if not waiting:
            return no_data(advice, "backlog was not measured")
        return self._sized(snapshot, advice, waiting)

    def _sized(self, snapshot: Snapshot, advice: Advice, waiting: dict[str, float]) -> Advice:
        backlog, meant = fsum(waiting.values()), advice.current * self.lag_per_instance
        need = backlog / self.lag_per_instance
        advice = because(replace(advice, need=need), ReasonKind.MEASURED, _waiting_text(waiting))
        each = f"{number_text(backlog)} records / {number_text(self.lag_per_instance)} an instance"
        if abs(backlog - meant) <= self.tolerance * meant:
            text = f"{each} = {need:,.2f}, within {100 * self.tolerance:g} % of the present {advice.current}"
            advice, wanted = because(advice, ReasonKind.TOLERATED, text), advice.current
        else:
            wanted = whole(need)
            advice = because(advice, ReasonKind.FORMULA, f"{each} = {need:,.2f}, so {wanted:,}")
        return bounded(snapshot.dataflow[advice.operator], advice, wanted)


def _waiting(snapshot: Snapshot, name: str) -> dict[str, float]:
    """Records that wait for this operator, by where they were counted: at itself, or at a source that it reads."""
    sources = [producer for producer in snapshot.dataflow.upstream(name) if snapshot.dataflow[producer].source]
    counted = {
        place: snapshot.measurements[place].totals.backlog
        for place in (name, *sources)
        if place in snapshot.measurements
    }
    return {place: backlog for place, backlog in counted.items() if backlog is not None}


def _waiting_text(waiting: dict[str, float]) -> str:
    return "backlog " + ", ".join(f"{number_text(records)} at {place}" for place, records in waiting.items())
