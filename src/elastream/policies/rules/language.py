"""Rules in Python, so that they read like a sentence and a type checker sees what is wrong with one.

    rules(
        rule("the queue is long")
        .scale_out("counts").by(2).never_above(8)
        .when("queue_length").above(1000).for_at_least(minutes(5))
        .unless_scaled_out_within(minutes(5)),
        rule("it is idle")
        .scale_in(every_operator).by(1)
        .when("utilization").below(percent(20)).for_at_least(minutes(10))
        .and_when("queue_length").below(records(1)).for_at_least(minutes(10)),
    )

Every word gives a stage that has only the words that may follow, as SEEP's embedded language does with its syntax
interfaces (section 4.4.3); only the last stage, `WrittenRule`, is taken by `rules`. What a stage lacks it says
itself, wherever it is used as if it were a rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, final

from elastream.errors import InvalidInput
from elastream.measurement.amounts import MOST_AMOUNT
from elastream.policies.rules.metrics import QUERY, MetricName, Unit, check_metric, spelt, unit_of
from elastream.policies.rules.rule import (
    Acts,
    AtInstances,
    AtTimesOriginal,
    By,
    ByFactor,
    Comparison,
    Direction,
    OverInstances,
    Rule,
    RuleSet,
    RuleTrigger,
)

# Units: types of their own, so that five minutes are not mistaken for five records


@final
@dataclass(frozen=True, slots=True)
class Time:
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Amount:
    value: float
    unit: Unit


def seconds(count: float) -> Time:
    return Time(_number("seconds", count))


def minutes(count: float) -> Time:
    return Time(60.0 * _number("minutes", count))


def percent(count: float) -> Amount:
    if not 0 <= _number("percent", count) <= 100:
        raise InvalidInput(f"percent must be from 0 to 100, found {count:g}")
    return Amount(float(count), Unit.PERCENT)


def records(count: float) -> Amount:
    return Amount(_number("records", count), Unit.RECORDS)


def records_per_second(count: float) -> Amount:
    return Amount(_number("records_per_second", count), Unit.RECORDS_PER_S)


def mebibytes(count: float) -> Amount:
    return Amount(_number("mebibytes", count) * 2**20, Unit.BYTES)


@final
class EveryOperator:
    """The type of `every_operator`, which stands where the name of an operator may stand."""

    def __repr__(self) -> str:
        return "every_operator"


every_operator: Final = EveryOperator()

_Of = Literal["average", "max", "min", "any"]


class _Stage:
    """A rule that is not finished yet, with what was said so far: the fields of a `Rule`."""

    _next: ClassVar[str]

    def __init__(self, **said: Any) -> None:
        self._said = said

    def missing(self) -> str:
        return f"the rule {self._said['name']!r} is not complete: it still needs {self._next}"

    def __repr__(self) -> str:
        return f"<{self.missing()}>"

    if not TYPE_CHECKING:  # or a type checker would take any word for one that may follow

        def __getattr__(self, word: str) -> object:
            if word.startswith("_"):
                raise AttributeError(word)
            raise InvalidInput(f"{self.missing()}, found .{word}")


@final
class NamedRule(_Stage):
    _next = ".scale_out(...) or .scale_in(...)"

    def scale_out(self, operator: str | EveryOperator) -> ScaleOut:
        return ScaleOut(**self._said, direction=Direction.OUT, operator=_operator(operator))

    def scale_in(self, operator: str | EveryOperator) -> ScaleIn:
        return ScaleIn(**self._said, direction=Direction.IN, operator=_operator(operator))


@final
class ScaleOut(_Stage):
    _next = ".by(...) or .by_a_factor_of(...)"

    def by(self, instances: int) -> ScaleOutBy:
        """So many instances more."""
        return ScaleOutBy(**self._said, by=By(instances=_whole("by", instances)))

    def by_a_factor_of(self, factor: float) -> ScaleOutBy:
        """So many times the present size."""
        return ScaleOutBy(**self._said, by=ByFactor(factor=_number("by_a_factor_of", factor)))


@final
class ScaleOutBy(_Stage):
    _next = ".never_above(...) or .never_above_times_original(...)"

    def never_above(self, instances: int) -> Limited:
        return Limited(**self._said, limit=AtInstances(instances=_whole("never_above", instances)))

    def never_above_times_original(self, factor: float) -> Limited:
        """So many times the size that the operator began with."""
        limit = AtTimesOriginal(factor=_number("never_above_times_original", factor))
        return Limited(**self._said, limit=limit)


@final
class ScaleIn(_Stage):
    _next = ".by(...) or .by_a_factor_of(...)"

    def by(self, instances: int) -> ScaleInBy:
        """So many instances less."""
        return ScaleInBy(**self._said, by=By(instances=_whole("by", instances)))

    def by_a_factor_of(self, factor: float) -> ScaleInBy:
        """The present size divided by the factor."""
        return ScaleInBy(**self._said, by=ByFactor(factor=_number("by_a_factor_of", factor)))


class Limited(_Stage):
    _next = ".when(...)"

    def when(self, metric: MetricName, *, of: _Of = "average") -> Condition:
        """`of` says how the readings of an operator's instances are taken together."""
        return _condition(self._said, metric, of)


