"""From what the manager produces to what is shown: pure functions, one for each view."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from elastream.dataflow import Dataflow
from elastream.manager.decision import Decision
from elastream.manager.events import (
    Accounted,
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
from elastream.manager.knobs import Knobs
from elastream.measurement import Measurement, Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.flow import achieved_share, end_to_end_s, throughput
from elastream.measurement.recording import RunHeader
from elastream.measurement.shown import values_of
from elastream.measurement.snapshot import once
from elastream.options import describe
from elastream.policies.catalog import catalog
from elastream.policies.outlook import Outlook
from elastream.policies.proposal import Reason
from elastream.showing import views
from elastream.showing.expectations import Expectations
from elastream.showing.health import achieved_at_source, health


def about_view(pipeline: str, header: RunHeader | None) -> views.AboutView:
    """`pipeline` is what it is called where the run does not say."""
    if header is None:
        return views.AboutView(pipeline=pipeline, policy=None, engine=None)
    return views.AboutView(pipeline=header.pipeline or pipeline, policy=header.policy, engine=header.engine)


def graph_view(pipeline: str, dataflow: Dataflow) -> views.GraphView:
    return views.GraphView(
        pipeline=pipeline,
        operators=tuple(_operator(dataflow, name) for name in dataflow.order),
        edges=tuple(views.EdgeView(producer=c.producer, consumer=c.consumer) for c in dataflow.channels),
    )


def _operator(dataflow: Dataflow, name: str) -> views.OperatorView:
    operator = dataflow[name]
    kind = views.OperatorKind.OPERATOR if dataflow.downstream(name) else views.OperatorKind.SINK
    return views.OperatorView(
        name=name,
        kind=views.OperatorKind.SOURCE if operator.source else kind,
        inputs=dataflow.upstream(name),
        least=operator.min_parallelism,
        most=None if math.isinf(operator.most) else int(operator.most),
        fixed=operator.fixed,
        state_partitions=operator.state_partitions,
    )


# One window


@once
def window_view(snapshot: Snapshot) -> views.WindowView:
    processed = throughput(snapshot)
    return views.WindowView(
        at_s=snapshot.at_s,
        window_s=snapshot.window_s,
        achieved_share=achieved_share(snapshot),
        latency_s=end_to_end_s(snapshot),
        latency_target_s=snapshot.latency_target_s,
        sources=tuple(
            views.SourceWindow(
                name=name,
                offered_per_s=rate,
                achieved_per_s=achieved_at_source(snapshot, name),
                processed_per_s=processed.get(name),
            )
            for name, rate in snapshot.source_rates.items()
        ),
        operators=tuple(_operator_window(snapshot, name) for name in snapshot.dataflow.order),
        nodes=tuple(_nodes(snapshot)),
        executors=tuple(views.ExecutorWindow(**asdict(executor)) for executor in snapshot.executors),
        missing=snapshot.missing,
        notes=snapshot.notes,
    )


def _operator_window(snapshot: Snapshot, name: str) -> views.OperatorWindow:
    measured = snapshot.measurements.get(name)
    parallelism = None if snapshot.dataflow[name].source else snapshot.plan[name]
    word, why = health(snapshot, name)
    return views.OperatorWindow(
        name=name,
        parallelism=parallelism,
        **values_of(snapshot, name),
        health=word,
        why=why,
        batch=None if measured is None or parallelism is None else _batch(measured, parallelism),
    )


def _batch(measured: Measurement, parallelism: int) -> views.BatchView | None:
    if measured.batch_cost is None:
        return None
    return batch_view(measured.batch_cost, parallelism, measured.observed_per_s)


def batch_view(cost: BatchCost, parallelism: int, records_per_s: float) -> views.BatchView:
    """Seconds on the clock: the busy time of all tasks is shared by the instances, as evenly as they do."""
    at_once = parallelism * cost.balance
    fixed_s = cost.per_task_s * parallelism + cost.per_state_partition_s * cost.state_partitions
    return views.BatchView(
        driver_s=cost.driver_s,
        fixed_s=fixed_s / at_once,
        records_s=cost.per_record_s * records_per_s * cost.longest_batch_s / at_once,
        longest_s=cost.longest_batch_s,
        per_record_s=cost.per_record_s,
    )


def _nodes(snapshot: Snapshot) -> Iterator[views.NodeWindow]:
    if snapshot.nodes is None:
        return
    held = Counter(node for nodes in snapshot.placement.values() for node in nodes)
    for node in snapshot.nodes.nodes:
        yield views.NodeWindow(
            name=node.name, slots=node.slots, instances=held[node.name], available=node.available
        )


# Proposals, decisions, events


def proposal_view(event: Proposed) -> views.ProposalView:
    proposal = event.proposal
    return views.ProposalView(
        at_s=event.at_s,
        policy=proposal.policy,
        advice=tuple(
            views.AdviceView(operator=name, need=advice.need, parallelism=advice.parallelism)
            for name, advice in proposal.advice.items()
        ),
        reasons=(
            *_reasons(proposal.reasons),
            *(reason for name, advice in proposal.advice.items() for reason in _reasons(advice.reasons, name)),
        ),
        expected_share=proposal.expected_share,
        outlook=tuple(views.OutlookView(**asdict(one)) for one in proposal.outlook),
    )


def with_expected(window: views.WindowView, expectations: Expectations) -> views.WindowView:
    """The window with what had been expected of it."""
    found = {source.name: expectations.of(source.name, window.at_s) for source in window.sources}
    if not any(found.values()):
        return window
    return window.model_copy(
        update={"sources": tuple(_with_outlook(source, found[source.name]) for source in window.sources)}
    )


def _with_outlook(source: views.SourceWindow, said: Outlook | None) -> views.SourceWindow:
    if said is None:
        return source
    expected = {
        "expected_per_s": said.expected_per_s,
        "prepared_per_s": said.at_most_per_s,
        "forecast_error": said.error,
    }
    return source.model_copy(update=expected)


def _reasons(reasons: tuple[Reason, ...], operator: str | None = None) -> Iterator[views.ReasonView]:
    for reason in reasons:
        yield views.ReasonView(kind=reason.kind, text=reason.text, operator=operator)


def decision_view(event: Decided, identity: int) -> views.DecisionView:
    decision = event.decision
    return views.DecisionView(
        id=identity,
        number=decision.number,
        at_s=event.at_s,
        kind=decision.kind,
        before=dict(decision.before),
        after=dict(decision.after),
        reasons=tuple(_decision_reasons(decision)),
        share_before=decision.share_before,
        expected_share=decision.expected_share,
        outcome=views.DecisionOutcome.REHEARSED if event.dry_run else views.DecisionOutcome.UNDER_WAY,
    )


def _decision_reasons(decision: Decision) -> Iterator[views.ReasonView]:
    yield from _reasons(decision.reasons)
    for advice in decision.advice:
        yield from _reasons(advice.reasons, advice.operator)


def acted_upon(decision: views.DecisionView, event: Acted) -> views.DecisionView:
    outcome = event.outcome
    return decision.model_copy(
        update={
            "outcome": views.DecisionOutcome.DONE if outcome.succeeded else views.DecisionOutcome.FAILED,
            "in_force": dict(outcome.plan),
            "took_s": outcome.took_s,
            "detail": outcome.detail,
        }
    )


def judged(decision: views.DecisionView, event: Judged) -> views.DecisionView:
    return decision.model_copy(
        update={
            "achieved_share": event.share_after,
            "verdict": str(event.verdict),
            "judged_at_s": event.at_s,
        }
    )


def event_text(event: Event) -> str:
    """One line for people."""
    match event:
        case Ignored(why=why):
            return f"window left out: {why}"
        case Proposed(proposal=proposal):
            wanted = ", ".join(f"{name} {count}" for name, count in proposal.parallelism.items())
            return f"{proposal.policy} wants {wanted or 'nothing'}"
        case Held(why=why):
            return f"held: {why}"
        case Decided(decision=decision, dry_run=dry_run):
            return f"{'would ' if dry_run else ''}{decision.kind}: {decision}"
        case Acted(number=number, outcome=outcome):
            done = f"done in {outcome.took_s:.2f} s" if outcome.succeeded else "failed"
            return f"action {number}: {done}{f': {outcome.detail}' if outcome.detail else ''}"
        case Judged(number=number, verdict=verdict, share_after=share):
            return f"action {number}: {verdict}, {'?' if share is None else f'{share:.0%}'} achieved"
        case PhaseChanged(before=before, after=after, why=why):
            return f"{before} → {after}: {why}"
        case Renewed(what=what) | Trouble(what=what) | Steered(what=what):
            return what
        case Accounted(accounts=accounts):
            return "; ".join((*(accounts.differences or ("every record is accounted for",)), *accounts.warnings))


def option_views(options: object) -> tuple[views.OptionView, ...]:
    """The options of a policy or of the manager as they are set."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}  # type: ignore[arg-type]
    return tuple(
        views.OptionView(name=info.name, value=values[info.name], unit=info.unit, meaning=info.meaning)
        for info in describe(type(options))
    )


def recorded_configuration(shown: views.ConfigurationView, header: RunHeader | None) -> views.ConfigurationView:
    """Of a recording: what its newest run says of itself; settings that are no longer known have no meaning."""
    if header is None:
        return shown
    entry = catalog().get(header.policy or "")
    return shown.model_copy(
        update={
            "pipeline": header.pipeline or shown.pipeline,
            "policy": header.policy,
            "options": _recorded(header.options, entry.options_class if entry else None),
            "knobs": _recorded(header.knobs, Knobs),
        }
    )


def _recorded(settings: Mapping[str, Any], options_class: type[Any] | None) -> tuple[views.OptionView, ...]:
    known = {info.name: info for info in (describe(options_class) if options_class else ())}
    return tuple(
        views.OptionView(
            name=name,
            value=value,
            unit=known[name].unit if name in known else "",
            meaning=known[name].meaning if name in known else "",
        )
        for name, value in settings.items()
    )
