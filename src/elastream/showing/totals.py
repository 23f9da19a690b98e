"""Counts since the beginning, which only grow: what Prometheus takes rates of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from elastream.manager.events import Acted, Decided, Event, Judged, Trouble
from elastream.measurement.shown import OPERATOR_QUANTITIES
from elastream.showing import views

COUNTED: Final = {name: found.counter for name, found in OPERATOR_QUANTITIES.items() if found.counter is not None}
"""What is counted of an operator, with its name in Prometheus."""


class RunTotals:
    def __init__(self) -> None:
        self.windows = 0
        self.incomplete_windows = 0
        self.counted: dict[str, dict[str, float]] = {name: {} for name in COUNTED}
        """Of each quantity that is counted, by operator; without those of which nobody counted it."""
        self.decisions: Counter[tuple[str, bool]] = Counter()
        """By kind, and whether it was a rehearsal."""
        self.actions: Counter[bool] = Counter()
        """By whether they succeeded."""
        self.action_s = 0.0
        self.verdicts: Counter[str] = Counter()
        self.troubles = 0

    def add_window(self, window: views.WindowView) -> None:
        self.windows += 1
        self.incomplete_windows += bool(window.missing)
        self._count(window.operators)

    def add_event(self, event: Event) -> None:
        match event:
            case Decided(decision=decision, dry_run=dry_run):
                self.decisions[str(decision.kind), dry_run] += 1
            case Acted(outcome=outcome):
                self.actions[outcome.succeeded] += 1
                self.action_s += outcome.took_s
            case Judged(verdict=verdict):
                self.verdicts[str(verdict)] += 1
            case Trouble():
                self.troubles += 1

    def _count(self, operators: Sequence[views.OperatorWindow]) -> None:
        """Those that the pipeline no longer has are forgotten, or one that changes would fill the memory."""
        named = {operator.name for operator in operators}
        for totals in self.counted.values():
            for gone in totals.keys() - named:
                del totals[gone]
        for operator in operators:
            for name, totals in self.counted.items():
                if (found := getattr(operator, name)) is not None:
                    totals[operator.name] = totals.get(operator.name, 0.0) + found
