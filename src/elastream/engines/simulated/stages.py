"""The moving parts of the simulation: queues, sources and operators as mutable objects without dictionaries.

All of it is fluid: amounts of records are real numbers. In every step the stages work in topological order, so
that a record passes through the whole pipeline in the step in which it arrives if nothing holds it up, and a
pipeline that keeps up has empty queues. Room that a stage makes in its queues is filled in the next step.

The stages' counters only grow; a measurement is the difference between two times.

These objects are the inner loop of every experiment: a day is 86,400 steps through each of them. That is why
they are slotted, why they refer to each other directly, and why the arithmetic stands in few, longer methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_SAMPLES = 10  # of the load in a part of a window


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """What a stage has done since the start of the simulation, or since an earlier time."""

    arrived: float
    taken: float
    worked: float
    """In records: the time spent is this over the instances' rates. Firing windows is work, too."""
    put: Mapping[str, float]
    """Records to each downstream operator."""
    held_s: float
    """The time that full queues after it have cost."""

    def since(self, earlier: Counters) -> Counters:
        return Counters(
            arrived=self.arrived - earlier.arrived,
            taken=self.taken - earlier.taken,
            worked=self.worked - earlier.worked,
            put={consumer: count - earlier.put[consumer] for consumer, count in self.put.items()},
            held_s=self.held_s - earlier.held_s,
        )


@dataclass(eq=False, kw_only=True, slots=True)
class Queue:
    """A channel: a bounded queue between two stages."""

    producer: str
    consumer: str
    ratio: float
    """Records on this channel for each record that its producer processes."""
    bound: float = math.inf
    queued: float = 0.0
    put: float = 0.0
    taken: float = 0.0


@dataclass(eq=False, kw_only=True, slots=True)
class Stage(ABC):
    """What sources and operators have in common: queues to put records in, and the time they had to wait."""

    name: str
    outputs: Sequence[Queue]
    processed: float = 0.0
    """Records whose results have been put out."""
    held_s: float = 0.0

    @abstractmethod
    def work(self, now_s: float, dt_s: float) -> None:
        """Do what can be done in a step that begins now."""

    @abstractmethod
    def counters(self) -> Counters: ...

    def emit(self, wanted: float, dt_s: float) -> float:
        """Put out the results of as many of the wanted records as the fullest queue has room for."""
        amount = wanted
        for queue in self.outputs:
            room = queue.bound - queue.queued
            if amount * queue.ratio > room:
                amount = room / queue.ratio if room > 0 else 0.0
        for queue in self.outputs:
            out = amount * queue.ratio
            queue.queued += out
            queue.put += out
        if amount < wanted:
            self.held_s += dt_s * (1 - amount / wanted)
        self.processed += amount
        return amount


@dataclass(eq=False, kw_only=True, slots=True)
class SourceStage(Stage):
    rate_at: Callable[[float], float]
    max_rate_per_s: float
    backlog: float = 0.0
    arrived: float = 0.0
    arriving_per_s: float = 0.0
    emitted: float = 0.0
    """In this step."""

    def mean_per_s(self, from_s: float, to_s: float) -> float:
        """What arrived between these times, by samples of the load."""
        return math.fsum(self.rate_at(from_s + (to_s - from_s) * i / _SAMPLES) for i in range(_SAMPLES)) / _SAMPLES

    def arrive(self, now_s: float, dt_s: float) -> None:
        """Records come in whether or not the job is running."""
        self.emitted = 0.0
        self.arriving_per_s = self.rate_at(now_s)
        amount = self.arriving_per_s * dt_s
        self.arrived += amount
        self.backlog += amount

    def work(self, now_s: float, dt_s: float) -> None:
        wanted = min(self.backlog, self.max_rate_per_s * dt_s)
        if wanted > 0:
            self.emitted = self.emit(wanted, dt_s)
            self.backlog -= self.emitted

    def counters(self) -> Counters:
        return Counters(
            arrived=self.arrived,
            taken=self.processed,
            worked=self.processed,
            put={queue.consumer: queue.put for queue in self.outputs},
            held_s=self.held_s,
        )


@dataclass(eq=False, kw_only=True, slots=True)
class PacedSource(SourceStage):
    """Replays a backlog by the times at which its records came, so many times as fast at most.

    Emitting takes no time, so while it is late and held back it waits all the time, however little is missing.
    """

    replay_speed: float
    came: deque[tuple[float, float, float]] = field(default_factory=deque)
    """Records per second, from when until when."""
    read_s: float = 0.0
    """What came before this has been emitted."""

    def arrive(self, now_s: float, dt_s: float) -> None:
        SourceStage.arrive(self, now_s, dt_s)  # super() does not work in a dataclass with slots
        self.came.append((self.arriving_per_s, now_s, now_s + dt_s))

    def work(self, now_s: float, dt_s: float) -> None:
        until_s = min(self.read_s + self.replay_speed * dt_s, now_s + dt_s)
        due = self._due(until_s)
        wanted = min(due, self.max_rate_per_s * dt_s)
        if wanted > 0:
            held_s = self.held_s
            self.emitted = self.emit(wanted, dt_s)
            self.backlog -= self.emitted
            if self.emitted < wanted:
                self.held_s = held_s + dt_s - self.emitted / self.max_rate_per_s
        self._read(self.emitted, until_s)

    def _due(self, until_s: float) -> float:
        due = 0.0
        for rate_per_s, from_s, to_s in self.came:
            if from_s >= until_s:
                break
            due += rate_per_s * (min(to_s, until_s) - max(from_s, self.read_s))
        return due

    def _read(self, amount: float, until_s: float) -> None:
        """Go on by so many records, at most up to this time."""
        while self.came and self.came[0][1] < until_s:
            rate_per_s, from_s, to_s = self.came[0]
            begin_s, end_s = max(from_s, self.read_s), min(to_s, until_s)
            there = rate_per_s * (end_s - begin_s)
            if amount < there * (1 - 1e-12):
                self.read_s = begin_s + amount / rate_per_s
                return
            amount = max(0.0, amount - there)  # never below: where nothing came, nothing is missing
            self.read_s = end_s
            if end_s < to_s:
                return
            self.came.popleft()


