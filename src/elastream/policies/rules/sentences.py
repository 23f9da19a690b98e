"""A rule in plain English: what `elastream rules check` prints back, to be compared with what was meant."""

from __future__ import annotations

from elastream.durations import text as duration_text
from elastream.policies.rules.metrics import Unit, metric_named
from elastream.policies.rules.rule import (
    Acts,
    AtInstances,
    AtTimesOriginal,
    By,
    ByFactor,
    Direction,
    OverInstances,
    Rule,
    RuleTrigger,
)


def sentence(rule: Rule) -> str:
    when = ", and ".join(map(trigger_text, rule.triggers))
    text = f"{_capital(_action(rule))}{_limit(rule)} when {when}{_guards(rule)}."
    if rule.acts is Acts.EDGE:
        return f"{text} It acts once each time that this becomes true."
    return f"{text} It acts as long as this is true."


def trigger_text(trigger: RuleTrigger) -> str:
    return (
        f"{metric_text(trigger)} is {bound_text(trigger)} for at least {duration_text(trigger.for_at_least_s)}"
        f"{_outliers(trigger)}{_holes(trigger)}"
    )


def metric_text(trigger: RuleTrigger) -> str:
    metric = metric_named(trigger.metric)
    words = trigger.metric if metric is None else metric.words
    match trigger.instances:
        case OverInstances.AVERAGE:
            return f"{words} (average of its instances)"
        case OverInstances.MAX:
            return f"{words} (highest of its instances)"
        case OverInstances.MIN:
            return f"{words} (lowest of its instances)"
        case OverInstances.ANY:
            return f"{words} of any one instance"


def bound_text(trigger: RuleTrigger) -> str:
    return f"{trigger.comparison} {value_text(trigger.value, trigger.unit)}"


def value_text(value: float, unit: Unit) -> str:
    number = f"{value:,.0f}" if value >= 100 and value == round(value) else f"{value:g}"
    if unit is Unit.RECORDS and value == 1:
        return "1 record"
    return f"{number} {unit}".rstrip()


def _action(rule: Rule) -> str:
    of = "every operator" if rule.operator is None else rule.operator
    match rule.direction, rule.by:
        case Direction.OUT, By(instances=count):
            return f"add {_instances(count)} to {of}"
        case Direction.IN, By(instances=count):
            return f"take {_instances(count)} from {of}"
        case Direction.OUT, ByFactor(factor=factor):
            return f"multiply the instances of {of} by {factor:g}"
        case Direction.IN, ByFactor(factor=factor):
            return f"divide the instances of {of} by {factor:g}"
    raise AssertionError("every direction and every factor is handled above")


def _limit(rule: Rule) -> str:
    word = "above" if rule.direction is Direction.OUT else "below"
    match rule.limit:
        case AtInstances(instances=count):
            return f", never {word} {_instances(count)},"
        case AtTimesOriginal(factor=factor):
            return f", never {word} {factor:g} times the size that it began with,"
        case None:
            return ", never below 1 instance,"


def _guards(rule: Rule) -> str:
    guards = [
        f"{what} within the last {duration_text(time_s)}"
        for what, time_s in (
            ("scaled out", rule.not_within_s_of_scale_out),
            ("scaled in", rule.not_within_s_of_scale_in),
        )
        if time_s is not None
    ]
    return f", unless it was {' or '.join(guards)}" if guards else ""


def _outliers(trigger: RuleTrigger) -> str:
    if trigger.median:
        return " by the median over that time"
    return "" if trigger.takes_every_reading else f" in at least {100 * trigger.share:g} % of that time"


def _holes(trigger: RuleTrigger) -> str:
    if trigger.longest_hole_s is None:
        return ""
    return f" with no hole between readings above {duration_text(trigger.longest_hole_s)}"


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count:,} instances"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
