"""What the command prints: tables and sentences, from the same values that `--json` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from elastream.durations import text as duration_text
from elastream.engines.simulated.simulation import Simulation
from elastream.experiments.frame import Experiment, Report
from elastream.manager.events import Decided, Event, Judged
from elastream.monitor import Snapshot
from elastream.monitor.elasticity import Elasticity
from elastream.options import OptionInfo, describe
from elastream.policies.advice import number_text
from elastream.policies.catalog import PolicyInfo
from elastream.policies.proposal import Advice, Proposal, ReasonKind
from elastream.policies.starting_plan import StartingPlan

_BARS = "▁▂▃▄▅▆▇█"
_TELLING = frozenset(ReasonKind) - {ReasonKind.MEASURED, ReasonKind.FORMULA}


def print_proposal(console: Console, snapshot: Snapshot, proposal: Proposal) -> None:
    table = _table(f"{proposal.policy}: how many instances each operator needs")
    table.add_column("operator", no_wrap=True)
    for column in ("now", "needs", "propose", "must process", "one can do", "busy"):
        table.add_column(column, justify="right")
    table.add_column("why")
    for advice in proposal.advice.values():
        table.add_row(*_proposal_row(advice))
    console.print(table)
    for reason in proposal.reasons:
        console.print(f"• {reason}")
    if proposal.workers is not None:
        console.print(f"workers: [bold]{proposal.workers}[/bold]")
    if not snapshot.is_complete:
        console.print(f"[yellow]incomplete:[/yellow] {'; '.join(snapshot.missing)}")
    if proposal.expected_share is not None:
        console.print(f"expected: {proposal.expected_share:.0%} of the source rate is sustained")


def _proposal_row(advice: Advice) -> tuple[str | Text, ...]:
    proposed = "—" if advice.parallelism is None else str(advice.parallelism)
    changes = advice.parallelism not in (None, advice.current)
    return (
        advice.operator,
        str(advice.current),
        "—" if advice.need is None else f"{advice.need:.2f}",
        Text(proposed, style="bold green" if changes else ""),
        _rate(advice.target_per_s),
        _rate(advice.true_per_instance_per_s),
        "—" if advice.utilization is None else f"{advice.utilization:.0%}",
        _why(advice),
    )


def _why(advice: Advice) -> str:
    """What is worth saying beside the numbers of the row; all reasons are in --json and --why."""
    return "; ".join(reason.text for reason in advice.reasons if reason.kind in _TELLING)


def print_reasons(console: Console, proposal: Proposal) -> None:
    for advice in proposal.advice.values():
        console.print(f"[bold]{advice.operator}[/bold]")
        for reason in advice.reasons:
            console.print(f"  {reason.kind:<18} {reason.text}", highlight=False)


def print_simulation(console: Console, name: str, policy: str, run: Simulation) -> None:
    console.rule(f"{name}: {duration_text(run.duration_s)} with {policy} (simulated)")
    print_decisions(console, run.events)
    console.print(_sparklines(run))
    print_elasticity(console, {policy: run.elasticity})
    console.print(_summary(run))


def print_decisions(console: Console, events: Sequence[Event]) -> None:
    """Each decision with its reasons below it, and what it achieved."""
    decided = [event for event in events if isinstance(event, Decided)]
    if not decided:
        console.print("No decision was made: the pipeline stayed as it was.")
    verdicts = {event.number: event for event in events if isinstance(event, Judged)}
    for event in decided:
        decision, verdict = event.decision, verdicts.get(event.decision.number)
        achieved = f"{_share(decision.share_before)} achieved before"
        if verdict is not None:
            achieved += f", {_share(verdict.share_after)} after: {verdict.verdict}"
        would = "would " if event.dry_run else ""
        console.print(
            f"[bold]{duration_text(decision.at_s):>9}  {would}{decision.kind} {decision}[/bold]  ({achieved})",
            highlight=False,
        )
        for why in _decision_reasons(event):
            console.print(Padding(f"• {why}", (0, 0, 0, 11)), highlight=False)


def _decision_reasons(event: Decided) -> list[str]:
    reasons = [reason.text for reason in event.decision.reasons]
    for advice in event.decision.advice:
        told = [reason.text for reason in advice.reasons if reason.kind is not ReasonKind.MEASURED]
        reasons.append(f"{advice.operator} {'; '.join(told)}")
    return reasons


def print_elasticity(console: Console, measures: Mapping[str, Elasticity]) -> None:
    table = _table("elasticity: instances too many or too few on average; cost in instance minutes")
    table.add_column("policy")
    for column in ("too\nmany", "too\nfew", "time too\nmany", "time too\nfew", "excess\ntime", "actions", "cost"):
        table.add_column(column, justify="right")
    for policy, found in measures.items():
        table.add_row(
            policy,
            f"{found.accuracy_over:.2f}",
            f"{found.accuracy_under:.2f}",
            f"{found.timeshare_over:.1%}",
            f"{found.timeshare_under:.1%}",
            f"{found.excess_time:.3f}",
            str(found.reconfigurations),
            f"{found.cost:,.0f}",
        )
    console.print(table)


def _summary(run: Simulation) -> str:
    peak = max(plan.total for _, plan in run.history.plans)
    static = peak * run.duration_s / 60
    saved = 1 - run.elasticity.cost / static
    return (
        f"{run.actions} actions; ends at {run.final_plan}. "
        f"{run.elasticity.cost:,.0f} instance minutes, {saved:.0%} less than {peak} instances all the time."
    )


def _sparklines(run: Simulation) -> Table:
    """Each quantity over time in one line, scaled to its own highest value."""
    within = sum(t <= run.duration_s for t in run.history.times_s)
    table = Table.grid(padding=(0, 2))
    arriving = [sum(values) for values in zip(*run.history.arriving_per_s.values(), strict=True)][:within]
    emitted = [sum(values) for values in zip(*run.history.emitted_per_s.values(), strict=True)][:within]
    waiting = [a + b for a, b in zip(run.history.source_backlog, run.history.queued, strict=True)][:within]
    times = run.history.times_s[:within]
    table.add_row("arriving", sparkline(arriving), f"up to {_rate(max(arriving))}")
    table.add_row("processed", sparkline(emitted), f"up to {_rate(max(emitted))}")
    for name in run.model.dataflow.scalable:
        instances = [float(run.plan_at(t)[name]) for t in times[:: max(1, within // 200)]]
        table.add_row(name, sparkline(instances), f"{min(instances):.0f} to {max(instances):.0f} instances")
    table.add_row("waiting", sparkline(waiting), f"up to {number_text(max(waiting))} records")
    return table


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A line of bars, each the mean of its part of the values."""
    if not values:
        return ""
    size = min(width, len(values))
    edges = [round(index * len(values) / size) for index in range(size + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(means) or 1.0
    return "".join(_BARS[min(7, int(8 * mean / top))] for mean in means)


def print_policies(console: Console, policies: Sequence[PolicyInfo]) -> None:
    table = _table("policies")
    for column in ("name", "what it does", "needs", "good for"):
        table.add_column(column)
    for info in policies:
        table.add_row(f"[bold]{info.name}[/bold]", info.summary, info.needs, info.good_for)
    console.print(table)


def print_options(console: Console, title: str, options: Sequence[OptionInfo]) -> None:
    table = _table(title)
    for column in ("option", "default", "unit", "meaning"):
        table.add_column(column)
    for info in options:
        table.add_row(info.name, "none" if info.default is None else str(info.default), info.unit, info.meaning)
    console.print(table)


def print_policy(console: Console, info: PolicyInfo) -> None:
    console.print(f"[bold]{info.name}[/bold]: {info.summary}")
    console.print(f"needs: {info.needs}\ngood for: {info.good_for}")
    if info.knobs:
        console.print(f"run with: {', '.join(f'{name} = {value}' for name, value in info.knobs.items())}")
    print_options(console, f"options of {info.name} (--set NAME=VALUE)", describe(info.options_class))


def print_experiments(console: Console, found: Sequence[Experiment]) -> None:
    table = _table("experiments")
    for column in ("name", "repeats", "question"):
        table.add_column(column)
    for experiment in found:
        table.add_row(f"[bold]{experiment.name}[/bold]", experiment.paper, experiment.question)
    console.print(table)


def print_report(console: Console, experiment: Experiment, report: Report) -> None:
    console.rule(f"{experiment.name} ({experiment.paper})")
    console.print(experiment.question)
    table = _table("")
    for column in ("what", "ours", "paper", "bound", ""):
        table.add_column(column)
    for check in report.checks:
        mark = "" if not check.bound else "[green]holds[/green]" if check.holds else "[bold red]FAILS[/bold red]"
        table.add_row(check.what, check.ours, check.paper, check.bound, mark)
    console.print(table)
    for note in report.differs:
        console.print(f"• {note}", highlight=False)


def print_starting_plan(console: Console, plan: StartingPlan) -> None:
    wanted = ", ".join(f"{name} at {_rate(rate)}" for name, rate in plan.source_rates.items())
    table = _table(f"to start with, for {wanted}")
    table.add_column("operator")
    for column in ("instances", "range", "windows"):
        table.add_column(column, justify="right")
    table.add_column("why")
    for name, point in plan.operators.items():
        spread = str(point.lowest) if point.lowest == point.highest else f"{point.lowest} to {point.highest}"
        why = "; ".join(r.text for r in point.latest.reasons if r.kind is not ReasonKind.MEASURED)
        table.add_row(name, f"[bold]{point.parallelism}[/bold]", spread, str(point.windows), why)
    console.print(table)
    for name in plan.unknown:
        console.print(f"[yellow]{name}[/yellow]: no recorded window says what it can do")


def _table(title: str) -> Table:
    return Table(title=title or None, title_justify="left", header_style="bold", border_style="dim")


def _rate(records_per_s: float | None) -> str:
    return "—" if records_per_s is None else f"{number_text(records_per_s)}/s"


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"