@dataclass(eq=False, kw_only=True, slots=True)
class OperatorStage(Stage):
    inputs: Sequence[Queue]
    full_rate_per_s: float = 0.0
    """What its instances can do."""
    rate_per_s: float = 0.0
    """What they get to do now: less, where workers are shared."""
    taken: float = 0.0
    worked: float = 0.0

    def counters(self) -> Counters:
        return Counters(
            arrived=sum(queue.put for queue in self.inputs),
            taken=self.taken,
            worked=self.worked,
            put={queue.consumer: queue.put for queue in self.outputs},
            held_s=self.held_s,
        )

    def queued(self) -> float:
        total = 0.0
        for queue in self.inputs:
            total += queue.queued
        return total

    def in_windows(self) -> float:
        """Records that were taken but whose results are still to come."""
        return 0.0

    def work(self, now_s: float, dt_s: float) -> None:
        available = self.queued()
        wanted = min(available, self.rate_per_s * dt_s)
        if wanted > 0:
            amount = self.emit(wanted, dt_s)
            self.take(amount, available)
            self.worked += amount

    def take(self, amount: float, available: float) -> None:
        """Take records from all inputs, the same share of each."""
        self.taken += amount
        share = amount / available
        for queue in self.inputs:
            # an emptied queue holds exactly nothing, not what rounding leaves
            out = queue.queued if share >= 1 else queue.queued * share
            queue.queued -= out
            queue.taken += out

    def demand(self, now_s: float, arriving: float) -> tuple[float, float]:
        """The work, in records, that it would do in this step if it could do all, and the results of how many."""
        records = self.queued() + arriving
        return records, records


@dataclass(eq=False, kw_only=True, slots=True)
class WindowedOperator(OperatorStage):
    """Sets records aside cheaply; when a window fires, they must be worked off before others are taken.

    Of sliding windows a record is in several: each of them has its part of the work and of the results.
    """

    every_s: float
    """From one firing to the next."""
    windows: int = 1
    """That a record is in."""
    phase_s: float = 0.0
    """Of a firing."""
    fire_weight: float
    next_fire_s: float = field(init=False)
    aside: float = 0.0
    """Since the last firing."""
    firing: float = 0.0
    parts: deque[float] = field(init=False)
    """Of the records between two firings, newest first: what each of their windows has of them."""

    def __post_init__(self) -> None:
        self.next_fire_s = self.phase_s or self.every_s
        self.parts = deque(maxlen=self.windows)

    def in_windows(self) -> float:
        still_to_fire = math.fsum(part * (self.windows - 1 - age) for age, part in enumerate(self.parts))
        return self.aside + self.firing + still_to_fire

    def work(self, now_s: float, dt_s: float) -> None:
        if now_s >= self.next_fire_s:
            self.parts.appendleft(self.aside / self.windows)
            self.firing += math.fsum(self.parts)
            self.aside = 0.0
            past = math.floor((now_s - self.phase_s) / self.every_s)
            self.next_fire_s = self.phase_s + (past + 1) * self.every_s
        budget = self.rate_per_s * dt_s
        if self.firing > 0 and budget > 0:
            budget -= self._fire(budget, dt_s)
        if self.firing > 0:
            return
        available = self.queued()
        wanted = min(available, budget)
        if wanted > 0:
            self.take(wanted, available)
            self.worked += wanted
            self.aside += wanted

    def _fire(self, budget: float, dt_s: float) -> float:
        """Work off what fires, as far as the budget and the queues after it allow; gives the work done."""
        wanted = self.firing
        if wanted * self.fire_weight > budget:
            wanted = budget / self.fire_weight
        amount = self.emit(wanted, dt_s)
        self.firing -= amount
        work = amount * self.fire_weight
        self.worked += work
        return work

    def demand(self, now_s: float, arriving: float) -> tuple[float, float]:
        fires = self.firing
        if now_s >= self.next_fire_s:
            fires += self.aside / self.windows + math.fsum(list(self.parts)[: self.windows - 1])
        return fires * self.fire_weight + self.queued() + arriving, fires


def divide_workers(
    sources: Sequence[SourceStage], operators: Sequence[OperatorStage], now_s: float, dt_s: float
) -> None:
    """Give operators that share their workers time in proportion to what each of them would need.

    What each would need follows from what waits for it and from what those before it would put out.
    """
    arriving = dict.fromkeys((operator.name for operator in operators), 0.0)
    for source in sources:
        emitted = min(source.backlog, source.max_rate_per_s * dt_s)
        for queue in source.outputs:
            arriving[queue.consumer] += emitted * queue.ratio
    works = []
    needed_s = 0.0
    for operator in operators:
        work, passed_on = operator.demand(now_s, arriving[operator.name])
        works.append(work)
        if operator.full_rate_per_s > 0:
            needed_s += work / operator.full_rate_per_s
        for queue in operator.outputs:
            arriving[queue.consumer] += passed_on * queue.ratio
    for operator, work in zip(operators, works, strict=True):
        full = operator.full_rate_per_s
        operator.rate_per_s = full if needed_s <= dt_s or not full else work / needed_s
