"""The rule model of section 4.2 of the SEEP thesis: what a rule is, and nothing of how it is written or evaluated.

A rule set is what the thesis calls a scaling policy. A rule names an operator, or means every one, and says in
which direction and by how much to scale it, when (all triggers must fire), how far at most, and how long after the
last action it keeps still. All of it is frozen, and checked when it is made: whoever holds a rule may use it.

A bound is strict in both directions: above 100 is more than 100, below 1 is less than 1. (Algorithm 4.3 counts
"below 1" as at most 1; the text of 5.2.6 says less than 1.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from elastream.dataflow.graph import MOST_INSTANCES
from elastream.errors import InvalidInput
from elastream.policies.rules.metrics import METRICS, Unit, unit_of

EVERY_OPERATOR = "every operator"
"""Written in the place of a name; no operator may be called so."""

LONGEST_S = 366 * 86_400.0
"""A longer time in a rule is a mistake."""


class Direction(StrEnum):
    OUT = "scale-out"
    IN = "scale-in"


class Comparison(StrEnum):
    ABOVE = "above"
    BELOW = "below"


class OverInstances(StrEnum):
    """How the readings of an operator's instances become one, or whether each stands for itself."""

    AVERAGE = "average"
    MAX = "max"
    MIN = "min"
    ANY = "any"
    """One and the same instance, for the whole time."""


