"""Gesscale's baselines THR-NLUnaware and THR-NLAware: the threshold rule, with a choice of nodes.

CPU above 90 %: one more instance; below 50 %: one less. The one that is aware of delays chooses nodes as Gesscale
does, the other at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastream.measurement import Snapshot
from elastream.nodes.choice import NEAREST, AtRandom
from elastream.options import option
from elastream.policies.catalog import policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.placing import placed_advice, site_of
from elastream.policies.proposal import Advice, Proposal
from elastream.policies.threshold import Threshold

_NEEDS = "cpu_utilization, or useful_s where that is not measured"
_KNOBS = {"interval_s": 60, "target_rate_ratio": 0, "rollback_drop": None}


@policy(
    "thr-nlaware",
    summary="Gesscale's baseline THR-NLAware: thresholds on CPU, the nearest nodes",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    knobs=_KNOBS,
)
@policy(
    "thr-nlunaware",
    summary="Gesscale's baseline THR-NLUnaware: thresholds on CPU, nodes at random",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    preset={"latency_aware": False},
    knobs=_KNOBS,
)
@dataclass(frozen=True, kw_only=True)
class ThresholdOnNodes(Threshold):
    latency_aware: bool = option(True, "the nodes with the lowest delays; if false any, at random")
    seed: int = option(0, "for nodes at random")

    @property
    def name(self) -> str:
        return "thr-nlaware" if self.latency_aware else "thr-nlunaware"

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        found = super().__call__(snapshot, knowledge)
        advice: dict[str, Advice] = {}
        for name, said in found.advice.items():
            if said.parallelism is None or said.parallelism == said.current:
                advice[name] = said
                continue
            choice = NEAREST if self.latency_aware else AtRandom(f"{self.seed} {name} {snapshot.at_s}")
            site = site_of(snapshot, name, choice, advice)
            advice[name] = placed_advice(snapshot, said, site, said.parallelism)
        return replace(found, policy=self.name, advice=advice)
