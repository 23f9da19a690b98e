"""Rules in YAML. The pydantic models below are the one declaration of the form: reading, errors, JSON Schema.

    rules:
      - name: the queue is long
        scale_out: counts                  # or scale_in; a name, or: every operator
        by: 2                              # or {factor: 2}, of the present size
        never_above: 8                     # or {times_original: 4}; never_below for a scale-in
        when:                              # all of them
          - {metric: queue_length, above: 1000 records, for_at_least: 5 min}
        unless_scaled_out_within: 5 min    # and/or unless_scaled_in_within
        acts: level                        # or edge

Every error has the line that it is about; what is written is read again as the same rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator

from elastream.durations import seconds
from elastream.errors import InvalidInput, shown
from elastream.formats import InvalidYaml, Lines, Strict, read_yaml, what, where
from elastream.measurement.amounts import MOST_AMOUNT
from elastream.policies.rules.language import Amount
from elastream.policies.rules.metrics import METRICS, Unit, spelt, unit_of
from elastream.policies.rules.rule import (
    EVERY_OPERATOR,
    NO_RULES,
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
    check_time,
)

_UNITS = {
    "records/s": (1, Unit.RECORDS_PER_S),
    "records": (1, Unit.RECORDS),
    "record": (1, Unit.RECORDS),
    "%": (1, Unit.PERCENT),
    "s": (1, Unit.SECONDS),
    "bytes": (1, Unit.BYTES),
    "KiB": (2**10, Unit.BYTES),
    "MiB": (2**20, Unit.BYTES),
    "GiB": (2**30, Unit.BYTES),
    "files": (1, Unit.FILES),
}
_MOST_PROBLEMS = 100  # that are told of one file
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*({'|'.join(_UNITS)})\s*")
_DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|min|h|d)\s*$"
_AMOUNT_PATTERN = rf"^\s*{_NUMBER}\s*({'|'.join((*_UNITS, 'ms', 'min', 'h', 'd'))})\s*$"


# The parts of the form


def _amount(value: Any) -> Amount:
    """A bare number has no unit yet: the metric says which it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Amount(_float(value), Unit.NUMBER)
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value)):
        times, unit = _UNITS[match[2]]
        return Amount(times * float(match[1]), unit)
    try:
        return Amount(seconds(value), Unit.SECONDS)
    except ValueError:
        units = "records, %, records/s, bytes, KiB, MiB, GiB, files, or a time: ms, s, min, h, d"
        raise ValueError(f'a number, or text like "80 %" ({units}), found {shown(value)}') from None


def _float(value: float) -> float:
    """Beyond what a float can hold, or nearly, a number is as good as infinite: the model refuses it."""
    return float(value) if abs(value) < MOST_AMOUNT else math.inf


def _time(value: Any) -> float:
    found_s = seconds(value)
    _as_value_error(lambda: check_time("", found_s))
    return found_s


def _by(value: Any) -> By | ByFactor:
    match value:
        case {"factor": int() | float() as factor, **rest} if not rest and not isinstance(factor, bool):
            return _as_value_error(lambda: ByFactor(factor=_float(factor)))
        case int() if not isinstance(value, bool):
            return _as_value_error(lambda: By(instances=value))
    raise ValueError(f"a whole number of instances, or {{factor: 2}}, found {shown(value)}")


def _limit(value: Any) -> AtInstances | AtTimesOriginal:
    match value:
        case {"times_original": int() | float() as factor, **rest} if not rest and not isinstance(factor, bool):
            return _as_value_error(lambda: AtTimesOriginal(factor=_float(factor)))
        case int() if not isinstance(value, bool):
            return _as_value_error(lambda: AtInstances(instances=value))
    raise ValueError(f"a whole number of instances, or {{times_original: 2}}, found {shown(value)}")


Made = TypeVar("Made")


def _as_value_error(make: Callable[[], Made]) -> Made:
    """The model's own errors, as pydantic takes them."""
    try:
        return make()
    except InvalidInput as error:
        raise ValueError(str(error).removeprefix(": ")) from None


def _either(*schemas: Mapping[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [dict(schema) for schema in schemas]})


_COUNT = {"type": "integer", "minimum": 1}


def _only(key: str, **number: Any) -> dict[str, Any]:
    properties = {key: {"type": "number", **number}}
    return {"type": "object", "properties": properties, "required": [key], "additionalProperties": False}


