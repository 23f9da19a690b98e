"""A policy: as many instances as leave each a share of its time free.

need = instances · utilization / (1 − free)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastream import Advice, Knowledge, Proposal, Reason, ReasonKind, Snapshot, option, policy


@policy(
    "headroom",
    summary="As many instances as leave each a share of its time free",
    needs="useful_s",
    good_for="showing how a policy is written",
)
@dataclass(frozen=True, kw_only=True)
class Headroom:
    free: float = option(0.25, "of its time that an instance is to have free", unit="share", least=0, most=0.9)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge | None = None) -> Proposal:
        advice = {name: self._advice(snapshot, name) for name in snapshot.dataflow.scalable}
        return Proposal(policy="headroom", advice=advice)

    def _advice(self, snapshot: Snapshot, name: str) -> Advice:
        current, rates = snapshot.plan[name], snapshot.measurements.get(name)
        if rates is None:  # no data means no opinion, with a reason
            why = Reason(kind=ReasonKind.NO_DATA, text="no readings in this window")
            return Advice(operator=name, current=current, parallelism=None, reasons=(why,))
        need = current * rates.utilization / (1 - self.free)
        text = f"{current} are busy {rates.utilization:.0%} of the time: {need:.2f} leave {self.free:.0%} free"
        return Advice(
            operator=name,
            current=current,
            parallelism=snapshot.dataflow[name].clamp(max(1, math.ceil(need))),
            need=need,
            utilization=rates.utilization,
            backlog=rates.totals.backlog,
            reasons=(Reason(kind=ReasonKind.FORMULA, text=text),),
        )
