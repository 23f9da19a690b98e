"""What `elastream master` shows while it runs: what agents read, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from elastream.commands.live import LiveRun
from elastream.manager.events import Event, Judged
from elastream.measurement import Snapshot
from elastream.policies.proposal import ReasonKind
from elastream.policies.rules.metrics import unit_of
from elastream.texts import number_text

_PLAIN_EVERY_S = 60.0  # where lines are not overwritten, but pile up


class LiveMaster(LiveRun):
    _shown_at_s: float | None = None

    def log(self, record: logging.LogRecord) -> None:
        """Agents come and go: each of that is a line."""
        self.line(Text(record.getMessage(), style="yellow" if record.levelno > logging.INFO else ""))

    def event(self, event: Event) -> None:
        if not isinstance(event, Judged):  # by the rates at the sources, which agents do not know
            super().event(event)

    def _decides(self, text: str, why: Mapping[tuple[str, ReasonKind], str]) -> None:
        """Without what nobody brings: the master says that to the log, which is shown here."""
        super()._decides(text, {key: told for key, told in why.items() if key != ("", ReasonKind.NO_DATA)})

    def snapshot(self, snapshot: Snapshot) -> None:
        since_s = None if self._shown_at_s is None else snapshot.at_s - self._shown_at_s
        if self._live is None and since_s is not None and 0 <= since_s < _PLAIN_EVERY_S:
            return
        self._shown_at_s = snapshot.at_s
        super().snapshot(snapshot)

    def _table(self) -> Table:
        table = Table(header_style="bold", border_style="dim")
        table.add_column("operator")
        if self._snapshot is None:
            return table
        told = {name: _means(self._snapshot, name) for name in self._snapshot.dataflow.scalable}
        metrics = sorted({metric for means in told.values() for metric in means})
        for column in ("instances", "read", *metrics):
            table.add_column(column, justify="right")
        for name, means in told.items():
            found = self._snapshot.measurements.get(name)
            read = 0 if found is None else found.instances
            cells = (means.get(metric, "—") for metric in metrics)
            table.add_row(name, str(self._snapshot.plan[name]), str(read), *cells)
        return table

    def _plain_line(self, snapshot: Snapshot) -> str:
        parts = []
        for name in snapshot.dataflow.scalable:
            values = ", ".join(f"{metric} {mean}" for metric, mean in _means(snapshot, name).items())
            parts.append(f"{name} ×{snapshot.plan[name]} {values or 'no readings'}")
        return f"{self._at(snapshot.at_s)} {' · '.join(parts) or 'no operators yet'}"


def _means(snapshot: Snapshot, operator: str) -> Mapping[str, str]:
    """Of each metric the mean of the operator's instances, with its unit."""
    found = snapshot.measurements.get(operator)
    means = {} if found is None else found.totals.metrics or {}
    return {name: f"{number_text(mean)} {unit_of(name)}".rstrip() for name, mean in means.items()}
