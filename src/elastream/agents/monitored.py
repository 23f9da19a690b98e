"""An engine for the manager whose readings come from agents and whose sizes are set through an adaptor.

So the master needs no loop, no store and no guard times of its own: the manager with the policy `rules` has them.
An adaptor knows nothing of channels, so the graph is one made-up source before all operators, of which no rate is
known; rules do not ask for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from elastream.agents.adaptor import Adaptor
from elastream.agents.rounds import InstanceReading, Round
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import ElastreamError
from elastream.manager.decision import Decision
from elastream.manager.engine import Clock, RescaleOutcome
from elastream.manager.state import ManagerState
from elastream.measurement import Reading, Snapshot
from elastream.policies.sizes import Sizes

_SOURCE = "(input)"

Answer = TypeVar("Answer")


def _nothing() -> None:
    pass


class MonitoredEngine:
    """Give it a round with `take` before each `measure`."""

    def __init__(self, adaptor: Adaptor, clock: Clock) -> None:
        self._adaptor = adaptor
        self._clock = clock
        self.before_acting: Callable[[], None] = _nothing
        """Raises where this process may not act any more."""
        self._round: Round | None = None
        self._plan: Plan | None = None
        """As the adaptor said it in this round: it may have to ask over a network."""

    def take(self, found: Round) -> None:
        self._round, self._plan = found, None

    def graph(self) -> Dataflow:
        return graph_of(self.plan())

    def plan(self) -> Plan:
        if self._plan is None:
            names = _asked("its operators", self._adaptor.operators)
            self._plan = Plan({name: self._size(name) for name in names})
        return self._plan

    def measure(self) -> Snapshot:
        if self._round is None:
            raise ElastreamError("there is nothing to measure: no round is over yet")
        return snapshot_of_round(self._round, self.plan())

    def rescale(self, decision: Decision) -> RescaleOutcome:
        """One operator after the other, as the adaptor has no call for several; it ends with the first failure."""
        began_s, failure = self._clock.steady(), ""
        self._plan = None
        for change in decision.changes:
            try:
                self.before_acting()
                self._adaptor.set_size(change.operator, change.after)
            except Exception as error:  # of someone else's code, which must not end the master
                failure = f"{change.operator}: {_text(error)}"
                break
        took_s = self._clock.steady() - began_s
        return RescaleOutcome(plan=self.plan(), succeeded=not failure, took_s=took_s, detail=failure)

    def knowing_original_sizes(self, state: ManagerState) -> ManagerState:
        """With those of operators that are new: the manager would take the sizes that it finds for them."""
        known = state.knowledge.sizes
        new = {name: self._beginning(name, size) for name, size in self.plan().items() if name not in known}
        return replace(state, knowledge=replace(state.knowledge, sizes={**known, **new}))

    def _beginning(self, name: str, current: int) -> Sizes:
        original = _asked(f"the original size of {name}", lambda: self._adaptor.original_size(name))
        return Sizes(original=original, current=current)

    def _size(self, name: str) -> int:
        return _asked(f"the size of {name}", lambda: self._adaptor.current_size(name))


def graph_of(operators: Iterable[str]) -> Dataflow:
    names = list(operators)
    source = _SOURCE
    while source in names:
        source = f"({source})"
    return Dataflow.of(
        [Operator(name=source, source=True), *(Operator(name=name) for name in names)],
        [(source, name) for name in names],
    )


def snapshot_of_round(found: Round, plan: Plan) -> Snapshot:
    """Of agents of operators that there are not (any more) nothing is kept, nor of more agents than instances."""
    graph = graph_of(plan)
    by_operator: dict[str, list[InstanceReading]] = {name: [] for name in plan}
    for reading in found.readings:
        if reading.operator in by_operator:
            by_operator[reading.operator].append(reading)
    return Snapshot(
        dataflow=graph,
        plan=plan,
        source_rates=dict.fromkeys(graph.sources, 0.0),
        readings=tuple(_readings(by_operator, plan, found.window_s)),
        at_s=found.at_s,
        late=tuple(late for late in found.late if late.operator in by_operator),
    )


def _readings(by_operator: Mapping[str, list[InstanceReading]], plan: Plan, window_s: float) -> Iterator[Reading]:
    for name, readings in by_operator.items():
        # an agent that read less is the first to be passed over
        telling = sorted(readings, key=lambda reading: (-len(reading.values), reading.instance))
        for reading in telling[: plan[name]]:
            yield reading_of(reading, window_s)


def reading_of(reading: InstanceReading, window_s: float) -> Reading:
    """What was not read is zero where a reading must have a number; rules look at `metrics` alone."""
    values = reading.values
    return Reading(
        operator=reading.operator,
        instance=reading.instance,
        window_s=window_s,
        useful_s=window_s * min(1.0, values.get("utilization", 0.0) / 100),
        records_in=window_s * values.get("input_rate", 0.0),
        records_out=window_s * values.get("output_rate", 0.0),
        backlog=values.get("queue_length"),
        latency_s=values.get("latency"),
        wait_out_s=_share(values, "backpressure", of=window_s),
        cpu_utilization=_share(values, "cpu_utilization"),
        memory_utilization=_share(values, "memory_utilization"),
        heap_utilization=_share(values, "heap_utilization"),
        state_size=values.get("state_size"),
        metrics=values,
    )


def _share(values: Mapping[str, float], name: str, *, of: float = 1.0) -> float | None:
    return None if name not in values else of * values[name] / 100


def _asked(what: str, ask: Callable[[], Answer]) -> Answer:
    """The adaptor is someone else's code: whatever it raises is told, and the next round asks again."""
    try:
        return ask()
    except Exception as error:
        raise ElastreamError(f"the adaptor does not say {what}: {_text(error)}") from error


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ElastreamError) else f"{type(error).__name__}: {error}"
