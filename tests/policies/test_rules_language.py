"""Rules in Python: they read like a sentence, and what is not a rule cannot be used as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from mypy import api as mypy
from rule_strategies import rule_sets

from elastream.errors import InvalidInput
from elastream.policies.rules import (
    RuleSet,
    every_operator,
    minutes,
    percent,
    records,
    records_per_second,
    rule,
    rules,
    seconds,
)
from elastream.policies.rules.metrics import Unit
from elastream.policies.rules.python_form import parse_python, rules_to_python
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
    RuleTrigger,
)

NAME = "the queue is long"


def long_queue() -> Any:
    return rule(NAME).scale_out("counts").by(2).never_above(8)


def test_a_sentence_becomes_a_rule() -> None:
    written = (
        long_queue().when("queue_length").above(1000).for_at_least(minutes(5)).unless_scaled_out_within(minutes(5))
    )
    assert rules(written).rules == (
        Rule(
            name=NAME,
            operator="counts",
            direction=Direction.OUT,
            by=By(instances=2),
            limit=AtInstances(instances=8),
            triggers=(
                RuleTrigger(
                    metric="queue_length",
                    comparison=Comparison.ABOVE,
                    value=1000,
                    unit=Unit.RECORDS,
                    for_at_least_s=300,
                ),
            ),
            not_within_s_of_scale_out=300,
        ),
    )


def test_everything_that_can_be_said() -> None:
    written = (
        rule("idle")
        .scale_in(every_operator)
        .by_a_factor_of(1.5)
        .never_below_times_original(0.5)
        .when("cpu_utilization", of="any")
        .below(percent(20))
        .for_at_least(minutes(10), share=0.9)
        .and_when("latency", of="max")
        .below(seconds(0.5))
        .for_at_least(seconds(90), median=True)
        .and_when("input_rate")
        .below(records_per_second(100))
        .for_at_least(seconds(1))
        .unless_scaled_out_within(minutes(5))
        .unless_scaled_in_within(minutes(1))
        .once_each_time()
        .rule
    )
    assert (written.operator, written.direction, written.acts) == (None, Direction.IN, Acts.EDGE)
    assert (written.by, written.limit) == (ByFactor(factor=1.5), AtTimesOriginal(factor=0.5))
    assert (written.not_within_s_of_scale_out, written.not_within_s_of_scale_in) == (300, 60)
    cpu, latency, rate = written.triggers
    assert (cpu.value, cpu.unit, cpu.share, cpu.instances) == (20, Unit.PERCENT, 0.9, OverInstances.ANY)
    assert (latency.value, latency.unit, latency.median) == (0.5, Unit.SECONDS, True)
    assert (rate.value, rate.unit, rate.comparison) == (100, Unit.RECORDS_PER_S, Comparison.BELOW)


def test_the_thesis_may_be_followed_in_how_it_spells_a_metric() -> None:
    spelt: Any = "queue-length"
    written = long_queue().when(spelt).above(records(1)).for_at_least(seconds(1))
    assert written.rule.triggers[0].metric == "queue_length"


@pytest.mark.parametrize(
    ("stage", "missing"),
    [
        (lambda: rule(NAME), ".scale_out(...) or .scale_in(...)"),
        (lambda: rule(NAME).scale_out("counts"), ".by(...) or .by_a_factor_of(...)"),
        (
            lambda: rule(NAME).scale_out("counts").by(2),
            ".never_above(...) or .never_above_times_original(...)",
        ),
        (lambda: rule(NAME).scale_in("counts").by(2), ".when(...), perhaps after .never_below(...)"),
        (long_queue, ".when(...)"),
        (lambda: long_queue().when("queue_length"), ".above(...) or .below(...)"),
        (lambda: long_queue().when("queue_length").above(1), ".for_at_least(...)"),
    ],
)
def test_a_half_written_rule_cannot_be_used_and_says_what_is_missing(
    stage: Callable[[], Any], missing: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        rules(stage())
    assert str(refused.value) == f"the rule {NAME!r} is not complete: it still needs {missing}"
    assert missing in repr(stage())
    with pytest.raises(InvalidInput, match=r"it still needs .*, found \.unless_scaled_out_within"):
        stage().unless_scaled_out_within(minutes(1))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda: long_queue().when("queue_lenght"),
            "unknown metric 'queue_lenght' (did you mean 'queue_length'?)",
        ),
        (lambda: percent(101), "percent must be from 0 to 100, found 101"),
        (lambda: percent(-1), "percent must be from 0 to 100, found -1"),
        (
            lambda: long_queue().when("queue_length").above(percent(10)).for_at_least(seconds(1)),
            "queue_length is measured in records, found 10 %",
        ),
        (
            lambda: long_queue().when("utilization").above(80),
            "utilization is measured in %: write percent(80), not 80",
        ),
        (
            lambda: long_queue().when("queue_length").above(1).for_at_least(seconds(0)),
            "for_at_least: a time must be above 0 and at most 366 days, found 0 s",
        ),
        (
            lambda: long_queue().when("queue_length").above(1).for_at_least(30),
            "for_at_least takes a time such as seconds(30) or minutes(5), found 30",
        ),
        (
            lambda: long_queue().when("queue_length").above(1).for_at_least(seconds(1), share=0),
            "share must be above 0 and at most 1, found 0",
        ),
        (
            lambda: long_queue().when("queue_length").above(1).for_at_least(seconds(1), share=0.5, median=True),
            "share and median are two ways",
        ),
        (lambda: long_queue().when("queue_length", of="sum"), "one of average, max, min, any, found 'sum'"),
        (lambda: long_queue().when("queue_length").above(float("nan")), "takes a number, finite"),
        (lambda: long_queue().when("queue_length").above(10**400), "takes a number, finite"),
        (lambda: rule(NAME).scale_out("counts").by(0), "by must be from 1 to"),
        (lambda: rule(NAME).scale_out("counts").by(1.5), "by takes a whole number of instances, found 1.5"),  # type: ignore[arg-type]
        (lambda: rule(NAME).scale_out("counts").by_a_factor_of(1), "a factor must be a number above 1, found 1"),
        (lambda: rule(NAME).scale_out(3), "an operator is given by its name"),  # type: ignore[arg-type]
        (lambda: rule(" "), "rule(...) takes the name of the rule"),
        (lambda: rules("counts"), "rules(...) takes rules, found 'counts'"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_refused_where_it_is_made(write: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        write()
    assert message in str(refused.value)


def test_an_error_of_the_whole_rule_names_it() -> None:
    written = rule(NAME).scale_in("every operator").by(1).when("queue_length").below(1)
    with pytest.raises(InvalidInput, match="the rule 'the queue is long': no operator can be called"):
        written.for_at_least(seconds(5))


def test_two_rules_for_one_operator_have_different_names() -> None:
    one = long_queue().when("queue_length").above(1).for_at_least(seconds(1))
    other = rule(NAME).scale_in("words").by(1).when("queue_length").below(1).for_at_least(seconds(1))
    assert len(rules(one, other)) == 2
    with pytest.raises(InvalidInput, match="two rules for counts have the name 'the queue is long'"):
        rules(one, other, one)


MISUSES = """
from elastream.policies.rules import minutes, percent, records, rule, rules
half = rule("a").scale_out("counts").by(2).never_above(8).when("queue_length").above(1000)
whole = half.for_at_least(minutes(5))
rules(whole)
rules(half)                                        # ! arg-type: not complete
rule("a").by(2)                                    # ! attr-defined: the operator comes first
rule("a").scale_out("counts").by(2).when("latency")  # ! attr-defined: a scale-out has a limit
rule("a").scale_in("counts").by(2).never_above(3)  # ! attr-defined: a scale-in has another
half.for_at_least(5)                               # ! arg-type: five what
half.for_at_least(percent(5))                      # ! arg-type: not a time
rule("a").scale_in("counts").by(2).when("queue_lenght")  # ! arg-type: misspelt
rule("a").scale_out("counts").by("two")            # ! arg-type: not a number
whole.and_when("latency", of="sum")                # ! arg-type: no way to combine
"""


@pytest.mark.slow
def test_a_type_checker_sees_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "misuses.py"
    file.write_text(MISUSES)
    out, _, _ = mypy.run([str(file), "--no-error-summary", "--hide-error-context"])
    found = {(int(line.split(":")[1]), line.rsplit("[", 1)[1].rstrip("]")) for line in out.splitlines()}
    expected = {
        (number, line.split("# ! ")[1].split(":")[0])
        for number, line in enumerate(MISUSES.split("\n"), start=1)
        if "# !" in line
    }
    assert found == expected


@given(rule_sets)
@settings(max_examples=60, deadline=None)
def test_rules_printed_as_python_are_read_as_the_same_rules(written: RuleSet) -> None:
    found = parse_python(rules_to_python(written), Path("rules.py"))
    assert (found.rules, found.problems) == (written, ())


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = (", 1, "not valid Python"),
        ("\nx = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("\n", None, "one set of rules, rules(...), was expected at the top of the file, found 0"),
        (
            'from elastream.policies.rules import rule, rules\n\nx = rules(\n  rule("a")\n)\n',
            3,
            "the rule 'a' is not complete: it still needs .scale_out(...) or .scale_in(...)",
        ),
    ],
)
def test_a_python_file_without_rules_is_refused_with_its_line(text: str, line: int | None, message: str) -> None:
    (problem,) = parse_python(text, Path("rules.py")).problems
    assert problem.line == line
    assert message in problem.text
