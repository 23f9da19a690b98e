"""What happened in a recorded run, as values: the input, each decision and its effect, what waited, the cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from elastream.durations import text as duration_text
from elastream.errors import InvalidInput
from elastream.manager.events import Accounted, Event, Proposed, event_of_line
from elastream.measurement.accounts import Accounts, StepAccount, late_text
from elastream.measurement.recording import Recording, RunHeader
from elastream.report.timeline import ChartSeries, Timeline, timeline
from elastream.showing import views
from elastream.showing.as_views import window_view
from elastream.showing.history import RunHistory, kept_latency
from elastream.texts import number_text

_STEADY = 1.05  # the highest rate over the lowest: less is no change worth a word
_TELLING = ("trouble", "renewed")
_MOST_CAUSES = 3  # of windows that were not measured completely


@dataclass(frozen=True, kw_only=True)
class ToldDecision:
    """A decision, with what the windows around it say of its effect."""

    view: views.DecisionView
    since_s: float
    """When, since the run began."""
    waiting_before: float | None
    waiting_after: float | None
    """When it was judged; None where it never was."""

    @property
    def changes(self) -> tuple[tuple[str, int, int], ...]:
        """Operator, before and after, of what it changed; what came of it counts, whatever was asked for."""
        after = self.view.after if self.view.in_force is None else self.view.in_force
        return tuple(
            (name, count, after[name])
            for name, count in self.view.before.items()
            if name in after and after[name] != count
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    instance_s: float
    peak: Mapping[str, int]
    """The most that each operator has had."""
    peak_instance_s: float
    """Of that, all the time."""
    by_operator_s: Mapping[str, float]

    @property
    def saved_share(self) -> float:
        return 1 - self.instance_s / self.peak_instance_s if self.peak_instance_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    name: str
    fewest: int
    most: int
    mean: float
    records: float
    late: float | None
    """Dropped because they came behind its watermark, at least as many; None without event time."""
    busiest: float | None
    """The highest utilization of a window."""
    waiting_most: float | None
    waiting_last: float | None
    behind_s: float


@dataclass(frozen=True, kw_only=True)
class Remark:
    """Something that a reader must know: trouble, a changed policy, a note of the engine's."""

    since_s: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Story:
    pipeline: str
    header: RunHeader | None
    policy: str | None
    timeline: Timeline
    windows: tuple[views.WindowView, ...]
    """One for each stretch."""
    events: tuple[Event, ...]
    decisions: tuple[ToldDecision, ...]
    operators: tuple[OperatorFacts, ...]
    cost: Cost
    behind_s: float
    """For so long some operator did not keep up."""
    remarks: tuple[Remark, ...]
    notes: tuple[str, ...]
    """What the recording lacks."""
    accounts: Accounts | None
    """Where every record went, of a run that has ended and told it."""

    @property
    def losses(self) -> tuple[str, ...]:
        """Records that are not in the results: dropped as late, or nobody knows where."""
        late = (late_text(facts.name, round(facts.late)) for facts in self.operators if facts.late)
        return (*late, *(self.accounts.differences if self.accounts else ()))

    @property
    def acted(self) -> tuple[ToldDecision, ...]:
        return tuple(told for told in self.decisions if told.view.outcome is views.DecisionOutcome.DONE)

    @property
    def rehearsed(self) -> bool:
        """Whether everything that was decided was a rehearsal: a dry run."""
        return bool(self.decisions) and all(
            told.view.outcome is views.DecisionOutcome.REHEARSED for told in self.decisions
        )

    @property
    def highest_waiting(self) -> float | None:
        return max((s.waiting for s in self.timeline.stretches if s.waiting is not None), default=None)

    @cached_property
    def foreseen(self) -> Mapping[str, ChartSeries]:
        """What had been expected, and what was prepared for, of all sources, at the time that was meant."""
        times: list[float] = []
        expected: list[float] = []
        prepared: list[float] = []
        for event in self.events:
            outlook = event.proposal.outlook if isinstance(event, Proposed) else ()
            due_s = self.timeline.since(event.at_s) + max((one.ahead_s for one in outlook), default=0.0)
            if outlook and due_s <= self.timeline.duration_s and (not times or due_s > times[-1]):
                times.append(due_s)
                expected.append(sum(one.expected_per_s for one in outlook))
                prepared.append(sum(one.at_most_per_s for one in outlook))
        named = {"expected": expected, "prepared for": prepared}
        return {n: ChartSeries(times_s=tuple(times), values=tuple(v)) for n, v in named.items()} if times else {}

    @property
    def last_waiting(self) -> float | None:
        return self.timeline.stretches[-1].waiting


