"""Runs that end when the manager has settled, for experiments that count the actions until then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elastream.dataflow import Plan
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.engine_model import EngineModel
from elastream.manager.events import Acted, Event
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.policies.catalog import Policy


@dataclass(frozen=True, kw_only=True)
class Settled:
    plans: tuple[Plan, ...]
    """The one that it started with, and the one after each action."""
    took_s: float
    """Until the last action was over."""

    @property
    def actions(self) -> int:
        return len(self.plans) - 1

    @property
    def end(self) -> Plan:
        return self.plans[-1]


def settle(
    model: EngineModel,
    policy: Policy,
    knobs: Knobs,
    *,
    quiet_intervals: int,
    enough: Callable[[Plan], bool] = lambda _: True,
    most_intervals: int = 1000,
) -> Settled:
    """Let a manager run until it has left the pipeline alone for so many intervals in a row.

    With a plan that is not enough it gets four times as long: what is missing may be too little to show at once.
    """
    engine = SimulatedEngine(model)
    plans, ended_s = [model.initial_plan], [0.0]

    def note(event: Event) -> None:
        if isinstance(event, Acted) and event.outcome.succeeded:
            plans.append(event.outcome.plan)
            ended_s.append(event.at_s)

    def quiet() -> bool:
        intervals = quiet_intervals if enough(plans[-1]) else 4 * quiet_intervals
        return engine.now() - ended_s[-1] >= intervals * knobs.interval_s

    manager = Manager(engine=engine, policy=policy, knobs=knobs, clock=engine, on_event=note)
    manager.run(until_s=most_intervals * knobs.interval_s, stopped=quiet)
    return Settled(plans=tuple(plans), took_s=ended_s[-1])
