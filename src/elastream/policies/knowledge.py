"""What was learned from earlier windows, kept as a value that is handed to the policies.

For each operator a few points (parallelism, true processing rate of all instances together), newest last. A
point that contradicts an older one at the same parallelism, in two windows in a row, means that the operator now
behaves differently, so what was known before is forgotten. In one window it may have stalled.

A capacity that was seen at saturation is a count of records; one that was not is a quotient of useful time, which
is timed and noisy. So what was seen at saturation takes the place of what was timed, and what is timed later
hardly moves it.

Beside that: for how long the pipeline was watched, the sizes that its operators had, and what rules, Gesscale and
the policies of others remember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, PlainValidator

from elastream.dataflow import Plan
from elastream.forecast import NO_CALENDAR, Calendar, Forecaster
from elastream.forecast.saved import Saved
from elastream.measurement import Measurement, Snapshot
from elastream.measurement.evidence import NO_EVIDENCE, Evidence
from elastream.measurement.flow import is_saturated
from elastream.measurement.thresholds import BUSY
from elastream.policies.executors_memory import NO_LOOKS, ExecutorsMemory
from elastream.policies.flink_memory import NO_METRICS, FlinkMemory
from elastream.policies.mst.learning import sustained_in
from elastream.policies.mst.memory import CHANGED, NEW_WEIGHT, remember
from elastream.policies.mst.mst_model import Sustained
from elastream.policies.mst.watching import NOTHING_WATCHED, Watching
from elastream.policies.rules.evaluation import NOTHING_REMEMBERED, RulesMemory
from elastream.policies.sizes import Sizes

_MOST_POINTS = 8  # of different parallelism, per operator
_TIMED_WEIGHT = 0.05  # of one that was timed against what was seen at saturation: enough to follow slow change


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityPoint:
    parallelism: int
    true_per_s: float
    """Of all instances together: at saturation what was observed, else what was timed."""
    saturated: bool = False
    """Whether it was seen at saturation."""
    windows: int = 1
    """How many windows went into it."""
    age: int = 0
    """How many windows ago it was last seen."""
    doubted: bool = False
    """The last window contradicted it: a stall, unless the next one does so, too."""


_CORRECTED = 10  # windows


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """The target-rate ratio of a source: what is asked on top, as the model asked for too little.

    It holds for some windows only, as a stall looks the same as a model that is wrong. One that is needed again
    when it has ended holds for twice as long.
    """

    ratio: float
    lasts: int = _CORRECTED
    windows: int = 0
    """Since it was made."""

    @property
    def in_force(self) -> float:
        return self.ratio if self.windows < self.lasts else 1.0

    def again(self, ratio: float) -> Correction:
        return Correction(ratio=ratio, lasts=self.lasts * (1 if self.windows < self.lasts else 2))


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    points: Mapping[str, tuple[CapacityPoint, ...]] = field(default_factory=dict)
    sustained: Mapping[str, tuple[Sustained, ...]] = field(default_factory=dict)
    """What operators processed at their limit, by instances and by the delay between their nodes."""
    evidence: Evidence = NO_EVIDENCE
    """The last windows of every operator and source."""
    corrections: Mapping[str, Correction] = field(default_factory=dict)
    """By how much more than the model says the operators behind a source were found to need."""
    action_s: float = 0.0
    """How long an action takes, by those that were carried out."""
    watched_s: float = 0.0
    """For how long the pipeline was watched, by a monotonic clock; restarts of the manager left out."""
    interval_s: float = 0.0
    """How often windows are to come; 0 where nobody said."""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    rules: RulesMemory = NOTHING_REMEMBERED
    watching: Watching = NOTHING_WATCHED
    """What Gesscale keeps between two windows."""
    forecasters: Mapping[str, Saved] = field(default_factory=dict)
    """Of the sources, for policies that look ahead."""
    calendar: Annotated[Calendar, PlainValidator(lambda _: NO_CALENDAR), Field(exclude=True)] = NO_CALENDAR
    """What people know ahead: given with every window, and not kept."""
    flink: FlinkMemory = NO_METRICS
    """What Flink's autoscaler does."""
    executors: ExecutorsMemory = NO_LOOKS
    """What policies for the executors of whole jobs do."""

    def of(self, operator: str) -> tuple[CapacityPoint, ...]:
        return self.points.get(operator, ())

    def correction(self, source: str) -> float:
        found = self.corrections.get(source)
        return 1.0 if found is None else found.in_force

    def sustained_by(self, operator: str) -> tuple[Sustained, ...]:
        return self.sustained.get(operator, ())

    def with_snapshot(self, snapshot: Snapshot) -> Knowledge:
        """Learn from one more window, which is not a part of the evidence yet."""
        points, sustained = dict(self.points), dict(self.sustained)
        for name in snapshot.dataflow.scalable:
            if (point := sustained_in(snapshot, name)) is not None:
                sustained[name] = remember(self.sustained_by(name), point)
            rates = snapshot.measurements.get(name)
            if rates is not None and rates.true_per_s:
                points[name] = _merged(self.of(name), _point(snapshot, name, rates))
        return replace(self.observed(snapshot), points=points, sustained=sustained)

    def observed(self, snapshot: Snapshot, *, timed: bool = True) -> Knowledge:
        """One more window as evidence; while an operator warms up its times say nothing, but its counts do."""
        forecasters = {
            name: known.observed(snapshot.at_s, snapshot.source_rates[name])
            for name, known in self.forecasters.items()
            if name in snapshot.source_rates
        }
        return replace(self, evidence=self.evidence.with_snapshot(snapshot, timed=timed), forecasters=forecasters)

    def forecasting(self, snapshot: Snapshot, *, wanted: bool) -> Knowledge:
        """With a forecaster for every source from now on; or, where nobody looks ahead, without."""
        if not wanted:
            return replace(self, forecasters={}) if self.forecasters else self
        new = {
            name: Forecaster().observed(snapshot.at_s, rate)
            for name, rate in snapshot.source_rates.items()
            if name not in self.forecasters
        }
        return replace(self, forecasters={**self.forecasters, **new}) if new else self

    def acted(self, took_s: float) -> Knowledge:
        """An action took so long."""
        known = self.action_s
        return replace(self, action_s=took_s if known == 0 else known + NEW_WEIGHT * (took_s - known))

    def watched(self, passed_s: float, plan: Plan, *, interval_s: float = 0.0) -> Knowledge:
        """So much time has passed, and this plan is in force now."""
        return replace(self, watched_s=self.watched_s + passed_s, interval_s=interval_s).with_plan(plan)

    def unwatched(self, away_s: float) -> Knowledge:
        """Nobody watched for so long: guard times stand still, but what rules have seen is so much older."""
        return replace(self, rules=self.rules.aged(away_s))

    def with_plan(self, plan: Plan, *, after_s: float = 0.0) -> Knowledge:
        """The plan in force, from so long after the last time that was watched; growth and shrinking are noted."""
        at_s = self.watched_s + after_s
        sizes = {
            name: self.sizes[name].changed_to(size, at_s) if name in self.sizes else Sizes.beginning_with(size)
            for name, size in plan.items()
        }
        return replace(self, sizes=sizes)


