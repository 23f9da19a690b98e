"""A whole run: a manager with a policy keeps a simulated engine at the right size, from start to end.

When the load ends the engine goes on until every record is through, which gives the excess time of the
elasticity measures; the manager has stopped by then.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from elastream.arrivals.load import Load
from elastream.dataflow import Plan
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.engine_model import EngineModel
from elastream.engines.simulated.history import SimulatedHistory
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.pace import PacedClock, PlaySpeed
from elastream.manager.decision import Decision
from elastream.manager.events import Acted, Decided, Event
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.measurement import Snapshot
from elastream.measurement.elasticity import Elasticity, Moment, elasticity
from elastream.nodes.choice import closest
from elastream.policies.catalog import Policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge

_DEMAND_EVERY_S = 10.0
_DONE = 0.5  # of a record: a fluid model never comes to exactly none


@dataclass(frozen=True, kw_only=True, slots=True)
class _Until:
    """A load that stops."""

    load: Load
    end_s: float

    def rate_at(self, t_s: float) -> float:
        return self.load.rate_at(t_s) if t_s < self.end_s else 0.0


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Everything that a run left behind."""

    model: EngineModel
    duration_s: float
    history: SimulatedHistory
    elasticity: Elasticity
    snapshots: tuple[Snapshot, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions that were carried out, or would have been in a dry run."""
        return tuple(event.decision for event in self.events if isinstance(event, Decided))

    @property
    def actions(self) -> int:
        return sum(isinstance(event, Acted) and event.outcome.succeeded for event in self.events)

    @property
    def final_plan(self) -> Plan:
        return self.history.plans[-1][1]

    def plan_at(self, t_s: float) -> Plan:
        index = bisect.bisect_right(self.history.plans, t_s, key=lambda change: change[0])
        return self.history.plans[max(0, index - 1)][1]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Someone looks while it runs, so it runs no faster than they can see, and does what they ask for."""

    pace: PlaySpeed
    inbox: Inbox


def _nothing(_: object) -> None:
    pass


def simulate(
    model: EngineModel,
    policy: Policy,
    knobs: Knobs,
    *,
    duration_s: float,
    knowledge: Knowledge = NOTHING_KNOWN,
    on_snapshot: Callable[[Snapshot], None] = _nothing,
    on_event: Callable[[Event], None] = _nothing,
    watched: Watched | None = None,
) -> Simulation:
    """Run a pipeline for so long, with what is known of it before; what happens is told as it does."""
    engine = SimulatedEngine(_until(model, duration_s))
    snapshots: list[Snapshot] = []
    events: list[Event] = []

    def keep(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)
        on_snapshot(snapshot)

    def keep_event(event: Event) -> None:
        events.append(event)
        on_event(event)

    manager = Manager(
        engine=engine,
        policy=policy,
        knobs=knobs,
        clock=engine if watched is None else PacedClock(engine, watched.pace),
        knowledge=knowledge,
        on_snapshot=keep,
        on_event=keep_event,
        inbox=None if watched is None else watched.inbox,
    )
    manager.run(until_s=duration_s)
    acted = sum(isinstance(event, Acted) and event.outcome.succeeded for event in events)
    run = _drained(model, engine, duration_s, acted)
    return replace(run, snapshots=tuple(snapshots), events=tuple(events))


def simulate_ideal(model: EngineModel, *, duration_s: float) -> Simulation:
    """The ideal autoscaler, which nobody can have: at every moment the least that sustains the load, for free.

    It knows the operators' true capacities, looks every few seconds, and an action takes no time.
    """
    ideal = Ideal(model)
    first = ideal.least_plan(_rates(model, 0.0))
    free = replace(model, initial_plan=first, initial_nodes={}, downtime_s=0.0, noise=0.0)
    engine = SimulatedEngine(_until(free, duration_s))
    changes = 0
    while engine.now() < duration_s:
        before, after = engine.plan(), ideal.least_plan(_rates(model, engine.now()))
        if before != after:
            changes += 1
            nodes = {} if model.nodes is None else {name: closest(model.nodes, n) for name, n in after.items()}
            engine.rescale(Decision(number=changes, at_s=engine.now(), before=before, after=after, nodes=nodes))
        engine.wait(min(_DEMAND_EVERY_S, duration_s - engine.now()))
    return _drained(model, engine, duration_s, changes)


def _until(model: EngineModel, end_s: float) -> EngineModel:
    """With loads that stop."""
    sources = {n: replace(s, load=_Until(load=s.load, end_s=end_s)) for n, s in model.sources.items()}
    return replace(model, sources=sources)


def _drained(model: EngineModel, engine: SimulatedEngine, duration_s: float, actions: int) -> Simulation:
    """Let the engine work off what waits, and measure how elastic the run was."""
    drained_s = _drain(engine, duration_s)
    return Simulation(
        model=model,
        duration_s=duration_s,
        history=engine.history,
        elasticity=elasticity(
            _moments(model, engine.history, duration_s),
            excess_s=max(0.0, drained_s - duration_s),
            reconfigurations=actions,
        ),
    )


def _rates(model: EngineModel, t_s: float) -> Mapping[str, float]:
    return {name: source.load.rate_at(t_s) for name, source in model.sources.items()}


def _drain(engine: SimulatedEngine, duration_s: float) -> float:
    """Go on until nothing waits any more, at most as long again as the run took."""
    while engine.now() < 2 * duration_s:
        in_windows = sum(totals.in_windows for totals in engine.totals().operators.values())
        if engine.history.source_backlog[-1] + engine.history.queued[-1] + in_windows < _DONE:
            break
        engine.wait(max(1.0, duration_s / 1000))
    return engine.now()


def _moments(model: EngineModel, history: SimulatedHistory, duration_s: float) -> Iterator[Moment]:
    """Demand and supply every few seconds; a change of plan within such a span counts from its end."""
    times_s = [t for t, _ in history.plans]
    ideal = Ideal(model)
    for number in range(math.ceil(duration_s / _DEMAND_EVERY_S)):
        begin_s = number * _DEMAND_EVERY_S
        plan = history.plans[max(0, bisect.bisect_right(times_s, begin_s) - 1)][1]
        demand = ideal.least_plan(_rates(model, begin_s))
        yield Moment(lasts_s=min(_DEMAND_EVERY_S, duration_s - begin_s), demand=demand, supply=plan)
