"""Whether the triggers of a rule fire: algorithms 4.1 to 4.3 of the SEEP thesis, mended.

For every rule and operator there is one evaluator, so that a rule for every operator never mixes them, and an
operator's own rules stand beside the ones for all (4.1, line 21 overwrites them). An evaluator keeps for each
trigger a history of readings v₁ … vₙ at the times t₁ < … < tₙ: those not older than the trigger's time T, and one
more, the newest of the older ones. Without that one it could not be seen that the history covers the whole time,
and 4.3, line 11 could never be satisfied once 4.2, line 16 prunes. The trigger fires where

    tₙ − t₁ ≥ T    and    every vᵢ is above (or below) the value

or, where the rule says so, at least a share of them is, or their median is. (4.3 fires on any reading although the
text says all; 4.2 starts with `scale := False`, which nothing can make true, and its `fired` and `changed` are
never reset: here they are computed anew from each history.) A rule holds while all of its triggers fire.

A trigger without a reading in this moment does not fire: no data is no reason to act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum
from statistics import median

from elastream.policies.rules.rule import OverInstances, Rule, RuleSet, RuleTrigger

ROUNDING_S = 1e-6  # that adding up times may be off by


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorReading:
    """What the instances of one operator read at one time: of each metric a value for each that has it."""

    operator: str
    at_s: float
    values: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerSample:
    """One entry of a history: by instance, or a single value under 0 where the instances were combined."""

    at_s: float
    values: Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerHistory:
    trigger: RuleTrigger
    samples: tuple[TriggerSample, ...] = ()
    """Oldest first."""

    @property
    def covers_s(self) -> float:
        return self.samples[-1].at_s - self.samples[0].at_s if self.samples else 0.0

    @property
    def is_covered(self) -> bool:
        return len(self.samples) > 1 and self.covers_s >= self.trigger.for_at_least_s - ROUNDING_S

    def fires(self, at_s: float) -> bool:
        return self.is_covered and self.samples[-1].at_s == at_s and self.meets()

    def meets(self) -> bool:
        """Whether the samples there are meet the value, whatever time they cover."""
        throughout = set(self.samples[0].values).intersection(*(sample.values for sample in self.samples[1:]))
        return any(
            _meet(self.trigger, [sample.values[instance] for sample in self.samples]) for instance in throughout
        )

    def with_reading(self, reading: OperatorReading) -> TriggerHistory:
        values = combined(self.trigger.instances, reading.values.get(self.trigger.metric, {}))
        if not values:
            return self
        samples = (*self.samples, TriggerSample(at_s=reading.at_s, values=values))
        return replace(self, samples=_thinned(self.trigger, _pruned(self.trigger, samples)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluator:
    """Of one rule and one operator."""

    histories: tuple[TriggerHistory, ...]
    seen_s: float | None = None
    """When it last had a reading."""
    holds_since_s: float | None = None
    """From when on all triggers fired, without a break until now."""

    @classmethod
    def of(cls, rule: Rule) -> Evaluator:
        return cls(histories=tuple(TriggerHistory(trigger=trigger) for trigger in rule.triggers))

    def with_reading(self, reading: OperatorReading) -> Evaluator:
        if self.seen_s is not None and reading.at_s <= self.seen_s:
            return self  # late, or given twice
        histories = tuple(history.with_reading(reading) for history in self.histories)
        holds = all(history.fires(reading.at_s) for history in histories)
        since_s = None if not holds else reading.at_s if self.holds_since_s is None else self.holds_since_s
        return Evaluator(histories=histories, seen_s=reading.at_s, holds_since_s=since_s)

    def holds(self, at_s: float) -> bool:
        """Whether all triggers fire at this time; what was seen earlier does not count for now."""
        return self.seen_s == at_s and self.holds_since_s is not None

    def for_rule(self, rule: Rule) -> Evaluator:
        """The same for a rule that may have been changed: what a trigger has seen stays while it is the same."""
        if tuple(history.trigger for history in self.histories) == rule.triggers:
            return self
        known = {history.trigger: history for history in self.histories}
        histories = tuple(known.get(trigger, TriggerHistory(trigger=trigger)) for trigger in rule.triggers)
        return Evaluator(histories=histories, seen_s=self.seen_s)


@dataclass(frozen=True, kw_only=True)
class RulesMemory:
    """Every evaluator, by the key of its rule and by operator: all that rules remember of earlier readings."""

    evaluators: Mapping[str, Mapping[str, Evaluator]] = field(default_factory=dict)

    def evaluator(self, rule: Rule, operator: str) -> Evaluator:
        found = self.evaluators.get(rule.key, {}).get(operator)
        return Evaluator.of(rule) if found is None else found.for_rule(rule)

    def with_readings(self, rules: RuleSet, readings: Iterable[OperatorReading]) -> RulesMemory:
        """Route each reading to the evaluators of its operator; rules that are gone are forgotten."""
        found: dict[str, dict[str, Evaluator]] = {
            rule.key: dict(self.evaluators.get(rule.key, {})) for rule in rules.rules
        }
        for reading in readings:
            for rule in rules.rules:
                if rule.applies_to(reading.operator):
                    own = found[rule.key]
                    before = own.get(reading.operator)
                    evaluator = Evaluator.of(rule) if before is None else before.for_rule(rule)
                    own[reading.operator] = evaluator.with_reading(reading)
        return RulesMemory(evaluators=found)


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


def _meet(trigger: RuleTrigger, values: list[float]) -> bool:
    if trigger.median:
        return trigger.is_met_by(median(values))
    met = sum(map(trigger.is_met_by, values))
    return met == len(values) if trigger.takes_every_reading else met >= trigger.share * len(values) - ROUNDING_S


def _pruned(trigger: RuleTrigger, samples: tuple[TriggerSample, ...]) -> tuple[TriggerSample, ...]:
    """Those within the trigger's time, and the newest of those before it."""
    begins_s = samples[-1].at_s - trigger.for_at_least_s + ROUNDING_S
    older = sum(sample.at_s <= begins_s for sample in samples)
    return samples[max(0, older - 1) :]


def _thinned(trigger: RuleTrigger, samples: tuple[TriggerSample, ...]) -> tuple[TriggerSample, ...]:
    """Where every reading counts, those between two that meet the value and meet it too tell nothing more.

    That keeps a history of a day at a reading a second as short as one of a minute.
    """
    if not trigger.takes_every_reading or trigger.instances is OverInstances.ANY:
        return samples
    last_three_meet = len(samples) > 2 and all(trigger.is_met_by(sample.values[0]) for sample in samples[-3:])
    return (*samples[:-2], samples[-1]) if last_three_meet else samples
