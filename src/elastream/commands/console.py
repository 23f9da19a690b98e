"""What the command prints: tables and sentences, from the same values that `--json` writes.

Names come from users' files, so nothing here is markup: what is to stand out is a `Text` with a style.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import IO, Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elastream.commands.run_summary import RunSummary
from elastream.durations import text as duration_text
from elastream.engines.simulated.simulation import Simulation
from elastream.manager.events import Decided, Event, Held, Ignored, Judged, Proposed
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts, StepAccount
from elastream.measurement.elasticity import Elasticity
from elastream.options import OptionInfo, describe
from elastream.policies.catalog import PolicyInfo
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.policies.starting_plan import StartingPlan
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS
from elastream.showing.deciding import DECIDING, deciding_text
from elastream.texts import number_text

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_BARS = "▁▂▃▄▅▆▇█"
_EXPLAINING = frozenset(ReasonKind) - {ReasonKind.MEASURED}
_TELLING = _EXPLAINING - {ReasonKind.FORMULA}  # what the numbers in a row do not say
_TIME_WIDTH = len("10 h 10 min")
_SPARKLINE_WIDTH = 40
_LEAST_ROOM = 20  # columns for a text, however narrow the terminal
_MOST_WHY = 4


def new_console(*, stderr: bool = False, enduring: bool = False) -> Console:
    """Prints text as it is: `[bold]` or `:key:` in an operator's name stay what they are.

    One that is `enduring` is for what goes on although nobody reads of it: it leaves out what cannot be written.
    """
    kind = _Enduring if enduring else Console
    return kind(stderr=stderr, markup=False, emoji=False, highlight=False)


class _Enduring(Console):
    @property
    def file(self) -> IO[str]:
        return cast(IO[str], _Leaving(super().file))

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new


class _Leaving:
    """A file that may be on a full disk."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with _passing_over_a_full_disk():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with _passing_over_a_full_disk():
            self._file.flush()


@contextmanager
def _passing_over_a_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise


def print_proposal(
    console: Console, snapshot: Snapshot, proposal: Proposal, *, every_reason: bool = False
) -> None:
    """How many of each operator; below it what the numbers do not say, or every reason."""
    table = number_table("operator", "now", "needs", "propose", "must\nprocess", "one\ncan do", "busy")
    for advice in proposal.advice.values():
        table.add_row(*_proposal_row(advice))
    print_table(console, f"{proposal.policy}: how many instances each operator needs", table)
    for reason in proposal.reasons:
        print_hanging(console, "• ", reason.text)
    if every_reason:
        _print_reasons(console, proposal)
    else:
        for advice in proposal.advice.values():
            _print_advice(console, advice, _TELLING)
    if proposal.workers is not None:
        console.print(Text.assemble("workers: ", (str(proposal.workers), "bold")))
    if not snapshot.is_complete:
        print_hanging(console, Text("incomplete: ", style="yellow"), "; ".join(snapshot.missing))
    if proposal.expected_share is not None:
        console.print(f"expected: {proposal.expected_share:.0%} of the source rate is sustained")


def _proposal_row(advice: Advice) -> tuple[str | Text, ...]:
    proposed = "—" if advice.parallelism is None else f"{advice.parallelism:,}"
    changes = advice.parallelism not in (None, advice.current)
    return (
        advice.operator,
        str(advice.current),
        "—" if advice.need is None else f"{advice.need:,.2f}",
        Text(proposed, style="bold green" if changes else ""),
        _rate(advice.target_per_s),
        _rate(advice.true_per_instance_per_s),
        "—" if advice.utilization is None else f"{advice.utilization:.0%}",
    )


def _print_advice(console: Console, advice: Advice, kinds: Container[ReasonKind]) -> None:
    """The reasons of these kinds in one paragraph; nothing, where there are none."""
    reasons = [reason.text for reason in advice.reasons if reason.kind in kinds]
    if reasons:
        print_hanging(console, "• ", Text.assemble((advice.operator, "bold"), f": {'; '.join(reasons)}"))


