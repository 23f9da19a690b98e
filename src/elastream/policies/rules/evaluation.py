"""Whether the triggers of a rule fire: algorithms 4.1 to 4.3 of the SEEP thesis, mended.

For every rule and operator there is one evaluator, so that a rule for every operator never mixes them, and an
operator's own rules stand beside the ones for all (4.1, line 21 overwrites them). An evaluator keeps for each
trigger a history of readings v₁ … vₙ at the times t₁ < … < tₙ: those not older than the trigger's time T, and one
more, the newest of the older ones. Without that one it could not be seen that the history covers the whole time,
and 4.3, line 11 could never be satisfied once 4.2, line 16 prunes. The trigger fires where

    tₙ − t₁ ≥ T,    no hole between two readings is longer than H,    and    every vᵢ is above (or below) the value

or, where the rule says so, for at least a share of T it is, or its median over T is: both are weighted by time, a
reading speaking for the time since the one before it. A hole is time between two readings that neither tells of.
H is two intervals where the trigger states no other: one reading may be missing, but nobody acts across a blind
spot. (4.3 fires on any reading although the text says all; 4.2 starts with `scale := False`, which nothing can
make true, and its `fired` and `changed` are never reset: here they are computed anew from each history.) A rule
holds while all of its triggers fire.

A reading that comes late is put where it belongs, and may close a hole. A trigger without a reading in this moment
does not fire: no data is no reason to act.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import fsum

from elastream.policies.rules.rule import OverInstances, Rule, RuleSet, RuleTrigger

ROUNDING_S = 1e-6  # that adding up times may be off by
HOLE_INTERVALS = 2
"""The longest hole that is tolerated where a trigger states no other, in intervals."""
_JITTER = 0.1  # of the longest hole, that a busy machine may add to it


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorReading:
    """What the instances of one operator read at one time: of each metric a value for each that has it."""

    operator: str
    at_s: float
    values: Mapping[str, Mapping[int, float]]
    window_s: float = 0.0
    """The time up to `at_s` that it tells of; none where it was read in a moment, as agents do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerSample:
    """One entry of a history: by instance, or a single value under 0 where the instances were combined."""

    at_s: float
    values: Mapping[int, float]
    since_s: float | None = None
    """Where it stands for several readings without a hole that all meet the value: the time of the first."""
    window_s: float = 0.0
    """The time before it, or before the first of those, that it tells of."""
    combined: int = 1
    """How many instances the value is of, where they were combined."""

    @property
    def first_s(self) -> float:
        return self.at_s if self.since_s is None else self.since_s

    def gap_s(self, before: TriggerSample) -> float:
        """The time between the two that neither tells of."""
        return max(0.0, self.first_s - self.window_s - before.at_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hole:
    """Time without readings that is longer than what is tolerated."""

    from_s: float
    to_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerHistory:
    trigger: RuleTrigger
    interval_s: float = 0.0
    """How often readings are to come."""
    samples: tuple[TriggerSample, ...] = ()
    """Oldest first."""

    @property
    def longest_hole_s(self) -> float:
        stated_s = self.trigger.longest_hole_s
        return HOLE_INTERVALS * self.interval_s if stated_s is None else stated_s

    @property
    def covers_s(self) -> float:
        """For how long there were readings until the newest, without a hole that is too long."""
        return max((_length_s(run) for run in self._runs()), default=0.0)

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Those within the trigger's time."""
        begins_s = self.samples[-1].at_s - self.trigger.for_at_least_s if self.samples else 0.0
        return tuple(
            Hole(from_s=before.at_s, to_s=after.first_s - after.window_s)
            for before, after in pairwise(self.samples)
            if self._is_hole(before, after) and after.first_s - after.window_s > begins_s + ROUNDING_S
        )

    def fires(self, at_s: float) -> bool:
        if not self.samples or self.samples[-1].at_s != at_s:
            return False
        return any(self._covers(run) and _meet(self.trigger, run) for run in self._runs())

    def meets(self) -> bool:
        """Whether the samples since the last hole meet the value, whatever time they cover."""
        return any(_meet(self.trigger, run) for run in self._runs())

    def with_reading(self, reading: OperatorReading) -> TriggerHistory:
        found = reading.values.get(self.trigger.metric, {})
        if not found:
            return self
        sample = TriggerSample(
            at_s=reading.at_s,
            values=combined(self.trigger.instances, found),
            window_s=reading.window_s,
            combined=len(found),
        )
        if self.samples and sample.at_s <= self.samples[-1].at_s:
            return replace(self, samples=self._with_late(sample))
        samples = self._thinned((*self.samples, sample))
        return replace(self, samples=_pruned(self.trigger, samples))

    def aged(self, by_s: float) -> TriggerHistory:
        """The same, so much longer ago."""
        samples = (
            replace(sample, at_s=sample.at_s - by_s, since_s=sample.since_s and sample.since_s - by_s)
            for sample in self.samples
        )
        return replace(self, samples=tuple(samples))

    def _is_hole(self, before: TriggerSample, after: TriggerSample) -> bool:
        return after.gap_s(before) > self.longest_hole_s * (1 + _JITTER) + ROUNDING_S

    def _covers(self, run: Sequence[TriggerSample]) -> bool:
        length_s = _length_s(run)
        return length_s > 0 and length_s >= self.trigger.for_at_least_s - ROUNDING_S

    def _runs(self) -> Iterator[Sequence[TriggerSample]]:
        """Up to the newest sample and back to the last hole, for each instance that stands for itself."""
        if not self.samples:
            return
        if self.trigger.instances is not OverInstances.ANY:
            yield self._run(self.samples)
            return
        for instance in self.samples[-1].values:
            own = (
                replace(sample, values={0: sample.values[instance]})
                for sample in self.samples
                if instance in sample.values
            )
            yield self._run(tuple(own))

    def _run(self, samples: Sequence[TriggerSample]) -> Sequence[TriggerSample]:
        begin = len(samples) - 1
        while begin > 0 and not self._is_hole(samples[begin - 1], samples[begin]):
            begin -= 1
        return samples[begin:]

    def _with_late(self, sample: TriggerSample) -> tuple[TriggerSample, ...]:
        """Put in its place, or together with what other instances read at that time.

        Where readings stand for each other already (`_thinned`) it comes too late: that time was judged.
        """
        place = bisect_left(self.samples, sample.at_s, key=lambda known: known.at_s)
        after = self.samples[place : place + 1]
        if after and after[0].since_s is not None and after[0].since_s <= sample.at_s:
            return self.samples
        near = [
            index
            for index in (place - 1, place)
            if 0 <= index < len(self.samples) and abs(self.samples[index].at_s - sample.at_s) < self.interval_s / 2
        ]
        if near:
            index = min(near, key=lambda index: abs(self.samples[index].at_s - sample.at_s))
            merged = _merged(self.trigger.instances, self.samples[index], sample)
            return (*self.samples[:index], merged, *self.samples[index + 1 :])
        return _pruned(self.trigger, (*self.samples[:place], sample, *self.samples[place:]))

    def _thinned(self, samples: tuple[TriggerSample, ...]) -> tuple[TriggerSample, ...]:
        """Where every reading counts, one that meets the value tells nothing more once the next one does, too.

        That keeps a history of a day at a reading a second as short as one of a minute.
        """
        trigger = self.trigger
        if len(samples) < 2 or not trigger.takes_every_reading or trigger.instances is OverInstances.ANY:
            return samples
        before, last = samples[-2:]
        if self._is_hole(before, last) or not all(trigger.is_met_by(one.values[0]) for one in (before, last)):
            return samples
        both = replace(last, since_s=before.first_s, window_s=before.window_s)
        return (*samples[:-2], both)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluator:
    """Of one rule and one operator."""

    histories: tuple[TriggerHistory, ...]
    seen_s: float | None = None
    """When it last had a reading."""
    holds_since_s: float | None = None
    """From when on all triggers fired, without a break until now."""

    @classmethod
    def of(cls, rule: Rule, interval_s: float) -> Evaluator:
        return cls(histories=tuple(_empty(trigger, interval_s) for trigger in rule.triggers))

    def has_read(self, metric: str) -> bool:
        return any(history.samples for history in self.histories if history.trigger.metric == metric)

    def with_reading(self, reading: OperatorReading) -> Evaluator:
        if self.seen_s is not None and reading.at_s == self.seen_s:
            return self  # given twice
        histories = tuple(history.with_reading(reading) for history in self.histories)
        if self.seen_s is not None and reading.at_s < self.seen_s:
            return replace(self, histories=histories)  # late: what holds now is judged with the next one
        holds = all(history.fires(reading.at_s) for history in histories)
        since_s = None if not holds else reading.at_s if self.holds_since_s is None else self.holds_since_s
        return Evaluator(histories=histories, seen_s=reading.at_s, holds_since_s=since_s)

    def holds(self, at_s: float) -> bool:
        """Whether all triggers fire at this time; what was seen earlier does not count for now."""
        return self.seen_s == at_s and self.holds_since_s is not None

    def for_rule(self, rule: Rule, interval_s: float) -> Evaluator:
        """The same for a rule that may have been changed: what a trigger has seen stays while it is the same."""
        known = {history.trigger: replace(history, interval_s=interval_s) for history in self.histories}
        histories = tuple(known.get(trigger, _empty(trigger, interval_s)) for trigger in rule.triggers)
        if tuple(history.trigger for history in self.histories) == rule.triggers:
            return replace(self, histories=histories)
        return Evaluator(histories=histories, seen_s=self.seen_s)

    def aged(self, by_s: float) -> Evaluator:
        return Evaluator(
            histories=tuple(history.aged(by_s) for history in self.histories),
            seen_s=None if self.seen_s is None else self.seen_s - by_s,
            holds_since_s=None if self.holds_since_s is None else self.holds_since_s - by_s,
        )


@dataclass(frozen=True, kw_only=True)
class RulesMemory:
    """Every evaluator, by the key of its rule and by operator: all that rules remember of earlier readings."""

    evaluators: Mapping[str, Mapping[str, Evaluator]] = field(default_factory=dict)

    def evaluator(self, rule: Rule, operator: str) -> Evaluator:
        found = self.evaluators.get(rule.key, {}).get(operator)
        if found is None:
            return Evaluator.of(rule, 0.0)
        return found.for_rule(rule, max(history.interval_s for history in found.histories))

    def with_readings(
        self, rules: RuleSet, readings: Iterable[OperatorReading], *, interval_s: float
    ) -> RulesMemory:
        """Route each reading to the evaluators of its operator; rules that are gone are forgotten.

        `interval_s` is how often readings are to come: what is missing is judged by it.
        """
        found: dict[str, dict[str, Evaluator]] = {
            rule.key: dict(self.evaluators.get(rule.key, {})) for rule in rules.rules
        }
        for reading in readings:
            for rule in rules.rules:
                if rule.applies_to(reading.operator):
                    own = found[rule.key]
                    before = own.get(reading.operator)
                    evaluator = (
                        Evaluator.of(rule, interval_s) if before is None else before.for_rule(rule, interval_s)
                    )
                    own[reading.operator] = evaluator.with_reading(reading)
        return RulesMemory(evaluators=found)

    def aged(self, by_s: float) -> RulesMemory:
        """Nobody looked for so long: what was seen is that much older, and the time in between is a hole."""
        if by_s <= 0:
            return self
        return RulesMemory(
            evaluators={
                key: {operator: evaluator.aged(by_s) for operator, evaluator in own.items()}
                for key, own in self.evaluators.items()
            }
        )


NOTHING_REMEMBERED = RulesMemory()


def combined(instances: OverInstances, values: Mapping[int, float]) -> Mapping[int, float]:
    if not values or instances is OverInstances.ANY:
        return values
    match instances:
        case OverInstances.AVERAGE:
            return {0: fsum(values.values()) / len(values)}
        case OverInstances.MAX:
            return {0: max(values.values())}
        case OverInstances.MIN:
            return {0: min(values.values())}


def _empty(trigger: RuleTrigger, interval_s: float) -> TriggerHistory:
    return TriggerHistory(trigger=trigger, interval_s=interval_s)


def _merged(instances: OverInstances, known: TriggerSample, late: TriggerSample) -> TriggerSample:
    """With what other instances read at the same time."""
    if instances is OverInstances.ANY:
        return replace(known, values={**late.values, **known.values})
    count = known.combined + late.combined
    match instances:
        case OverInstances.AVERAGE:
            value = (known.values[0] * known.combined + late.values[0] * late.combined) / count
        case OverInstances.MAX:
            value = max(known.values[0], late.values[0])
        case OverInstances.MIN:
            value = min(known.values[0], late.values[0])
    return replace(known, values={0: value}, combined=count)


def _length_s(run: Sequence[TriggerSample]) -> float:
    return run[-1].at_s - run[0].first_s


def _meet(trigger: RuleTrigger, run: Sequence[TriggerSample]) -> bool:
    if trigger.takes_every_reading or len(run) == 1:
        return all(trigger.is_met_by(sample.values[0]) for sample in run)
    weighted = _weighted(run, run[-1].at_s - trigger.for_at_least_s)
    if trigger.median:
        return trigger.is_met_by(_weighted_median(weighted))
    met_s = fsum(weight_s for value, weight_s in weighted if trigger.is_met_by(value))
    return met_s >= trigger.share * fsum(weight_s for _, weight_s in weighted) - ROUNDING_S


def _weighted(run: Sequence[TriggerSample], begins_s: float) -> list[tuple[float, float]]:
    """Each value with the time that it speaks for: since the reading before it, within the trigger's time."""
    return [
        (sample.values[0], sample.at_s - max(before.at_s, begins_s))
        for before, sample in pairwise(run)
        if sample.at_s > begins_s
    ]


def _weighted_median(weighted: Iterable[tuple[float, float]]) -> float:
    ordered = sorted(weighted)
    half_s, passed_s = fsum(weight_s for _, weight_s in ordered) / 2, 0.0
    for index, (value, weight_s) in enumerate(ordered):
        passed_s += weight_s
        if abs(passed_s - half_s) <= ROUNDING_S and index + 1 < len(ordered):
            return (value + ordered[index + 1][0]) / 2
        if passed_s > half_s:
            return value
    return ordered[-1][0]


def _pruned(trigger: RuleTrigger, samples: tuple[TriggerSample, ...]) -> tuple[TriggerSample, ...]:
    """Those within the trigger's time, and the newest of those before it."""
    begins_s = samples[-1].at_s - trigger.for_at_least_s + ROUNDING_S
    older = sum(sample.first_s <= begins_s for sample in samples)
    return samples[max(0, older - 1) :]
