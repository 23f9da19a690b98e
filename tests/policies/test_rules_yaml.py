"""Rules in YAML: what is written is read again as the same, errors have their line, the schema is current."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_strategies import rule_sets

from elastream.errors import InvalidInput
from elastream.policies.rules import RuleSet, every_operator, minutes, percent, rule, rules, seconds
from elastream.policies.rules.files import read_rules
from elastream.policies.rules.yaml_form import json_schema, parse_rules, rules_to_yaml

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "rules.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
EXAMPLE = ROOT / "examples" / "rules.yaml"

TEXT = """\
rules:
  - name: the queue is long
    scale_out: counts
    by: 2
    never_above: 8
    when:
      - {metric: queue_length, above: 1000, for_at_least: 5 min}
    unless_scaled_out_within: 5 min
  - name: idle
    scale_in: every operator
    by: {factor: 2}
    never_below: {times_original: 0.5}
    when:
      - metric: utilization
        below: 20 %
        for_at_least: 90
        share: 0.9
        instances: max
      - {metric: latency, below: 500 ms, for_at_least: 2 min, median: true}
    unless_scaled_in_within: 1 h
    acts: edge
"""


def test_it_says_the_same_as_the_sentences_in_python() -> None:
    assert parse_rules(TEXT, "rules.yaml").rules == rules(
        rule("the queue is long")
        .scale_out("counts")
        .by(2)
        .never_above(8)
        .when("queue_length")
        .above(1000)
        .for_at_least(minutes(5))
        .unless_scaled_out_within(minutes(5)),
        rule("idle")
        .scale_in(every_operator)
        .by_a_factor_of(2)
        .never_below_times_original(0.5)
        .when("utilization", of="max")
        .below(percent(20))
        .for_at_least(seconds(90), share=0.9)
        .and_when("latency")
        .below(seconds(0.5))
        .for_at_least(minutes(2), median=True)
        .unless_scaled_in_within(minutes(60))
        .once_each_time(),
    )


def test_each_rule_knows_its_line() -> None:
    assert parse_rules(TEXT, "rules.yaml").lines == (2, 9)


@given(rule_sets)
@settings(max_examples=60, deadline=None)
def test_rules_printed_as_yaml_are_read_as_the_same_rules(written: RuleSet) -> None:
    text = rules_to_yaml(written)
    found = parse_rules(text, "rules.yaml")
    assert (found.rules, found.problems) == (written, ())
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_schema_that_is_published_is_current() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "elastream rules schema > docs/rules.schema.json"


def test_the_example_is_what_the_schema_says() -> None:
    jsonschema.validate(yaml.safe_load(EXAMPLE.read_text()), json.loads(SCHEMA.read_text()))
    assert len(read_rules(EXAMPLE)) == 3


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


WRONG = [
    (changed("by: 2", "by: 2\n    bye: 3"), 5, "rules[0]: unknown key 'bye' (did you mean 'by'?)"),
    (changed("    by: 2\n", ""), 2, "rules[0].by: is missing"),
    (changed("by: 2", "by: two"), 4, "a whole number of instances, or {factor: 2}, found 'two'"),
    (changed("by: 2", "by: true"), 4, "a whole number of instances, or {factor: 2}, found True"),
    (changed("by: 2", "by: 0"), 4, "by must be from 1 to 1,000,000,000 instances, found 0"),
    (changed("{factor: 2}", "{factor: 1}"), 11, "a factor must be a number above 1, found 1"),
    (changed("{factor: 2}", "{factor: 1" + "0" * 400 + "}"), 11, "a factor must be a number above 1, found inf"),
    (changed("{factor: 2}", "{times: 2}"), 11, "or {factor: 2}, found {'times': 2}"),
    (changed("    never_above: 8\n", ""), 2, "rules[0]: a scale-out needs a limit (never_above)"),
    (changed("    never_above: 8", "    never_below: 8"), 2, "never_below belongs to a scale_in"),
    (changed("{times_original: 0.5}", "{times_original: 0}"), 12, "must be a number above 0, found 0"),
    (changed("scale_out: counts", "scale_out: counts\n    scale_in: words"), 2, "found scale_out and scale_in"),
    (changed("    scale_out: counts\n", ""), 2, "either scale_out or scale_in must be given, found none"),
    (changed("above: 1000, ", ""), 7, "either above or below must be given, found none"),
    (changed("above: 1000", "above: -1"), 7, "must be a finite number of at least 0, found -1"),
    (changed("above: 1000", "above: many"), 7, 'a number, or text like "80 %"'),
    (changed("above: 1000", "above: 10 %"), 7, "queue_length is measured in records, found 10 %"),
    (changed("below: 20 %", "below: 20"), 14, 'utilization is measured in %: write "20 %", not 20'),
    (changed("below: 20 %", "below: 120 %"), 14, "must be at most 100 %, found 120 %"),
    (changed("for_at_least: 5 min", "for_at_least: 0"), 7, "a time must be above 0 and at most"),
    (changed("for_at_least: 90", "for_at_least: 90 weeks"), 16, "a duration is a number of seconds or text"),
    (changed("for_at_least: 90", "for_at_least: 9000 d"), 16, "at most 366 days"),
    (changed("share: 0.9", "share: 1.5"), 17, "less than or equal to 1"),
    (changed("share: 0.9", "share: 0.9\n        median: true"), 14, "share and median are two ways"),
    (changed("instances: max", "instances: most"), 18, "Input should be 'average', 'max', 'min' or 'any'"),
    (changed("unless_scaled_in_within: 1 h", "unless_scaled_in_within: 0 s"), 20, "a time must be above 0"),
    (changed("acts: edge", "acts: twice"), 21, "Input should be 'level' or 'edge'"),
    (changed("idle", "the queue is long").replace("every operator", "counts"), 9, "two rules for counts"),
    (changed("name: idle", "name: ' '"), 9, "a rule needs a name that can be printed in a line"),
    ("", None, "rules are a mapping with the key 'rules' and a list under it, found nothing"),
    ("- a", None, "rules are a mapping with the key 'rules' and a list under it, found list"),
    ("name: word count\nduration: 5", 1, "unknown key 'name'"),
    ("rules: 5", 1, "rules: Input should be a valid list, found 5"),
    ("rules:\n- 5\n", 2, "rules[0]: Input should be an object, found 5"),
    ("rules: [\n", 2, "not valid YAML"),
    ("rules: []\nrules: []\n", 2, "the key 'rules' is given twice"),
    ("&a [*a]", 1, "aliases may stand for"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), WRONG)
def test_what_cannot_be_used_is_told_with_its_line(text: str, line: int | None, message: str) -> None:
    problem = parse_rules(text, "rules.yaml").problems[0]
    assert message in problem.text
    assert problem.line == line


def test_all_errors_are_told_at_once() -> None:
    text = changed("by: 2", "by: 0").replace("acts: edge", "acts: twice").replace("5 min", "5 mins")
    assert [problem.line for problem in parse_rules(text, "rules.yaml").problems] == [4, 7, 8, 21]


def test_a_file_that_cannot_be_used_is_refused_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(changed("by: 2", "by: 0"))
    with pytest.raises(InvalidInput, match=r"rules.yaml: line 4: rules\[0\].by: by must be from 1"):
        read_rules(file)
    with pytest.raises(InvalidInput, match="there is no such file"):
        read_rules(tmp_path / "none.yaml")


def test_rules_in_json_are_rules_in_yaml() -> None:
    assert parse_rules(json.dumps(yaml.safe_load(TEXT)), "rules.json").rules == parse_rules(TEXT, "x").rules


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["name", "scale_out", "by", "never_above", "when", "acts"]), anything)
@settings(max_examples=60, deadline=None)
def test_whatever_stands_in_a_file_is_read_or_refused(key: str, value: object) -> None:
    data = yaml.safe_load(TEXT)
    data["rules"][0][key] = value
    text = yaml.safe_dump(data)
    found = parse_rules(text, "rules.yaml")
    assert bool(found.rules.rules) != bool(found.problems)
    assert all(problem.line is not None for problem in found.problems)


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_whatever_is_no_yaml_of_ours_is_refused(text: str) -> None:
    assert parse_rules(text, "rules.yaml").problems
