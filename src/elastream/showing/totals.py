"""Counts since the beginning, which only grow: what Prometheus takes rates of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from elastream.manager.events import Acted, Decided, Event, Judged, Trouble
from elastream.showing import views


class RunTotals:
    def __init__(self) -> None:
        self.windows = 0
        self.incomplete_windows = 0
        self.records: dict[str, float] = {}
        self.late_records: dict[str, float] = {}
        """Of operators with event time."""
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
        self._add_records(window.operators)

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

    def _add_records(self, operators: Iterable[views.OperatorWindow]) -> None:
        for operator in operators:
            self.records[operator.name] = self.records.get(operator.name, 0.0) + (operator.records_in or 0.0)
            if operator.records_late is not None:
                late = self.late_records.get(operator.name, 0.0) + operator.records_late
                self.late_records[operator.name] = late
