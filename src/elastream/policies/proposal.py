"""What a policy gives: a proposal, with advice for each operator and the reasons for it.

A proposal is not yet a decision. The manager decides whether and when to act on it; the reasons travel with it
into the log, the recording and everything that shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from elastream.dataflow import Plan
from elastream.policies.outlook import Outlook


class ReasonKind(StrEnum):
    MEASURED = "measured"
    FORMULA = "formula"
    LEARNED = "learned"
    CATCH_UP = "catch-up"
    ROOM = "room"
    FORESEEN = "foreseen"
    CORRECTED = "corrected"
    TOLERATED = "tolerated"
    CLAMPED = "clamped"
    BOTTLENECK = "bottleneck"
    SKEW = "skew"
    STATE = "state"
    STRAGGLER = "straggler"
    NOT_PARALLEL = "not data-parallel"
    NO_CORES = "no cores"
    INFERRED = "inferred"
    NO_DATA = "no data"
    HELD = "held"
    NODES = "nodes"
    ASKED = "asked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    kind: ReasonKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What a policy says about one operator. A parallelism of None means: no data, so no opinion."""

    operator: str
    current: int
    parallelism: int | None
    steady: int | None = None
    """The parallelism once nothing waits and nothing is corrected; None where that is the same."""
    least_saving: int = 1
    """The instances that a step down must save to be worth its action."""
    need: float | None = None
    """Instances, before rounding and bounds."""
    target_per_s: float | None = None
    """Records per second that it must process."""
    true_per_s: float | None = None
    true_per_instance_per_s: float | None = None
    observed_per_s: float | None = None
    utilization: float | None = None
    backlog: float | None = None
    nodes: tuple[str, ...] | None = None
    """Where the proposed instances should run, one node for each; None leaves it to the engine."""
    reasons: tuple[Reason, ...] = ()

    def names(self, kind: ReasonKind) -> bool:
        """Whether one of the reasons is of this kind."""
        return any(reason.kind is kind for reason in self.reasons)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    policy: str
    advice: Mapping[str, Advice]
    reasons: tuple[Reason, ...] = ()
    """About the pipeline as a whole."""
    expected_share: float | None = None
    """The share of the sources' rates that the policy expects to be sustained once this is carried out."""
    workers: int | None = None
    """For engines whose workers run every operator: how many workers."""
    outlook: tuple[Outlook, ...] = ()
    """What is expected of the sources, where the policy forecasts them."""

    @property
    def parallelism(self) -> Mapping[str, int]:
        """The proposed parallelism of every operator that the policy has an opinion on."""
        return {name: a.parallelism for name, a in self.advice.items() if a.parallelism is not None}

    def applied_to(self, plan: Plan) -> Plan:
        return plan.with_changes(self.parallelism)

    def names(self, kind: ReasonKind) -> tuple[str, ...]:
        """The operators for which the policy gives a reason of this kind."""
        return tuple(name for name, advice in self.advice.items() if advice.names(kind))
