"""Rules as Python source, and rules from a Python file: the other of the two forms of one model."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from elastream.errors import InvalidInput
from elastream.policies.rules.metrics import Unit, query_in
from elastream.policies.rules.rule import (
    NO_RULES,
    Acts,
    AtInstances,
    AtTimesOriginal,
    By,
    Comparison,
    Direction,
    OverInstances,
    Rule,
    RuleSet,
    RuleTrigger,
)
from elastream.policies.rules.yaml_form import Document, RulesProblem

_IMPORTS = (
    "every_operator", "mebibytes", "minutes", "percent", "query", "records", "records_per_second",
    "rule", "rules", "seconds",
)  # fmt: skip


def rules_to_python(rules: RuleSet) -> str:
    """A file that gives the same rules when it is read again."""
    body = "".join(f"    {_rule(rule)},\n" for rule in rules.rules)
    used = [name for name in _IMPORTS if name == "rules" or f"{name}(" in body or f"({name})" in body]
    return f"from elastream.policies.rules import {', '.join(used)}\n\nscaling = rules(\n{body})\n"


def parse_python(text: str, path: Path) -> Document:
    """Run a Python file and take the one rule set that it defines at its top."""
    module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(text, str(path), "exec"), module)
    except SyntaxError as error:
        return _problem(f"not valid Python: {error.msg}", error.lineno)
    except (Exception, SystemExit) as error:  # a file that ends itself must not end the manager
        text = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
        return _problem(text, _line(error, path))
    found = [value for value in module.values() if isinstance(value, RuleSet)]
    if len(found) != 1:
        return _problem(f"one set of rules, rules(...), was expected at the top of the file, found {len(found)}")
    return Document(rules=found[0])


def _problem(text: str, line: int | None = None) -> Document:
    return Document(rules=NO_RULES, problems=(RulesProblem(text=text, line=line),))


def _line(error: BaseException, path: Path) -> int | None:
    """Of the statement in the file that led to it."""
    own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return own[-1] if own else None


def _rule(rule: Rule) -> str:
    operator = "every_operator" if rule.operator is None else repr(rule.operator)
    out = rule.direction is Direction.OUT
    by = f".by({rule.by.instances})" if isinstance(rule.by, By) else f".by_a_factor_of({_number(rule.by.factor)})"
    words = [f"rule({rule.name!r})", f".scale_{'out' if out else 'in'}({operator})", by, _limit(rule)]
    words += [f".{'and_' if index else ''}{_trigger(one)}" for index, one in enumerate(rule.triggers)]
    if rule.not_within_s_of_scale_out is not None:
        words.append(f".unless_scaled_out_within({_time(rule.not_within_s_of_scale_out)})")
    if rule.not_within_s_of_scale_in is not None:
        words.append(f".unless_scaled_in_within({_time(rule.not_within_s_of_scale_in)})")
    if rule.acts is Acts.EDGE:
        words.append(".once_each_time()")
    return "\n    ".join(word for word in words if word)


def _limit(rule: Rule) -> str:
    word = "above" if rule.direction is Direction.OUT else "below"
    match rule.limit:
        case AtInstances(instances=instances):
            return f".never_{word}({instances})"
        case AtTimesOriginal(factor=factor):
            return f".never_{word}_times_original({_number(factor)})"
        case None:
            return ""


def _trigger(trigger: RuleTrigger) -> str:
    of = "" if trigger.instances is OverInstances.AVERAGE else f", of={str(trigger.instances)!r}"
    word = "above" if trigger.comparison is Comparison.ABOVE else "below"
    outliers = ", median=True" if trigger.median else ""
    outliers += f", share={trigger.share!r}" if trigger.share < 1 else ""
    if trigger.longest_hole_s is not None:
        outliers += f", longest_hole={_time(trigger.longest_hole_s)}"
    bound, time = _bound(trigger), _time(trigger.for_at_least_s)
    asked = query_in(trigger.metric)
    metric = repr(trigger.metric) if asked is None else f"query({asked!r})"
    return f"when({metric}{of}).{word}({bound}).for_at_least({time}{outliers})"


def _bound(trigger: RuleTrigger) -> str:
    number = _number(trigger.value)
    match trigger.unit:
        case Unit.PERCENT:
            return f"percent({number})"
        case Unit.RECORDS:
            return f"records({number})"
        case Unit.RECORDS_PER_S:
            return f"records_per_second({number})"
        case Unit.SECONDS:
            return _time(trigger.value)
        case Unit.BYTES if trigger.value >= 2**20:
            return f"mebibytes({_number(trigger.value / 2**20)})"
        case Unit.BYTES | Unit.FILES | Unit.NUMBER:
            return number


def _time(time_s: float) -> str:
    whole = time_s == int(time_s)
    if whole and time_s >= 60 and int(time_s) % 60 == 0:
        return f"minutes({int(time_s) // 60})"
    return f"seconds({_number(time_s)})"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