def _print_reasons(console: Console, proposal: Proposal) -> None:
    for advice in proposal.advice.values():
        console.print(Text(advice.operator, style="bold"))
        for reason in advice.reasons:
            print_hanging(console, f"  {reason.kind:<18}", reason.text)


def print_simulation(console: Console, name: str, policy: str, run: Simulation) -> None:
    console.rule(f"{name}: {duration_text(run.duration_s)} with {policy} (simulated)")
    if not run.decisions:
        console.print("No decision was made: the pipeline stayed as it was.")
    _print_decisions(console, run.events)
    console.print(_sparklines(run, console.width))
    print_elasticity(console, {policy: run.elasticity})
    console.print(_summary(run))


def print_replay(console: Console, policy: str, windows: Sequence[Snapshot], events: Sequence[Event]) -> None:
    """What would have been decided, at times that count from the beginning of the recording."""
    first, last = windows[0], windows[-1]
    began_s = first.at_s - first.window_s
    title = f"{counted(len(windows), 'window')}, {duration_text(last.at_s - began_s)}, replayed with {policy}"
    console.rule(title)
    decided = sum(isinstance(event, Decided) for event in events)
    left_out = Counter(event.why for event in events if isinstance(event, Ignored))
    console.print(
        f"{counted(decided, 'decision')}; {counted(left_out.total(), 'window')} left out. "
        "Nothing is acted upon: each window is judged with the parallelism that it was recorded with."
    )
    for why, count in left_out.most_common():
        print_hanging(console, "• ", f"{counted(count, 'window')} left out: {why}")
    told = Counter(deciding_text(event) for event in events if isinstance(event, Proposed))
    told += Counter(f"held: {event.why}" for event in events if isinstance(event, Held))
    for why, count in [one for one in told.most_common() if one[0] != DECIDING][:_MOST_WHY]:
        print_hanging(console, "• ", f"in {counted(count, 'window')}: {why}")
    _print_decisions(console, events, since_s=began_s)


def _print_decisions(console: Console, events: Sequence[Event], since_s: float = 0.0) -> None:
    """Each decision with its reasons below it, and what it achieved."""
    verdicts = {event.number: event for event in events if isinstance(event, Judged)}
    for event in events:
        if not isinstance(event, Decided):
            continue
        decision, verdict = event.decision, verdicts.get(event.decision.number)
        achieved = f"{_share(decision.share_before)} of the rate before"
        if verdict is not None:
            achieved += f", {_share(verdict.share_after)} after: {verdict.verdict}"
        would = "would " if event.dry_run else ""
        at = Text(f"{duration_text(decision.at_s - since_s):>{_TIME_WIDTH}}  ", style="bold")
        print_hanging(
            console, at, Text.assemble((f"{would}{decision.kind} {decision}", "bold"), f"  ({achieved})")
        )
        for why in _decision_reasons(event):
            print_hanging(console, f"{'•':>{_TIME_WIDTH + 3}} ", why)


def _decision_reasons(event: Decided) -> list[str]:
    reasons = [reason.text for reason in event.decision.reasons]
    for advice in event.decision.advice:
        told = [reason.text for reason in advice.reasons if reason.kind in _EXPLAINING]
        reasons.append(f"{advice.operator} {'; '.join(told)}")
    return reasons


def print_run(console: Console, name: str, run: RunSummary) -> None:
    """The end of a run: its decisions, for each operator where it began and where it ended, and where every record
    went."""
    console.rule(f"{name} on Spark")
    if run.first is None or run.last is None:
        console.print("It ended before the first measurement.")
    else:
        if run.earlier_events:
            console.print(
                f"The newest decisions; {counted(run.earlier_events, 'earlier event')} are in the recording."
            )
        _print_decisions(console, run.events, since_s=run.first.at_s)
        table = number_table("operator", "began with", "ended with")
        for operator in run.last.dataflow.scalable:
            table.add_row(operator, str(run.first.plan[operator]), str(run.last.plan[operator]))
        console.print(table)
    if run.accounts is not None:
        print_accounts(console, run.accounts)


