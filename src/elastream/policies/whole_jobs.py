"""What policies for the executors of a whole job share: their one operator, and what they say to a pipeline."""

from __future__ import annotations

from dataclasses import replace

from elastream.measurement import Snapshot
from elastream.policies.advice import because, bounded, measured, no_data
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind

ONLY_WHOLE_JOBS = (
    "for whole jobs only: it counts executors by the batches and tasks of all queries, and knows no operators"
)


def no_opinion(snapshot: Snapshot, policy: str, why: str) -> Proposal:
    advice = {name: no_data(measured(snapshot, name), why) for name in snapshot.dataflow.scalable}
    return Proposal(policy=policy, advice=advice, reasons=(Reason(kind=ReasonKind.NO_DATA, text=why),))


def executors_asked_for(snapshot: Snapshot, policy: str, wanted: int, why: str) -> Proposal:
    """A whole job has one operator, its executors."""
    (name,) = snapshot.dataflow.scalable
    advice = replace(_measured(snapshot, name), need=float(wanted))
    advice = because(advice, ReasonKind.FORMULA, why)
    return Proposal(policy=policy, advice={name: bounded(snapshot.dataflow[name], advice, wanted)})


def _measured(snapshot: Snapshot, name: str) -> Advice:
    if name in snapshot.measurements:
        return measured(snapshot, name)
    return Advice(operator=name, current=snapshot.plan[name], parallelism=snapshot.plan[name])
