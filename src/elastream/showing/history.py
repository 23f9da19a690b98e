"""What is kept of a run to be shown: bounded, whatever the run's length.

Windows are kept as points, of which old ones are merged. Of decisions and events the newest are kept, and those
that may come with every window apart from those that tell of something.

One writer adds, in the order in which things happened; what it gets back is what viewers need to follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from elastream.dataflow import Dataflow
from elastream.manager.events import (
    Acted,
    Decided,
    Event,
    Ignored,
    Judged,
    PhaseChanged,
    Proposed,
    Steered,
    Trouble,
)
from elastream.manager.requests import Controls
from elastream.measurement import Snapshot
from elastream.measurement.recording import RunHeader
from elastream.showing import as_views, views
from elastream.showing.deciding import deciding_text
from elastream.showing.expectations import Expectations
from elastream.showing.points import Point, columns, extended, point_of, thinned
from elastream.showing.totals import RunTotals

_MOST_POINTS = 480
_MOST_DECISIONS = 200
_MOST_EVENTS = 500
_MOST_ROUTINE = 50
_ROUTINE = ("ignored", "held")  # they must not push out what tells of something


class RunHistory:
    def __init__(self, pipeline: str, *, live: bool = True, epoch: str = "0") -> None:
        self._pipeline = pipeline
        """What it is called until a run says it."""
        self.header: RunHeader | None = None
        """Of the newest run; a recording may hold several."""
        self._live = live
        self._epoch = epoch
        """Tells the updates of this history from those of another that was served at the same address before."""
        self._count = 0
        self._dataflow: Dataflow | None = None
        self._window: views.WindowView | None = None
        self._points: list[Point] = []
        self._proposal: views.ProposalView | None = None
        self._decisions: dict[int, views.DecisionView] = {}
        self._telling: deque[views.EventView] = deque(maxlen=_MOST_EVENTS)
        self._routine: deque[views.EventView] = deque(maxlen=_MOST_ROUTINE)
        self._expectations = Expectations()
        self._cost = NO_COST
        self.totals = RunTotals()
        self._manager = views.ManagerView(phase=None, paused=False, dry_run=False, bounds={})

    # What happens

    def begin(self, header: RunHeader) -> views.Update:
        """A run begins, and says what it is; if something is still set from before, it tells that next."""
        self.header = header
        manager = self._changed(self._as_set(Controls()))
        return views.Update(id=self._next_id(), about=self.about, graph=self.graph(), manager=manager)

    def add_snapshot(self, snapshot: Snapshot) -> views.Update:
        window = as_views.with_expected(as_views.window_view(snapshot), self._expectations)
        graph = None
        if snapshot.dataflow != self._dataflow:
            self._dataflow = snapshot.dataflow
            graph = self.graph()
        self._window = window
        self._live = True
        self._points = thinned(extended(self._points, point_of(window)), _MOST_POINTS)
        self._cost = cost_with(self._cost, window)
        self.totals.add_window(window)
        return views.Update(id=self._next_id(), graph=graph, window=window, cost=self._cost, live=True)

    def add_event(self, event: Event) -> views.Update:
        identity = self._next_id()
        self.totals.add_event(event)
        if isinstance(event, Proposed):  # one for each window: the newest is enough
            self._proposal = as_views.proposal_view(event)
            self._expectations.add(event.at_s, event.proposal.outlook)
            return views.Update(id=identity, proposal=self._proposal, manager=self._managed(event))
        decision = self._decided(event)
        view = views.EventView(
            id=self._count,
            at_s=event.at_s,
            kind=event.event,
            text=as_views.event_text(event),
            decision=None if decision is None else decision.id,
        )
        (self._routine if event.event in _ROUTINE else self._telling).append(view)
        return views.Update(id=identity, event=view, decision=decision, manager=self._managed(event))

    def add_trouble(self, what: str) -> views.Update:
        """Of those who show the run. It happens now by the run's own clock, of which the newest window tells."""
        return self.add_event(Trouble(at_s=self._window.at_s if self._window else 0.0, what=what))

    def end(self) -> views.Update:
        """Nothing more will come."""
        self._live = False
        return views.Update(id=self._next_id(), live=False)

    # What is shown

    @property
    def id(self) -> str:
        """Of the newest update."""
        return f"{self._epoch}-{self._count}"

    @property
    def about(self) -> views.AboutView:
        return as_views.about_view(self._pipeline, self.header)

    def graph(self) -> views.GraphView | None:
        return None if self._dataflow is None else as_views.graph_view(self.about.pipeline, self._dataflow)

    @property
    def live(self) -> bool:
        return self._live

    @property
    def window(self) -> views.WindowView | None:
        return self._window

    @property
    def proposal(self) -> views.ProposalView | None:
        return self._proposal

    @property
    def cost(self) -> views.CostView:
        return self._cost

    @property
    def manager(self) -> views.ManagerView:
        return self._manager

    def decisions(self) -> tuple[views.DecisionView, ...]:
        return tuple(self._decisions.values())

    def events(self) -> tuple[views.EventView, ...]:
        return tuple(sorted((*self._telling, *self._routine), key=lambda event: event.id))

    def columns(self) -> views.HistoryView:
        flow = self._dataflow
        return columns(self._points, flow.sources if flow else (), flow.scalable if flow else ())

    def view(self) -> views.RunView:
        return views.RunView(
            id=self.id,
            live=self._live,
            about=self.about,
            graph=self.graph(),
            window=self._window,
            history=self.columns(),
            proposal=self._proposal,
            decisions=self.decisions(),
            events=self.events(),
            cost=self._cost,
            manager=self._manager,
        )

    # What events tell of decisions and of the manager

    def _decided(self, event: Event) -> views.DecisionView | None:
        match event:
            case Decided():
                decision = as_views.decision_view(event, self._count)
            case Acted(number=number) if (found := self._numbered(number)) is not None:
                decision = as_views.acted_upon(found, event)
            case Judged(number=number) if (found := self._numbered(number)) is not None:
                decision = as_views.judged(found, event)
            case _:
                return None
        self._decisions[decision.id] = decision
        if len(self._decisions) > _MOST_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        return decision

    def _numbered(self, number: int) -> views.DecisionView | None:
        """The newest with this number that was carried out: rehearsals do not count, so they share numbers."""
        return next(
            (
                decision
                for decision in reversed(self._decisions.values())
                if decision.number == number and decision.outcome is not views.DecisionOutcome.REHEARSED
            ),
            None,
        )

    def _managed(self, event: Event) -> views.ManagerView | None:
        match event:
            case Proposed() | Ignored():
                told = deciding_text(event)
                return None if told == self._manager.deciding else self._changed({"deciding": told})
            case PhaseChanged(after=after):
                return self._changed({"phase": str(after)})
            case Steered(controls=controls):
                return self._changed(self._as_set(controls))
        return None

    def _as_set(self, controls: Controls) -> dict[str, Any]:
        """What people set, and where they did not, what the run began with."""
        dry_run = self.header is not None and self.header.knobs.get("dry_run") is True
        return {
            "paused": controls.paused,
            "dry_run": dry_run if controls.dry_run is None else controls.dry_run,
            "bounds": {
                name: views.BoundsView(least=bounds.least, most=bounds.most)
                for name, bounds in controls.bounds.items()
            },
        }

    def _changed(self, changes: Mapping[str, Any]) -> views.ManagerView:
        self._manager = self._manager.model_copy(update=changes)
        return self._manager

    def _next_id(self) -> str:
        self._count += 1
        return self.id