@final
class ScaleInBy(Limited):
    """A scale-in needs no limit: an operator never has fewer than one instance."""

    _next = ".when(...), perhaps after .never_below(...)"

    def never_below(self, instances: int) -> Limited:
        return Limited(**self._said, limit=AtInstances(instances=_whole("never_below", instances)))

    def never_below_times_original(self, factor: float) -> Limited:
        limit = AtTimesOriginal(factor=_number("never_below_times_original", factor))
        return Limited(**self._said, limit=limit)


class _TriggerStage(_Stage):
    """In the middle of a trigger, with what was said of it: the fields of a `RuleTrigger`."""

    def __init__(self, rule: dict[str, Any], **trigger: Any) -> None:
        super().__init__(**rule)
        self._trigger = trigger


@final
class Condition(_TriggerStage):
    _next = ".above(...) or .below(...)"

    def above(self, value: float | Amount | Time) -> Bounded:
        return self._bounded(Comparison.ABOVE, value)

    def below(self, value: float | Amount | Time) -> Bounded:
        return self._bounded(Comparison.BELOW, value)

    def _bounded(self, comparison: Comparison, value: float | Amount | Time) -> Bounded:
        bound = amount_of(self._trigger["metric"], value)
        return Bounded(self._said, **self._trigger, comparison=comparison, value=bound.value, unit=bound.unit)


@final
class Bounded(_TriggerStage):
    _next = ".for_at_least(...)"

    def for_at_least(
        self, time: Time, *, share: float = 1.0, median: bool = False, longest_hole: Time | None = None
    ) -> WrittenRule:
        """Every reading of that time must meet the value; or for a share of it; or the median over it.

        Where there is no reading for longer than `longest_hole`, by default two intervals, it is not covered.
        """
        trigger = RuleTrigger(
            **self._trigger,
            for_at_least_s=_seconds("for_at_least", time),
            share=_number("share", share),
            median=median,
            longest_hole_s=None if longest_hole is None else _seconds("longest_hole", longest_hole),
        )
        return WrittenRule({**self._said, "triggers": (*self._said.get("triggers", ()), trigger)})


@final
class WrittenRule:
    """A rule that can be used; more may be said."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        try:
            self.rule = Rule(**said)
        except InvalidInput as error:
            raise error.at(f"the rule {said['name']!r}") from None

    def and_when(self, metric: MetricName, *, of: _Of = "average") -> Condition:
        """One more trigger; the rule acts only while all of them fire."""
        return _condition(self._said, metric, of)

    def unless_scaled_out_within(self, time: Time) -> WrittenRule:
        guard_s = _seconds("unless_scaled_out_within", time)
        return WrittenRule({**self._said, "not_within_s_of_scale_out": guard_s})

    def unless_scaled_in_within(self, time: Time) -> WrittenRule:
        guard_s = _seconds("unless_scaled_in_within", time)
        return WrittenRule({**self._said, "not_within_s_of_scale_in": guard_s})

    def once_each_time(self) -> WrittenRule:
        """Act on the edge: once each time that the triggers begin to fire, not as long as they do."""
        return WrittenRule({**self._said, "acts": Acts.EDGE})

    def __repr__(self) -> str:
        return f"<rule {self.rule.name!r}>"


def query(promql: str) -> Any:
    """In the place of a metric: what a Prometheus server answers to this; `elastream master --prometheus` asks."""
    return f"{QUERY}{promql}"


def rule(name: str) -> NamedRule:
    """Begin a rule; `.scale_out(...)` or `.scale_in(...)` follows."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"rule(...) takes the name of the rule, found {name!r}")
    return NamedRule(name=name)


def rules(*written: WrittenRule | Rule) -> RuleSet:
    """The rules of a pipeline, each finished."""
    return RuleSet(tuple(_finished(one) for one in written))


def _finished(written: object) -> Rule:
    match written:
        case WrittenRule():
            return written.rule
        case Rule():
            return written
        case _Stage():
            raise InvalidInput(written.missing())
        case _:
            raise InvalidInput(f"rules(...) takes rules, found {written!r}")


def amount_of(metric: str, value: float | Amount | Time) -> Amount:
    """With the unit that was given; a bare number has that of the metric."""
    match value:
        case Amount():
            return value
        case Time(seconds=found):
            return Amount(found, Unit.SECONDS)
    number, unit = _number(f"the bound of {metric}", value), unit_of(metric)
    if unit is Unit.PERCENT:
        raise InvalidInput(f"{metric} is measured in %: write percent({number:g}), not {number:g}")
    return Amount(number, unit)


def _operator(operator: object) -> str | None:
    if isinstance(operator, EveryOperator):
        return None
    if not isinstance(operator, str):
        raise InvalidInput(f"an operator is given by its name, or as every_operator, found {operator!r}")
    return operator


def _condition(said: dict[str, Any], metric: str, of: str) -> Condition:
    check_metric(spelt(metric))
    return Condition(said, metric=spelt(metric), instances=_instances(of))


def _instances(of: str) -> OverInstances:
    try:
        return OverInstances(of)
    except ValueError:
        known = ", ".join(OverInstances)
        raise InvalidInput(f"of: how instances are taken together is one of {known}, found {of!r}") from None


def _seconds(word: str, time: object) -> float:
    if not isinstance(time, Time):
        raise InvalidInput(f"{word} takes a time such as seconds(30) or minutes(5), found {time!r}")
    return time.seconds


def _number(word: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_AMOUNT:
        return float(value)
    raise InvalidInput(f"{word} takes a number, finite and below {MOST_AMOUNT:g}, found {value!r}")


def _whole(word: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{word} takes a whole number of instances, found {value!r}")
    return value
