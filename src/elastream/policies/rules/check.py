"""What is wrong with rules that are well formed: those that can never fire, and those that contradict each other.

Nothing here is certain to be a mistake, so it warns. What cannot be used at all (`usable`) is refused: a metric
that nobody measures, an operator that the pipeline does not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from elastream.dataflow import Dataflow
from elastream.errors import InvalidInput, nearest
from elastream.policies.rules.metrics import Unit, metric_named, unknown_metric
from elastream.policies.rules.rule import (
    Acts,
    AtInstances,
    By,
    Comparison,
    Direction,
    OverInstances,
    Rule,
    RuleSet,
    RuleTrigger,
)
from elastream.policies.rules.sentences import metric_text, value_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    rule: int
    """Which one, from 0 on."""
    text: str


def doubts(rules: RuleSet, dataflow: Dataflow | None = None) -> tuple[Doubt, ...]:
    """With the pipeline, the operators are looked at, too."""
    found: list[Doubt] = []
    for index, rule in enumerate(rules.rules):
        texts = [*_never_fires(rule), *_repeats(rule), *([] if dataflow is None else _misfits(rule, dataflow))]
        found += (Doubt(rule=index, text=text) for text in texts)
    for (_, first), (index, second) in combinations(enumerate(rules.rules), 2):
        found += (Doubt(rule=index, text=text) for text in _contradictions(first, second))
    return tuple(sorted(found, key=lambda doubt: doubt.rule))


def check_usable(rules: RuleSet, dataflow: Dataflow | None = None) -> None:
    """Refuse rules that look at what nobody measures, or scale what is not there."""
    for rule in rules.rules:
        texts = [unknown_metric(t.metric) for t in rule.triggers if metric_named(t.metric) is None]
        texts += [] if dataflow is None else unknown_operator(rule, dataflow)
        if texts:
            raise InvalidInput(f"the rule {rule.name!r}: {texts[0]}")


def unknown_operator(rule: Rule, dataflow: Dataflow) -> list[str]:
    name = rule.operator
    if name is None or name in dataflow.scalable:
        return []
    if name in dataflow:
        return [f"{name!r} is a source, and a source is not scaled"]
    return [f"unknown operator {name!r}{nearest(name, dataflow.scalable)}"]


# One rule


def _never_fires(rule: Rule) -> Iterator[str]:
    for trigger in rule.triggers:
        if metric_named(trigger.metric) is None:
            yield f"can never fire: {unknown_metric(trigger.metric)}"
        elif trigger.comparison is Comparison.ABOVE and trigger.unit is Unit.PERCENT and trigger.value >= 100:
            yield f"can never fire: {trigger.metric} is never above 100 %"
        elif trigger.comparison is Comparison.BELOW and trigger.value <= 0:
            yield f"can never fire: {trigger.metric} is never below 0"
    for first, second in combinations(rule.triggers, 2):
        above, below = (first, second) if first.comparison is Comparison.ABOVE else (second, first)
        if _cross(above, below):
            yield (
                f"can never fire: {metric_text(above)} cannot be above {value_text(above.value, above.unit)} "
                f"and below {value_text(below.value, below.unit)} at once"
            )
    if rule.direction is Direction.OUT and rule.limit == AtInstances(instances=1):
        yield "can never act: an operator has at least 1 instance, and this adds none above 1"


_RANK = {OverInstances.MIN: 0, OverInstances.AVERAGE: 1, OverInstances.MAX: 2}


def _cross(above: RuleTrigger, below: RuleTrigger) -> bool:
    """Bounds that cross: the lowest of the instances is not above their average, nor that above the highest."""
    if above.comparison is below.comparison or above.metric != below.metric or above.unit is not below.unit:
        return False
    if OverInstances.ANY in (above.instances, below.instances):
        return False  # that may be two different instances
    return (
        _look_at_one_reading(above, below)
        and _RANK[above.instances] <= _RANK[below.instances]
        and above.value >= below.value
    )


def _look_at_one_reading(first: RuleTrigger, second: RuleTrigger) -> bool:
    """Whether there is a reading, or one median, that both must be met by."""
    every = (first.takes_every_reading, second.takes_every_reading)
    same_time = first.for_at_least_s == second.for_at_least_s
    return all(every) or (same_time and (any(every) or (first.median and second.median)))


def _repeats(rule: Rule) -> Iterator[str]:
    """A rule on the level that may act again with the very next reading."""
    out = rule.direction is Direction.OUT
    guard_s = rule.not_within_s_of_scale_out if out else rule.not_within_s_of_scale_in
    if rule.acts is Acts.EDGE or guard_s is not None or not out:
        return
    at_once = isinstance(rule.by, By) and isinstance(rule.limit, AtInstances)
    if at_once and rule.target(1, 1) == rule.limit_size(1):
        return  # it is at its limit after one action
    yield (
        "acts again with every reading until its limit, as what waits is not gone at once: "
        "say unless_scaled_out_within, or let it act on the edge"
    )


def _misfits(rule: Rule, dataflow: Dataflow) -> Iterator[str]:
    yield from (f"can never act: {text}" for text in unknown_operator(rule, dataflow))
    if rule.operator is None or rule.operator not in dataflow.scalable:
        return
    operator = dataflow[rule.operator]
    if operator.fixed:
        yield f"can never act: the parallelism of {operator.name!r} is fixed"
    elif rule.direction is Direction.OUT and rule.limit_size(1) > operator.most:
        yield f"{operator.name!r} has at most {operator.most:g} instances, so never_above is never reached"


# Two rules


def _contradictions(first: Rule, second: Rule) -> Iterator[str]:
    if first.direction is second.direction or not _share_an_operator(first, second):
        return
    out, in_ = (first, second) if first.direction is Direction.OUT else (second, first)
    most, least = out.limit, in_.limit
    if isinstance(most, AtInstances) and isinstance(least, AtInstances) and least.instances > most.instances:
        yield (
            f"bounds that cross: {out.name!r} never goes above {most.instances}, "
            f"{in_.name!r} never below {least.instances}"
        )
    yield from _undoing(out, in_)


def _share_an_operator(first: Rule, second: Rule) -> bool:
    return first.operator is None or second.operator is None or first.operator == second.operator


def _undoing(out: Rule, in_: Rule) -> Iterator[str]:
    """Whether both can hold at one value of every metric that both look at; then one undoes the other."""
    shared = {(t.metric, t.instances) for t in out.triggers} & {(t.metric, t.instances) for t in in_.triggers}
    ranges = [_range(key, (*out.triggers, *in_.triggers)) for key in sorted(shared)]
    if not ranges or any(least > most for least, most in ranges):
        return
    (metric, instances), (least, most) = sorted(shared)[0], ranges[0]
    unit = next(t.unit for t in out.triggers if (t.metric, t.instances) == (metric, instances))
    if all(least < most for least, most in ranges):
        span = _range_text(least, most, unit)
        yield f"contradiction: {out.name!r} and {in_.name!r} both hold where {metric} is {span}"
    else:
        value = value_text(next(least for least, most in ranges if least == most), unit)
        yield (
            f"contradiction: {in_.name!r} undoes {out.name!r} at the same value ({metric} {value}): "
            "leave a gap between the two"
        )


def _range(key: tuple[str, OverInstances], triggers: Iterable[RuleTrigger]) -> tuple[float, float]:
    own = [t for t in triggers if (t.metric, t.instances) == key]
    least = max((t.value for t in own if t.comparison is Comparison.ABOVE), default=-math.inf)
    most = min((t.value for t in own if t.comparison is Comparison.BELOW), default=math.inf)
    return least, most


def _range_text(least: float, most: float, unit: Unit) -> str:
    if math.isinf(least):
        return f"below {value_text(most, unit)}"
    if math.isinf(most):
        return f"above {value_text(least, unit)}"
    return f"between {value_text(least, unit)} and {value_text(most, unit)}"
