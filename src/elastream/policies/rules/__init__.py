"""Rules that people write: the scaling policies of the SEEP framework, in Python and in YAML over one model.

metrics       what a rule may look at
rule          what a rule is
language      rules in Python            yaml_form, python_form   rules as text
sentences     rules in English           check                    what is wrong with them, though well formed
evaluation    whether triggers fire      verdicts                 what follows: guard times, limits
files         reading them               ../by_rules.py           the policy that the manager asks
"""

from elastream.policies.rules.language import (
    every_operator,
    mebibytes,
    minutes,
    percent,
    query,
    records,
    records_per_second,
    rule,
    rules,
    seconds,
)
from elastream.policies.rules.rule import Rule, RuleSet, RuleTrigger

__all__ = [
    "Rule",
    "RuleSet",
    "RuleTrigger",
    "every_operator",
    "mebibytes",
    "minutes",
    "percent",
    "query",
    "records",
    "records_per_second",
    "rule",
    "rules",
    "seconds",
]