def print_accounts(console: Console, accounts: Accounts) -> None:
    """Every step with what came in, went out, was dropped as late and waits; what does not add up in red."""
    with_late = any(step.late is not None for step in accounts.steps)
    table = number_table("operator", "in", "out", *(["late"] if with_late else []), "waiting", "adds up")
    for step in accounts.steps:
        late = [_count(step.late)] if with_late else []
        waiting, adds_up = _count(step.waiting), _adds_up(step)
        table.add_row(step.operator, _count(step.records_in), _count(step.records_out), *late, waiting, adds_up)
    print_table(console, "where every record went, since the folder of the run began", table)
    for difference in accounts.differences:
        print_hanging(console, Text("it does not add up: ", style="bold red"), Text(difference, style="red"))


def _adds_up(step: StepAccount) -> Text:
    if step.differences:
        return Text("NO", style="bold red")
    return Text("yes", style="green") if step.inputs or step.must_have_put_out is not None else Text("—")


def _count(count: int | None) -> str:
    return "—" if count is None else f"{count:,}"


def print_elasticity(console: Console, measures: Mapping[str, Elasticity]) -> None:
    table = number_table(
        "policy", "too\nmany", "too\nfew", "time too\nmany", "time too\nfew", "excess\ntime", "actions", "cost"
    )
    for policy, found in measures.items():
        table.add_row(
            policy,
            f"{found.accuracy_over:.2f}",
            f"{found.accuracy_under:.2f}",
            f"{found.timeshare_over:.1%}",
            f"{found.timeshare_under:.1%}",
            f"{found.excess_time:.1%}",
            str(found.reconfigurations),
            f"{found.cost:,.0f}",
        )
    print_table(console, "elasticity: instances too many and too few on average, cost in instance minutes", table)


def _summary(run: Simulation) -> str:
    peak = max(plan.total for _, plan in run.history.plans)
    static = peak * run.duration_s / 60
    saved = 1 - run.elasticity.cost / static if static else 0.0
    beside = f", {saved:.0%} less than {peak} instances all the time" if saved >= 0.005 else ""
    cost = f"{run.elasticity.cost:,.0f} instance minutes{beside}."
    return f"{counted(run.actions, 'action')}; ends at {run.final_plan or 'nothing that scales'}. {cost}"