def tell(recording: Recording, *, pipeline: str) -> Story:
    """The story of a recording; `pipeline` is what it is called where the recording does not say."""
    line = timeline(recording.snapshots)
    events, not_understood = _events(recording.events)
    if line.other_graph:  # what was done to other operators is no part of this story
        events = tuple(event for event in events if event.at_s >= line.began_s)
    header = recording.headers[-1] if recording.headers else None
    windows = tuple(window_view(stretch.snapshot) for stretch in line.stretches)
    accounts = _accounts(events, line)
    name = (header.pipeline if header else None) or pipeline
    proposed = [event.proposal.policy for event in events if isinstance(event, Proposed)]
    return Story(
        pipeline=name,
        header=header,
        policy=(header.policy if header else None) or (proposed[-1] if proposed else None),
        timeline=line,
        windows=windows,
        events=events,
        decisions=tuple(_decisions(name, events, line)),
        operators=tuple(_operators(line, windows, accounts)),
        cost=_cost(line),
        behind_s=_behind_s(line, windows),
        remarks=tuple(sorted(_remarks(events, line), key=lambda remark: remark.since_s)),
        notes=tuple(_notes(recording, line, not_understood)),
        accounts=accounts,
    )


def _accounts(events: Sequence[Event], line: Timeline) -> Accounts | None:
    """Those at the end; not those of an earlier run, after which another one was recorded."""
    found = [event for event in events if isinstance(event, Accounted)]
    if not found or found[-1].at_s < line.stretches[-1].snapshot.at_s:
        return None
    return found[-1].accounts


def _remarks(events: Sequence[Event], line: Timeline) -> Iterator[Remark]:
    for event in events:
        if event.event in _TELLING:
            yield Remark(since_s=line.since(event.at_s), text=getattr(event, "what", ""))
    before: tuple[str, ...] = ()
    for stretch in line.stretches:
        notes = stretch.snapshot.notes
        for note in notes:
            if note not in before:  # what still holds was said when it began
                yield Remark(since_s=stretch.end_s, text=note)
        before = notes


def _events(lines: Sequence[Mapping[str, Any]]) -> tuple[tuple[Event, ...], int]:
    """The events that are understood, and how many are not."""
    found: list[Event | None] = []
    for line in lines:
        try:
            found.append(event_of_line(line))
        except InvalidInput:
            continue
    return tuple(event for event in found if event is not None), len(lines) - len(found)


def _decisions(pipeline: str, events: Sequence[Event], line: Timeline) -> Iterator[ToldDecision]:
    history = RunHistory(pipeline, live=False)
    found: dict[int, views.DecisionView] = {}
    for event in events:
        decision = history.add_event(event).decision
        if decision is not None:
            found[decision.id] = decision
    for decision in found.values():
        judged_s = None if decision.judged_at_s is None else line.since(decision.judged_at_s)
        since_s = line.since(decision.at_s)
        yield ToldDecision(
            view=decision,
            since_s=since_s,
            waiting_before=_waiting_at(line, since_s),
            waiting_after=None if judged_s is None else _waiting_at(line, judged_s),
        )


