"""What `elastream run` shows while it runs: a table that changes in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elastream.commands.waiting import Waiting
from elastream.durations import text as duration_text
from elastream.manager.events import (
    Acted,
    Decided,
    Event,
    Held,
    Ignored,
    Judged,
    PhaseChanged,
    Proposed,
    Renewed,
    Steered,
    Trouble,
)
from elastream.measurement import Snapshot
from elastream.measurement.flow import achieved_share, end_to_end_s
from elastream.policies.proposal import Proposal
from elastream.showing.deciding import deciding_text
from elastream.texts import number_text

_MOST_LINES = 8


class LiveRun:
    """Fed with snapshots and events; keeps the newest of each kind in view."""

    def __init__(self, console: Console, title: str, *, latency_s: float | None = None) -> None:
        self._console = console
        self._title = title
        self._began_s: float | None = None
        self._snapshot: Snapshot | None = None
        self._late: dict[str, float] = {}
        """Of operators with event time: what each dropped as late since this run began."""
        self._notes: tuple[str, ...] = ()
        self._proposal: Proposal | None = None
        self._phase = "starting"
        self._latency_s = latency_s
        """What is to be kept."""
        self._kept = self._measured = 0
        """Windows in which it was, and in which it is known."""
        self._deciding = ""
        self._held = ""
        self._waiting = Waiting(console)
        self._lines: list[Text] = []
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.end()
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def log(self, record: logging.LogRecord) -> None:
        """What is being done stands above the table; warnings are lines below it."""
        if record.levelno == logging.INFO:
            self.phase(record.getMessage(), waits=getattr(record, "takes_time", False))
        else:
            self.line(Text(record.getMessage(), style="yellow" if record.levelno > logging.INFO else "dim"))

    def phase(self, phase: str, *, waits: bool = False) -> None:
        """`waits` where it is not known how long it takes: people are then told that it goes on."""
        self._phase = phase
        if self._live is None:
            self._console.print(phase)
        if waits:
            self._waiting.begin(phase)
        else:
            self._waiting.end()
        self._draw()

    def snapshot(self, snapshot: Snapshot) -> None:
        self._began_s = snapshot.at_s if self._began_s is None else self._began_s
        self._snapshot = snapshot
        for name, rates in snapshot.measurements.items():
            if rates.totals.records_late is not None:
                self._late[name] = self._late.get(name, 0.0) + rates.totals.records_late
        latency_s = end_to_end_s(snapshot)
        if self._latency_s is not None and latency_s is not None:
            self._measured += 1
            self._kept += latency_s <= self._latency_s
        if self._live is None:
            self._console.print(self._plain_line(snapshot))
        for note in snapshot.notes:
            if note not in self._notes:  # what still holds was said when it began
                self.line(Text.assemble(self._at(snapshot.at_s), " ", (note, "yellow")))
        self._notes = snapshot.notes
        self._draw()

    def event(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._proposal = event.proposal
        if isinstance(event, Proposed | Ignored):
            self._decides(deciding_text(event))
        line = self._event_line(event)
        if isinstance(event, Held):  # what still holds was said when it began
            line, self._held = (None if event.why == self._held else line), event.why
        if line is not None:
            self.line(line)
        self._draw()

    def _decides(self, text: str) -> None:
        """Whether it decides, and if not why: always below the table, elsewhere when it changes."""
        changed, self._deciding = text != self._deciding, text
        if changed and self._live is None:
            self._console.print(Text(text, style="dim"), soft_wrap=True)

    def line(self, line: Text) -> None:
        self._lines = [*self._lines, line][-_MOST_LINES:]
        if self._live is None:
            self._console.print(line, soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            table = () if self._snapshot is None else (self._table(),)  # nothing is in it before the first window
            told = " · ".join(filter(None, (self._deciding, self._latency_text())))
            status = (Text(told, style="dim"),) if told else ()
            self._live.update(Group(self._heading(), *table, *status, *self._lines))

    def _heading(self) -> RenderableType:
        if self._waiting.under_way:
            return Group(Text(self._title, style="bold"), self._waiting)
        return Text(f"{self._title}: {self._phase}", style="bold")

    def _table(self) -> Table:
        table = Table(header_style="bold", border_style="dim")
        table.add_column("operator")
        late = ("late",) if self._late else ()  # where there is event time
        for column in ("instances", "needs", "in", "must process", "busy", "waiting", *late):
            table.add_column(column, justify="right")
        if self._snapshot is None:
            return table
        for name in self._snapshot.dataflow.scalable:
            rates = self._snapshot.measurements.get(name)
            advice = self._proposal.advice.get(name) if self._proposal else None
            nodes = self._snapshot.placement.get(name, ())
            table.add_row(
                f"{name} on {', '.join(nodes)}" if nodes else name,
                str(self._snapshot.plan[name]),
                "—" if advice is None or advice.need is None else f"{advice.need:.2f}",
                "—" if rates is None else f"{number_text(rates.observed_per_s)}/s",
                "—" if advice is None or advice.target_per_s is None else f"{number_text(advice.target_per_s)}/s",
                "—" if rates is None else f"{rates.utilization:.0%}",
                "—" if rates is None or rates.totals.backlog is None else number_text(rates.totals.backlog),
                *([_late_text(self._late.get(name))] if late else []),
            )
        return table

    def _plain_line(self, snapshot: Snapshot) -> str:
        parts = [f"{name} at {number_text(rate)}/s" for name, rate in snapshot.source_rates.items()]
        for name in snapshot.dataflow.scalable:
            rates = snapshot.measurements.get(name)
            doing = "no readings" if rates is None else f"{number_text(rates.observed_per_s)}/s"
            nodes = f" on {', '.join(snapshot.placement[name])}" if name in snapshot.placement else ""
            late = (
                f", {number_text(rates.totals.records_late)} late" if rates and rates.totals.records_late else ""
            )
            parts.append(f"{name} ×{snapshot.plan[name]}{nodes} {doing}{late}")
        share = achieved_share(snapshot)
        kept = "" if share is None else f", {share:.0%} of the rate achieved"
        latency = self._latency_text()
        return f"{self._at(snapshot.at_s)} {' · '.join(parts)}{kept}{f', {latency}' if latency else ''}"

    def _latency_text(self) -> str:
        latency_s = None if self._snapshot is None else end_to_end_s(self._snapshot)
        if latency_s is None:
            return ""
        told = f"latency {number_text(latency_s)} s"
        if self._latency_s is None or not self._measured:
            return told
        return (
            f"{told} of {number_text(self._latency_s)} s, kept in {self._kept / self._measured:.0%} of the windows"
        )

    def _event_line(self, event: Event) -> Text | None:
        match event:
            case Decided():
                what = f"{'would ' if event.dry_run else ''}{event.decision.kind}: {event.decision}"
                by_operator = (
                    f"{advice.operator} {reason}"
                    for advice in event.decision.advice
                    for reason in advice.reasons[1:2]
                )
                # what holds for the whole pipeline explains numbers that no operator's own reason does
                why = "; ".join([*by_operator, *map(str, event.decision.reasons)])
                return Text.assemble(self._at(event.at_s), " ", (what, "bold green"), f" ({why})" if why else "")
            case Acted():
                done = f"done in {event.outcome.took_s:.2f} s" if event.outcome.succeeded else "failed"
                detail = f": {event.outcome.detail}" if event.outcome.detail else ""
                return Text(f"{self._at(event.at_s)} {done}{detail}")
            case Judged():
                after = "?" if event.share_after is None else f"{event.share_after:.0%}"
                return Text(f"{self._at(event.at_s)} action {event.number}: {event.verdict}, {after} achieved")
            case Renewed(what=what) | Steered(what=what):
                return Text(f"{self._at(event.at_s)} {what}")
            case Trouble(what=what):
                return Text.assemble(self._at(event.at_s), " ", (what, "bold red"))
            case Held(why=why):
                return Text(f"{self._at(event.at_s)} held: {why}", style="dim")
            case PhaseChanged(after=after, why=why) if after in ("given up", "rolled back"):
                return Text.assemble(self._at(event.at_s), " ", (f"{after}: {why}", "bold yellow"))
            case _:
                return None

    def _at(self, at_s: float) -> str:
        elapsed_s = 0.0 if self._began_s is None else max(0.0, at_s - self._began_s)
        return f"{duration_text(round(elapsed_s)):>8}"


def _late_text(count: float | None) -> Text:
    return Text("—" if count is None else number_text(count), style="bold yellow" if count else "")