Bound = Annotated[
    Any,
    BeforeValidator(_amount),
    _either({"type": "number", "minimum": 0}, {"type": "string", "pattern": _AMOUNT_PATTERN}),
]
Duration = Annotated[
    float,
    BeforeValidator(_time),
    _either({"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _DURATION_PATTERN}),
]
Factor = Annotated[Any, BeforeValidator(_by), _either(_COUNT, _only("factor", exclusiveMinimum=1))]
Limit = Annotated[Any, BeforeValidator(_limit), _either(_COUNT, _only("times_original", exclusiveMinimum=0))]


class TriggerEntry(Strict):
    """Fires when the metric was beyond the bound for the whole time."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["above"]}, {"required": ["below"]}]})

    metric: str = Field(description="what is measured", examples=list(METRICS))
    above: Bound | None = Field(default=None, description="more than this; a share is written with %")
    below: Bound | None = Field(default=None, description="less than this")
    for_at_least: Duration = Field(description='seconds, or text like "5 min"')
    share: float = Field(default=1.0, gt=0, le=1, description="of the time for which it must be beyond the bound")
    median: bool = Field(default=False, description="the median over the time, instead of each reading")
    longest_hole: Duration | None = Field(
        default=None, description="the longest time without readings that is tolerated; two intervals if not given"
    )
    instances: Literal["average", "max", "min", "any"] = Field(
        default="average", description="how the readings of an operator's instances are taken together"
    )

    @model_validator(mode="after")
    def _can_be_used(self) -> TriggerEntry:
        _one_of(self, "above", "below")
        _as_value_error(self.trigger)
        return self

    def trigger(self) -> RuleTrigger:
        comparison = Comparison.ABOVE if self.above is not None else Comparison.BELOW
        bound = self.above or self.below
        assert isinstance(bound, Amount)  # by _one_of
        metric = spelt(self.metric)
        return RuleTrigger(
            metric=metric,
            comparison=comparison,
            value=bound.value,
            unit=_unit(metric, bound),
            for_at_least_s=self.for_at_least,
            share=self.share,
            median=self.median,
            instances=OverInstances(self.instances),
            longest_hole_s=self.longest_hole,
        )


class RuleEntry(Strict):
    """All triggers fire, no guard time is in the way, the limit is not reached: then the operator is scaled."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["scale_out", "never_above"]}, {"required": ["scale_in"]}]}
    )

    name: str = Field(min_length=1)
    scale_out: str | None = Field(
        default=None, min_length=1, description=f"an operator to give more instances, or: {EVERY_OPERATOR}"
    )
    scale_in: str | None = Field(
        default=None, min_length=1, description=f"an operator to take instances from, or: {EVERY_OPERATOR}"
    )
    by: Factor = Field(description="so many instances, or a factor of the present size")
    never_above: Limit | None = Field(default=None, description="the limit that every scale-out must have")
    never_below: Limit | None = Field(default=None, description="the limit of a scale-in; 1 where not given")
    when: list[TriggerEntry] = Field(min_length=1, description="all of them must fire")
    unless_scaled_out_within: Duration | None = None
    unless_scaled_in_within: Duration | None = None
    acts: Literal["level", "edge"] = Field(
        default="level", description="as long as all triggers fire, or once each time that they begin to"
    )

    @model_validator(mode="after")
    def _can_be_used(self) -> RuleEntry:
        _one_of(self, "scale_out", "scale_in")
        if self.scale_out is not None and self.never_below is not None:
            raise ValueError("never_below belongs to a scale_in; a scale_out has never_above")
        if self.scale_in is not None and self.never_above is not None:
            raise ValueError("never_above belongs to a scale_out; a scale_in has never_below")
        _as_value_error(self.rule)
        return self

    def rule(self) -> Rule:
        operator = self.scale_out if self.scale_out is not None else self.scale_in
        return Rule(
            name=self.name,
            operator=None if operator == EVERY_OPERATOR else operator,
            direction=Direction.OUT if self.scale_out is not None else Direction.IN,
            by=self.by,
            triggers=tuple(entry.trigger() for entry in self.when),
            limit=self.never_above if self.scale_out is not None else self.never_below,
            not_within_s_of_scale_out=self.unless_scaled_out_within,
            not_within_s_of_scale_in=self.unless_scaled_in_within,
            acts=Acts(self.acts),
        )


class RulesEntry(Strict):
    """Rules that say when to scale the operators of a streaming pipeline."""

    rules: list[RuleEntry]


def _one_of(entry: Strict, first: str, second: str) -> None:
    given = [name for name in (first, second) if getattr(entry, name) is not None]
    if len(given) != 1:
        raise ValueError(f"either {first} or {second} must be given, found {' and '.join(given) or 'none'}")


def _unit(metric: str, bound: Amount) -> Unit:
    if bound.unit is not Unit.NUMBER:
        return bound.unit
    unit = unit_of(metric)
    if unit is Unit.PERCENT:
        raise InvalidInput(f'{metric} is measured in %: write "{bound.value:g} %", not {bound.value:g}')
    return unit


def json_schema() -> dict[str, Any]:
    """For editors and other tools; checked in as `rules.schema.json`, where a test keeps it current."""
    schema = RulesEntry.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "elastream rules"}


# Reading


