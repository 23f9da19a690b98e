"""The parallelism to start with: from what earlier runs measured, for a given source rate.

DS2 §3 notes that its model can do this where history is at hand. Every recorded window is asked what it would
take at the wanted rate, with everything learned up to then; the answer is the median over the windows, and the
range between the lowest and the highest answer shows how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median_high

from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.measurement.evidence import NO_EVIDENCE
from elastream.policies.catalog import Policy
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.proposal import Advice


@dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """For one operator."""

    parallelism: int
    lowest: int
    highest: int
    windows: int
    """How many windows had something to say."""
    latest: Advice


@dataclass(frozen=True, kw_only=True)
class StartingPlan:
    source_rates: Mapping[str, float]
    operators: Mapping[str, StartingPoint]
    unknown: tuple[str, ...]
    """Operators that no window could speak about."""


def starting_plan(
    snapshots: Iterable[Snapshot], policy: Policy, wanted_rates: Mapping[str, float] | None = None
) -> StartingPlan:
    """`wanted_rates` in records per second; a source that is not given has the highest rate that was recorded."""
    windows = list(snapshots)
    if not windows:
        raise InvalidInput("a starting plan needs at least one recorded window")
    rates = {
        source: max(window.source_rates.get(source, 0.0) for window in windows)
        for source in windows[-1].dataflow.sources
    }
    for source in wanted_rates or {}:
        if source not in rates:
            raise InvalidInput(f"{source!r} is not a source of the recorded pipeline (known: {', '.join(rates)})")
    rates.update(wanted_rates or {})
    advice: dict[str, list[Advice]] = {name: [] for name in windows[-1].dataflow.scalable}
    knowledge = NOTHING_KNOWN
    for window in windows:
        if window.dataflow != windows[-1].dataflow or window.gaps:
            continue  # the pipeline was changed since, or the window was not measured whole
        knowledge = knowledge.with_snapshot(window)
        # each window for itself: what is asked is what it would say at other rates, not whether to change anything
        alone = replace(knowledge, evidence=NO_EVIDENCE)
        for name, said in policy(window.at_source_rates(rates), alone).advice.items():
            if said.parallelism is not None:
                advice[name].append(said)
    return StartingPlan(
        source_rates=rates,
        operators={name: _point(said) for name, said in advice.items() if said},
        unknown=tuple(name for name, said in advice.items() if not said),
    )


def _point(advice: list[Advice]) -> StartingPoint:
    votes = [said.parallelism if said.steady is None else said.steady for said in advice if said.parallelism]
    return StartingPoint(
        parallelism=median_high(votes),
        lowest=min(votes),
        highest=max(votes),
        windows=len(votes),
        latest=advice[-1],
    )
