"""The discrete-time simulator of the papers (3.4): the state machines of the protocol, with time in whole steps.

In every step some instances look at their load and may begin to scale. What they send first is processed in the
same step, after all that was sent in the step before; every other message in the step after it was sent. So a
scale-out takes three steps, as in the papers. A scale-in takes two until nothing is sent to the instance any more,
and two more until its successors know.

Every operator has a load of its own, shared evenly by its instances that take part: those that have started and do
not leave. For comparison, a *leader* for each operator decides alone for all its instances.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elastream.arrivals.load import Load
from elastream.dataflow import Dataflow
from elastream.decentralized.protocol.decision import Duplicate, Leave, ScalingPolicy, Situation, decide
from elastream.decentralized.protocol.instance import (
    Instance,
    InstancePhase,
    InstanceState,
    InstanceStep,
    Place,
    first_instance,
)
from elastream.decentralized.protocol.messages import (
    Address,
    Create,
    Drain,
    Duplication,
    DuplicationAck,
    End,
    Message,
    Start,
    address,
    operator_of,
)
from elastream.errors import InvalidInput


class Who(StrEnum):
    """Who decides."""

    EVERYBODY = "every instance"
    LEADER = "a leader for each operator"


@dataclass(frozen=True, kw_only=True)
class Setup:
    dataflow: Dataflow
    loads: Mapping[str, Load]
    """Of every operator that scales: records per step, by the number of the step. The others stay as they are."""
    instances: Mapping[str, int]
    """At the beginning."""
    capacity: float = 500.0
    """Records that an instance processes in a step."""
    capacity_of: Callable[[Address], float] | None = None
    """The same, where instances differ."""
    policy: ScalingPolicy = field(default_factory=ScalingPolicy)
    every_steps: int = 5
    """Each instance looks at its load this often, not all in the same step."""
    who: Who = Who.EVERYBODY

    def __post_init__(self) -> None:
        for operator in (*self.loads, *self.instances):
            _ = self.dataflow[operator]
        for operator in self.dataflow.order:
            if self.instances.get(operator, 0) < 1:
                raise InvalidInput(f"instances: {operator!r} needs at least one at the beginning")
            if operator in self.loads and (why := Place.of(f"{operator}/1", self.dataflow).fixed):
                raise InvalidInput(f"loads: {why}")
        if not self.capacity > 0:
            raise InvalidInput(f"capacity must be above 0, found {self.capacity:g}")
        if self.every_steps < 1:
            raise InvalidInput(f"every_steps must be at least 1, found {self.every_steps}")


@dataclass(kw_only=True)
class Round:
    """The duplications that one operator began in one step, and the messages that were sent for them."""

    step: int
    operator: str
    instances: int
    began: int
    """How many instances began a duplication."""
    added: int
    neighbours: int
    """Successors and predecessors of each of them; the most, where newcomers are not yet known to all."""
    messages: int = 0
    """Sent until the new instances run; they are counted as they go out."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One operator in one step."""

    load: float
    instances: int
    ideal: int
    capacity: float
    """Of all its instances together."""

    @property
    def accuracy(self) -> float:
        return self.instances / self.ideal

    @property
    def throughput_share(self) -> float:
        """Of the load, how much its instances could take in this step."""
        return min(1.0, self.capacity / self.load) if self.load > 0 else 1.0

    @property
    def delayed(self) -> float:
        return max(0.0, self.load - self.capacity)


@dataclass(frozen=True, kw_only=True)
class ScalingHistory:
    moments: Mapping[str, Sequence[Moment]]
    """Of every operator that scales, one for each step."""
    messages: Sequence[int]
    """Sent in each step."""
    kinds: Counter[str]
    rounds: Sequence[Round]

    def total(self, step: int) -> int:
        return sum(moments[step].instances for moments in self.moments.values())


def simulate_steps(setup: Setup, *, steps: int, seed: int) -> ScalingHistory:
    simulator = Simulator(setup, seed=seed)
    for _ in range(steps):
        simulator.step()
    return simulator.history()


_TAKES_PART = frozenset({InstancePhase.RUNNING, InstancePhase.DUPLICATING})


