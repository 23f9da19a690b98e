"""A decision: a proposal that the manager will carry out, with everything that is needed to judge it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastream.dataflow import Change, Plan
from elastream.policies.proposal import Advice, Reason


class DecisionKind(StrEnum):
    RESCALE = "rescale"
    ROLLBACK = "rollback"
    BY_HAND = "by hand"


@dataclass(frozen=True, kw_only=True)
class Decision:
    number: int
    at_s: float
    kind: DecisionKind = DecisionKind.RESCALE
    before: Plan
    after: Plan
    source_rates: Mapping[str, float] = field(default_factory=dict)
    """The load for which it was decided."""
    reasons: tuple[Reason, ...] = ()
    advice: tuple[Advice, ...] = ()
    """What the policy said of each operator that changes: measured, formula, clamps."""
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where the instances of operators that change should run afterwards, one node for each. An operator that is
    not in it, and a node that is gone by then, is left to the engine."""
    share_before: float | None = None
    """The share of the required rate that was achieved when this was decided."""
    expected_share: float | None = None
    """The share that is expected of it."""

    @property
    def grows(self) -> bool:
        """Whether some operator gets more instances: the pipeline is expected to achieve more."""
        return any(change.after > change.before for change in self.changes)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.before.changes_to(self.after)

    def __str__(self) -> str:
        return ", ".join(map(str, self.changes)) or "no change"
