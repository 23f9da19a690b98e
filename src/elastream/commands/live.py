"""What `elastream run` shows while it runs: a table that changes in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from itertools import islice
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
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
from elastream.measurement.flow import end_to_end_s, slowest
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.showing.deciding import deciding_text, explanations
from elastream.texts import listed_text, number_text

_MOST_LINES = 8
_MOST_WHY = 5
_AT_WIDTH = 9  # what stands before a line: when it was
_ALL = 0.995  # is shown as 100 %


class Drawn(Protocol):
    """What of rich's `Live` is needed."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, renderable: RenderableType) -> None: ...


class _Hanging:
    """A paragraph of which all lines but the first are indented."""

    def __init__(self, text: Text, indent: int) -> None:
        self._text = text
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lead, rest = self._text.divide([self._indent])
        for line in rest.wrap(console, max(1, options.max_width - self._indent)):
            yield Text.assemble(lead, line)
            lead = Text(" " * self._indent)


class LiveRun:
    """Fed with snapshots and events; keeps the newest of each kind in view."""

    def __init__(self, console: Console, title: str, *, live: Drawn | None = None) -> None:
        """`live` is what it is drawn on, where that is not the terminal of the console."""
        self._console = console
        self._title = title
        self._began_s: float | None = None
        self._snapshot: Snapshot | None = None
        self._late: dict[str, float] = {}
        """Of operators with event time: what each dropped as late since this run began."""
        self._notes: tuple[str, ...] = ()
        self._proposal: Proposal | None = None
        self._phase = "starting"
        self._kept = self._measured = 0
        """Windows in which the latency that was asked for was kept, and in which that is known."""
        self._deciding = ""
        self._why: Mapping[tuple[str, ReasonKind], str] = {}
        """What the numbers of the newest proposal do not say of themselves."""
        self._explained: Set[tuple[str, ReasonKind]] = frozenset()
        """What of that was said since the last decision."""
        self._held = ""
        self._held_line: Text | None = None
        self._waiting = Waiting(console)
        self._lines: list[Text] = []
        self._live = live or (Live(console=console, refresh_per_second=4) if console.is_terminal else None)

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
        latency_s, target_s = end_to_end_s(snapshot), snapshot.latency_target_s
        if target_s is not None and latency_s is not None:
            self._measured += 1
            self._kept += latency_s <= target_s
        if self._live is None:
            self._console.print(self._plain_line(snapshot), soft_wrap=True)
        for note in snapshot.notes:
            if note not in self._notes:  # what still holds was said when it began
                self.line(Text.assemble(self._at(snapshot.at_s), " ", (note, "yellow")))
        self._notes = snapshot.notes
        self._draw()

    def event(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._proposal = event.proposal
        if isinstance(event, Decided):
            self._explained = frozenset()
        if isinstance(event, Proposed | Ignored):
            self._decides(
                deciding_text(event), explanations(event.proposal) if isinstance(event, Proposed) else {}
            )
        line = self._event_line(event)
        if isinstance(event, Held):  # what still holds was said when it began
            line, self._held = (None if event.why == self._held else line), event.why
            if line is not None and self._lines and self._lines[-1] is self._held_line:
                self._lines.pop()  # nothing came between: what holds now takes its place
            self._held_line = line or self._held_line
        if line is not None:
            if isinstance(event, Trouble):  # one that comes again and again leaves room for what else is said
                self._lines = [old for old in self._lines if old.plain[_AT_WIDTH:] != line.plain[_AT_WIDTH:]]
            self.line(line)
        self._draw()

    def _decides(self, text: str, why: Mapping[tuple[str, ReasonKind], str]) -> None:
        """Whether it decides, and what explains the numbers: always below the table, elsewhere when it is new."""
        changed, self._deciding = text != self._deciding, text
        new = [told for key, told in why.items() if key not in self._explained]
        self._why, self._explained = why, self._explained | why.keys()
        if self._live is None:
            for told in ([text] if changed else []) + [f"• {told}" for told in new]:
                self._console.print(Text(told, style="dim"), soft_wrap=True)

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
            why = (_Hanging(Text(f"• {told}", style="dim"), 2) for told in self._why.values())
            lines = (_Hanging(line, _AT_WIDTH) for line in self._lines)
            self._live.update(Group(self._heading(), *table, *status, *islice(why, _MOST_WHY), *lines))

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
        told = [" · ".join(parts), _achieved_text(snapshot), self._latency_text()]
        return f"{self._at(snapshot.at_s)} {', '.join(filter(None, told))}"

    def _latency_text(self) -> str:
        latency_s = None if self._snapshot is None else end_to_end_s(self._snapshot)
        if self._snapshot is None or latency_s is None:
            return ""
        told, target_s = f"latency {number_text(latency_s)} s", self._snapshot.latency_target_s
        if target_s is None or not self._measured:
            return told
        return f"{told} of {number_text(target_s)} s, kept in {self._kept / self._measured:.0%} of the windows"

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
                known = event.share_after is not None
                achieved = f"{event.share_after:.0%} achieved" if known else "what is achieved is not known"
                return Text(f"{self._at(event.at_s)} action {event.number}: {event.verdict}, {achieved}")
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


def _achieved_text(snapshot: Snapshot) -> str:
    """Of the rate, with who did not keep up: one operator may, while another works off what waited."""
    if snapshot.failing:
        return f"{listed_text(tuple(snapshot.failing))} {'does' if len(snapshot.failing) == 1 else 'do'} not work"
    found = slowest(snapshot)
    if found is None:
        return ""
    name, share = found
    by = "" if share >= _ALL else f" by {name}"
    idle = not snapshot.measurements[name].observed_per_s and snapshot.batch_costs
    return f"{share:.0%} of the rate achieved{by}{' (none of its batches ended)' if by and idle else ''}"


def _late_text(count: float | None) -> Text:
    return Text("—" if count is None else number_text(count), style="bold yellow" if count else "")
