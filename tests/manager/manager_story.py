"""What the tests of the manager share: windows of a small pipeline, a policy that is told what to want, a story
that feeds windows to the step and carries out what it decides, and a fake engine with a clock for the loop. Time
passes only where a test says so; nobody sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Event
from elastream.manager.knobs import Knobs
from elastream.manager.moves import ManagerStep
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import Request
from elastream.manager.state import ManagerState, initial_state
from elastream.manager.step import Input, Measured, Requested, Rescaled, Started, step
from elastream.measurement import Reading, Snapshot
from elastream.policies.catalog import Policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason
from elastream.testing import alike, chain, snapshot_of

WINDOW_S = 60.0
Kind = TypeVar("Kind")


def plan_of(map: int, count: int = 1) -> Plan:  # noqa: A002 - the operators' own names
    return Plan({"map": map, "count": count})


def window(
    plan: Mapping[str, int],
    *,
    at_s: float = WINDOW_S,
    load: float = 1_000.0,
    each: float = 100.0,
    share: float | None = None,
    operators: Iterable[Operator] = (),
    gaps: tuple[str, ...] = (),
    unknown: Mapping[str, str] | None = None,
    map_readings: Iterable[Reading] | None = None,
    waiting: float | None = None,
) -> Snapshot:
    """One minute of source → map → count.

    By its useful time an instance of map can do `each` records a second. A `share` of the load is processed: as
    much as the instances of map can do, where the test does not say otherwise. For count one instance will do.
    So many records are `waiting` for map in the end, and none for count, where that is counted.
    """
    share = min(1.0, plan["map"] * each / load) if share is None else share
    per_map, per_count = share * load / plan["map"], share * load / plan["count"]
    per_map_waiting, per_count_waiting = (None, None) if waiting is None else (waiting / plan["map"], 0.0)
    readings = [
        *(
            alike(
                "map",
                instances=plan["map"],
                records_per_s=per_map,
                useful_share=min(1.0, per_map / each),
                backlog=per_map_waiting,
            )
            if map_readings is None
            else map_readings
        ),
        *alike(
            "count",
            instances=plan["count"],
            records_per_s=per_count,
            useful_share=per_count / 1e6,
            backlog=per_count_waiting,
        ),
    ]
    snapshot = snapshot_of(
        edges=chain("source", "map", "count"),
        source_rates={"source": load},
        readings=readings,
        operators=operators,
        parallelism=plan,
    )
    return replace(snapshot, at_s=at_s, gaps=gaps, unknown=unknown or {})


@dataclass
class Scripted:
    """A policy that wants what the test tells it, whatever was measured and whatever the bounds are."""

    wants: Mapping[str, int | None] = field(default_factory=dict)
    expected_share: float | None = 1.0
    reasons: tuple[Reason, ...] = ()
    """Given for every operator that it speaks of."""
    overall: tuple[Reason, ...] = ()
    """Given for the pipeline as a whole."""

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        advice = {
            name: Advice(
                operator=name, current=snapshot.plan.get(name, 1), parallelism=wanted, reasons=self.reasons
            )
            for name, wanted in self.wants.items()
        }
        return Proposal(policy="scripted", advice=advice, reasons=self.overall, expected_share=self.expected_share)


def carried_out(decision: Decision) -> Plan:
    return decision.after


def refused(decision: Decision) -> Plan:
    return decision.before


class Story:
    """Feeds windows to the step, a minute apart, and answers its decisions as `engine` says."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        plan: Plan | None = None,
        state: ManagerState | None = None,
        operators: Iterable[Operator] = (),
        **knobs: Any,
    ) -> None:
        self.scripted = Scripted()
        self.policy = self.scripted if policy is None else policy
        self.knobs = Knobs(**{"warm_up_intervals": 0, "scale_down_delay_s": 0.0, "rollback_intervals": 1, **knobs})
        self.plan = plan or plan_of(10)
        self.operators = tuple(operators)
        self.state = state or initial_state(self.knobs)
        self.at_s = 0.0
        self.events: list[Event] = []
        self.decisions: list[Decision] = []
        self.engine: Callable[[Decision], Plan] = carried_out
        """The plan that is in force after a decision was handed over."""

    @property
    def phase(self) -> ManagerPhase:
        return self.state.phase

    def told(self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind, from the beginning."""
        return [event for event in self.events if isinstance(event, kind)]

    def starts(self) -> Decision | None:
        return self._carry_through(Started(at_s=self.at_s, plan=self.plan))

    def sees(
        self, *, wants: Mapping[str, int | None] | None = None, after_s: float = WINDOW_S, **measured: Any
    ) -> Decision | None:
        """One window; what was decided in it, if anything, was also handed to the engine."""
        self.at_s += after_s
        if wants is not None:
            self.scripted.wants = wants
        return self.tells(window(self.plan, at_s=self.at_s, **{"operators": self.operators, **measured}))

    def tells(self, snapshot: Snapshot) -> Decision | None:
        """A window as it is."""
        return self._carry_through(Measured(snapshot=snapshot))

    @property
    def graph(self) -> Dataflow:
        return window(self.plan, operators=self.operators).dataflow

    def asks(self, request: Request) -> Decision | None:
        """Someone asks for something; what was decided because of it was also handed to the engine."""
        return self._carry_through(Requested(at_s=self.at_s, request=request, dataflow=self.graph, plan=self.plan))

    def _carry_through(self, given: Input) -> Decision | None:
        result = self._take(given)
        first = result.decision
        while result.decision is not None:
            decision, self.plan = result.decision, self.engine(result.decision)
            succeeded = self.plan == decision.after
            outcome = RescaleOutcome(
                plan=self.plan, succeeded=succeeded, took_s=1.0, detail="" if succeeded else "no room"
            )
            result = self._take(Rescaled(at_s=self.at_s, outcome=outcome))
        return first

    def _take(self, given: Input) -> ManagerStep:
        result = step(self.state, given, policy=self.policy, knobs=self.knobs)
        self.state = result.state
        self.events.extend(result.events)
        if result.decision is not None:
            self.decisions.append(result.decision)
        return result


class ManualClock:
    """Time that passes only when somebody waits for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.now_s

    def steady(self) -> float:
        return sum(self.waits)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


class FakeEngine:
    """The pipeline of `window`, which always does what its instances can, and an action as `gets_to` says."""

    def __init__(self, clock: ManualClock, plan: Plan) -> None:
        self.clock = clock
        self.in_force = plan
        self.asked: list[Decision] = []
        self.gets_to: Callable[[Decision], Plan] = carried_out
        self.fails: dict[str, str] = {}
        """The methods that raise, with what they say."""

    def graph(self) -> Dataflow:
        return window(self.in_force).dataflow

    def plan(self) -> Plan:
        self._may_fail("plan")
        return self.in_force

    def measure(self) -> Snapshot:
        self._may_fail("measure")
        return window(self.in_force, at_s=self.clock.now())

    def rescale(self, decision: Decision) -> RescaleOutcome:
        self.asked.append(decision)
        self._may_fail("rescale")
        self.in_force = self.gets_to(decision)
        return RescaleOutcome(plan=self.in_force, succeeded=self.in_force == decision.after, took_s=0.0)

    def _may_fail(self, method: str) -> None:
        if method in self.fails:
            raise ElastreamError(self.fails[method])