def _waiting_at(line: Timeline, since_s: float) -> float | None:
    """At the end of the last window that was over by then; an event comes as its window ends."""
    over = [stretch for stretch in line.stretches if stretch.end_s <= since_s * (1 + 1e-9) + 1e-6]
    return (over[-1] if over else line.stretches[0]).waiting


def _operators(
    line: Timeline, windows: Sequence[views.WindowView], accounts: Accounts | None
) -> Iterator[OperatorFacts]:
    # of other operators before these, accounts would count as well
    exact = {step.operator: step for step in accounts.steps} if accounts and not line.other_graph else {}
    for name in line.stretches[-1].snapshot.dataflow.scalable:
        counts = [stretch.snapshot.plan[name] for stretch in line.stretches]
        rates = [stretch.snapshot.measurements.get(name) for stretch in line.stretches]
        known = [found.totals for found in rates if found is not None]
        waiting = [found.backlog for found in known if found.backlog is not None]
        instance_s = sum(n * s.lasts_s for n, s in zip(counts, line.stretches, strict=True))
        yield OperatorFacts(
            name=name,
            fewest=min(counts),
            most=max(counts),
            mean=instance_s / line.duration_s,
            records=_counted(exact.get(name), "records_in", [found.records_in for found in known]) or 0.0,
            late=_counted(exact.get(name), "late", [found.records_late for found in known]),
            busiest=max((found.utilization for found in rates if found is not None), default=None),
            waiting_most=max(waiting, default=None),
            waiting_last=waiting[-1] if waiting else None,
            behind_s=_behind_s(line, windows, name),
        )


def _counted(exact: StepAccount | None, field: str, windows: Sequence[float | None]) -> float | None:
    """By the accounts, where there are any; else by what windows told, which miss what lies between them."""
    found: float | None = getattr(exact, field, None)
    known = [count for count in windows if count is not None]
    return found if found is not None else sum(known) if known else None


def _behind_s(line: Timeline, windows: Sequence[views.WindowView], only: str | None = None) -> float:
    return sum(
        stretch.lasts_s
        for stretch, window in zip(line.stretches, windows, strict=True)
        if any(op.health is views.Health.BEHIND and only in (None, op.name) for op in window.operators)
    )


def _cost(line: Timeline) -> Cost:
    by_operator_s: dict[str, float] = {}
    peak: dict[str, int] = {}
    for stretch in line.stretches:
        for name, count in stretch.snapshot.plan.items():
            by_operator_s[name] = by_operator_s.get(name, 0.0) + count * stretch.lasts_s
            peak[name] = max(peak.get(name, 0), count)
    return Cost(
        instance_s=sum(by_operator_s.values()),
        peak=peak,
        peak_instance_s=sum(peak.values()) * line.duration_s,
        by_operator_s=by_operator_s,
    )


def _notes(recording: Recording, line: Timeline, not_understood: int) -> Iterator[str]:
    if recording.cut_off:
        yield (
            "The last line of the recording is cut off: it was being written, or its writer was killed. "
            "This is what stands before it."
        )
    if recording.out_of_order:
        yield (
            f"{recording.out_of_order} windows, which end no later than one before them, are left out: "
            "a clock was set back."
        )
    if not recording.headers:
        yield "The recording does not say what was run with which settings: it is older than that."
    if line.other_graph:
        yield (
            f"{line.other_graph} earlier windows, in which the pipeline had other operators, are left out, "
            "with their events."
        )
    if line.unwatched_s:
        yield f"Nobody watched for {duration_text(line.unwatched_s)} in between; that time is left out."
    if not_understood:
        yield f"{not_understood} lines tell of something that this version does not know; they are left out."
    incomplete = [stretch.snapshot.missing for stretch in line.stretches if stretch.snapshot.missing]
    if incomplete:
        causes = Counter(cause for missing in incomplete for cause in missing).most_common(_MOST_CAUSES)
        told = "; ".join(f"{cause} (in {count})" for cause, count in causes)
        yield f"{len(incomplete)} of {len(line.stretches)} windows were not measured completely: {told}."