def _sparklines(run: Simulation, width: int) -> Table:
    """Each quantity over time in one line, scaled to its own highest value."""
    history = run.history
    within = max(1, sum(t <= run.duration_s for t in history.times_s))
    arriving = [sum(values) for values in zip(*history.arriving_per_s.values(), strict=True)][:within]
    emitted = [sum(values) for values in zip(*history.emitted_per_s.values(), strict=True)][:within]
    waiting = [a + b for a, b in zip(history.source_backlog, history.queued, strict=True)][:within]
    rows = [
        ("arriving", arriving, f"up to {_rate(max(arriving))}"),
        ("taken in", emitted, f"up to {_rate(max(emitted))}"),
    ]
    times = history.times_s[:within][:: max(1, within // 200)]
    for name in run.model.dataflow.scalable:
        instances = [float(run.plan_at(t)[name]) for t in times]
        fewest = f"{min(instances):.0f} to " if min(instances) < max(instances) else ""
        rows.append((name, instances, fewest + counted(round(max(instances)), "instance")))
    rows.append(("waiting", waiting, f"up to {number_text(max(waiting))} records"))
    room = width - max(len(name) for name, _, _ in rows) - max(len(text) for _, _, text in rows) - 4
    table = Table.grid(padding=(0, 2))
    for name, values, text in rows:
        table.add_row(name, sparkline(values, max(10, min(_SPARKLINE_WIDTH, room))), text)
    return table


def sparkline(values: Sequence[float], width: int = _SPARKLINE_WIDTH) -> str:
    """A line of bars, each the mean of its part of the values."""
    if not values:
        return ""
    size = min(width, len(values))
    edges = [round(index * len(values) / size) for index in range(size + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(means) or 1.0
    return "".join(_BARS[min(7, int(8 * mean / top))] for mean in means)


def print_policies(console: Console, policies: Sequence[PolicyInfo]) -> None:
    table = text_table("name", "what it does", "needs", "good for")
    for info in policies:
        summary = f"{info.summary} (from {info.origin})" if info.origin else info.summary
        table.add_row(Text(info.name, style="bold"), summary, info.needs, info.good_for)
    print_table(console, "policies", table)


def print_options(console: Console, title: str, options: Sequence[OptionInfo]) -> None:
    table = text_table("option", "default", "unit", "meaning")
    for info in options:
        table.add_row(info.name, "none" if info.default is None else str(info.default), info.unit, info.meaning)
    print_table(console, title, table)


def print_policy(console: Console, info: PolicyInfo) -> None:
    console.print(Text.assemble((info.name, "bold"), f": {info.summary}"))
    console.print(f"needs: {info.needs}\ngood for: {info.good_for}")
    if info.whole_jobs:
        console.print(f"is {ONLY_WHOLE_JOBS}")
    if info.origin:
        console.print(f"from: {info.origin}")
    if info.knobs:
        console.print(f"run with: {', '.join(f'{name} = {value}' for name, value in info.knobs.items())}")
    print_options(console, f"options of {info.name} (--set NAME=VALUE)", policy_options(info))


def policy_options(info: PolicyInfo) -> tuple[OptionInfo, ...]:
    """The options of a policy; what its name sets is the default under that name."""
    options = describe(info.options_class)
    return tuple(replace(option, default=info.preset.get(option.name, option.default)) for option in options)


def print_starting_plan(console: Console, plan: StartingPlan) -> None:
    table = number_table("operator", "instances", "lowest", "highest", "windows")
    for name, point in plan.operators.items():
        instances = Text(str(point.parallelism), style="bold")
        table.add_row(name, instances, str(point.lowest), str(point.highest), str(point.windows))
    wanted = ", ".join(f"{name} at {_rate(rate)}" for name, rate in plan.source_rates.items())
    print_table(console, f"to start with, for {wanted}: the median of what the windows say", table)
    for point in plan.operators.values():
        _print_advice(console, point.latest, _EXPLAINING)
    for name in plan.unknown:
        print_hanging(console, "• ", Text.assemble((name, "yellow"), ": no recorded window says what it can do"))


# What all of these share


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def number_table(name: str, *numbers: str) -> Table:
    """A column of names, which may be broken to fit, and columns of numbers, which may not."""
    table = Table(header_style="bold", border_style="dim")
    table.add_column(name, overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def text_table(*columns: str) -> Table:
    return Table(*columns, header_style="bold", border_style="dim")


def print_table(console: Console, title: str, table: Table) -> None:
    console.print(Text(title, style="italic"))
    console.print(table)


def print_hanging(console: Console, lead: str | Text, text: str | Text) -> None:
    """A paragraph whose lines all begin where the first one does, after its lead."""
    lead = Text(lead) if isinstance(lead, str) else lead
    text = Text(text) if isinstance(text, str) else text
    room = max(_LEAST_ROOM, console.width - lead.cell_len)
    for number, line in enumerate(text.wrap(console, room)):
        line.rstrip()
        console.print(Text.assemble(lead if number == 0 else " " * lead.cell_len, line), soft_wrap=True)


def _rate(records_per_s: float | None) -> str:
    return "—" if records_per_s is None else f"{number_text(records_per_s)}/s"


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"