NO_COST = views.CostView(span_s=0.0, instance_s=0.0, static_peak_instance_s=0.0, peak={}, saved_share=None)


def cost_with(cost: views.CostView, window: views.WindowView) -> views.CostView:
    """One more window. The static peak is each operator at the most that it has had, for all of the time.

    With other operators it begins anew: nobody would have run those of before for all of the time.
    """
    running = {op.name: op.parallelism for op in window.operators if op.parallelism is not None}
    if running.keys() != cost.peak.keys():
        cost = NO_COST
    peak = {name: max(cost.peak.get(name, 0), count) for name, count in running.items()}
    span_s = cost.span_s + window.window_s
    instance_s = cost.instance_s + sum(running.values()) * window.window_s
    static_s = sum(peak.values()) * span_s
    kept = kept_latency(window)
    return views.CostView(
        span_s=span_s,
        instance_s=instance_s,
        static_peak_instance_s=static_s,
        peak=peak,
        saved_share=1 - instance_s / static_s if static_s > 0 else None,
        latency_asked_s=cost.latency_asked_s + (0.0 if kept is None else window.window_s),
        latency_kept_s=cost.latency_kept_s + (window.window_s if kept else 0.0),
    )


def kept_latency(window: views.WindowView) -> bool | None:
    """Whether the latency that was asked for was kept; None where none was, or it is not known."""
    if window.latency_s is None or window.latency_target_s is None:
        return None
    return window.latency_s <= window.latency_target_s