@dataclass(frozen=True, kw_only=True, slots=True)
class RulesProblem:
    """Why a file is not a set of rules."""

    text: str
    line: int | None = None

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a file says, or all that is wrong with it."""

    rules: RuleSet
    lines: tuple[int, ...] = ()
    """Where each rule begins; empty where the form has no lines."""
    problems: tuple[RulesProblem, ...] = ()


def parse_rules(text: str, place: str) -> Document:
    """Read rules from YAML; what cannot be used is a problem with its line, and then there are no rules."""
    try:
        data = read_yaml(text, place)
        entry = RulesEntry.model_validate(data if isinstance(data, dict) else _no_policy(data))
        return _document([rule.rule() for rule in entry.rules], Lines(text))
    except ValidationError as error:
        return Document(rules=NO_RULES, problems=_problems(error, Lines(text)))
    except InvalidYaml as error:
        problem = RulesProblem(text=str(error).removeprefix(f"{place}: "), line=error.line)
        return Document(rules=NO_RULES, problems=(problem,))
    except InvalidInput as error:
        return Document(rules=NO_RULES, problems=(RulesProblem(text=str(error).removeprefix(f"{place}: ")),))


def _document(rules: Sequence[Rule], lines: Lines) -> Document:
    try:
        found = RuleSet(tuple(rules))
    except InvalidInput as error:  # a name given twice: the line is that of the second
        seen: set[str] = set()
        again = next((n for n, rule in enumerate(rules) if rule.key in seen or seen.add(rule.key)), 0)  # type: ignore[func-returns-value]
        problem = RulesProblem(text=str(error), line=lines.of(("rules", again)))
        return Document(rules=NO_RULES, problems=(problem,))
    places = (lines.of(("rules", index)) for index in range(len(rules)))
    return Document(rules=found, lines=tuple(line or 1 for line in places))


def _no_policy(data: Any) -> Any:
    found = "nothing" if data is None else type(data).__name__
    raise InvalidInput(f"rules are a mapping with the key 'rules' and a list under it, found {found}")


def _problems(error: ValidationError, lines: Lines) -> tuple[RulesProblem, ...]:
    found = []
    for one in error.errors(include_url=False)[:_MOST_PROBLEMS]:
        place, text = tuple(one["loc"]), what(one)
        keys = one["input"] if isinstance(one["input"], dict) else ()
        unknown = tuple(key for key in keys if text.startswith(f"unknown key {key!r}"))[:1]
        found.append(RulesProblem(text=f"{where(place)}{text}", line=lines.of((*place, *unknown))))
    return tuple(found)


# Writing


def rules_to_yaml(rules: RuleSet) -> str:
    """The inverse of `parse_rules`."""
    entries = {"rules": [rule_entry(rule) for rule in rules.rules]}
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=115)


def rule_entry(rule: Rule) -> dict[str, Any]:
    """A rule as YAML and JSON hold it; what has its default is left out."""
    out = rule.direction is Direction.OUT
    return _said(
        {
            "name": rule.name,
            "scale_out" if out else "scale_in": EVERY_OPERATOR if rule.operator is None else rule.operator,
            "by": rule.by.instances if isinstance(rule.by, By) else {"factor": rule.by.factor},
            "never_above" if out else "never_below": _limit_entry(rule.limit),
            "when": [_trigger_entry(trigger) for trigger in rule.triggers],
            "unless_scaled_out_within": _duration(rule.not_within_s_of_scale_out),
            "unless_scaled_in_within": _duration(rule.not_within_s_of_scale_in),
            "acts": None if rule.acts is Acts.LEVEL else str(rule.acts),
        }
    )


def _trigger_entry(trigger: RuleTrigger) -> dict[str, Any]:
    return _said(
        {
            "metric": trigger.metric,
            str(trigger.comparison): _bound(trigger),
            "for_at_least": _duration(trigger.for_at_least_s),
            "share": trigger.share if trigger.share < 1 else None,
            "median": trigger.median or None,
            "instances": None if trigger.instances is OverInstances.AVERAGE else str(trigger.instances),
            "longest_hole": _duration(trigger.longest_hole_s),
        }
    )


def _said(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}


def _limit_entry(limit: AtInstances | AtTimesOriginal | None) -> Any:
    return {"times_original": limit.factor} if isinstance(limit, AtTimesOriginal) else limit and limit.instances


def _bound(trigger: RuleTrigger) -> Any:
    value = int(trigger.value) if trigger.value == int(trigger.value) else trigger.value
    return value if trigger.unit is Unit.NUMBER else f"{value!r} {trigger.unit}"


def _duration(time_s: float | None) -> Any:
    """Exactly what it is: whole minutes and seconds with their unit, anything else as a number of seconds."""
    if time_s is None or time_s != int(time_s):
        return time_s
    whole_s = int(time_s)
    return f"{whole_s // 60} min" if whole_s >= 60 and whole_s % 60 == 0 else f"{whole_s} s"