NOTHING_KNOWN = Knowledge()


def _point(snapshot: Snapshot, name: str, rates: Measurement) -> CapacityPoint:
    """Of all instances of the plan: those that did not report, or were idle, are taken to be like the others.

    Not so where one was always busy and others idle: those did not help, so they can do nothing here.
    """
    saturated = is_saturated(snapshot, name)
    one_alone = any(reading.utilization >= BUSY for reading in rates.readings)
    if saturated:
        each = rates.observed_per_s / rates.instances
    elif one_alone:
        each = (rates.true_per_s or 0.0) / rates.instances
    else:
        each = rates.true_per_instance or 0.0
    parallelism = snapshot.plan[name]
    return CapacityPoint(parallelism=parallelism, true_per_s=each * parallelism, saturated=saturated)


def _merged(known: tuple[CapacityPoint, ...], new: CapacityPoint) -> tuple[CapacityPoint, ...]:
    same = next((point for point in known if point.parallelism == new.parallelism), None)
    others = tuple(replace(p, age=p.age + 1) for p in known if p.parallelism != new.parallelism)
    if same is None:
        return (*others, new)[-_MOST_POINTS:]
    if abs(new.true_per_s - same.true_per_s) > CHANGED * same.true_per_s:
        if same.windows == 1 and new.true_per_s > same.true_per_s:
            return (*others, new)  # of the first two windows one had stalled: nothing ever looks better than it is
        return (new,) if same.doubted else (*others, replace(same, doubted=True, age=0))
    merged = CapacityPoint(
        parallelism=new.parallelism,
        true_per_s=same.true_per_s + _weight(same, new) * (new.true_per_s - same.true_per_s),
        saturated=same.saturated or new.saturated,
        windows=same.windows + 1,
    )
    return (*others, merged)


def _weight(same: CapacityPoint, new: CapacityPoint) -> float:
    if same.saturated == new.saturated:
        return max(NEW_WEIGHT, 1 / (same.windows + 1))
    return 1.0 if new.saturated else _TIMED_WEIGHT