class Acts(StrEnum):
    LEVEL = "level"
    """As long as the triggers fire: again after each guard time, until the limit is reached."""
    EDGE = "edge"
    """Once each time that the triggers begin to fire."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleTrigger:
    metric: str
    comparison: Comparison
    value: float
    unit: Unit
    for_at_least_s: float
    share: float = 1.0
    """For how much of that time the value must be met: below 1 an outlier does no harm."""
    median: bool = False
    """The median over that time must meet it, instead of each reading."""
    instances: OverInstances = OverInstances.AVERAGE
    longest_hole_s: float | None = None
    """The longest time without readings within it that is tolerated; two intervals where not stated."""

    def __post_init__(self) -> None:
        if not self.metric:
            raise InvalidInput("a trigger needs the name of a metric, found an empty one")
        _check_value(self)
        check_time("for_at_least", self.for_at_least_s)
        if self.longest_hole_s is not None:
            check_time("longest_hole", self.longest_hole_s)
        if not 0 < self.share <= 1:
            raise InvalidInput(f"share must be above 0 and at most 1, found {self.share:g}")
        if self.median and self.share < 1:
            raise InvalidInput("share and median are two ways to pass over an outlier: give one of them")

    @property
    def takes_every_reading(self) -> bool:
        return self.share == 1 and not self.median

    def is_met_by(self, value: float) -> bool:
        return value > self.value if self.comparison is Comparison.ABOVE else value < self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class By:
    """An absolute factor: so many instances more, or less."""

    instances: int

    def __post_init__(self) -> None:
        _check_count("by", self.instances)


@dataclass(frozen=True, kw_only=True, slots=True)
class ByFactor:
    """A relative factor: so many times the present size, or that part of it."""

    factor: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            raise InvalidInput(f"by: a factor must be a number above 1, found {self.factor:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AtInstances:
    """An absolute limit."""

    instances: int

    def __post_init__(self) -> None:
        _check_count("the limit", self.instances)


@dataclass(frozen=True, kw_only=True, slots=True)
class AtTimesOriginal:
    """A limit relative to the size that the operator began with."""

    factor: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise InvalidInput(
                f"the limit, as a multiple of the original size, must be a number above 0, found {self.factor:g}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    name: str
    operator: str | None
    """None means every operator, each judged by its own readings."""
    direction: Direction
    by: By | ByFactor
    triggers: tuple[RuleTrigger, ...]
    limit: AtInstances | AtTimesOriginal | None = None
    """Never above, for a scale-out, which must have one; never below, for a scale-in, where none means 1."""
    not_within_s_of_scale_out: float | None = None
    not_within_s_of_scale_in: float | None = None
    acts: Acts = Acts.LEVEL

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.name.isprintable():
            raise InvalidInput(f"a rule needs a name that can be printed in a line, found {self.name!r}")
        _check_operator(self)
        if not self.triggers:
            raise InvalidInput("a rule needs at least one trigger (when ...)")
        if self.direction is Direction.OUT and self.limit is None:
            raise InvalidInput("a scale-out needs a limit (never_above)")
        for field, time_s in (
            ("unless_scaled_out_within", self.not_within_s_of_scale_out),
            ("unless_scaled_in_within", self.not_within_s_of_scale_in),
        ):
            if time_s is not None:
                check_time(field, time_s)

    @property
    def key(self) -> str:
        """What tells it from the other rules of its set; the same name may stand for different operators."""
        return f"{self.name} [{self.operator or EVERY_OPERATOR}]"

    def applies_to(self, operator: str) -> bool:
        return self.operator is None or self.operator == operator

    def target(self, current: int, original: int) -> int:
        """The size that an action of this rule leads to, within its limit; the present size where that is it."""
        if self.direction is Direction.OUT:
            most = max(1, math.floor(self.limit_size(original) + _ROUNDING))
            return max(current, min(most, self._unlimited(current)))
        least = max(1, math.ceil(self.limit_size(original) - _ROUNDING))
        return min(current, max(least, self._unlimited(current)))

    def limit_size(self, original: int) -> float:
        match self.limit:
            case AtInstances(instances=instances):
                return instances
            case AtTimesOriginal(factor=factor):
                return factor * original
            case None:
                return 1

    def _unlimited(self, current: int) -> int:
        """A factor changes by at least one: half of three is two, and a tenth more than three is four."""
        match self.direction, self.by:
            case Direction.OUT, By(instances=instances):
                return current + instances
            case Direction.OUT, ByFactor(factor=factor):
                return max(current + 1, math.ceil(min(current * factor, MOST_INSTANCES) - _ROUNDING))
            case Direction.IN, By(instances=instances):
                return current - instances
            case Direction.IN, ByFactor(factor=factor):
                return min(current - 1, math.ceil(current / factor - _ROUNDING))
        raise AssertionError("every direction and every factor is handled above")


_ROUNDING = 1e-9  # that floating point may add to a whole number


@dataclass(frozen=True)
class RuleSet:
    """A scaling policy of the thesis: rules in the order in which they were written. None is fine: no effect."""

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for rule in self.rules:
            if rule.key in seen:
                target = rule.operator or EVERY_OPERATOR
                raise InvalidInput(f"two rules for {target} have the name {rule.name!r}; names tell rules apart")
            seen.add(rule.key)

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def metrics(self) -> frozenset[str]:
        """All that some rule looks at; what is not among them need not be measured for the rules."""
        return frozenset(trigger.metric for rule in self.rules for trigger in rule.triggers)


NO_RULES = RuleSet()


def check_time(field: str, time_s: float) -> None:
    if not (math.isfinite(time_s) and 0 < time_s <= LONGEST_S):
        most = f"{LONGEST_S / 86_400:g} days"
        raise InvalidInput(f"{field}: a time must be above 0 and at most {most}, found {time_s:g} s")


def _check_value(trigger: RuleTrigger) -> None:
    what = f"{trigger.comparison} for {trigger.metric}"
    if not (math.isfinite(trigger.value) and trigger.value >= 0):
        raise InvalidInput(f"{what} must be a finite number of at least 0, found {trigger.value:g}")
    if trigger.unit is Unit.PERCENT and trigger.value > 100:
        raise InvalidInput(f"{what} must be at most 100 %, found {trigger.value:g} %")
    if trigger.metric in METRICS and trigger.unit is not unit_of(trigger.metric):
        expected = unit_of(trigger.metric)
        found = f"{trigger.value:g} {trigger.unit}".rstrip()
        raise InvalidInput(f"{trigger.metric} is measured in {expected}, found {found}")


def _check_operator(rule: Rule) -> None:
    if rule.operator is None:
        return
    if not rule.operator.strip() or not rule.operator.isprintable():
        raise InvalidInput(f"an operator needs a name that can be printed in a line, found {rule.operator!r}")
    if rule.operator == EVERY_OPERATOR:
        raise InvalidInput(f"no operator can be called {EVERY_OPERATOR!r}: that means all of them")


def _check_count(what: str, count: int) -> None:
    if not 1 <= count <= MOST_INSTANCES:
        raise InvalidInput(f"{what} must be from 1 to {MOST_INSTANCES:,} instances, found {count}")