# As text


def summary(story: Story) -> tuple[str, str, str]:
    """The run in three sentences: what came in, what was done, what it cost."""
    return _input_text(story) + _latency_text(story), _decided_text(story), _cost_text(story)


def _latency_text(story: Story) -> str:
    """For how long the latency was kept that was asked for."""
    asked = [
        (stretch.lasts_s, kept)
        for stretch, window in zip(story.timeline.stretches, story.windows, strict=True)
        if (kept := kept_latency(window)) is not None
    ]
    target_s = story.windows[-1].latency_target_s
    if not asked or target_s is None:
        return ""
    share = math.fsum(lasts_s for lasts_s, kept in asked if kept) / math.fsum(lasts_s for lasts_s, _ in asked)
    return f" The latency of {duration_text(target_s)} that was asked for was kept for {share:.0%} of the time."


def _input_text(story: Story) -> str:
    rates = [stretch.records_per_s for stretch in story.timeline.stretches]
    low, high = min(rates), max(rates)
    steady = high <= _STEADY * low or high == 0
    span = f"about {number_text(high)}" if steady else f"between {number_text(low)} and {number_text(high)}"
    came = f"In {duration_text(story.timeline.duration_s)}, {span} records/s arrived at {story.pipeline}"
    if story.highest_waiting is None:
        return f"{came}."
    if not story.behind_s:
        return f"{came}, and it always kept up."
    share = story.behind_s / story.timeline.duration_s
    return (
        f"{came}; it was behind for {duration_text(story.behind_s)} ({share:.0%} of the time), with at most "
        f"{number_text(story.highest_waiting)} records waiting, {number_text(story.last_waiting or 0)} at the end."
    )


def _decided_text(story: Story) -> str:
    by = f"elastream ({story.policy})" if story.policy else "elastream"
    totals = [stretch.snapshot.plan.total for stretch in story.timeline.stretches]
    if story.rehearsed:
        return f"{by} only rehearsed: it would have changed the parallelism {_times(len(story.decisions))}."
    if not story.acted:
        return f"The parallelism stayed at {_instances(totals[0])}: no change was carried out."
    failed = sum(told.view.outcome is views.DecisionOutcome.FAILED for told in story.decisions)
    text = (
        f"{by} changed the parallelism {_times(len(story.acted))}, between {min(totals)} and "
        f"{_instances(max(totals))} in all"
    )
    if failed:
        text += f"; {failed} more {'changes' if failed > 1 else 'change'} failed"
    return f"{text}; {_effect_text(story)}."


def _effect_text(story: Story) -> str:
    verdicts = [told.view.verdict for told in story.acted]
    judged = [verdict for verdict in verdicts if verdict is not None]
    effective = judged.count("effective")
    if not judged:
        return "what came of it was not judged yet" if len(verdicts) == 1 else "none of them was judged yet"
    if effective == len(judged):
        if len(judged) == 1:
            return "it had the effect that was expected"
        return f"all {len(judged)} that were judged had the effect that was expected"
    others = ", ".join(f"{judged.count(v)} {v}" for v in ("useless", "harmful", "unclear") if v in judged)
    return f"of {len(judged)} that were judged, {effective} had the effect that was expected, {others}"


def _cost_text(story: Story) -> str:
    cost = story.cost
    used = f"It used {hours_text(cost.instance_s)}"
    if cost.saved_share < 0.005:
        return f"{used}, as much as its peak of {_instances(sum(cost.peak.values()))} all the time would have."
    return (
        f"{used}, {cost.saved_share:.0%} less than its peak of {_instances(sum(cost.peak.values()))} "
        "all the time would have."
    )


def hours_text(instance_s: float) -> str:
    hours = instance_s / 3600
    return f"{number_text(hours) if hours >= 0.1 else f'{hours:.2g}'} instance-hours"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _instances(count: int) -> str:
    return f"{count} instance{'' if count == 1 else 's'}"