class Simulator:
    """One run, step by step."""

    def __init__(self, setup: Setup, *, seed: int) -> None:
        self.setup, self.now = setup, 0
        self._rng = random.Random(seed)
        self._machines: dict[Address, Instance] = {}
        self.states: dict[Address, InstanceState] = {}
        self._turn: dict[Address, int] = {}
        self._next: list[tuple[Address, Address, Message]] = []
        self._moments: dict[str, list[Moment]] = {operator: [] for operator in setup.loads}
        self._messages: list[int] = []
        self._kinds: Counter[str] = Counter()
        self._rounds: list[Round] = []
        self._round_of: dict[Address, Round] = {}
        self._sent = 0
        self._begin()

    def taking_part(self, operator: str) -> list[Address]:
        return [me for me in self._of[operator] if self.states[me].phase in _TAKES_PART]

    def step(self) -> None:
        batch, self._next, self._sent = self._next, [], 0
        for operator, load in self.setup.loads.items():
            present = self.taking_part(operator)
            self._moments[operator].append(self._moment(load.rate_at(self.now), present))
        for operator in self.setup.loads:
            batch += self._begun(operator)
        for sender, receiver, message in batch:
            self._take(receiver, self._machines[receiver].receive(self.states[receiver], sender, message))
        self._messages.append(self._sent)
        self.now += 1

    def history(self) -> ScalingHistory:
        return ScalingHistory(
            moments=self._moments, messages=self._messages, kinds=self._kinds, rounds=self._rounds
        )

    # Deciding

    def _begun(self, operator: str) -> list[tuple[Address, Address, Message]]:
        """What the instances of an operator send first, when they begin to scale."""
        load, present = self._moments[operator][-1].load, self.taking_part(operator)
        idle = [me for me in present if self.states[me].phase is InstancePhase.RUNNING]
        wishes = self._wishes(load, present, idle)
        self._note_round(operator, len(present), {me: times for me, times in wishes if times})
        begun: list[tuple[Address, Address, Message]] = []
        for me, times in wishes:
            state, machine = self.states[me], self._machines[me]
            step = machine.duplicate(state, times) if times else machine.leave(state)
            begun += self._take(me, step, keep=False)
        return begun

    def _wishes(self, load: float, present: list[Address], idle: list[Address]) -> list[tuple[Address, int]]:
        """Who begins what: so many copies, or 0 to leave."""
        if self.setup.who is Who.LEADER:
            return self._wishes_of_leader(load, present, idle)
        found: list[tuple[Address, int]] = []
        share, count, policy = load / len(present), len(present), self.setup.policy
        for me in idle:
            if (self.now + self._turn[me]) % self.setup.every_steps == 0:
                situation = Situation(
                    load_per_s=share,
                    capacity_per_s=self._capacity(me),
                    keeper=self._machines[me].place.keeper,
                    instances=count,
                    least=self._machines[me].place.least,
                    most=self._machines[me].place.most,
                )
                match decide(policy, situation, self._rng):
                    case Duplicate(times=times):
                        found.append((me, times))
                    case Leave():
                        found.append((me, 0))
        return found

    def _wishes_of_leader(
        self, load: float, present: list[Address], idle: list[Address]
    ) -> list[tuple[Address, int]]:
        """The keeper makes all copies itself, or sends away as many as are too many."""
        keeper, policy = present[0], self.setup.policy
        if (self.now + self._turn[keeper]) % self.setup.every_steps or keeper not in idle:
            return []
        used = load / (len(present) * self.setup.capacity)
        ideal = ideal_count(load, self.setup.capacity, policy.target_load)
        place = self._machines[keeper].place
        wanted = max(place.least, min(ideal, place.most or ideal)) - len(present)
        if used >= policy.upper_load and wanted > 0:
            return [(keeper, wanted)]
        if used <= policy.lower_load and wanted < 0:
            leaving = [me for me in idle if me != keeper][wanted:]
            self._count("Leave", len(leaving))
            return [(me, 0) for me in leaving]
        return []

    # Carrying it out

    def _take(
        self, me: Address, step: InstanceStep, *, keep: bool = True
    ) -> list[tuple[Address, Address, Message]]:
        self.states[me] = step.state
        sends = [(me, to, message) for to, message in step.sends]
        for _, to, message in sends:
            self._count(type(message).__name__, 1)
            match message:
                case Duplication() | Start():
                    self._round_of[me].messages += 1
                case DuplicationAck():
                    self._round_of[to].messages += 1
        if keep:
            self._next += sends
        for effect in step.effects:
            match effect:
                case Create(instance=instance):
                    self._add(instance, InstanceState())
                case Drain():  # an instance takes its whole share in every step, so nothing is left in it
                    return sends + self._take(me, self._machines[me].drained(step.state), keep=keep)
                case End():
                    self._of[operator_of(me)].remove(me)
        return sends

    def _count(self, kind: str, messages: int) -> None:
        self._kinds[kind] += messages
        self._sent += messages

    def _note_round(self, operator: str, present: int, copies: Mapping[Address, int]) -> None:
        if not copies:
            return
        views = [self.states[me] for me in copies]
        begun = Round(
            step=self.now,
            operator=operator,
            instances=present,
            began=len(copies),
            added=sum(copies.values()),
            neighbours=max(len(view.successors) + len(view.predecessors) for view in views),
        )
        self._rounds.append(begun)
        self._round_of.update(dict.fromkeys(copies, begun))

    # Their parts

    def _begin(self) -> None:
        setup = self.setup
        first = {
            operator: [address(operator, str(n)) for n in range(1, setup.instances[operator] + 1)]
            for operator in setup.dataflow.order
        }
        self._of: dict[str, list[Address]] = {operator: [] for operator in first}
        for operator, members in first.items():
            successors = _all(first, setup.dataflow.downstream(operator))
            predecessors = _all(first, setup.dataflow.upstream(operator))
            for me in members:
                self._add(me, first_instance(successors, predecessors), keeper=me == members[0])

    def _add(self, me: Address, state: InstanceState, *, keeper: bool = False) -> None:
        self._machines[me] = Instance(Place.of(me, self.setup.dataflow, keeper=keeper))
        self.states[me] = state
        self._turn[me] = self._rng.randrange(self.setup.every_steps)
        self._of[operator_of(me)].append(me)

    def _moment(self, load: float, present: list[Address]) -> Moment:
        return Moment(
            load=load,
            instances=len(present),
            ideal=ideal_count(load, self.setup.capacity, self.setup.policy.target_load),
            capacity=sum(self._capacity(me) for me in present),
        )

    def _capacity(self, me: Address) -> float:
        return self.setup.capacity_of(me) if self.setup.capacity_of else self.setup.capacity


def _all(first: Mapping[str, Iterable[Address]], operators: Iterable[str]) -> list[Address]:
    return [me for operator in operators for me in first[operator]]


def ideal_count(load_per_s: float, capacity_per_s: float, target_load: float) -> int:
    """How many instances of this capacity an operator should have: the nearest whole number, at least one."""
    return max(1, math.floor(load_per_s / (target_load * capacity_per_s) + 0.5))
