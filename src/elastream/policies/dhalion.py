"""Dhalion, the autoscaler of Heron: one operator at a time, sized by the backpressure that it causes.

    new p = ceil(p · (1 + min(4, bp / (1000 − bp)))),   bp = milliseconds of backpressure in each second

An operator that holds back those before it for bp of every 1,000 ms lets them work for 1000 − bp of them, so
it lacks bp / (1000 − bp) of what it does now. The formula, its limit of 4 and the noise filter of 20 ms are
those of Heron's `ScaleUpResolver` and `BackPressureDetector` (A. Floratou et al., Dhalion: Self-Regulating
Stream Processing in Heron, VLDB 2017).

Heron is told which operator started the backpressure; here it is found from who waits for whom. The bottleneck
is an operator that is not held back itself, while *some* operator before it is. Not all: of a join's inputs,
the one with little traffic never waits, however slow the join is. Where a producer feeds several operators its
waiting points at each of them, and the busiest of those is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.measurement import Snapshot
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data, whole
from elastream.policies.catalog import policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind

_MOST_GROWTH = 4.0  # Heron's fence: at most five times the present parallelism in one step
_MUCH_BELOW = 0.1  # a true bottleneck may wait now and then, for a small part of what it makes others wait


@policy(
    "dhalion",
    summary="Heron's Dhalion: grows the one operator that causes backpressure, by as much as it causes",
    needs="wait_out_s of every operator that has another one after it, sources included",
    good_for="a baseline to compare with; engines that measure backpressure but not useful time",
    knobs={"interval_s": 60, "warm_up_intervals": 2, "activation_intervals": 1, "scale_down_delay_s": 0},
)
@dataclass(frozen=True, kw_only=True)
class Dhalion:
    noise_floor: float = option(
        0.02, "less waiting than this is not backpressure", unit="share of the window", least=0, most=1
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        causes = {name: self._causes(snapshot, name) for name in snapshot.dataflow.scalable}
        bottleneck = _worst(snapshot, causes)
        advice = {}
        for name, share in causes.items():
            base = measured(snapshot, name)
            if share is None:
                advice[name] = _unknown(snapshot, base)
            elif name == bottleneck:
                advice[name] = _grown(snapshot, base, share)
            elif share > 0:
                advice[name] = because(base, ReasonKind.HELD, f"one at a time, and {bottleneck} comes first")
            else:
                advice[name] = base
        return Proposal(policy="dhalion", advice=advice, reasons=self._overall(snapshot, bottleneck))

    def _causes(self, snapshot: Snapshot, name: str) -> float | None:
        """The share of the window for which this operator held others back; None where that is not known."""
        if name not in snapshot.measurements:
            return None
        before = [_held_back(snapshot, producer) for producer in snapshot.dataflow.upstream(name)]
        most = max((share for share in before if share is not None), default=0.0)
        if most <= self.noise_floor:
            return None if None in before else 0.0
        own = _held_back(snapshot, name)
        if own is None:
            return None
        return most if own <= max(self.noise_floor, _MUCH_BELOW * most) else 0.0

    def _overall(self, snapshot: Snapshot, bottleneck: str | None) -> tuple[Reason, ...]:
        if bottleneck is not None:
            return (Reason(kind=ReasonKind.BOTTLENECK, text=f"{bottleneck} holds back the operators before it"),)
        waiting = [
            name for name in snapshot.measurements if (_held_back(snapshot, name) or 0.0) > self.noise_floor
        ]
        if not waiting:
            text = f"no operator is known to be held back for more than {100 * self.noise_floor:g} % of the window"
        else:
            text = f"held back, but by no operator that can be told: {', '.join(waiting)}"
        return (Reason(kind=ReasonKind.MEASURED, text=text),)


def _held_back(snapshot: Snapshot, name: str) -> float | None:
    """The share of the window that it waited for those after it; a sink that says nothing of it did not."""
    rates = snapshot.measurements.get(name)
    if rates is None:
        return None
    is_sink = not snapshot.dataflow.downstream(name)
    return 0.0 if rates.wait_out_share is None and is_sink else rates.wait_out_share


def _worst(snapshot: Snapshot, causes: Mapping[str, float | None]) -> str | None:
    """Who causes the most; of those that cause the same the busiest, then the first in topological order."""
    found = [(share, snapshot.measurements[name].utilization, name) for name, share in causes.items() if share]
    return max(found, key=lambda cause: cause[:2])[2] if found else None


def _unknown(snapshot: Snapshot, advice: Advice) -> Advice:
    if advice.parallelism is None:
        return advice
    near = (*snapshot.dataflow.upstream(advice.operator), advice.operator)
    silent = [name for name in near if _held_back(snapshot, name) is None]
    return no_data(advice, f"wait_out_s was not measured for {', '.join(silent)}")


def _grown(snapshot: Snapshot, advice: Advice, share: float) -> Advice:
    bp_ms = 1000 * share
    growth = min(_MOST_GROWTH, bp_ms / (1000 - bp_ms)) if bp_ms < 1000 else _MOST_GROWTH
    need = advice.current * (1 + growth)
    wanted = whole(need)
    advice = because(
        replace(advice, need=need),
        ReasonKind.BOTTLENECK,
        f"holds back an operator before it for {bp_ms:.0f} ms of every second, and is not held back itself",
    )
    text = f"{advice.current} · (1 + {growth:.3g}) = {need:,.2f}, so {wanted:,}"
    advice = because(advice, ReasonKind.FORMULA, text)
    return bounded(snapshot.dataflow[advice.operator], advice, wanted)
