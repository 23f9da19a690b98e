"""Which metrics are wanted: those that some rule or view looks at, operator by operator (thesis, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastream.policies.rules.metrics import check_metric, query_in
from elastream.policies.rules.rule import NO_RULES, RuleSet


@dataclass(frozen=True, kw_only=True)
class Subscription:
    rules: RuleSet = NO_RULES
    views: frozenset[str] = frozenset()
    """Metrics that someone wants to see of every operator, whatever the rules look at."""

    def of(self, operator: str) -> frozenset[str]:
        looked_at = (
            trigger.metric
            for rule in self.rules.rules
            if rule.applies_to(operator)
            for trigger in rule.triggers
            if query_in(trigger.metric) is None  # the master itself asks for those
        )
        return self.views.union(looked_at)


def views_of(names: Iterable[str]) -> frozenset[str]:
    """The metrics of those names; an unknown one is refused."""
    found = frozenset(names)
    for name in sorted(found):
        check_metric(name)
    return found
