"""Thresholds on utilization, one instance at a time: the rule that most hand-made autoscalers follow.

    p + 1  where utilization > upper,    p − 1  where utilization < lower,    else p

Utilization is the mean CPU utilization of the operator's instances where the engine measures it, and the useful
share of the window where it does not. DS2 (§2) counts such rules among those that converge slowly, as a step is
always one instance, whatever is missing, and that need their thresholds tuned.

THR-NLAware and THR-NLUnaware are Gesscale's baselines: the same rule with a choice of nodes. The one that is aware
of delays chooses them as Gesscale does, the other at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.nodes.choice import NEAREST, AtRandom
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured
from elastream.policies.catalog import policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.placing import placed_advice, site_of
from elastream.policies.proposal import Advice, Proposal, ReasonKind

_NEEDS = "cpu_utilization, or useful_s where that is not measured"
_GESSCALE_KNOBS = {"interval_s": 60, "target_rate_ratio": 0, "rollback_drop": None, "scale_down_delay_s": 0}


@policy(
    "threshold",
    summary="One instance more above one utilization, one less below another",
    needs=_NEEDS,
    good_for="a baseline to compare with; loads that change slowly",
)
@dataclass(frozen=True, kw_only=True)
class Threshold:
    upper: float = option(0.9, "one instance more above this utilization", unit="share", least=0, most=1)
    lower: float = option(0.5, "one instance less below this utilization", unit="share", least=0, most=1)
    all_at_once: bool = option(
        True, "change every operator that is outside; if false only one: the busiest, or else the idlest"
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.upper <= self.lower:
            raise InvalidInput(f"upper ({self.upper:g}) must be above lower ({self.lower:g})")

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        advice = {name: self._advice(snapshot, name) for name in snapshot.dataflow.scalable}
        return Proposal(policy="threshold", advice=advice if self.all_at_once else _only_first(snapshot, advice))

    def _advice(self, snapshot: Snapshot, name: str) -> Advice:
        advice = measured(snapshot, name)
        if advice.parallelism is None:
            return advice
        utilization, kind = _utilization(snapshot, name)
        if utilization > self.upper:
            step, verdict = 1, f"above {_percent(self.upper)}: one more"
        elif utilization < self.lower:
            step, verdict = -1, f"below {_percent(self.lower)}: one less"
        else:
            step, verdict = 0, f"between {_percent(self.lower)} and {_percent(self.upper)}: no change"
        text = f"{kind} {_percent(utilization)} is {verdict}"
        advice = because(advice, ReasonKind.FORMULA, text)
        return bounded(snapshot.dataflow[name], advice, advice.current + step)


@policy(
    "thr-nlaware",
    summary="Gesscale's baseline THR-NLAware: thresholds on CPU, the nearest nodes",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    knobs=_GESSCALE_KNOBS,
)
@policy(
    "thr-nlunaware",
    summary="Gesscale's baseline THR-NLUnaware: thresholds on CPU, nodes at random",
    needs=_NEEDS,
    good_for="a baseline to compare with",
    preset={"latency_aware": False},
    knobs=_GESSCALE_KNOBS,
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


def _utilization(snapshot: Snapshot, name: str) -> tuple[float, str]:
    """What is compared with the thresholds, and what to call it."""
    measured = snapshot.measurements[name]
    if measured.totals.cpu_utilization is not None:
        return measured.totals.cpu_utilization, "CPU utilization"
    return measured.utilization, "useful share"


def _only_first(snapshot: Snapshot, advice: Mapping[str, Advice]) -> Mapping[str, Advice]:
    """Keep the most urgent change: growth before shrinking, as what is overloaded holds up the rest."""

    def urgency(name: str) -> tuple[bool, float]:
        utilization, _ = _utilization(snapshot, name)
        grows = (advice[name].parallelism or 0) > advice[name].current
        return grows, utilization if grows else -utilization

    changed = [name for name, found in advice.items() if found.parallelism not in (None, found.current)]
    if not changed:
        return advice
    first = max(changed, key=urgency)
    return {
        name: _held(found, first) if name in changed and name != first else found for name, found in advice.items()
    }


def _held(advice: Advice, first: str) -> Advice:
    kept = replace(advice, parallelism=advice.current)
    return because(kept, ReasonKind.HELD, f"one at a time, and {first} comes first")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
