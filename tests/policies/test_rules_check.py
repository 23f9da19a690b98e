"""What is told of rules that are well formed: each as a sentence, and what about them is doubtful."""

from __future__ import annotations

from typing import Any

import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.errors import InvalidInput
from elastream.policies.rules import every_operator, minutes, percent, rule, rules, seconds
from elastream.policies.rules.check import check_usable, doubts
from elastream.policies.rules.sentences import sentence
from elastream.policies.rules.yaml_form import parse_rules

PIPELINE = Dataflow.of(
    [
        Operator(name="sentences", source=True),
        Operator(name="words", max_parallelism=4),
        Operator(name="counts", fixed=True),
    ],
    [("sentences", "words"), ("words", "counts")],
)


def out(metric: Any, bound: Any, *, name: str = "out", operator: Any = "words", of: Any = "average") -> Any:
    begun = rule(name).scale_out(operator).by(2).never_above(3).when(metric, of=of)
    return begun.above(bound).for_at_least(seconds(30))


def scaled_in(metric: Any, bound: Any, *, operator: Any = "words", of: Any = "average") -> Any:
    return rule("in").scale_in(operator).by(2).when(metric, of=of).below(bound).for_at_least(seconds(30))


def texts(*written: Any) -> list[str]:
    return [doubt.text for doubt in doubts(rules(*written))]


def test_a_rule_is_printed_back_as_a_sentence() -> None:
    written = (
        rule("long")
        .scale_out("counts")
        .by(2)
        .never_above(8)
        .when("queue_length")
        .above(1000)
        .for_at_least(minutes(5))
        .unless_scaled_out_within(minutes(5))
    )
    assert sentence(written.rule) == (
        "Add 2 instances to counts, never above 8 instances, when the queue length (average of its instances) is "
        "above 1,000 records for at least 5 min, unless it was scaled out within the last 5 min. "
        "It acts as long as this is true."
    )


def test_a_sentence_says_everything() -> None:
    written = (
        rule("idle")
        .scale_in(every_operator)
        .by_a_factor_of(2)
        .never_below_times_original(0.5)
        .when("cpu_utilization", of="any")
        .below(percent(20))
        .for_at_least(minutes(10), share=0.9)
        .and_when("latency", of="max")
        .below(seconds(0.5))
        .for_at_least(seconds(90), median=True)
        .unless_scaled_out_within(minutes(5))
        .unless_scaled_in_within(minutes(2))
        .once_each_time()
    )
    assert sentence(written.rule) == (
        "Divide the instances of every operator by 2, never below 0.5 times the size that it began with, when "
        "the CPU utilization of any one instance is below 20 % for at least 10 min in at least 90 % of that "
        "time, and the latency (highest of its instances) is below 0.5 s for at least 90 s by the median over "
        "that time, unless it was scaled out within the last 5 min or scaled in within the last 2 min. "
        "It acts once each time that this becomes true."
    )


def test_the_rules_of_the_thesis_raise_no_doubt() -> None:
    assert texts(out("queue_length", 100), scaled_in("queue_length", 1)) == []


def test_an_unknown_metric_can_never_fire() -> None:
    found = parse_rules(
        "rules:\n- {name: a, scale_in: b, by: 1, when: [{metric: queue-lenght, below: 5, for_at_least: 1}]}", "x"
    )
    assert [doubt.text for doubt in doubts(found.rules)] == [
        "can never fire: unknown metric 'queue_lenght' (did you mean 'queue_length'?)"
    ]
    with pytest.raises(InvalidInput, match="the rule 'a': unknown metric 'queue_lenght'"):
        check_usable(found.rules)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (out("utilization", percent(100)), "can never fire: utilization is never above 100 %"),
        (scaled_in("queue_length", 0), "can never fire: queue_length is never below 0"),
        (
            out("queue_length", 10).and_when("queue_length").below(10).for_at_least(seconds(5)),
            "cannot be above 10 records and below 10 records at once",
        ),
        (
            out("queue_length", 10, of="min").and_when("queue_length", of="max").below(5).for_at_least(seconds(5)),
            "cannot be above 10 records and below 5 records at once",
        ),
        (
            rule("a").scale_out("words").by(1).never_above(1).when("latency").above(1).for_at_least(seconds(1)),
            "can never act: an operator has at least 1 instance",
        ),
    ],
)
def test_a_rule_that_can_never_fire_is_told(written: Any, text: str) -> None:
    (found,) = texts(written)
    assert text in found


@pytest.mark.parametrize(
    "written",
    [
        out("queue_length", 10).and_when("queue_length").below(11).for_at_least(seconds(5)),
        out("queue_length", 10, of="max").and_when("queue_length", of="min").below(5).for_at_least(seconds(5)),
        out("queue_length", 10, of="any").and_when("queue_length").below(5).for_at_least(seconds(5)),
        # the short time may be above while most of the long one was below
        out("queue_length", 10).and_when("queue_length").below(5).for_at_least(minutes(5), share=0.5),
    ],
)
def test_bounds_that_do_not_cross_are_left_alone(written: Any) -> None:
    assert texts(written) == []


def test_a_scale_in_that_undoes_a_scale_out_at_the_same_value_is_told() -> None:
    (found,) = texts(out("cpu_utilization", percent(10)), scaled_in("cpu_utilization", percent(10)))
    assert found == (
        "contradiction: 'in' undoes 'out' at the same value (cpu_utilization 10 %): leave a gap between the two"
    )


def test_two_rules_that_hold_at_once_are_told() -> None:
    (found,) = texts(scaled_in("queue_length", 50), out("queue_length", 10, operator=every_operator))
    assert found == (
        "contradiction: 'out' and 'in' both hold where queue_length is between 10 records and 50 records"
    )


@pytest.mark.parametrize(
    "others",
    [
        (out("queue_length", 10), scaled_in("queue_length", 50, operator="counts")),
        (out("queue_length", 10), scaled_in("latency", seconds(50))),
        (out("queue_length", 10), scaled_in("queue_length", 50, of="max")),
        (out("queue_length", 10), out("queue_length", 20, name="more")),
    ],
)
def test_rules_that_do_not_touch_are_left_alone(others: tuple[Any, ...]) -> None:
    assert texts(*others) == []


def test_limits_of_two_rules_that_cross_are_told() -> None:
    low = rule("in").scale_in("words").by(1).never_below(5).when("queue_length").below(1).for_at_least(seconds(5))
    (found,) = texts(out("queue_length", 100), low)
    assert found == "bounds that cross: 'out' never goes above 3, 'in' never below 5"


def test_a_rule_that_acts_again_with_every_reading_is_told() -> None:
    step = rule("a").scale_out("words").by(1).never_above(8).when("queue_length").above(9).for_at_least(seconds(5))
    (found,) = texts(step)
    assert found.startswith("acts again with every reading until its limit")
    assert texts(step.unless_scaled_out_within(minutes(1))) == []
    assert texts(step.once_each_time()) == []


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("wrods", "can never act: unknown operator 'wrods' (did you mean 'words'?)"),
        ("sentences", "can never act: 'sentences' is a source, and a source is not scaled"),
        ("counts", "can never act: the parallelism of 'counts' is fixed"),
        (
            "words",
            "'words' has at most 4 instances, so never_above is never reached",
        ),
    ],
)
def test_with_the_pipeline_operators_are_looked_up(operator: str, text: str) -> None:
    many = rule("a").scale_out(operator).by(9).never_above(9).when("queue_length").above(9)
    written = many.for_at_least(seconds(5)).once_each_time()
    assert [doubt.text for doubt in doubts(rules(written), PIPELINE)] == [text]
    assert texts(written) == []
