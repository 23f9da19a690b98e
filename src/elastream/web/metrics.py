"""The newest window for Prometheus, by its conventions: base units, counters that end in `_total`, help for each.

A collector over what is shown anyway, so that nothing is kept twice and a scrape costs what it takes to write the
text. What nobody measured has no sample, rather than a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus

from fastapi import Depends, FastAPI, Request, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from elastream._version import __version__
from elastream.manager.decision import DecisionKind
from elastream.manager.events import ActionVerdict
from elastream.manager.phase import ManagerPhase
from elastream.measurement.executor import EXECUTOR_QUANTITIES
from elastream.measurement.quantity import Quantity
from elastream.measurement.shown import OPERATOR_QUANTITIES
from elastream.policies.outlook import OUTLOOK_QUANTITIES
from elastream.showing import views
from elastream.showing.deciding import is_deciding
from elastream.showing.totals import COUNTED
from elastream.web import problems
from elastream.web.admission import check_may_look
from elastream.web.feed import Feed

_BATCH_PARTS = {"driver": "driver_s", "fixed": "fixed_s", "records": "records_s"}


def add_metrics(app: FastAPI, feed: Feed) -> None:
    registry = CollectorRegistry()
    registry.register(RunCollector(feed))

    @app.get(
        "/metrics",
        tags=["probes"],
        summary="For Prometheus",
        response_class=Response,
        dependencies=[Depends(check_may_look)],
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problems.documented(HTTPStatus.UNAUTHORIZED),
        },
    )
    async def metrics(request: Request) -> Response:
        encoder, content_type = _encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), headers={"Content-Type": content_type})


def _encoder(accepted: str) -> tuple[Callable[[Collector], bytes], str]:
    """What was asked for; the plain format where a version is asked for that is no number."""
    try:
        return choose_encoder(accepted)
    except (TypeError, ValueError):  # the library compares words with numbers
        return choose_encoder("")


class RunCollector(Collector):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def _pipeline(self) -> str:
        return self._feed.history.about.pipeline

    def describe(self) -> Iterable[Metric]:
        return ()  # what there is depends on what was measured

    def collect(self) -> Iterator[Metric]:
        info = InfoMetricFamily("elastream_build", "The version of elastream.")
        info.add_metric([], {"version": __version__})
        yield info
        yield from self._run()
        yield from self._totals()
        window = self._feed.history.window
        if window is not None:
            yield from self._operators(window)
            yield from self._sources(window)
            yield from self._nodes(window)
            yield from self._executors(window)

    def _run(self) -> Iterator[Metric]:
        history = self._feed.history
        share = history.window.achieved_share if history.window is not None else None
        yield self._one("elastream_achieved_ratio", "Share of the required rate that was achieved.", share)
        yield from self._latency(history.window, history.cost)
        yield self._one("elastream_manager_paused", "Whether scaling is paused.", history.manager.paused)
        text = "Whether the newest window was decided on."
        yield self._one("elastream_manager_deciding", text, is_deciding(history.manager.deciding))
        yield self._one("elastream_manager_dry_run", "Whether decisions are only told.", history.manager.dry_run)
        phases = self._gauge(
            "elastream_manager_phase", "The phase of the manager: 1 for the one it is in.", "phase"
        )
        for phase in ManagerPhase if history.manager.phase is not None else ():
            phases.add_metric([self._pipeline, str(phase)], history.manager.phase == phase)
        yield phases
        yield self._one("elastream_window_age_seconds", "Since the newest window came.", self._feed.latest_age_s)
        yield self._one("elastream_viewers", "Pages that look at this run.", self._feed.viewers)
        peak = history.cost.static_peak_instance_s
        text = "Instance seconds that every operator at its highest parallelism would have used so far."
        yield self._one("elastream_static_peak_instance_seconds", text, peak)

    def _latency(self, window: views.WindowView | None, cost: views.CostView) -> Iterator[Metric]:
        now_s, target_s = (None, None) if window is None else (window.latency_s, window.latency_target_s)
        yield self._one("elastream_latency_seconds", "From end to end, on the slowest path.", now_s)
        yield self._one("elastream_latency_target_seconds", "What it is to be at most.", target_s)
        if target_s is not None:
            for name, text, value in (
                (
                    "elastream_latency_asked_seconds",
                    "Time for which a latency was asked for.",
                    cost.latency_asked_s,
                ),
                ("elastream_latency_kept_seconds", "How much of that it was kept.", cost.latency_kept_s),
            ):
                counter = self._counter(name, text)
                counter.add_metric([self._pipeline], value)
                yield counter

    def _totals(self) -> Iterator[Metric]:
        history, totals = self._feed.history, self._feed.history.totals
        used = self._counter("elastream_instance_seconds", "Instance seconds that were used.")
        used.add_metric([self._pipeline], history.cost.instance_s)
        yield used
        for name, text, value in (
            ("elastream_windows", "Windows that were measured.", totals.windows),
            ("elastream_incomplete_windows", "Windows with something missing.", totals.incomplete_windows),
            ("elastream_troubles", "Times that something outside failed.", totals.troubles),
            ("elastream_action_seconds", "Time that actions took.", totals.action_s),
        ):
            counter = self._counter(name, text)
            counter.add_metric([self._pipeline], value)
            yield counter
        decisions = self._counter(
            "elastream_decisions", "Decisions, and rehearsals of a dry run.", "kind", "dry_run"
        )
        for kind in DecisionKind:
            for dry_run in (False, True):
                found = totals.decisions[str(kind), dry_run]
                decisions.add_metric([self._pipeline, str(kind), str(dry_run).lower()], found)
        yield decisions
        actions = self._counter("elastream_actions", "Actions that ended.", "outcome")
        for succeeded, outcome in ((True, views.DecisionOutcome.DONE), (False, views.DecisionOutcome.FAILED)):
            actions.add_metric([self._pipeline, str(outcome)], totals.actions[succeeded])
        yield actions
        verdicts = self._counter("elastream_verdicts", "Actions that were judged.", "verdict")
        for verdict in ActionVerdict:
            verdicts.add_metric([self._pipeline, str(verdict)], totals.verdicts[str(verdict)])
        yield verdicts
        for name, counted in totals.counted.items():
            text = f"Since the beginning: {OPERATOR_QUANTITIES[name].meaning}."
            counter = self._counter(f"elastream_operator_{COUNTED[name]}", text, "operator")
            for operator, count in counted.items():
                counter.add_metric([self._pipeline, operator], count)
            yield counter

    def _operators(self, window: views.WindowView) -> Iterator[Metric]:
        parallelism = self._gauge("elastream_operator_parallelism", "Instances of the operator.", "operator")
        for operator in window.operators:
            if operator.parallelism is not None:
                parallelism.add_metric([self._pipeline, operator.name], operator.parallelism)
        yield parallelism
        named = [(operator.name, operator) for operator in window.operators]
        yield from self._gauges("operator", OPERATOR_QUANTITIES, named)
        health = self._gauge(
            "elastream_operator_health", "How the operator does: 1 for the word that fits.", "operator", "health"
        )
        batch = self._gauge(
            "elastream_operator_batch_seconds", "Where the time of a batch goes.", "operator", "part"
        )
        for operator in window.operators:
            for word in views.Health:
                health.add_metric([self._pipeline, operator.name, str(word)], operator.health is word)
            for part, field in _BATCH_PARTS.items() if operator.batch is not None else ():
                batch.add_metric([self._pipeline, operator.name, part], getattr(operator.batch, field))
        yield health
        yield batch

    def _sources(self, window: views.WindowView) -> Iterator[Metric]:
        offered = self._gauge(
            "elastream_source_offered_records_per_second", "Records per second that arrived.", "source"
        )
        achieved = self._gauge(
            "elastream_source_achieved_records_per_second", "How many of them were taken in.", "source"
        )
        processed = self._gauge(
            "elastream_source_processed_records_per_second", "How many went through all of the pipeline.", "source"
        )
        for source in window.sources:
            offered.add_metric([self._pipeline, source.name], source.offered_per_s)
            if source.achieved_per_s is not None:
                achieved.add_metric([self._pipeline, source.name], source.achieved_per_s)
            if source.processed_per_s is not None:
                processed.add_metric([self._pipeline, source.name], source.processed_per_s)
        yield offered
        yield achieved
        yield processed
        proposal = self._feed.history.proposal
        named = [] if proposal is None else [(one.source, one) for one in proposal.outlook]
        yield from self._gauges("source", OUTLOOK_QUANTITIES, named)

    def _nodes(self, window: views.WindowView) -> Iterator[Metric]:
        slots = self._gauge("elastream_node_slots", "Instances that the node can hold.", "node")
        instances = self._gauge("elastream_node_instances", "Instances that run on the node.", "node")
        for node in window.nodes:
            slots.add_metric([self._pipeline, node.name], node.slots if node.available else 0)
            instances.add_metric([self._pipeline, node.name], node.instances)
        yield slots
        yield instances

    def _executors(self, window: views.WindowView) -> Iterator[Metric]:
        info = InfoMetricFamily("elastream_executor", "Where the executor runs.", labels=["pipeline", "executor"])
        for executor in window.executors:
            info.add_metric([self._pipeline, executor.id], {"host": executor.host, "node": executor.node or ""})
        yield info
        named = [(executor.id, executor) for executor in window.executors]
        yield from self._gauges("executor", EXECUTOR_QUANTITIES, named)

    def _gauges(
        self, kind: str, quantities: Mapping[str, Quantity], named: Sequence[tuple[str, views.View]]
    ) -> Iterator[Metric]:
        """One for each quantity that has a gauge, with a sample for each that was measured."""
        for field, quantity in quantities.items():
            if quantity.gauge is not None:
                text = f"In the newest window: {quantity.meaning}."
                gauge = self._gauge(f"elastream_{kind}_{quantity.gauge}", text, kind)
                for name, view in named:
                    if (value := getattr(view, field)) is not None:
                        gauge.add_metric([self._pipeline, name], value)
                yield gauge

    def _one(self, name: str, text: str, value: float | None) -> GaugeMetricFamily:
        gauge = self._gauge(name, text)
        if value is not None:
            gauge.add_metric([self._pipeline], value)
        return gauge

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=["pipeline", *labels])

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=["pipeline", *labels])
